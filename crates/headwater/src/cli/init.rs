//! The command line of `headwater init`.
use std::path::PathBuf;

use clap::Args;

use super::DEFAULT_CONFIG;

/// `headwater init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The configuration file to make
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// Where the catalogue and the server's state are to lie
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// What the farm is called
    #[arg(long, value_name = "NAME")]
    pub farm: Option<String>,
    /// What this server's site is called
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// What this server is called; by default as its host
    #[arg(long, value_name = "NAME")]
    pub server: Option<String>,
    /// The interface that machines boot on
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Be that network's DHCP server, with these addresses to give out: 10.77.0.100-10.77.0.199
    #[arg(long, value_name = "FIRST-LAST", requires = "interface")]
    pub dhcp: Option<String>,
    /// Add boot information beside that network's DHCP server
    #[arg(long, requires = "interface", conflicts_with = "dhcp")]
    pub proxy: bool,
    /// The directory of vDisks
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Take over all chains of images that lie in the store
    #[arg(long)]
    pub adopt: bool,
    /// Take over one vDisk of the store: the name of its base's file, golden.vhdx
    #[arg(long, value_name = "FILE", conflicts_with = "adopt")]
    pub vdisk: Option<String>,
    /// The first administrator, whose password is asked for or is the first line of standard input
    #[arg(long, value_name = "NAME")]
    pub admin: Option<String>,
    /// Ask nothing: what no option says is as by default
    #[arg(long)]
    pub defaults: bool,
}
