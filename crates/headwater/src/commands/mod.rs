//! What the commands do: one file for each noun.
pub mod backup;
pub mod boots;
mod client;
pub mod doctor;
pub mod farm;
pub mod generate;
pub mod image;
pub mod init;
mod live;
pub mod media;
pub mod stats;
pub mod status;
pub mod trace;

/// The catalogue, in the state directory.
const CATALOGUE_FILE: &str = "farm.db";

/// What a command prints, and what it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For standard output.
    pub text: String,
    /// Whether what was asked is so.
    pub verdict: Verdict,
}

/// The answer to a command that asks whether something is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is, or nothing was asked.
    Yes,
    /// It was looked into, and is not so: images differ, an image has errors.
    No,
}

impl Answer {
    /// What a command prints that was done.
    #[must_use]
    pub fn text(text: String) -> Self {
        Self { text, verdict: Verdict::Yes }
    }
}
