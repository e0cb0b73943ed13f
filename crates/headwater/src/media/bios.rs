//! What BIOS machines boot: our boot sector, and iPXE as a Linux kernel with the script as its initial ramdisk.
//!
//! The boot sector (`loader/bios.S`, and what the assembler makes of it) reads three extents and jumps. So the media holds a
//! *part* with the kernel's real-mode code, its rest and the script, each in whole chunks of 32 KiB; what Linux's boot
//! protocol wants to be told and is known beforehand is patched into the kernel's header here.
//! (Linux, Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header".)
use super::bytes::{Bytes, u16_of, u32_of};

/// What the boot sector reads at once.
pub(super) const CHUNK_BYTES: usize = 32 << 10;

/// The boot sector, without partition table and extents.
const BOOT_SECTOR: &[u8; 512] = include_bytes!("loader/bios.bin");
/// Where it has its table: sectors in a chunk (16 bits), then three extents.
const TABLE: usize = 0x198;
/// An extent: first sector (32 bits), target in memory (32 bits), chunks (16 bits).
const EXTENT_BYTES: usize = 10;

/// Fields of the kernel's header, as offsets in the file.
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const VERSION: usize = 0x206;
const TYPE_OF_LOADER: usize = 0x210;
const LOAD_FLAGS: usize = 0x211;
const RAMDISK_SIZE: usize = 0x21c;
const HEAP_END: usize = 0x224;
/// The header of version 2.02 ends here.
const HEADER_END: usize = 0x22c;
/// "loadflags": the rest of the kernel belongs to 0x100000; the heap's end is valid.
const LOADED_HIGH: u8 = 1;
const CAN_USE_HEAP: u8 = 0x80;
/// A boot loader without a number of its own.
const UNKNOWN_LOADER: u8 = 0xff;
/// The boot sector's stack begins at 0xb000; "heap_end_ptr" is that less 0x200.
const HEAP_END_VALUE: u16 = 0xae00;

/// Why a file is not iPXE for BIOS.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BiosError {
    /// It has no Linux kernel header.
    #[error("no Linux kernel: expected `ipxe.lkrn` as Debian's package ipxe has it")]
    NoKernel,
    /// Its header is of a kind that we cannot load.
    #[error(
        "a Linux kernel of boot protocol {:#06x}, setup of {setup_bytes} bytes; needed: 0x0202, loaded high, at most 32 KiB",
        version
    )]
    Unsuitable {
        /// The boot protocol's version.
        version: u16,
        /// The size of its real-mode part.
        setup_bytes: usize,
    },
}

/// Kernel and script, in chunks.
pub(super) struct Part {
    bytes: Bytes,
    payload_chunks: usize,
}

/// What the boot sector's drive counts in.
#[derive(Clone, Copy)]
pub(super) enum Drive {
    /// 512 bytes.
    Disk,
    /// 2048 bytes.
    Cd,
}

impl Part {
    /// The part with this kernel and script; the script fits into one chunk.
    pub(super) fn new(kernel: &[u8], script: &[u8]) -> Result<Self, BiosError> {
        let field = |at: usize, length: usize| kernel.get(at..at + length);
        if kernel.len() < HEADER_END || field(MAGIC, 4) != Some(b"HdrS") {
            return Err(BiosError::NoKernel);
        }
        let version = field(VERSION, 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_le_bytes);
        let flags = kernel.get(LOAD_FLAGS).copied().unwrap_or(0);
        // "If the setup_sects field contains 0, the real value is 4"; the boot sector comes on top.
        let sectors = match kernel.get(SETUP_SECTORS) {
            None | Some(0) => 4,
            Some(&sectors) => usize::from(sectors),
        };
        let setup_bytes = (sectors + 1) * 512;
        let (setup, payload) = kernel.split_at_checked(setup_bytes).ok_or(BiosError::NoKernel)?;
        if version < 0x0202 || flags & LOADED_HIGH == 0 || setup_bytes > CHUNK_BYTES || payload.is_empty() {
            return Err(BiosError::Unsuitable { version, setup_bytes });
        }
        let mut bytes = Bytes::default();
        bytes.put(0, setup);
        bytes.put(TYPE_OF_LOADER, &[UNKNOWN_LOADER]);
        bytes.put(LOAD_FLAGS, &[flags | CAN_USE_HEAP]);
        bytes.put_u32(RAMDISK_SIZE, u32_of(script.len()));
        bytes.put_u16(HEAP_END, HEAP_END_VALUE);
        bytes.put(CHUNK_BYTES, payload);
        bytes.pad_to_multiple_of(CHUNK_BYTES);
        let payload_chunks = bytes.len() / CHUNK_BYTES - 1;
        bytes.put(bytes.len(), script);
        bytes.pad_to_multiple_of(CHUNK_BYTES);
        Ok(Self { bytes, payload_chunks })
    }

    /// What stands on the media.
    pub(super) fn as_slice(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// The boot sector for a part that begins at `offset` bytes.
    pub(super) fn boot_sector(&self, drive: Drive, offset: usize) -> Bytes {
        let sector_bytes = match drive {
            Drive::Disk => 512,
            Drive::Cd => 2048,
        };
        let mut sector = Bytes::default();
        sector.put(0, BOOT_SECTOR);
        sector.put_u16(TABLE, u16_of(CHUNK_BYTES / sector_bytes));
        let extents = [(0, 1), (1, self.payload_chunks), (self.payload_chunks + 1, 1)];
        for (index, (first, chunks)) in extents.into_iter().enumerate() {
            let at = TABLE + 2 + index * EXTENT_BYTES;
            sector.put_u32(at, u32_of((offset + first * CHUNK_BYTES) / sector_bytes));
            sector.put_u16(at + 8, u16_of(chunks));
        }
        sector
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(setup_sectors: u8, version: u16, flags: u8) -> Vec<u8> {
        let mut kernel = Bytes::zeros(2048 + 40_000);
        kernel.put(SETUP_SECTORS, &[setup_sectors]);
        kernel.put(MAGIC, b"HdrS");
        kernel.put_u16(VERSION, version);
        kernel.put(LOAD_FLAGS, &[flags]);
        kernel.put(2048, b"payload");
        kernel.into_vec()
    }

    #[test]
    fn part_holds_setup_payload_and_script_in_chunks_of_their_own() {
        let part = Part::new(&kernel(3, 0x0207, 1), b"#!ipxe\n").unwrap();
        let bytes = part.as_slice();
        assert_eq!(bytes.len(), 4 * CHUNK_BYTES, "one, two for 40,000 bytes, one");
        assert_eq!(bytes[TYPE_OF_LOADER..][..2], [0xff, 0x81]);
        assert_eq!(bytes[RAMDISK_SIZE..][..4], [7, 0, 0, 0]);
        assert_eq!(&bytes[CHUNK_BYTES..][..7], b"payload");
        assert_eq!(&bytes[3 * CHUNK_BYTES..][..8], b"#!ipxe\n\0");
    }

    #[test]
    fn boot_sector_finds_the_part_on_disks_and_cds() {
        let part = Part::new(&kernel(3, 0x0207, 1), b"#!ipxe\n").unwrap();
        for (drive, unit) in [(Drive::Disk, 512), (Drive::Cd, 2048)] {
            let sector = part.boot_sector(drive, 1 << 20).into_vec();
            let u32_at = |at: usize| u32::from_le_bytes(sector[at..at + 4].try_into().unwrap());
            let u16_at = |at: usize| u16::from_le_bytes(sector[at..at + 2].try_into().unwrap());
            assert_eq!(u32::from(u16_at(TABLE)) * unit, 32 << 10);
            let extents: Vec<_> =
                (0..3).map(|i| TABLE + 2 + i * 10).map(|at| (u32_at(at) * unit, u16_at(at + 8))).collect();
            assert_eq!(extents, [(0x10_0000, 1), (0x10_8000, 2), (0x11_8000, 1)]);
            assert_eq!((u32_at(TABLE + 6), u32_at(TABLE + 16)), (0x9_0000, 0x10_0000));
            assert_eq!((sector.len(), u16_at(510)), (512, 0xaa55));
        }
    }

    #[test]
    fn file_that_is_no_kernel_or_needs_another_loader_is_refused() {
        assert!(matches!(Part::new(b"MZ", b""), Err(BiosError::NoKernel)));
        assert!(matches!(Part::new(&[0; 4096], b""), Err(BiosError::NoKernel)));
        for kernel in [kernel(3, 0x0201, 1), kernel(3, 0x0207, 0), kernel(70, 0x0207, 1)] {
            assert!(matches!(Part::new(&kernel, b""), Err(BiosError::Unsuitable { .. })));
        }
        // Shorter than its header says.
        assert!(matches!(Part::new(&kernel(255, 0x0207, 1), b""), Err(BiosError::NoKernel)));
    }
}
