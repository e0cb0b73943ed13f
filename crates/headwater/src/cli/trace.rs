//! The command line of `headwater trace`.
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

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
    /// Send the requests of a trace to a server again, and measure its answers
    Replay(ReplayArgs),
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

/// `headwater trace replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// The trace
    pub file: PathBuf,
    /// The disk: nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=PATH or iscsi://HOST:PORT/TARGET/UNIT; ports and unit may be left out
    pub server: String,
    /// How many clients replay it at once, each over a connection of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub clients: u16,
    /// Over iSCSI, log in under this name: targets of Headwater are for the initiator of their device alone
    #[arg(long, value_name = "IQN")]
    pub initiator: Option<String>,
    /// Wait between requests as long as the recorded machine did
    #[arg(long)]
    pub think: bool,
    /// Only the requests of the firmware, or of the operating system
    #[arg(long, value_enum)]
    pub stage: Option<StageChoice>,
    /// Send writes and discards, too: WHAT IS ON THE DISK IS LOST
    #[arg(long)]
    pub write: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// A stage, as it is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StageChoice {
    /// The firmware's requests
    First,
    /// The operating system's
    Second,
}
