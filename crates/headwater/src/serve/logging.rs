//! The log: to standard error, for people or for programs.
use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::cli::LogFormat;

/// Starts logging.
///
/// # Errors
/// The filter cannot be read.
pub fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| {
        format!("--log \"{filter}\" is not a filter such as \"info\" or \"info,headwater=debug\"")
    })?;
    let terminal = std::io::stderr().is_terminal();
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // The journal has times of its own (systemd.exec(5), $JOURNAL_STREAM).
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let started = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text if journal => builder.without_time().try_init(),
        LogFormat::Text => builder.try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))
}
