//! The command lines of the farm's nouns: what there is, and what can be done with it, over the REST API.
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

use super::Reach;
use crate::config::ByteSize;

/// A noun: how to reach the server, how to print, and what to do.
#[derive(Debug, Args)]
pub struct NounArgs<V: Subcommand> {
    /// How to reach the server.
    #[command(flatten)]
    pub reach: Reach,
    /// How to print
    #[arg(long, value_enum, default_value_t = Format::Table, global = true)]
    pub output: Format,
    /// The verb.
    #[command(subcommand)]
    pub verb: V,
}

/// How objects are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs: the API's own objects.
    Json,
    /// For spreadsheets: the table's columns, with plain numbers.
    Csv,
}

/// `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The property.
    pub key: String,
    /// What it is to be; empty: nothing.
    pub value: String,
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                Ok(Self { key: key.to_owned(), value: value.to_owned() })
            }
            _ => Err("is not KEY=VALUE".to_owned()),
        }
    }
}

/// One version of a vDisk.
#[derive(Clone, Debug, Args)]
pub struct VersionArg {
    /// The version: VDISK/NUMBER; VDISK@NUMBER and VDISK NUMBER are understood as well
    #[arg(value_name = "VDISK/NUMBER", required = true, num_args = 1..=2)]
    pub words: Vec<String>,
}

/// Which objects, in which order, and what of them.
#[derive(Clone, Debug, Default, Args)]
pub struct ListArgs {
    /// Which: "kind = production and name ~ lab-*", in the language of docs/design/farm.md
    #[arg(long, value_name = "CONDITION")]
    pub filter: Option<String>,
    /// Ordered by this field; "-FIELD": the largest first
    #[arg(long, value_name = "FIELD", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// At most so many; by default all
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// These properties instead of the usual ones, by their names in the API: name,write_cache.kind
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub columns: Vec<String>,
}

/// Whether to ask before something is destroyed.
#[derive(Clone, Copy, Debug, Args)]
pub struct Sure {
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

/// Which devices.
#[derive(Clone, Debug, Args)]
pub struct Which {
    /// These
    pub devices: Vec<String>,
    /// All of this collection
    #[arg(long, value_name = "SITE/COLLECTION")]
    pub collection: Option<String>,
    /// All that this view of devices shows
    #[arg(long, value_name = "VIEW")]
    pub view: Option<String>,
    /// All that fit
    #[arg(long, value_name = "CONDITION")]
    pub filter: Option<String>,
}

/// How a command for devices is given.
#[derive(Clone, Copy, Debug, Args)]
pub struct CommandArgs {
    /// How many seconds a device has to fetch it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600), default_value_t = 120)]
    pub expires: u64,
    /// Wait until each device has taken it or can no more; an error unless all have
    #[arg(long)]
    pub wait: bool,
    /// Whether to ask.
    #[command(flatten)]
    pub sure: Sure,
}

/// How work that takes longer is gone about.
#[derive(Clone, Copy, Debug, Args)]
pub struct Work {
    /// Read the result back and compare it before it counts
    #[arg(long)]
    pub verify: bool,
    /// Wait until it is done, and show how far it is
    #[arg(long)]
    pub wait: bool,
}

/// What can be done with most nouns.
#[derive(Debug, Subcommand)]
pub enum NounVerb {
    /// All of them, or those that fit a filter
    List(ListArgs),
    /// One with all its properties
    Show {
        /// Its name (SITE/COLLECTION, STORE/VDISK where that alone is unique), or "#" and its number
        name: String,
    },
    /// Make one
    Create {
        /// Its name
        name: String,
        /// Its properties
        #[arg(value_name = "KEY=VALUE")]
        values: Vec<Setting>,
    },
    /// Give one other properties; "KEY=" takes one away
    Set {
        /// Its name, or "#" and its number
        name: String,
        /// Its properties
        #[arg(value_name = "KEY=VALUE", required = true)]
        values: Vec<Setting>,
    },
    /// Take some away
    Delete {
        /// Their names
        #[arg(required = true)]
        names: Vec<String>,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
}

/// `headwater farm`.
#[derive(Debug, Subcommand)]
pub enum FarmVerb {
    /// The farm and its settings
    Show,
    /// Name a new farm
    Create {
        /// Its name
        name: String,
        /// Its properties
        #[arg(value_name = "KEY=VALUE")]
        values: Vec<Setting>,
    },
    /// Change its settings
    Set {
        /// Its properties
        #[arg(value_name = "KEY=VALUE", required = true)]
        values: Vec<Setting>,
    },
}

/// `headwater server`.
#[derive(Debug, Subcommand)]
pub enum ServerVerb {
    /// What can be done with most nouns.
    #[command(flatten)]
    Plain(NounVerb),
    /// Whether servers serve, and what they carry: of all of the farm, or of one with all its figures
    Load {
        /// This one
        #[arg(conflicts_with_all = ["filter", "sort", "limit", "columns"])]
        name: Option<String>,
        /// Which, in which order, and what of them.
        #[command(flatten)]
        list: ListArgs,
    },
}

/// `headwater store`.
#[derive(Debug, Subcommand)]
pub enum StoreVerb {
    /// What can be done with most nouns.
    #[command(flatten)]
    Plain(NounVerb),
    /// Take over the chains of images that lie in a store and that the farm does not know
    Adopt {
        /// The store
        store: String,
        /// These vDisks alone; by default all that can be
        vdisks: Vec<String>,
        /// Show what would be taken over, and what is orphaned, missing or damaged
        #[arg(long)]
        dry_run: bool,
        /// Give the newest version of each to test devices alone
        #[arg(long)]
        newest_in_test: bool,
        /// Give versions above this one to test devices alone; by default production devices boot the newest
        #[arg(long, value_name = "NUMBER")]
        production_up_to: Option<u32>,
    },
    /// Import a vDisk that was exported, or the versions of it that are new, from a folder of the server's exchange folder: a
    /// task
    Import {
        /// The store
        store: String,
        /// The folder
        folder: String,
        /// What it is to be called, where that is not as before
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Give its versions to test devices alone, whatever they were
        #[arg(long)]
        in_test: bool,
        /// Wait until it is done, and show how far it is
        #[arg(long)]
        wait: bool,
    },
    /// Look whether the files of all versions are what they were
    Inspect {
        /// The store
        store: String,
    },
}

/// `headwater vdisk`.
#[derive(Debug, Subcommand)]
pub enum VdiskVerb {
    /// What can be done with most nouns.
    #[command(flatten)]
    Plain(NounVerb),
    /// Make a vDisk with an empty disk, to be installed on
    Blank {
        /// Its name: STORE/VDISK
        name: String,
        /// The size of the disk: 40 GiB
        #[arg(value_parser = ByteSize::parse)]
        size: ByteSize,
        /// Its properties, as of "vdisk create"
        #[arg(value_name = "KEY=VALUE")]
        values: Vec<Setting>,
    },
    /// Take a vDisk away with the files of all its versions
    Destroy {
        /// The vDisk
        vdisk: String,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
    /// Export a vDisk's versions with a manifest, to a new folder of the server's exchange folder: a task
    Export {
        /// The vDisk
        vdisk: String,
        /// The new folder
        folder: String,
        /// This version with what it stands on; by default all published ones
        #[arg(long, value_name = "NUMBER")]
        version: Option<u32>,
        /// Wait until it is done, and show how far it is
        #[arg(long)]
        wait: bool,
    },
    /// Its versions, newest last
    Versions {
        /// The vDisk
        vdisk: String,
        /// Which, and what of them.
        #[command(flatten)]
        list: ListArgs,
    },
    /// Have production devices boot one version, whatever is newer
    Hold {
        /// Which.
        #[command(flatten)]
        version: VersionArg,
    },
    /// Have production devices boot the newest released version again
    Release {
        /// The vDisk
        vdisk: String,
    },
    /// Merge versions into a new one, while devices run: a task
    Merge {
        /// The vDisk
        vdisk: String,
        /// Into a whole image, a new base; by default the updates since the last base become one
        #[arg(long)]
        base: bool,
        /// What the new version is for at first: maintenance, test or production
        #[arg(long, value_name = "ACCESS")]
        result: Option<String>,
        /// A remark
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
        /// How to go about it.
        #[command(flatten)]
        work: Work,
    },
    /// Convert the newest version from VHD to VHDX, into a new one: a task
    Convert {
        /// The vDisk
        vdisk: String,
        /// A remark
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
        /// How to go about it.
        #[command(flatten)]
        work: Work,
    },
    /// Take all versions away, with their files, that nothing needs any more since they were merged
    DeleteObsolete {
        /// The vDisk
        vdisk: String,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
}

/// `headwater version`.
#[derive(Debug, Subcommand)]
pub enum VersionVerb {
    /// Versions of all vDisks or of one, or those that fit a filter
    List {
        /// Of this vDisk alone
        vdisk: Option<String>,
        /// Which, and what of them.
        #[command(flatten)]
        list: ListArgs,
    },
    /// One with all its properties
    Show {
        /// Which.
        #[command(flatten)]
        version: VersionArg,
    },
    /// Begin a version under maintenance on the newest one: a maintenance device boots it read-write
    Create {
        /// The vDisk
        vdisk: String,
        /// The version to stand on, where that is not the newest
        #[arg(long, value_name = "NUMBER")]
        parent: Option<u32>,
        /// A remark
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
    },
    /// Give a version to test or production devices, which boot it at their next boot
    Promote {
        /// Which.
        #[command(flatten)]
        version: VersionArg,
        /// test or production
        #[arg(long, alias = "access", value_name = "ACCESS", default_value = "production")]
        to: String,
        /// Released at this moment (2026-11-21T22:00:00Z) instead of now
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
    },
    /// Move a release that has not come yet
    Schedule {
        /// The version, VDISK/NUMBER, and the moment, 2026-11-21T22:00:00Z
        #[arg(value_names = ["VDISK/NUMBER", "TIME"], required = true, num_args = 2..=3)]
        words: Vec<String>,
    },
    /// Take a version back to test or maintenance
    Revert {
        /// Which.
        #[command(flatten)]
        version: VersionArg,
        /// test or maintenance
        #[arg(long, alias = "access", value_name = "ACCESS", default_value = "test")]
        to: String,
    },
    /// Take a version's file for what it is, though somebody wrote to it behind the farm's back
    Accept {
        /// Which.
        #[command(flatten)]
        version: VersionArg,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
    /// Write a remark
    Comment {
        /// The version, VDISK/NUMBER, and the remark
        #[arg(value_names = ["VDISK/NUMBER", "TEXT"], required = true, num_args = 2..=3)]
        words: Vec<String>,
    },
    /// Take versions away, with their files, now or as soon as no device uses them
    Delete {
        /// VDISK/NUMBER, or VDISK NUMBER NUMBER...
        #[arg(value_name = "VDISK/NUMBER", required = true)]
        versions: Vec<String>,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
}

/// `headwater device`.
#[derive(Debug, Subcommand)]
pub enum DeviceVerb {
    /// What can be done with most nouns.
    #[command(flatten)]
    Plain(NounVerb),
    /// What devices are doing, which version they run, and how full their write caches are
    Status {
        /// One device alone, with all that is known
        device: Option<String>,
        /// These properties instead of the usual ones, by their names in the API: name,write_cache.fill
        #[arg(long, value_name = "NAMES", value_delimiter = ',')]
        columns: Vec<String>,
    },
    /// Forget the device's current boot: its sessions end, and its next login begins another
    Reset {
        /// The device
        device: String,
        /// Also discard its persistent write cache, with all that the device wrote
        #[arg(long)]
        discard_persistent: bool,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
    /// Wake devices by their network cards (Wake-on-LAN)
    Wake {
        /// Which.
        #[command(flatten)]
        which: Which,
    },
    /// Restart devices, by the service in their system
    Reboot {
        /// Which.
        #[command(flatten)]
        which: Which,
        /// How.
        #[command(flatten)]
        command: CommandArgs,
    },
    /// Shut devices down and switch them off, by the service in their system
    Shutdown {
        /// Which.
        #[command(flatten)]
        which: Which,
        /// How.
        #[command(flatten)]
        command: CommandArgs,
    },
    /// Show a message to whoever sits before devices, by the service in their system
    Message {
        /// The message
        text: String,
        /// Which.
        #[command(flatten)]
        which: Which,
        /// How.
        #[command(flatten)]
        command: CommandArgs,
    },
    /// The latest commands, and what devices made of them
    Commands {
        /// Those of one device
        device: Option<String>,
    },
    /// Machines that nobody knows, and that wait to be approved
    Newcomers,
    /// Make a device of a machine that waits; it boots within a minute
    Approve {
        /// Its MAC address
        mac: String,
    },
    /// Refuse a machine that waits, for a day
    Refuse {
        /// Its MAC address
        mac: String,
    },
    /// Make and change devices as a table says: all rows or none
    Import {
        /// A table with commas or tabs; its first line names the columns, as "device export" writes them
        file: PathBuf,
        /// Say what would be done, and do nothing
        #[arg(long)]
        dry_run: bool,
        /// Refuse devices that are there already, instead of changing them
        #[arg(long)]
        new_only: bool,
        /// Make collections that are not there
        #[arg(long)]
        make_collections: bool,
    },
    /// Print devices as a table
    Export {
        /// Which
        #[arg(long, value_name = "CONDITION")]
        filter: Option<String>,
    },
    /// Give devices another one's kind, vDisks, write cache, limits and personality
    CopyProfile {
        /// From this device
        from: String,
        /// To these
        #[arg(required = true)]
        to: Vec<String>,
    },
}

/// `headwater view`.
#[derive(Debug, Subcommand)]
pub enum ViewVerb {
    /// What can be done with most nouns.
    #[command(flatten)]
    Plain(NounVerb),
    /// What a view shows now
    Items {
        /// The view
        view: String,
        /// Which of them, and what.
        #[command(flatten)]
        list: ListArgs,
    },
}

/// `headwater write-cache`.
#[derive(Debug, Subcommand)]
pub enum WriteCacheVerb {
    /// Write caches that are kept over boots
    List(ListArgs),
    /// One with all its properties
    Show {
        /// Its device, or its number, as the list shows it
        cache: String,
    },
    /// Let the device stay on the version that its write cache was made on, though a newer one was released
    Keep {
        /// Its device, or its number, as the list shows it
        cache: String,
    },
    /// Have the device go with new versions again: it is refused until its write cache is discarded or made a version
    Unkeep {
        /// Its device, or its number, as the list shows it
        cache: String,
    },
    /// Make a new version, under maintenance, of all that the device wrote into it: a task
    MakeVersion {
        /// Its device, or its number, as the list shows it
        cache: String,
        /// A remark
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
        /// Wait until it is done, and show how far it is
        #[arg(long)]
        wait: bool,
    },
    /// Discard it with all that the device wrote
    Discard {
        /// Its device, or its number, as the list shows it
        cache: String,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
}

/// `headwater task`.
#[derive(Debug, Subcommand)]
pub enum TaskVerb {
    /// Work in the background, the latest last; --limit counts from there
    List(ListArgs),
    /// One task, and how far it is
    Show {
        /// Its number
        number: u64,
    },
    /// Show how far a task is until it ends
    Watch {
        /// Its number
        number: u64,
    },
    /// What it wrote down
    Log {
        /// Its number
        number: u64,
    },
    /// Have it stop and take back what it began
    Cancel {
        /// Its number
        number: u64,
    },
}

/// `headwater lock`.
#[derive(Debug, Subcommand)]
pub enum LockVerb {
    /// Who uses what
    List(ListArgs),
    /// One lock
    Show {
        /// Its fencing number
        fence: u64,
    },
    /// Take it from its owner, who is cut off
    Break {
        /// Its fencing number
        fence: u64,
        /// Why; it is written into the audit
        #[arg(long, value_name = "TEXT")]
        reason: String,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
}

/// `headwater user`.
#[derive(Debug, Subcommand)]
pub enum UserVerb {
    /// What can be done with most nouns.
    #[command(flatten)]
    Plain(NounVerb),
    /// Set somebody's password: asked for, or the first line of standard input
    Password {
        /// The user
        user: String,
        /// It must be changed at the next log-in
        #[arg(long)]
        must_change: bool,
    },
    /// Who may do what where
    Roles(ListArgs),
    /// Give a user a role
    Grant {
        /// The user
        user: String,
        /// read-only, operator or administrator
        role: String,
        /// Where it holds.
        #[command(flatten)]
        scope: ScopeArgs,
    },
    /// Take a role away
    Revoke {
        /// Its number, as "user roles" shows it
        number: u64,
    },
    /// Set the first administrator's password with the token that the server printed at its first start
    Claim {
        /// The file with the token; by default it is asked for
        #[arg(long, value_name = "FILE")]
        first_token_file: Option<PathBuf>,
    },
}

/// Where a role holds.
#[derive(Clone, Debug, Args)]
pub struct ScopeArgs {
    /// In one site
    #[arg(long, value_name = "SITE", conflicts_with = "collection")]
    pub site: Option<String>,
    /// In one collection: SITE/COLLECTION
    #[arg(long, value_name = "COLLECTION")]
    pub collection: Option<String>,
}

/// `headwater token`.
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// What programs go by
    List(ListArgs),
    /// One token; its secret was shown when it was made, and is not kept
    Show {
        /// USER/TOKEN
        token: String,
    },
    /// Make a token, and print its secret, once
    Create {
        /// Whose
        user: String,
        /// What it is for
        name: String,
        /// The most that it can do: read-only, operator or administrator
        #[arg(long, default_value = "read-only")]
        role: String,
        /// Until when it is good (2027-01-01T00:00:00Z); by default it does not end
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        /// Where it holds.
        #[command(flatten)]
        scope: ScopeArgs,
    },
    /// Have tokens let nobody in any more
    Delete {
        /// USER/TOKEN
        #[arg(required = true)]
        tokens: Vec<String>,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
}

/// `headwater secret`.
#[derive(Debug, Subcommand)]
pub enum SecretVerb {
    /// The names of the CHAP secrets that this server keeps, and the devices that use them
    List,
    /// Have the server keep one, asked for or the first line of standard input: device set NAME chap.user=USER
    /// chap.secret=SECRET has a device use it
    Set {
        /// Its name
        secret: String,
    },
    /// Have the server forget some
    Delete {
        /// Their names
        #[arg(required = true)]
        secrets: Vec<String>,
        /// Whether to ask.
        #[command(flatten)]
        sure: Sure,
    },
}

/// `headwater setting`.
#[derive(Debug, Subcommand)]
pub enum SettingVerb {
    /// All of them: the value, what the configuration file says, and when a new value takes effect
    List,
    /// Give some other values, all or none; they stand above the configuration file until "KEY=" takes them away
    Set {
        /// Their values
        #[arg(value_name = "KEY=VALUE", required = true)]
        values: Vec<Setting>,
    },
}

/// `headwater audit`.
#[derive(Debug, Subcommand)]
pub enum AuditVerb {
    /// Who changed what, the latest last; --limit counts from there
    List(ListArgs),
    /// One entry, with old and new values
    Show {
        /// Its number
        number: u64,
    },
    /// All entries, one JSON object a line
    Export {
        /// Which
        #[arg(long, value_name = "CONDITION")]
        filter: Option<String>,
    },
}
