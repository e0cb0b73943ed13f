//! `headwater trace`: block requests, recorded, looked at, replayed.
mod record;
mod replay;
mod show;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, ensure};

use crate::cli::{TraceArgs, TraceVerb};

/// The longest file that is read, in bytes: compressed, far more requests than a trace may have.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Runs the command; what it prints.
///
/// # Errors
/// In words for the administrator.
pub async fn run(args: TraceArgs) -> anyhow::Result<String> {
    match args.verb {
        TraceVerb::Record(args) => record::record(args).await,
        TraceVerb::Show(args) => show::show(&args),
        TraceVerb::Replay(args) => replay::replay(args).await,
    }
}

/// The trace in a file.
fn load(path: &Path) -> anyhow::Result<trace::Trace> {
    let read = || format!("{} cannot be read", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(read)?;
    let length = file.take(MAX_FILE_BYTES.saturating_add(1)).read_to_end(&mut bytes).with_context(read)?;
    ensure!(length as u64 <= MAX_FILE_BYTES, "{} is larger than any trace", path.display());
    trace::read(&bytes).with_context(|| format!("{} is no trace of block requests", path.display()))
}
