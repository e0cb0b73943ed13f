//! Asking before something is destroyed.
use std::io::{BufRead, IsTerminal, Write};

use anyhow::bail;

use crate::cli::Sure;

/// Asks on the terminal; without one, `--yes` must have been said.
///
/// # Errors
/// Where the answer is no, or nobody can be asked.
pub(super) fn ask(sure: Sure, question: &str) -> anyhow::Result<()> {
    if sure.yes {
        return Ok(());
    }
    let (mut input, mut errors) = (std::io::stdin().lock(), std::io::stderr());
    if !std::io::stdin().is_terminal() {
        bail!("{question} Nobody can be asked here: --yes says that it is meant");
    }
    write!(errors, "{question} [y/N] ")?;
    errors.flush()?;
    let mut answer = String::new();
    input.read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { bail!("nothing was done") }
}

/// A secret: asked for on the terminal without showing it, twice if it is a new one; else the first line of standard input.
///
/// # Errors
/// Where it cannot be read, or the two differ.
pub(in crate::commands) fn secret(what: &str, is_new: bool) -> anyhow::Result<String> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let mut line = String::new();
        stdin.lock().read_line(&mut line)?;
        return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
    }
    let first = hidden(&format!("{what}: "))?;
    if is_new && hidden(&format!("{what}, once more: "))? != first {
        bail!("the two differ");
    }
    Ok(first)
}

/// A line that the terminal does not show.
fn hidden(prompt: &str) -> anyhow::Result<String> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let (stdin, mut errors) = (std::io::stdin(), std::io::stderr());
    write!(errors, "{prompt}")?;
    errors.flush()?;
    let shown = tcgetattr(&stdin)?;
    let mut quiet = shown.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &quiet)?;
    let mut line = String::new();
    let read = stdin.lock().read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Now, &shown)?;
    writeln!(errors)?;
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
