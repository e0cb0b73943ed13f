//! Partition tables: GPT (UEFI specification §5.3), the tables of BIOS disks, and disks that have none.
mod gpt;
mod mbr;

use std::fmt;

use crate::error::GuestError;
use crate::window::Window;

/// The most partitions that are looked at on one disk.
pub(crate) const MAX_PARTITIONS: usize = 256;

/// Which partition of a disk: its number as Linux and GRUB count, from 1 on; 0 is the whole disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionNumber(pub u32);

impl PartitionNumber {
    /// The disk itself: a file system may begin at its first byte.
    pub const WHOLE_DISK: Self = Self(0);
}

impl fmt::Display for PartitionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::WHOLE_DISK => f.write_str("the disk without partitions"),
            Self(number) => write!(f, "partition {number}"),
        }
    }
}

/// What a partition is for, as far as the table says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The EFI system partition: loaders, unified kernel images, boot entries.
    EfiSystem,
    /// The extended boot loader partition of the Boot Loader Specification.
    ExtendedBoot,
    /// Anything else.
    Other,
}

/// A partition of a disk.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Its number.
    pub number: PartitionNumber,
    /// What it is for.
    pub purpose: Purpose,
    /// Its name in the table; empty where it has none.
    pub name: String,
    /// Its bytes.
    pub window: Window,
}

/// How a disk is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// A GUID partition table.
    Gpt,
    /// The table in the first sector of BIOS disks.
    Mbr,
    /// No table: at most one file system, on the whole disk.
    None,
}

/// The partitions of a disk, in the order of the table; the whole disk as the only one where there is no table.
///
/// # Errors
/// Only where the disk cannot be read: a damaged table is no table.
pub(crate) fn read(disk: &Window) -> Result<(Scheme, Vec<Partition>), GuestError> {
    if let Some(partitions) = gpt::read(disk)? {
        return Ok((Scheme::Gpt, partitions));
    }
    if let Some(partitions) = mbr::read(disk)? {
        return Ok((Scheme::Mbr, partitions));
    }
    let whole = Partition {
        number: PartitionNumber::WHOLE_DISK,
        purpose: Purpose::Other,
        name: String::new(),
        window: disk.clone(),
    };
    Ok((Scheme::None, vec![whole]))
}
