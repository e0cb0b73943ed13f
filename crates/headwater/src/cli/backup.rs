//! The command lines of `headwater backup` and `headwater restore`.
use std::path::PathBuf;

use clap::Args;

use super::DEFAULT_CONFIG;

/// `headwater backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to make: a tar archive. It holds secrets, and may be read by its owner alone
    pub file: PathBuf,
    /// The server's configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
}

/// `headwater restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// What "headwater backup" made
    pub file: PathBuf,
    /// Where to put the configuration; by default where it was
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Move the farm that is here aside
    #[arg(long)]
    pub force: bool,
    /// Read the backup to its end and compare it with its manifest, and change nothing
    #[arg(long, conflicts_with = "force")]
    pub check: bool,
}
