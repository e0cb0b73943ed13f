//! The log: to standard error, for people or for programs. What is logged can be changed while the server runs.
use std::io::IsTerminal;
use std::sync::OnceLock;

use anyhow::Context;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry, reload};

use crate::cli::LogFormat;

/// What is logged where nothing is said.
const USUAL: &str = "info";

/// The log of this process: what it was started with, and what changes it.
static LOG: OnceLock<(String, reload::Handle<EnvFilter, Registry>)> = OnceLock::new();

/// Starts logging.
///
/// # Errors
/// The filter cannot be read.
pub fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let configured = filter.to_owned();
    let filter = EnvFilter::try_new(filter).with_context(|| {
        format!("--log \"{filter}\" is not a filter such as \"info\" or \"info,headwater=debug\"")
    })?;
    let (filter, handle) = reload::Layer::new(filter);
    let terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(terminal);
    // The journal has times of its own (systemd.exec(5), $JOURNAL_STREAM).
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let lines = match format {
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
        LogFormat::Text if journal => lines.without_time().boxed(),
        LogFormat::Text => lines.boxed(),
    };
    let started = tracing_subscriber::registry().with(filter).with(lines).try_init();
    started.map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))?;
    // It can be started once.
    let _ = LOG.set((configured, handle));
    Ok(())
}

/// What the command line said is to be logged.
#[must_use]
pub fn configured() -> String {
    LOG.get().map_or_else(|| USUAL.to_owned(), |(configured, _)| configured.clone())
}

/// Logs what this filter says from now on; one that cannot be read changes nothing.
pub fn set(filter: &str) {
    if let (Some((_, handle)), Ok(filter)) = (LOG.get(), EnvFilter::try_new(filter)) {
        // A log that has ended takes no filter, and nobody reads it.
        let _ = handle.reload(filter);
    }
}
