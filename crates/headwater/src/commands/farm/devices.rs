//! What devices can do besides.
use std::path::Path;

use anyhow::Context;
use hyper::Method;
use serde_json::{Value, json};

use super::nouns::{DEVICE, DEVICE_STATUS, NEWCOMER, Noun, WOKEN};
use super::power;
use super::{Body, Server, address, encode, print, sure};
use crate::cli::{DeviceVerb, Format, Sure};

impl Server {
    pub(super) async fn device(&self, verb: DeviceVerb) -> anyhow::Result<String> {
        match verb {
            DeviceVerb::Plain(verb) => self.plain(&DEVICE, verb).await,
            DeviceVerb::Status { device: Some(device), .. } => {
                let path = format!("{}/{}/status", DEVICE.path, encode(&address(&device)));
                self.print(&self.client.get(&path).await?)
            }
            DeviceVerb::Status { device: None, columns } => {
                let answer: Value = self.client.get(DEVICE_STATUS.path).await?;
                let items =
                    answer.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                print::list(&DEVICE_STATUS, items, u64::try_from(items.len())?, &columns, self.format)
            }
            DeviceVerb::Reset { device, discard_persistent, sure } => {
                self.reset(&device, discard_persistent, sure).await
            }
            DeviceVerb::Wake { which } => {
                let body = power::chosen(which);
                self.print_list(&WOKEN, self.ask(Method::POST, WOKEN.path, Some(&body)).await?)
            }
            DeviceVerb::Reboot { which, command } => self.command("reboot", None, which, command).await,
            DeviceVerb::Shutdown { which, command } => self.command("shutdown", None, which, command).await,
            DeviceVerb::Message { text, which, command } => {
                self.command("message", Some(&text), which, command).await
            }
            DeviceVerb::Commands { device } => self.commands(device).await,
            DeviceVerb::Newcomers => self.print_list(&NEWCOMER, self.client.get(NEWCOMER.path).await?),
            DeviceVerb::Approve { mac } => {
                let path = format!("{}/{}/approve", NEWCOMER.path, encode(&mac));
                self.print(&self.ask(Method::POST, &path, None).await?)
            }
            DeviceVerb::Refuse { mac } => {
                self.client.post(&format!("{}/{}/refuse", NEWCOMER.path, encode(&mac))).await?;
                Ok(String::new())
            }
            DeviceVerb::Import { file, dry_run, new_only, make_collections } => {
                self.import(
                    &file,
                    &[("dry_run", dry_run), ("update", !new_only), ("make_collections", make_collections)],
                )
                .await
            }
            DeviceVerb::Export { filter } => {
                let query = filter.map(|filter| format!("?filter={}", encode(&filter))).unwrap_or_default();
                let path = format!("{}/export{query}", DEVICE.path);
                let table = self.client.bytes(Method::GET, &path, Body::default()).await?;
                Ok(String::from_utf8(table.to_vec())?)
            }
            DeviceVerb::CopyProfile { from, to } => {
                let found = self.find(&DEVICE, &from).await?;
                let path = format!("{}/copy-profile", found.path);
                self.print(&self.ask(Method::POST, &path, Some(&json!({ "to": to }))).await?)
            }
        }
    }

    /// A list that comes whole.
    #[allow(clippy::needless_pass_by_value, reason = "an answer is printed once")]
    pub(super) fn print_list(&self, noun: &Noun, answer: Value) -> anyhow::Result<String> {
        let items = answer.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        print::list(noun, items, u64::try_from(items.len())?, &[], self.format)
    }

    async fn reset(&self, device: &str, discard_persistent: bool, sure: Sure) -> anyhow::Result<String> {
        let path = format!("{}/{}", DEVICE.path, encode(&address(device)));
        let mut questions = Vec::new();
        // Of a device that the server has not seen there is nothing to lose; that it is none, the reset tells.
        let status: Value = self.client.get(&format!("{path}/status")).await.unwrap_or_default();
        if status.get("sessions").and_then(Value::as_u64).unwrap_or_default() > 0 {
            questions.push(format!(
                "Device \"{device}\" runs. End its boot, and cut it off from its disk in whatever it does?"
            ));
        }
        if discard_persistent {
            questions
                .push(format!("Discard all that device \"{device}\" keeps in its persistent write cache?"));
        }
        if !questions.is_empty() {
            sure::ask(sure, &questions.join(" "))?;
        }
        let query = if discard_persistent { "?discard_persistent=true" } else { "" };
        self.client.post(&format!("{path}/reset{query}")).await?;
        Ok(String::new())
    }

    async fn import(&self, file: &Path, choices: &[(&str, bool)]) -> anyhow::Result<String> {
        let table = std::fs::read(file).with_context(|| format!("{} cannot be read", file.display()))?;
        let chosen: Vec<String> = choices.iter().map(|(key, choice)| format!("{key}={choice}")).collect();
        let path = format!("{}/import?{}", DEVICE.path, chosen.join("&"));
        let body = Body { contents: Some(("text/csv", table)), revision: None };
        let answer = self.client.ask(Method::POST, &path, body).await;
        let answer = answer.with_context(|| file.display().to_string())?;
        if self.format != Format::Table {
            return self.print(&answer);
        }
        let count = |key: &str| answer.get(key).and_then(Value::as_u64).unwrap_or_default();
        let would = if answer.get("dry_run") == Some(&Value::Bool(true)) {
            "Nothing was done. Would be "
        } else {
            ""
        };
        Ok(format!(
            "{would}made: {}, changed: {}, already so: {}; collections made: {}\n",
            count("made"),
            count("changed"),
            count("same"),
            count("collections")
        ))
    }
}
