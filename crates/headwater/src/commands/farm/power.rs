//! `headwater device reboot`, `shutdown` and `message`: commands for the systems of devices.
//!
//! Who would be hit is asked of the server before anybody is, so that the question names them: a filter that fits more
//! than was thought is seen in time.
use std::time::Duration;

use anyhow::bail;
use api::guest_commands::{CommandState, CommandStatus, CommandedDevice};
use hyper::Method;
use serde_json::{Value, json};

use super::nouns::{COMMAND, COMMANDED, DEVICE};
use super::{Server, address, encode, sure};
use crate::cli::{CommandArgs, Which};

/// How often the server is asked how far a command is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many devices a question names.
const NAMED: usize = 12;

/// Which devices, as the API takes it.
pub(super) fn chosen(which: Which) -> Value {
    let Which { devices, collection, view, filter } = which;
    let mut body = json!({ "devices": devices });
    for (key, value) in [("collection", collection), ("view", view), ("filter", filter)] {
        if let (Some(value), Some(fields)) = (value, body.as_object_mut()) {
            fields.insert(key.to_owned(), value.into());
        }
    }
    body
}

impl Server {
    pub(super) async fn command(
        &self,
        word: &str,
        text: Option<&str>,
        which: Which,
        command: CommandArgs,
    ) -> anyhow::Result<String> {
        // Who named devices one by one has said who is meant; a message does no harm.
        let plain = text.is_some() && !which.devices.is_empty();
        let mut body = chosen(which);
        let asked = [
            ("command", Some(json!(word))),
            ("text", text.map(|text| json!(text))),
            ("expires_s", Some(json!(command.expires))),
            ("dry_run", Some(json!(true))),
        ];
        let set = |body: &mut Value, key: &str, value: Value| {
            if let Some(fields) = body.as_object_mut() {
                fields.insert(key.to_owned(), value);
            }
        };
        asked
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .for_each(|(key, value)| set(&mut body, key, value));
        let hit: CommandStatus =
            serde_json::from_value(self.ask(Method::POST, COMMANDED.path, Some(&body)).await?)?;
        if !plain && let Some(question) = question(word, &hit.items) {
            sure::ask(command.sure, &question)?;
        }
        // Those who were named, and nobody who fits since.
        let names: Vec<&str> = hit.items.iter().map(|item| item.name.as_str()).collect();
        if names.is_empty() {
            bail!("no device fits: nothing was done");
        }
        body = json!({ "devices": names, "command": word, "text": text.unwrap_or_default(), "expires_s": command.expires });
        let given = self.ask(Method::POST, COMMANDED.path, Some(&body)).await?;
        if !command.wait {
            return self.print_list(&COMMANDED, given);
        }
        let mut status: CommandStatus = serde_json::from_value(given)?;
        let id = status.id.unwrap_or_default();
        while status.items.iter().any(|item| item.state.is_open()) {
            tokio::time::sleep(LOOK_EVERY).await;
            status = self.client.get(&format!("{}/{id}", COMMANDED.path)).await?;
        }
        match untaken(&status.items) {
            None => self.print_list(&COMMANDED, serde_json::to_value(&status)?),
            Some(why) => bail!("{why}"),
        }
    }

    pub(super) async fn commands(&self, device: Option<String>) -> anyhow::Result<String> {
        let path = match device {
            Some(device) => format!("{}/{}/commands", DEVICE.path, encode(&address(&device))),
            None => COMMAND.path.to_owned(),
        };
        let answer: Value = self.client.get(&path).await?;
        let commands: Vec<CommandStatus> =
            serde_json::from_value(answer.get("items").cloned().unwrap_or_default())?;
        let mut lines = Vec::new();
        for CommandStatus { id, command, text, by, given_at, expires_at, items } in commands {
            for CommandedDevice { name, state, heard_s, problem } in items {
                lines.push(json!({
                    "id": id, "command": command, "text": text, "by": by, "given_at": given_at,
                    "expires_at": expires_at, "name": name, "state": state, "heard_s": heard_s, "problem": problem,
                }));
            }
        }
        self.print_list(&COMMAND, json!({ "items": lines }))
    }
}

/// What is asked before devices are hit; nothing where none is.
fn question(word: &str, items: &[CommandedDevice]) -> Option<String> {
    let hit: Vec<&str> = items
        .iter()
        .filter(|item| item.state == CommandState::Pending)
        .map(|item| item.name.as_str())
        .collect();
    let (first, more) =
        (hit.iter().take(NAMED).copied().collect::<Vec<_>>().join(", "), hit.len().saturating_sub(NAMED));
    let who = match (hit.len(), more) {
        (0, _) => return None,
        (1, _) => format!("device {first}"),
        (count, 0) => format!("{count} devices: {first}"),
        (count, more) => format!("{count} devices: {first} and {more} more"),
    };
    Some(match word {
        "reboot" => format!("Restart {who}? Programs that run there are ended."),
        "shutdown" => format!("Shut down and switch off {who}? Programs that run there are ended."),
        _ => format!("Show the message on {who}?"),
    })
}

/// Who has not taken a command, and why; nothing where all have.
fn untaken(items: &[CommandedDevice]) -> Option<String> {
    let left: Vec<String> = items
        .iter()
        .filter(|item| item.state != CommandState::Taken)
        .map(|item| {
            let why = match (&item.problem, item.heard_s) {
                (Some(problem), _) => problem.clone(),
                (None, None) => {
                    "no service in its system asks for commands: is headwater-guest installed?".to_owned()
                }
                (None, Some(seconds)) => {
                    format!("it was not fetched in time; its service last asked {seconds} s ago")
                }
            };
            format!("device \"{}\": {why}", item.name)
        })
        .collect();
    let (count, all) = (left.len(), items.len());
    (count > 0).then(|| format!("{count} of {all} device(s) did not take the command\n{}", left.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, state: CommandState, problem: Option<&str>) -> CommandedDevice {
        CommandedDevice { name: name.to_owned(), state, heard_s: None, problem: problem.map(str::to_owned) }
    }

    #[test]
    fn question_names_those_who_are_hit_and_nobody_else() {
        let one = [item("a", CommandState::Pending, None), item("b", CommandState::Refused, Some("off"))];
        assert_eq!(question("reboot", &one).unwrap(), "Restart device a? Programs that run there are ended.");
        assert_eq!(question("reboot", &one[1..]), None);
        let many: Vec<_> =
            (0..14).map(|number| item(&format!("d{number}"), CommandState::Pending, None)).collect();
        let asked = question("shutdown", &many).unwrap();
        assert!(asked.starts_with("Shut down and switch off 14 devices: d0, d1, "), "{asked}");
        assert!(asked.contains("d11 and 2 more?"), "{asked}");
    }

    #[test]
    fn waiting_fails_with_a_reason_for_each_device_that_did_not_take_it() {
        let items = [
            item("a", CommandState::Taken, None),
            item("b", CommandState::Refused, Some("it is off")),
            item("c", CommandState::Expired, None),
        ];
        assert_eq!(untaken(&items[..1]), None);
        let why = untaken(&items).unwrap();
        assert!(
            why.starts_with("2 of 3") && why.contains("\"b\": it is off") && why.contains("headwater-guest"),
            "{why}"
        );
    }
}
