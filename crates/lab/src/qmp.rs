//! Orders to a running QEMU by its machine protocol (QMP): JSON lines over a Unix socket.
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// QEMU answers at once, or its main loop is stuck.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Gives one order that has no arguments.
pub(crate) fn order(socket: &Path, command: &str) -> Result<()> {
    let stream = UnixStream::connect(socket)
        .with_context(|| format!("cannot reach QEMU at {}: has it ended?", socket.display()))?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    for command in ["qmp_capabilities", command] {
        writeln!(&stream, "{}", json!({ "execute": command }))?;
        answer(&mut answers).with_context(|| format!("QEMU's answer to {command}"))?;
    }
    Ok(())
}

/// Reads up to the answer; before it come a greeting and events.
fn answer(lines: &mut impl BufRead) -> Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 {
            bail!("the connection ended");
        }
        let message: Value = serde_json::from_str(&line)?;
        if message.get("return").is_some() {
            return Ok(());
        }
        if let Some(error) = message.get("error") {
            bail!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_found_behind_greeting_and_events() {
        let mut lines = &b"{\"QMP\": {}}\n{\"event\": \"RESET\"}\n{\"return\": {}}\n"[..];
        answer(&mut lines).unwrap();
        let mut lines = &b"{\"error\": {\"desc\": \"no such command\"}}\n"[..];
        assert!(answer(&mut lines).unwrap_err().to_string().contains("no such command"));
        answer(&mut &b""[..]).unwrap_err();
    }
}
