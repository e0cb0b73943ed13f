//! `headwater boots`: boots and their timelines, from the server or, without it, from its files.
use std::path::Path;

use anyhow::bail;

use super::client::Client;
use super::live;
use crate::admin::api::BootsAnswer;
use crate::cli::{BootsArgs, BootsVerb, Output};
use crate::timeline::compare::{self, compare};
use crate::timeline::findings::{Finding, findings};
use crate::timeline::store::BootStore;
use crate::timeline::{BootRecord, table};

/// Runs the command; what it prints.
///
/// # Errors
/// In words for the administrator.
pub async fn run(args: BootsArgs) -> anyhow::Result<String> {
    if args.follow && args.verb.is_some() {
        bail!("--follow stands alone: \"headwater boots --follow\"");
    }
    let verb =
        if args.follow { BootsVerb::Follow } else { args.verb.unwrap_or(BootsVerb::List { device: None }) };
    let output = args.client.output;
    let source = match &args.state {
        Some(directory) => Source::Files(directory),
        None => Source::Server(Client::new(&args.client.reach)?),
    };
    match (verb, source) {
        (BootsVerb::Follow, Source::Files(_)) => {
            bail!("only a server's boots can be followed, not stored ones")
        }
        (BootsVerb::Follow, Source::Server(client)) => {
            live::follow(&client, output).await?;
            Ok(String::new())
        }
        (BootsVerb::List { device }, source) => {
            let boots = source.boots(device.as_deref()).await?;
            print(&BootsAnswer { boots }, output, |answer| table::list(&answer.boots))
        }
        (BootsVerb::Show { device_or_boot }, source) => {
            let boot = source.one(&device_or_boot).await?;
            print(&shown(&boot), output, |shown| table::boot(shown.record))
        }
        (BootsVerb::Compare { a, b }, source) => {
            let (a, b) = (source.one(&a).await?, source.one(&b).await?);
            print(&compare(&a, &b), output, compare::table)
        }
    }
}

/// A boot and what stands out in it.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    record: &'a BootRecord,
    findings: Vec<Finding>,
}

fn shown(record: &BootRecord) -> Shown<'_> {
    Shown { record, findings: findings(record) }
}

enum Source<'a> {
    Server(Client),
    Files(&'a Path),
}

impl Source<'_> {
    /// The boot with an id, or of a device the latest that somebody has logged in to: it says most.
    async fn one(&self, device_or_boot: &str) -> anyhow::Result<BootRecord> {
        let mut boots = self.boots(Some(device_or_boot)).await?;
        let used = boots.iter().position(|boot| boot.first_login_at().is_some()).unwrap_or(0);
        if boots.is_empty() {
            bail!("\"{device_or_boot}\" is neither a boot nor a device that has booted");
        }
        Ok(boots.swap_remove(used))
    }

    /// The latest boot of each device; or those of one device, latest first; or the boot with an id.
    async fn boots(&self, wanted: Option<&str>) -> anyhow::Result<Vec<BootRecord>> {
        match (self, wanted) {
            (Self::Server(client), None) => Ok(client.get::<BootsAnswer>("/v1/boots").await?.boots),
            (Self::Server(client), Some(name)) => {
                if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
                    bail!("\"{name}\" is neither a device's name nor a boot's id");
                }
                Ok(client.get::<BootsAnswer>(&format!("/v1/boots/{name}")).await?.boots)
            }
            (Self::Files(directory), None) => {
                let store = store(directory)?;
                let mut boots = Vec::new();
                for device in store.devices()? {
                    boots.extend(store.boots(&device)?.into_iter().next());
                }
                Ok(boots)
            }
            (Self::Files(directory), Some(name)) => {
                let store = store(directory)?;
                let boots = store.boots(name)?;
                if boots.is_empty() { Ok(store.find(name)?.into_iter().collect()) } else { Ok(boots) }
            }
        }
    }
}

fn store(directory: &Path) -> anyhow::Result<BootStore> {
    if !directory.join("boots").is_dir() {
        bail!("{} holds no boots: it is not the state directory of a headwater server", directory.display());
    }
    Ok(BootStore::new(directory, usize::MAX))
}

/// An answer in the format that was asked for.
pub(in crate::commands) fn print<T: serde::Serialize>(
    answer: &T,
    output: Output,
    table: impl Fn(&T) -> String,
) -> anyhow::Result<String> {
    match output {
        Output::Table => Ok(table(answer)),
        Output::Json => Ok(serde_json::to_string_pretty(answer)? + "\n"),
    }
}
