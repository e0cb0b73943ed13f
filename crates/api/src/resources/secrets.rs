//! CHAP secrets: kept by this server under names, which devices say. Told are the names alone.
use control::{Code, ControlError};
use farm::model::{ObjectKind, SecretName};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::Plain;

/// The shortest and the longest secret (RFC 7143 §9.2.1: 96 bits where no IPsec protects the connection).
const BYTES: std::ops::RangeInclusive<usize> = 12..=255;

pub(super) fn all() -> Vec<Operation> {
    let forget = Operation::delete(
        "/v1/secrets/{secret}",
        "deleteSecret",
        "secrets",
        "Forgets a CHAP secret that no device uses.",
        forget,
    );
    vec![
        Operation::get(
            "/v1/secrets",
            "listSecrets",
            "secrets",
            "Lists the CHAP secrets that this server keeps, by name, and who uses them.",
            list,
        )
        .gives::<SecretsAnswer>(),
        Operation::post(
            "/v1/secrets",
            "keepSecret",
            "secrets",
            "Has this server keep a CHAP secret under a name, instead of what it kept under it.",
            keep,
        )
        .takes::<SecretBody>(),
        // A secret has no revision: what it was before, nobody can be told.
        Operation { if_match: false, ..forget },
    ]
}

/// The secrets of this server.
#[derive(Debug, Serialize, JsonSchema)]
struct SecretsAnswer {
    /// By name.
    items: Vec<SecretAnswer>,
}

/// A secret, without what it is.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Secret")]
struct SecretAnswer {
    /// Its name.
    name: String,
    /// Whether this server keeps it; else devices say that they use it, and nobody lets them in.
    kept: bool,
    /// The devices that use it, by name.
    devices: Vec<String>,
}

/// A secret to keep.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewSecret")]
struct SecretBody {
    /// Its name, which devices say as `chap.secret`.
    name: Plain<SecretName>,
    /// What the initiator must prove that it knows.
    #[schemars(length(min = 12, max = 255))]
    secret: String,
}

/// Whose business it is: theirs who let people in.
fn may(asked: &Asked<'_>, action: Action) -> Result<(), Problem> {
    Ok(asked.caller()?.may(action, ObjectKind::User, Place::Farm).map_err(ControlError::from)?)
}

fn users(asked: &Asked<'_>, name: &str) -> Vec<String> {
    let snapshot = asked.control().snapshot();
    let uses = snapshot
        .devices()
        .filter(|device| device.chap.as_ref().is_some_and(|chap| chap.secret.as_str() == name));
    let mut names: Vec<String> = uses.map(|device| device.name.to_string()).collect();
    names.sort();
    names
}

fn list(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may(asked, Action::See)?;
    let kept = asked.api.live.secrets();
    let snapshot = asked.control().snapshot();
    let wanted = snapshot.devices().filter_map(|device| Some(device.chap.as_ref()?.secret.to_string()));
    let mut names: Vec<String> = kept.iter().cloned().chain(wanted).collect();
    names.sort();
    names.dedup();
    let items = names.into_iter().map(|name| SecretAnswer {
        kept: kept.contains(&name),
        devices: users(asked, &name),
        name,
    });
    Reply::json(&SecretsAnswer { items: items.collect() })
}

fn keep(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may(asked, Action::Change)?;
    let SecretBody { name: Plain(name), secret } = asked.body()?;
    if !BYTES.contains(&secret.len()) || secret.chars().any(char::is_control) {
        // The message does not repeat the secret.
        let why = format!(
            "a CHAP secret must have {} to {} bytes (RFC 7143 §9.2.1) and no control characters; this one has {} bytes",
            BYTES.start(),
            BYTES.end(),
            secret.len()
        );
        return Err(ControlError::bad_value("secret", why).into());
    }
    // Written down first: what is kept without that, nobody could find out about.
    note(asked, "keep-secret", &name)?;
    asked.api.live.keep_secret(&name, Some(&secret))?;
    Ok(Reply::nothing())
}

fn forget(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may(asked, Action::Change)?;
    let wanted = asked.parameter("secret")?;
    let nothing = || Problem::not_found(format!("this server keeps no CHAP secret {wanted:?}"));
    let name = SecretName::new(wanted).map_err(|_| nothing())?;
    if !asked.api.live.secrets().iter().any(|kept| kept == wanted) {
        return Err(nothing());
    }
    let used = users(asked, wanted);
    if !used.is_empty() {
        let why = format!("CHAP secret {wanted:?} is what these devices prove: {}", used.join(", "));
        return Err(ControlError::new(Code::InUse, why).hint("give them another one first").into());
    }
    note(asked, "forget-secret", &name)?;
    asked.api.live.keep_secret(&name, None)?;
    Ok(Reply::nothing())
}

fn note(asked: &Asked<'_>, action: &str, name: &SecretName) -> Result<(), Problem> {
    let control = asked.control();
    let server = control.server();
    let note = |change: &mut farm::catalogue::Change<'_>| {
        Ok(change.witness(action, ObjectKind::Server, server.get(), &format!("CHAP secret {name}"))?)
    };
    Ok(control.change(asked.caller()?, note)?)
}
