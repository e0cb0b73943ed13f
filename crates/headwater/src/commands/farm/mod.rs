//! The farm's nouns (`site`, `vdisk`, `device`, ...): what administrators manage, over the REST API.
//!
//! [`nouns`] says of each noun what there is, `settings` turns `KEY=VALUE` into JSON, `print` objects into tables, and
//! `plain` does what all nouns share: listing, showing, making, changing, deleting. What one noun alone can do stands in a file
//! of its own.
mod devices;
mod locks;
pub mod nouns;
mod people;
mod plain;
mod power;
mod print;
mod refer;
mod secrets;
mod server_loads;
mod server_settings;
mod settings;
mod sure;
mod tasks;
mod vdisks;
mod write_caches;

use hyper::Method;
use serde_json::Value;

use super::client::{Body, Client};
use crate::cli::{
    AuditVerb, DeviceVerb, FarmVerb, Format, LockVerb, NounArgs, NounVerb, SecretVerb, ServerVerb,
    SettingVerb, StoreVerb, TaskVerb, TokenVerb, UserVerb, VdiskVerb, VersionVerb, ViewVerb, WriteCacheVerb,
};
use nouns::Noun;
pub(super) use sure::secret;

/// One of the nouns, with what is to be done.
#[derive(Debug)]
pub enum Asked {
    /// `farm`.
    Farm(NounArgs<FarmVerb>),
    /// A noun that can be listed, shown, made, changed and deleted, and no more.
    Plain(&'static Noun, NounArgs<NounVerb>),
    /// `server`.
    Server(NounArgs<ServerVerb>),
    /// `store`.
    Store(NounArgs<StoreVerb>),
    /// `vdisk`.
    Vdisk(NounArgs<VdiskVerb>),
    /// `version`.
    Version(NounArgs<VersionVerb>),
    /// `device`.
    Device(NounArgs<DeviceVerb>),
    /// `view`.
    View(NounArgs<ViewVerb>),
    /// `write-cache`.
    WriteCache(NounArgs<WriteCacheVerb>),
    /// `task`.
    Task(NounArgs<TaskVerb>),
    /// `lock`.
    Lock(NounArgs<LockVerb>),
    /// `user`.
    User(NounArgs<UserVerb>),
    /// `token`.
    Token(NounArgs<TokenVerb>),
    /// `secret`.
    Secret(NounArgs<SecretVerb>),
    /// `setting`.
    Setting(NounArgs<SettingVerb>),
    /// `audit`.
    Audit(NounArgs<AuditVerb>),
}

/// Runs a noun's command; what it prints.
///
/// # Errors
/// In words for the administrator.
pub async fn run(asked: Asked) -> anyhow::Result<String> {
    let of = |reach: &crate::cli::Reach, format| anyhow::Ok(Server { client: Client::new(reach)?, format });
    match asked {
        Asked::Farm(args) => of(&args.reach, args.output)?.farm(args.verb).await,
        Asked::Plain(noun, args) => of(&args.reach, args.output)?.plain(noun, args.verb).await,
        Asked::Server(args) => of(&args.reach, args.output)?.server(args.verb).await,
        Asked::Store(args) => of(&args.reach, args.output)?.store(args.verb).await,
        Asked::Vdisk(args) => of(&args.reach, args.output)?.vdisk(args.verb).await,
        Asked::Version(args) => of(&args.reach, args.output)?.version(args.verb).await,
        Asked::Device(args) => of(&args.reach, args.output)?.device(args.verb).await,
        Asked::View(args) => of(&args.reach, args.output)?.view(args.verb).await,
        Asked::WriteCache(args) => of(&args.reach, args.output)?.write_cache(args.verb).await,
        Asked::Task(args) => of(&args.reach, args.output)?.task(args.verb).await,
        Asked::Lock(args) => of(&args.reach, args.output)?.lock(args.verb).await,
        Asked::User(args) => of(&args.reach, args.output)?.user(args.verb).await,
        Asked::Token(args) => of(&args.reach, args.output)?.token(args.verb).await,
        Asked::Secret(args) => of(&args.reach, args.output)?.secret(args.verb).await,
        Asked::Setting(args) => of(&args.reach, args.output)?.setting(args.verb).await,
        Asked::Audit(args) => of(&args.reach, args.output)?.audit(args.verb).await,
    }
}

/// The server that is asked, and how its answers are printed.
struct Server {
    client: Client,
    format: Format,
}

impl Server {
    /// A request with or without a JSON body, and its answer.
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        self.client.ask(method, path, body.map(Body::json).unwrap_or_default()).await
    }

    /// Changes an object in the state that it is in now; the answer.
    async fn change(
        &self,
        method: Method,
        object: &Found,
        below: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let body = Body { revision: Some(object.revision), ..body.map(Body::json).unwrap_or_default() };
        self.client.ask(method, &format!("{}{below}", object.path), body).await
    }

    /// The object of a name.
    async fn find(&self, noun: &Noun, name: &str) -> anyhow::Result<Found> {
        let path = format!("{}/{}", noun.path, encode(&address(name)));
        let value: Value = self.client.get(&path).await?;
        let revision = value.get("revision").and_then(Value::as_u64).unwrap_or_default();
        Ok(Found { path, revision, value })
    }

    /// An object in the columns of its list; in JSON, all of it.
    fn row(&self, noun: &Noun, value: &Value) -> anyhow::Result<String> {
        print::changed(noun, value, std::iter::empty(), self.format)
    }

    fn print(&self, value: &Value) -> anyhow::Result<String> {
        print::object(value, self.format)
    }

    async fn farm(&self, verb: FarmVerb) -> anyhow::Result<String> {
        let farm = &nouns::FARM;
        match verb {
            FarmVerb::Show => {}
            FarmVerb::Create { name, values } => {
                let mut body = settings::object(farm, &values)?;
                body.insert("name".to_owned(), name.into());
                let made = self.ask(Method::POST, farm.path, Some(&body.into())).await?;
                return self.print(&made);
            }
            FarmVerb::Set { values } => {
                let body = settings::object(farm, &values)?.into();
                let value: Value = self.client.get(farm.path).await?;
                let revision = value.get("revision").and_then(Value::as_u64).unwrap_or_default();
                let found = Found { path: farm.path.to_owned(), revision, value };
                return self.print(&self.change(Method::PATCH, &found, "", Some(&body)).await?);
            }
        }
        self.print(&self.client.get(farm.path).await?)
    }
}

/// An object as it is now.
struct Found {
    path: String,
    revision: u64,
    value: Value,
}

impl Found {
    /// A property's text; empty where there is none.
    fn text(&self, key: &str) -> &str {
        self.value.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// How the API is told of an object: `#17` is its number; a name that is all digits says that it is one.
fn address(name: &str) -> String {
    match name.strip_prefix('#') {
        Some(number) if number.parse::<u64>().is_ok() => number.to_owned(),
        _ if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) => format!("name:{name}"),
        _ => name.to_owned(),
    }
}

/// A part of a path or query (RFC 3986 §2.1): all but unreserved characters as `%XX`.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_parts_of_paths() {
        assert_eq!(encode(&address("Main/Büro 3")), "Main%2FB%C3%BCro%203");
        assert_eq!(address("#17"), "17");
        assert_eq!(address("17"), "name:17");
        assert_eq!(address("#x"), "#x");
    }
}
