//! The command line of `headwater trace`.
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ClientArgs, Output};

/// `headwater trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The verb.
    #[command(subcommand)]
    pub verb: TraceVerb,
}

/// What to do with traces.
#[derive(Debug, Subcommand)]
pub enum TraceVerb {
    /// Record the block requests of a device into a file, until Ctrl-C or what the options say
    Record(RecordArgs),
    /// What a trace shows: sizes, order, depth, re-reads, hot ranges
    Show(ShowArgs),
}

/// `headwater trace record`.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// How to reach the server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// The device
    pub device: String,
    /// Where to write the trace: CSV, compressed with gzip
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Wait for the device's next boot, and record that from its first login
    #[arg(long)]
    pub next_boot: bool,
    /// End when the device says that it is ready
    #[arg(long)]
    pub until_ready: bool,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
}

/// `headwater trace show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The trace
    pub file: PathBuf,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// How many hot ranges and pauses
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    pub most: usize,
}
