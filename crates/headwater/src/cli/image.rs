//! `headwater image`: the command line of the work on disk images.
use std::num::NonZeroU64;
use std::path::PathBuf;

use block::LogicalBlockSize;
use clap::{Args, Subcommand, ValueEnum};

use super::Output;
use crate::config::ByteSize;

const SIZES: &str = "\
Sizes are bytes, or have a binary unit: 512, 64K or 64 KiB, 2M, 20G, 1T.
Formats are told by the contents of a file that is there, and by the ending of one that is made: .raw .img, .vhd \
.avhd, .vhdx .avhdx; qcow2 and VMDK are read, not written.";

const EXAMPLES: &str = "\
Examples:
  headwater image info win11.2.avhdx                          the image and its chain of parents
  headwater image convert debian.qcow2 debian.vhdx --verify   take over an image of another program
  headwater image snapshot win11.vhdx win11.1.avhdx           begin a new version
  headwater image merge win11.3.avhdx --into win11-new.vhdx   base and versions become a new base
  headwater image check win11.vhdx                            is the file sound?";

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  could not be done; one line says what and why
  2  the command line is wrong
  3  done, and the answer is no: compare found a difference, check found errors";

/// `headwater image`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = format!("{SIZES}\n\n{EXAMPLES}\n\n{EXIT_CODES}"))]
pub struct ImageArgs {
    /// What all verbs take.
    #[command(flatten)]
    pub options: ImageOptions,
    /// The verb.
    #[command(subcommand)]
    pub verb: ImageVerb,
}

/// What all verbs on images take.
#[derive(Clone, Debug, Args)]
pub struct ImageOptions {
    /// How to print
    #[arg(long, value_enum, default_value_t = Output::Table, global = true)]
    pub output: Output,
    /// No progress on standard error
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// The folder that holds the image and all of its parents; by default the image's own. Nothing outside is opened
    #[arg(long, value_name = "DIR", global = true)]
    pub store: Option<PathBuf>,
}

/// What to do with images.
#[derive(Debug, Subcommand)]
pub enum ImageVerb {
    /// Make an empty image
    Create(CreateArgs),
    /// Show what an image is, and its chain as a tree
    Info(InfoArgs),
    /// Show which parts of the disk lie where
    Map(MapArgs),
    /// Show what it holds to boot from: partitions, file systems, and the entries of its boot loaders
    Entries(EntriesArgs),
    /// Look for damage, and mend what can be mended safely
    Check(CheckArgs),
    /// Write the contents of an image as an image of another format
    Convert(ConvertArgs),
    /// Make one file of an image and its parents
    Merge(MergeArgs),
    /// Compare the contents of two images, of whatever formats
    Compare(CompareArgs),
    /// Make the disk of an image larger or smaller
    ///
    /// An image that another has as its parent is refused: the other would not recognise it any more. With --store the
    /// whole store is searched for such children; without it the image's folder and the folders in it, and, for
    /// children that name this very file, the folder above and what lies right in the folders beside. A child anywhere
    /// else cannot be found. It loses nothing, but a VHDX child is refused from then on, until `headwater image rebase
    /// --unsafe` says that the resized image is its parent all the same.
    Resize(ResizeArgs),
    /// Write an image anew without the blocks that hold nothing
    Compact(CompactArgs),
    /// Make a differencing image: a new version that begins with the contents of its parent
    Snapshot(SnapshotArgs),
    /// Tell a differencing image where its parent is now
    Rebase(RebaseArgs),
}

/// What a new image is to be.
#[derive(Clone, Debug, Args)]
pub struct Target {
    /// The format; by default what the ending says
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<WritableFormat>,
    /// How the image keeps its blocks; by default dynamic (a merged base: as the old base)
    #[arg(long, value_enum)]
    pub subformat: Option<Subformat>,
    /// How much of the disk one block holds; by default the format's usual (VHDX 32 MiB, VHD 2 MiB)
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    pub block_size: Option<ByteSize>,
}

/// A format that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WritableFormat {
    /// The file is the disk.
    Raw,
    /// Virtual Hard Disk.
    Vhd,
    /// Virtual Hard Disk v2.
    Vhdx,
}

/// How an image keeps its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subformat {
    /// Room for the whole disk from the start.
    Fixed,
    /// Grows with what is written.
    Dynamic,
}

/// A unit of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SectorSize {
    /// 512 bytes.
    #[value(name = "512")]
    B512,
    /// 4096 bytes.
    #[value(name = "4096")]
    B4096,
}

impl SectorSize {
    /// As the unit in which a disk is addressed.
    #[must_use]
    pub fn logical_block(self) -> LogicalBlockSize {
        match self {
            Self::B512 => LogicalBlockSize::B512,
            Self::B4096 => LogicalBlockSize::B4096,
        }
    }
}

/// How fast work may go.
#[derive(Clone, Debug, Args)]
pub struct Pace {
    /// Move no more than this a second (clones and holes do not count)
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub rate_limit: Option<NonZeroU64>,
}

/// `headwater image create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The file to make
    pub file: PathBuf,
    /// How large the disk is
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    pub size: ByteSize,
    /// What it is to be.
    #[command(flatten)]
    pub target: Target,
    /// The unit in which the disk is addressed, by default 512 bytes (VHDX)
    #[arg(long, value_enum)]
    pub sector_size: Option<SectorSize>,
    /// The unit in which the disk says that it is stored, by default 4096 bytes (VHDX)
    #[arg(long, value_enum)]
    pub physical_sector_size: Option<SectorSize>,
}

/// `headwater image info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// The image
    pub file: PathBuf,
    /// The format; by default what the contents say
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<diskimage::Format>,
}

/// `headwater image entries`.
#[derive(Debug, Args)]
pub struct EntriesArgs {
    /// The image
    pub file: PathBuf,
    /// The format; by default what the contents say
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<diskimage::Format>,
}

/// `headwater image map`.
#[derive(Debug, Args)]
pub struct MapArgs {
    /// The image
    pub file: PathBuf,
    /// The format; by default what the contents say
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<diskimage::Format>,
    /// Only runs of this kind
    #[arg(long, value_enum)]
    pub only: Option<RunKind>,
}

/// A kind of run in an image's map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunKind {
    /// Runs whose bytes are stored.
    Data,
    /// Runs that read as zeros and are not stored.
    Zero,
}

/// `headwater image check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The image; of a chain, this file alone
    pub file: PathBuf,
    /// The format; by default what the contents say
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<diskimage::Format>,
    /// Mend what can be mended without guessing
    #[arg(long)]
    pub repair: bool,
}

/// `headwater image convert`.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// The image to read, with its parents
    pub source: PathBuf,
    /// The file to make
    pub target: PathBuf,
    /// What it is to be.
    #[command(flatten)]
    pub new: Target,
    /// The unit in which the new disk is addressed; by default the source's
    ///
    /// The bytes stay where they are. What counts in sectors, partition tables and boot loaders first of all, so means
    /// other places with another unit: whoever uses the new disk has to know. Raw and VHD images cannot say their unit,
    /// and everybody takes 512 bytes for it; a disk of 4096-byte sectors becomes one only if 512 is said here.
    #[arg(long, value_enum)]
    pub sector_size: Option<SectorSize>,
    /// The source's format; by default what its contents say
    #[arg(long, value_name = "FORMAT")]
    pub source_format: Option<diskimage::Format>,
    /// Let a qcow2 source read its backing file
    #[arg(long)]
    pub allow_backing_file: bool,
    /// Look for zeros and leave them out also where data can be shared with the source without being read; elsewhere
    /// that is always done
    #[arg(long)]
    pub find_zeros: bool,
    /// Read the new image again and compare it with the source
    #[arg(long)]
    pub verify: bool,
    /// Replace the target if it is there
    #[arg(long)]
    pub force: bool,
    /// How fast.
    #[command(flatten)]
    pub pace: Pace,
}

/// `headwater image merge`.
#[derive(Debug, Args)]
pub struct MergeArgs {
    /// The last image of the chain to merge
    pub leaf: PathBuf,
    /// The file to make
    #[arg(long, value_name = "FILE")]
    pub into: PathBuf,
    /// A new base, of the base and all differences (the default)
    #[arg(long, conflicts_with = "updates")]
    pub base: bool,
    /// One difference on the same base, of all differences
    #[arg(long)]
    pub updates: bool,
    /// Of a new base: what it is to be, if not what the old one is.
    #[command(flatten)]
    pub new: Target,
    /// The format of the chain; by default what the contents say
    #[arg(long, value_name = "FORMAT")]
    pub source_format: Option<diskimage::Format>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Read the new image again and compare it with the chain
    #[arg(long)]
    pub verify: bool,
    /// Replace the file if it is there
    #[arg(long)]
    pub force: bool,
    /// How fast.
    #[command(flatten)]
    pub pace: Pace,
}

/// `headwater image compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// One image
    pub one: PathBuf,
    /// The other
    pub other: PathBuf,
    /// The one's format; by default what its contents say
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<diskimage::Format>,
    /// The other's format; by default what its contents say
    #[arg(long, value_name = "FORMAT")]
    pub other_format: Option<diskimage::Format>,
    /// Stop at the first difference
    #[arg(long)]
    pub first: bool,
    /// Disks of different sizes differ, even if the longer one ends with zeros
    #[arg(long)]
    pub strict: bool,
}

/// `headwater image resize`.
#[derive(Debug, Args)]
pub struct ResizeArgs {
    /// The image, which nothing may be using
    pub file: PathBuf,
    /// The format; by default what the contents say
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<diskimage::Format>,
    /// The new size of the disk, or with "+" before it how much it grows
    #[arg(value_name = "[+]SIZE")]
    pub size: NewSize,
    /// Allow a smaller disk: what lies behind its end must be unused
    #[arg(long)]
    pub shrink: bool,
}

/// A size, or how much larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSize {
    /// This large.
    To(ByteSize),
    /// This much larger.
    By(ByteSize),
}

impl std::str::FromStr for NewSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('+') {
            Some(more) => ByteSize::parse(more).map(Self::By),
            None => ByteSize::parse(text).map(Self::To),
        }
    }
}

/// `headwater image compact`.
#[derive(Debug, Args)]
pub struct CompactArgs {
    /// The image, which nothing may be using
    pub file: PathBuf,
    /// The format; by default what the contents say
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<diskimage::Format>,
    /// Drop only what is known to be unused, and do not read all data for blocks of zeros
    #[arg(long)]
    pub trimmed_only: bool,
    /// Read the new file again and compare it with the old one before it takes its place
    #[arg(long)]
    pub verify: bool,
    /// How fast.
    #[command(flatten)]
    pub pace: Pace,
}

/// `headwater image snapshot`.
#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// The image to begin with; it must not change any more
    pub parent: PathBuf,
    /// The differencing image to make
    pub child: PathBuf,
    /// How much of the disk one block holds
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    pub block_size: Option<ByteSize>,
}

/// `headwater image rebase`.
#[derive(Debug, Args)]
pub struct RebaseArgs {
    /// The differencing image
    pub child: PathBuf,
    /// Its parent, where it is now: the file that the child was made on, which it recognises
    pub parent: PathBuf,
    /// Take a file that the child does not recognise, if it holds the same as the present parent
    #[arg(long, conflicts_with = "unsafe")]
    pub compare: bool,
    /// Take any file. If it does not hold what the child was made on, the child's disk is damaged
    #[arg(long)]
    pub r#unsafe: bool,
}

fn rate(text: &str) -> Result<NonZeroU64, String> {
    let size = ByteSize::parse(text)?;
    NonZeroU64::new(size.0).ok_or_else(|| "a rate of 0 would never end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn verb(words: &[&str]) -> Result<ImageVerb, String> {
        let words = ["headwater", "image"].iter().chain(words);
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Image(args) => Ok(args.verb),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn new_size_is_absolute_or_a_growth() {
        let size = |text| match verb(&["resize", "a.vhdx", text]) {
            Ok(ImageVerb::Resize(args)) => Ok(args.size),
            other => Err(format!("{other:?}")),
        };
        assert_eq!(size("20G").unwrap(), NewSize::To(ByteSize(20 << 30)));
        assert_eq!(size("+512 MiB").unwrap(), NewSize::By(ByteSize(512 << 20)));
        assert!(size("20GB").unwrap_err().contains("units"), "{:?}", size("20GB"));
    }

    #[test]
    fn merge_makes_a_base_or_merged_updates_not_both() {
        assert!(verb(&["merge", "a.avhdx", "--into", "b.vhdx", "--updates"]).is_ok());
        assert!(verb(&["merge", "a.avhdx", "--into", "b.vhdx", "--updates", "--base"]).is_err());
        assert!(verb(&["merge", "a.avhdx"]).is_err(), "a merge never changes its sources");
    }

    #[test]
    fn rate_of_nothing_is_refused() {
        let refused = verb(&["convert", "a.raw", "b.vhdx", "--rate-limit", "0"]).unwrap_err();
        assert!(refused.contains("never end"), "{refused}");
    }
}
