//! The command line of `headwater doctor`.
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{DEFAULT_CONFIG, Output, Reach};

const FINDINGS: &str = "\
Each finding is \"ok\", a \"warning\" (the server runs; something is slower, harder or less safe than it could be, or could
not be looked at) or a \"problem\" (the server does not start, or devices do not boot).

Exit codes:
  0  no problem (there may be warnings)
  1  could not be done
  2  the command line is wrong
  3  there are problems";

/// `headwater doctor`.
#[derive(Debug, Args)]
#[command(after_help = FINDINGS)]
pub struct DoctorArgs {
    /// The server's configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// Send nothing: do not look for other DHCP servers on the configured interfaces
    #[arg(long)]
    pub no_dhcp: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Table, global = true)]
    pub output: Output,
    /// What else to look at; the host if there is none.
    #[command(subcommand)]
    pub verb: Option<DoctorVerb>,
}

/// What to look at besides the host.
#[derive(Debug, Subcommand)]
pub enum DoctorVerb {
    /// The path to a device: which packets get through whole, and who limits them
    Network(NetworkArgs),
}

/// `headwater doctor network`.
#[derive(Debug, Args)]
pub struct NetworkArgs {
    /// How to reach the server that knows where the device is.
    #[command(flatten)]
    pub reach: Reach,
    /// A device, where it logged in from last, or an address
    pub device: String,
}
