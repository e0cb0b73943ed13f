//! Boot media: a CD image, a USB stick or a small disk from which a machine finds its servers without any boot option of
//! DHCP.
//!
//! Each holds the same: iPXE for BIOS and for UEFI, and one script (`netboot::script::media`) that brings up the network
//! and asks the servers of its list, one after the other, for the machine's boot script. All that changes between versions
//! of the server is in what the server answers, so that old media work with new servers.
//!
//! ```text
//! iso    sector 0       boot sector (a USB stick made of this image boots, too); partition table: the EFI volume
//!        16..22         ISO 9660 descriptors, path tables, root directory, El Torito's catalogue
//!        then           boot sector for CDs, the BIOS part, the EFI volume
//! usb    sector 0       boot sector, MBR partition table
//!        64..           the BIOS part
//!        next MiB       the EFI volume as an active partition
//! disk   as usb, with a GUID partition table
//! ```
//! The *EFI volume* is a FAT file system (`fat`); the *BIOS part* is iPXE as a Linux kernel with the script as its initial
//! ramdisk (`bios`). All of it is written here: no program but iPXE's is taken from elsewhere. The same settings give the
//! same bytes.
#![allow(
    clippy::arithmetic_side_effects,
    reason = "offsets and sizes in an image of which every part is below MAX_IPXE_BYTES: sums stay below 2^32"
)]
mod bios;
mod bytes;
mod fat;
mod iso9660;
mod partitions;
mod uefi;

pub use bios::BiosError;
pub use fat::MAX_VOLUME_BYTES;
pub use uefi::{Feature, has_feature};

/// The largest iPXE binary that goes on media: Debian's have under 1 MB.
pub const MAX_IPXE_BYTES: u64 = 16 << 20;

/// The largest script: one read of the boot sector's.
pub const MAX_SCRIPT_BYTES: usize = 32 << 10;

/// What partitions and file systems count in.
const SECTOR_BYTES: usize = 512;
/// What partitions are aligned to.
const MIB: usize = 1 << 20;

/// A kind of boot media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A CD image, ISO 9660 with El Torito; boots from a USB stick, too.
    Iso,
    /// A USB stick: MBR partition table.
    Usb,
    /// A small disk for a virtual machine: GUID partition table.
    Disk,
}

/// What goes on the media.
#[derive(Clone, Debug)]
pub struct Content {
    /// iPXE as a Linux kernel (`ipxe.lkrn`).
    pub bios: Vec<u8>,
    /// iPXE as a UEFI application (`ipxe.efi`).
    pub uefi: Vec<u8>,
    /// The script.
    pub script: String,
    /// What `README.TXT` on the media says.
    pub readme: String,
}

/// Why no media can be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MediaError {
    /// iPXE for BIOS cannot be used.
    #[error("iPXE for BIOS: {0}")]
    Bios(#[from] BiosError),
    /// iPXE for UEFI is something else.
    #[error(
        "iPXE for UEFI is no UEFI application for x64: expected `ipxe.efi` as Debian's package ipxe has it"
    )]
    Uefi,
    /// A file is too large.
    #[error("the files for UEFI have {size_bytes} bytes; {MAX_VOLUME_BYTES} is the most")]
    TooLarge {
        /// All of them together.
        size_bytes: usize,
    },
    /// The script is too long.
    #[error("the script has {size_bytes} bytes; {MAX_SCRIPT_BYTES} is the most: use fewer or shorter texts")]
    Script {
        /// Its size.
        size_bytes: usize,
    },
}

/// The whole image.
///
/// # Errors
/// Where iPXE's binaries are none, or something is too large.
pub fn build(kind: Kind, content: &Content) -> Result<Vec<u8>, MediaError> {
    if content.script.len() > MAX_SCRIPT_BYTES {
        return Err(MediaError::Script { size_bytes: content.script.len() });
    }
    let bios = bios::Part::new(&content.bios, content.script.as_bytes())?;
    let files = uefi::files(content)?;
    match kind {
        Kind::Iso => {
            let volume = fat::volume(&files, 0)?;
            Ok(iso9660::image(&bios, &volume, content.readme.as_bytes()))
        }
        Kind::Usb | Kind::Disk => {
            let start = partitions::start_of_volume(&bios);
            let volume = fat::volume(&files, start)?;
            Ok(match kind {
                Kind::Disk => partitions::with_gpt(&bios, start, &volume),
                Kind::Iso | Kind::Usb => partitions::with_mbr(&bios, start, &volume),
            })
        }
    }
}

#[cfg(test)]
mod tests;
