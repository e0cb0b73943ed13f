//! The command line: noun, then verb. Data goes to standard output, all else to standard error.
//!
//! What a command exits with is part of it: 0 it was done, 1 it could not be done, 2 the command line is wrong, 3 it
//! was done and the answer is no (images that differ, an image with errors).
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod backup;
#[cfg(test)]
mod console_lines;
mod doctor;
mod farm;
mod image;
mod init;
mod media;
mod trace;

pub use backup::{BackupArgs, RestoreArgs};
pub use doctor::{DoctorArgs, DoctorVerb, NetworkArgs};
pub use farm::{
    AuditVerb, CommandArgs, DeviceVerb, FarmVerb, Format, ListArgs, LockVerb, NounArgs, NounVerb, ScopeArgs,
    SecretVerb, ServerVerb, Setting, SettingVerb, StoreVerb, Sure, TaskVerb, TokenVerb, UserVerb, VdiskVerb,
    VersionArg, VersionVerb, ViewVerb, Which, Work, WriteCacheVerb,
};
pub use image::{
    CheckArgs, CompactArgs, CompareArgs, ConvertArgs, CreateArgs, EntriesArgs, ImageArgs, ImageOptions,
    ImageVerb, InfoArgs, MapArgs, MergeArgs, NewSize, Pace, RebaseArgs, ResizeArgs, RunKind, SectorSize,
    SnapshotArgs, Subformat, Target, WritableFormat,
};
pub use init::InitArgs;
pub use media::{MediaArgs, MediaCreateArgs, MediaVerb, Order};
pub use trace::{RecordArgs, ReplayArgs, ShowArgs, StageChoice, TraceArgs, TraceVerb};

use crate::commands::farm::nouns::CHANGEABLE;

/// What a command exits with that was done and whose answer is no.
pub const EXIT_VERDICT_NO: u8 = 3;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  could not be done
  2  the command line is wrong
  3  done, and the answer is no: images differ, an image has errors";

/// Where the configuration is unless said otherwise.
pub const DEFAULT_CONFIG: &str = "/etc/headwater/headwater.toml";

/// Streams operating systems: one golden image, many machines.
#[derive(Debug, Parser)]
#[command(name = "headwater", version, about, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line with what can be set of each noun in the help of its verbs.
    #[must_use]
    pub fn command_with_help() -> clap::Command {
        let mut command = <Self as clap::CommandFactory>::command();
        for noun in CHANGEABLE {
            command = command.mut_subcommand(noun.word, |mut own| {
                for verb in ["create", "set"] {
                    own = own.mut_subcommand(verb, |verb| verb.after_help(noun.help()));
                }
                own
            });
        }
        command
    }

    /// Reads the command line of this process; ends it where that asks for help, or is wrong.
    #[must_use]
    pub fn read() -> Self {
        let read = Self::command_with_help().try_get_matches();
        match read.and_then(|matches| <Self as clap::FromArgMatches>::from_arg_matches(&matches)) {
            Ok(cli) => cli,
            Err(error) => error.exit(),
        }
    }
}

/// The nouns.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    Serve(ServeArgs),
    /// Show where boots spent their time
    Boots(BootsArgs),
    /// The farm itself
    Farm(NounArgs<FarmVerb>),
    /// Sites: servers and devices that are near each other
    Site(NounArgs<NounVerb>),
    /// Servers: hosts that serve devices, and what they carry
    Server(NounArgs<ServerVerb>),
    /// Stores: places for vDisks, with a path on each server
    Store(NounArgs<StoreVerb>),
    /// vDisks: images that devices boot, in all their versions
    Vdisk(NounArgs<VdiskVerb>),
    /// Versions of vDisks: who boots what, and since when
    Version(NounArgs<VersionVerb>),
    /// Collections: devices that are managed together
    Collection(NounArgs<NounVerb>),
    /// Devices: machines that boot, and what they are doing
    Device(NounArgs<DeviceVerb>),
    /// Views: filters with a name
    View(NounArgs<ViewVerb>),
    /// Write caches that are kept over boots
    WriteCache(NounArgs<WriteCacheVerb>),
    /// Tasks: work in the background
    Task(NounArgs<TaskVerb>),
    /// Locks: who uses what
    Lock(NounArgs<LockVerb>),
    /// Users: administrators, their passwords and roles
    User(NounArgs<UserVerb>),
    /// Tokens: what programs go by
    Token(NounArgs<TokenVerb>),
    /// CHAP secrets of devices: kept on the server, by name
    Secret(NounArgs<SecretVerb>),
    /// Settings of a server that can be changed while it runs
    Setting(NounArgs<SettingVerb>),
    /// Audit: who changed what, when and from where
    Audit(NounArgs<AuditVerb>),
    /// Show what the disks are doing: requests, throughput, latencies, page cache hits
    Stats(StatsArgs),
    /// Traces: the block requests of a device, recorded, looked at, replayed
    Trace(TraceArgs),
    /// Show whether the server runs, and where it listens
    Status(ClientArgs),
    /// Work on disk images: files on this machine, no server needed
    Image(ImageArgs),
    /// Set up a farm on this machine: configuration, directories, catalogue
    Init(InitArgs),
    /// Look at this machine: is everything there that a server needs, and how to mend what is not
    Doctor(DoctorArgs),
    /// Save the farm to one file, while the server runs: catalogue, configuration, certificates, state; not the images
    Backup(BackupArgs),
    /// Bring back what "headwater backup" saved; the server must be stopped
    Restore(RestoreArgs),
    /// Make boot media (CD, USB stick, small disk) for networks without boot options in DHCP
    Media(MediaArgs),
    /// Print shell completions or write man pages
    Generate(GenerateArgs),
}

/// `headwater serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    pub config: PathBuf,
    /// Check the configuration and the images that it names, and start nothing
    #[arg(long)]
    pub check_config: bool,
    /// Print a commented configuration with every default, and start nothing
    #[arg(long)]
    pub print_default_config: bool,
    /// What to log: a level, or "info,headwater=debug" and the like
    #[arg(long, value_name = "FILTER", env = "HEADWATER_LOG", default_value = "info")]
    pub log: String,
    /// How to write the log
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people; without times under systemd, whose journal has its own.
    Text,
    /// One JSON object a line.
    Json,
}

/// How to reach the server.
#[derive(Clone, Debug, Args)]
pub struct Reach {
    /// The server's administration socket; by default the configuration's
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
    /// The server's configuration file, for the place of its socket
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// A server on the network instead: https://HOST or https://HOST:PORT
    #[arg(long, value_name = "URL", global = true, env = "HEADWATER_SERVER")]
    pub server: Option<String>,
    /// The file with the token to show it; by default the environment's HEADWATER_TOKEN
    #[arg(long, value_name = "FILE", global = true)]
    pub token_file: Option<PathBuf>,
    /// The certificates to believe (PEM); by default those that this machine believes
    #[arg(long, value_name = "FILE", global = true, env = "HEADWATER_CA")]
    pub ca: Option<PathBuf>,
}

/// How to reach the server, and how to print its answers.
#[derive(Clone, Debug, Args)]
pub struct ClientArgs {
    /// How to reach the server.
    #[command(flatten)]
    pub reach: Reach,
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Table, global = true)]
    pub output: Output,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs: the administration interface's own answers.
    Json,
}

/// `headwater boots`.
#[derive(Debug, Args)]
pub struct BootsArgs {
    /// How to reach the server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// Read the stored boots of this state directory instead of asking a server
    #[arg(long, value_name = "DIR", global = true)]
    pub state: Option<PathBuf>,
    /// As "boots follow"
    #[arg(long)]
    pub follow: bool,
    /// The verb; "list" if there is none.
    #[command(subcommand)]
    pub verb: Option<BootsVerb>,
}

/// What to do with boots.
#[derive(Debug, Subcommand)]
pub enum BootsVerb {
    /// The latest boot of each device, or all kept boots of one
    List {
        /// The device
        device: Option<String>,
    },
    /// The timeline of one boot
    Show {
        /// A device (its latest boot) or a boot's id
        device_or_boot: String,
    },
    /// Two boots side by side: phases, reads, versions and firmware paths
    Compare {
        /// A device (its latest boot) or a boot's id
        a: String,
        /// Another one
        b: String,
    },
    /// Boots as they happen, until Ctrl-C
    Follow,
}

/// `headwater stats`.
#[derive(Debug, Args)]
pub struct StatsArgs {
    /// How to reach the server.
    #[command(flatten)]
    pub client: ClientArgs,
    /// One device alone, each kind of request by itself
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Again and again, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// The seconds over which figures are taken
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
}

/// A time between two looks: a tenth of a second to an hour.
fn interval(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("must be from 0.1 to 3600 seconds".to_owned()),
    }
}

/// `headwater generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to make.
    #[command(subcommand)]
    pub what: GenerateWhat,
}

/// What can be made of the command line's own description.
#[derive(Debug, Subcommand)]
pub enum GenerateWhat {
    /// Completions for a shell, to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The service for the systems of devices: a shell program and its systemd unit
    GuestService {
        /// The folder to write them to
        directory: PathBuf,
    },
    /// A man page for every command
    ManPages {
        /// The folder to write them to
        directory: PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Cli::command_with_help().debug_assert();
    }

    #[test]
    fn follow_can_be_spelled_as_flag_and_as_verb() {
        let parse = |words: &[&str]| Cli::try_parse_from(words).unwrap().command;
        assert!(matches!(
            parse(&["headwater", "boots", "--follow"]),
            Command::Boots(BootsArgs { follow: true, .. })
        ));
        let Command::Boots(args) = parse(&["headwater", "boots", "follow", "--output", "json"]) else {
            panic!()
        };
        assert!(matches!(args.verb, Some(BootsVerb::Follow)));
        assert_eq!(args.client.output, Output::Json);
        let Command::Boots(args) = parse(&["headwater", "boots", "show", "lab-01", "--socket", "/x"]) else {
            panic!()
        };
        assert_eq!(args.client.reach.socket, Some(PathBuf::from("/x")));
    }
}
