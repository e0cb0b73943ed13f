//! Running the tools that do the work, so that a failure shows the command and what it said.
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use anyhow::{Context, Result, anyhow, bail};

/// How much of a failed tool's output goes into the error.
const OUTPUT_IN_ERROR_BYTES: usize = 4000;

/// The command as one would type it.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a command to its end and gives its standard output.
///
/// # Errors
/// Where it cannot be started or fails: the command, its status and the end of what it wrote.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{shown}`"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
        bail!("`{shown}` failed ({}):\n{}", output.status, tail(&said, OUTPUT_IN_ERROR_BYTES));
    }
    Ok(text)
}

/// Runs a program with arguments to its end; see [`output`].
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    output(Command::new(program).args(arguments))
}

/// A command that is killed when this process dies.
///
/// The kernel counts the death of the *thread* that started it; start it with [`spawn`].
pub(crate) fn bound_to_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}

/// Starts a command from a thread that lives as long as the process, so that what is bound to the death of its
/// parent outlives the test's thread that asked for it.
pub(crate) fn spawn(mut command: Command) -> Result<std::process::Child> {
    type Request = Box<dyn FnOnce() + Send>;
    static KEEPER: OnceLock<Sender<Request>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (sender, requests) = channel::<Request>();
        std::thread::spawn(move || requests.into_iter().for_each(|request| request()));
        sender
    });
    let shown = show(&command);
    let (reply, result) = channel();
    let request: Request = Box::new(move || {
        // The receiver is waiting below; it cannot be gone.
        let _ = reply.send(command.spawn());
    });
    keeper.send(request).map_err(|_| anyhow!("the thread that starts processes has ended"))?;
    result.recv()?.with_context(|| format!("cannot start `{shown}`"))
}

/// The last `bytes` bytes of a text, from the start of a line.
pub(crate) fn tail(text: &str, bytes: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let tail = &text[start..];
    match tail.split_once('\n') {
        Some((_, rest)) if start > 0 => rest,
        _ => tail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_command_shows_itself_and_its_words() {
        let error = run("sh", &["-c", "echo nothing here >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("sh -c"), "{error}");
        assert!(error.contains("nothing here"), "{error}");
        assert!(error.contains('3'), "{error}");
    }

    #[test]
    fn tail_starts_at_a_line_and_a_character() {
        assert_eq!(tail("one\ntwo\nthree\n", 8), "three\n");
        assert_eq!(tail("short", 100), "short");
        assert_eq!(tail("äöü\nä", 4), "ä");
    }

    #[test]
    fn spawned_process_outlives_the_thread_that_asked_for_it() {
        let mut command = bound_to_us("sleep");
        command.arg("60");
        let mut child = std::thread::spawn(|| spawn(command).unwrap()).join().unwrap();
        assert!(child.try_wait().unwrap().is_none(), "died with the thread");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
