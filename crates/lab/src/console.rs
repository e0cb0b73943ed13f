//! What a guest says on its serial line: lines with the time they came at, for a log and for whoever waits.
use std::fs::File;
use std::io::{Read, Write as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A longer line is cut here: a guest must not fill our memory by never ending one.
const LINE_LIMIT_BYTES: usize = 64 << 10;

/// One line of a serial console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// How long after the guest's start it ended.
    pub at: Duration,
    /// Its text, without terminal control sequences.
    pub text: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{:8.2}] {}", self.at.as_secs_f64(), self.text)
    }
}

/// The lines of a console as they come.
#[derive(Clone)]
pub(crate) struct Console(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    /// What stands after the last whole line: a prompt, say.
    unfinished: String,
    ended: bool,
}

/// How a wait ended.
pub(crate) enum Waited {
    /// With this answer.
    Found(Line),
    /// The time is over.
    TimedOut,
    /// The guest ended.
    Ended,
}

impl Console {
    /// Reads the source to its end in a thread, and copies the lines into the log.
    pub(crate) fn begin(mut source: impl Read + Send + 'static, mut log: File, began: Instant) -> Self {
        let console = Self(Arc::default());
        let writer = console.clone();
        std::thread::spawn(move || {
            let mut cleaner = Cleaner::default();
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = source.read(&mut buffer) {
                let texts: Vec<String> =
                    buffer[..count].iter().filter_map(|&byte| cleaner.take(byte)).collect();
                let at = began.elapsed();
                let lines: Vec<Line> = texts.into_iter().map(|text| Line { at, text }).collect();
                for line in &lines {
                    // A full disk must not stop the guest; the lines are in memory, too.
                    let _ = writeln!(log, "{line}");
                }
                let mut state = writer.lock();
                state.lines.extend(lines);
                state.unfinished = cleaner.unfinished();
                writer.0.1.notify_all();
            }
            let _ = writeln!(log, "{}\n(end)", cleaner.unfinished());
            writer.lock().ended = true;
            writer.0.1.notify_all();
        });
        console
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a line, from number `next` on, that fits; `next` then is the number of the line after it.
    pub(crate) fn wait(&self, next: &mut usize, timeout: Duration, fits: impl Fn(&str) -> bool) -> Waited {
        self.wait_in(next, timeout, fits, |_| false)
    }

    /// Waits for a text in a line, from number `next` on, or behind the last one; `next` then is the number of the line after
    /// it.
    pub(crate) fn wait_for_screen(&self, next: &mut usize, timeout: Duration, text: &str) -> Waited {
        let holds = |line: &str| line.contains(text);
        self.wait_in(next, timeout, holds, holds)
    }

    /// Waits for a line that fits, or for an unfinished one that does.
    fn wait_in(
        &self,
        next: &mut usize,
        timeout: Duration,
        fits: impl Fn(&str) -> bool,
        unfinished_fits: impl Fn(&str) -> bool,
    ) -> Waited {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            while let Some(line) = state.lines.get(*next) {
                *next += 1;
                if fits(&line.text) {
                    return Waited::Found(line.clone());
                }
            }
            if unfinished_fits(&state.unfinished) {
                return Waited::Found(Line { at: Duration::ZERO, text: state.unfinished.clone() });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.ended {
                return Waited::Ended;
            }
            if left.is_zero() {
                return Waited::TimedOut;
            }
            state = self.0.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The lines from number `from` on.
    pub(crate) fn lines(&self, from: usize) -> Vec<Line> {
        self.lock().lines.get(from..).unwrap_or_default().to_vec()
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.lock().lines.len()
    }

    /// The last lines, and what stands after them.
    pub(crate) fn tail(&self, lines: usize) -> String {
        let state = self.lock();
        let from = state.lines.len().saturating_sub(lines);
        let last = state.lines.iter().skip(from).map(|line| format!("{line}\n"));
        last.chain([state.unfinished.clone()]).collect()
    }
}

/// Makes lines out of bytes: takes out carriage returns and terminal control sequences (ECMA-48 §5.4).
#[derive(Default)]
struct Cleaner {
    line: Vec<u8>,
    place: Place,
}

#[derive(Clone, Copy, Default)]
enum Place {
    #[default]
    Text,
    Escape,
    /// After `ESC [`: parameters, up to a letter.
    Control,
    /// After `ESC (` or `ESC )`: one more byte names a character set.
    CharacterSet,
}

impl Cleaner {
    /// Takes a byte; gives a line when the byte ended it.
    fn take(&mut self, byte: u8) -> Option<String> {
        self.place = match (self.place, byte) {
            (Place::Text, 0x1b) => Place::Escape,
            (Place::Escape, b'[') => Place::Control,
            (Place::Escape, b'(' | b')') => Place::CharacterSet,
            (Place::Control, 0x20..=0x3f) => Place::Control,
            (Place::Text, b'\n') => {
                let line = self.unfinished();
                self.line.clear();
                return Some(line);
            }
            (Place::Text, b'\r' | 0) => Place::Text,
            (Place::Text, _) => {
                self.line.push(byte);
                if self.line.len() >= LINE_LIMIT_BYTES {
                    return self.take(b'\n');
                }
                Place::Text
            }
            _ => Place::Text,
        };
        None
    }

    fn unfinished(&self) -> String {
        String::from_utf8_lossy(&self.line).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<String> {
        let mut cleaner = Cleaner::default();
        bytes.iter().filter_map(|&byte| cleaner.take(byte)).collect()
    }

    #[test]
    fn control_sequences_and_carriage_returns_are_taken_out() {
        assert_eq!(lines(b"\x1b[2J\x1b[01;1HBooting\x1b(B\x1b[m from ROM...\r\n"), ["Booting from ROM..."]);
        assert_eq!(lines(b"\x1bcone\ntwo\nthree"), ["one", "two"]);
    }

    #[test]
    fn endless_line_is_cut() {
        let found = lines(&vec![b'x'; LINE_LIMIT_BYTES + 5]);
        assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [LINE_LIMIT_BYTES]);
    }

    #[test]
    fn waits_go_forward_and_end_with_the_guest() {
        let log = tempfile::tempfile().unwrap();
        let console = Console::begin(&b"one\nready\nready\nprompt"[..], log, Instant::now());
        let mut next = 0;
        for _ in 0..2 {
            let Waited::Found(line) =
                console.wait(&mut next, Duration::from_secs(9), |text| text.contains("ready"))
            else {
                panic!("not found")
            };
            assert_eq!(line.text, "ready");
        }
        let waited = console.wait(&mut next, Duration::from_secs(9), |_| true);
        assert!(matches!(waited, Waited::Ended));
        assert!(console.tail(1).ends_with("ready\nprompt"));
    }
}
