//! The structures of a log entry: its header, its descriptors and its data sectors ([MS-VHDX] §2.3.1).
use super::checksum_of_parts;
use crate::cursor::Cursor;
use crate::guid::Guid;

/// Entries are made of sectors of this size, whatever the disk's sectors are.
pub(super) const SECTOR_BYTES: u64 = 4096;
/// The header of an entry; its descriptors follow.
pub(super) const HEADER_BYTES: u64 = 64;
/// A descriptor of either kind.
pub(super) const DESCRIPTOR_BYTES: u64 = 32;

/// The header of an entry ([MS-VHDX] §2.3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryHeader {
    /// In bytes, a whole number of sectors.
    pub(super) length: u64,
    /// Where in the log the oldest entry is that this one's replay needs.
    pub(super) tail: u64,
    pub(super) sequence_number: u64,
    pub(super) descriptors: u64,
    /// How long the file was at least when the entry was written: what ends before is cut off.
    pub(super) flushed_file_offset: u64,
    /// How long the file must be after the replay.
    pub(super) last_file_offset: u64,
    checksum: u32,
}

/// A change of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Descriptor {
    /// Zeros ([MS-VHDX] §2.3.1.2).
    Zero { at: u64, length: u64 },
    /// The next data sector, whose first and last bytes stand here ([MS-VHDX] §2.3.1.3).
    Data { at: u64, leading: [u8; 8], trailing: [u8; 4] },
}

impl EntryHeader {
    /// The header at the start of `sector`, if it can be one of a log of `log_bytes` with this identifier. The
    /// checksum is not looked at: it covers the whole entry.
    pub(super) fn parse(sector: &[u8], log_guid: Guid, log_bytes: u64) -> Option<Self> {
        let mut cursor = Cursor::new(sector);
        if cursor.array()? != *b"loge" {
            return None;
        }
        let checksum = cursor.le_u32()?;
        let length = u64::from(cursor.le_u32()?);
        let tail = u64::from(cursor.le_u32()?);
        let sequence_number = cursor.le_u64()?;
        let descriptors = u64::from(cursor.le_u32()?);
        let _reserved = cursor.le_u32()?;
        let guid = Guid::from_le_bytes(cursor.array()?);
        let flushed_file_offset = cursor.le_u64()?;
        let last_file_offset = cursor.le_u64()?;
        let header = Self {
            length,
            tail,
            sequence_number,
            descriptors,
            flushed_file_offset,
            last_file_offset,
            checksum,
        };
        let lies_in_log = length <= log_bytes && tail < log_bytes;
        let aligned = length.is_multiple_of(SECTOR_BYTES) && tail.is_multiple_of(SECTOR_BYTES);
        let holds_descriptors =
            length != 0 && header.descriptor_sectors().saturating_mul(SECTOR_BYTES) <= length;
        let counts = sequence_number != 0 && guid == log_guid;
        (lies_in_log && aligned && holds_descriptors && counts).then_some(header)
    }

    /// Whether the checksum is right. The entry comes in two parts where it goes round the end of the log.
    pub(super) fn is_intact(&self, first: &[u8], second: &[u8]) -> bool {
        checksum_of_parts(first, second) == self.checksum
    }

    /// How many sectors header and descriptors take: the data sectors follow them.
    pub(super) fn descriptor_sectors(&self) -> u64 {
        let bytes = self.descriptors.saturating_mul(DESCRIPTOR_BYTES).saturating_add(HEADER_BYTES);
        bytes.div_ceil(SECTOR_BYTES)
    }
}

impl Descriptor {
    /// The descriptor of an entry with this sequence number, or what is wrong with it.
    pub(super) fn parse(
        bytes: &[u8; DESCRIPTOR_BYTES as usize],
        sequence_number: u64,
    ) -> Result<Self, String> {
        let short = || String::from("it is cut short");
        let mut cursor = Cursor::new(bytes);
        let signature: [u8; 4] = cursor.array().ok_or_else(short)?;
        let trailing = cursor.array().ok_or_else(short)?;
        let leading: [u8; 8] = cursor.array().ok_or_else(short)?;
        let at = cursor.le_u64().ok_or_else(short)?;
        let sequence = cursor.le_u64().ok_or_else(short)?;
        let (descriptor, length) = match &signature {
            b"desc" => (Self::Data { at, leading, trailing }, SECTOR_BYTES),
            b"zero" => {
                let length = u64::from_le_bytes(leading);
                (Self::Zero { at, length }, length)
            }
            _ => return Err(format!("it has the signature {:?}", signature.escape_ascii().to_string())),
        };
        if sequence != sequence_number {
            return Err(format!("it has sequence number {sequence}, its entry {sequence_number}"));
        }
        let aligned = at.is_multiple_of(SECTOR_BYTES) && length.is_multiple_of(SECTOR_BYTES);
        // No file has an offset behind i64::MAX.
        if !aligned || at.checked_add(length).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(format!("{length:#x} bytes at {at:#x} are not made of whole sectors of a file"));
        }
        Ok(descriptor)
    }

    /// The place of the first byte that is changed.
    pub(super) fn start(self) -> u64 {
        match self {
            Self::Zero { at, .. } | Self::Data { at, .. } => at,
        }
    }

    /// The place behind the last byte that is changed.
    pub(super) fn end(self) -> u64 {
        match self {
            Self::Zero { at, length } => at.saturating_add(length),
            Self::Data { at, .. } => at.saturating_add(SECTOR_BYTES),
        }
    }
}

/// The sector of the file that a data sector stands for, or what is wrong with it ([MS-VHDX] §2.3.1.4): signature and
/// halves of the sequence number give way to the bytes that its descriptor kept.
pub(super) fn data_sector(
    stored: &[u8],
    leading: [u8; 8],
    trailing: [u8; 4],
    sequence_number: u64,
) -> Result<Box<[u8]>, String> {
    let short = || String::from("it is cut short");
    let mut cursor = Cursor::new(stored);
    if cursor.array().ok_or_else(short)? != *b"data" {
        return Err("the signature \"data\" is missing".into());
    }
    let high = cursor.le_u32().ok_or_else(short)?;
    let middle = cursor.slice(4084).ok_or_else(short)?;
    let low = cursor.le_u32().ok_or_else(short)?;
    let sequence = (u64::from(high) << 32) | u64::from(low);
    if sequence != sequence_number {
        return Err(format!("it has sequence number {sequence}, its entry {sequence_number}"));
    }
    Ok([&leading, middle, &trailing].concat().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header and only descriptor of the last entry of a log that qemu 1.6.50 left behind (qemu's test images,
    /// `iotest-dirtylog-10G-4M.vhdx`, at 0x10C000). Its checksum covers 8 KiB and is proved by the tests on that file.
    const QEMU: [u8; 96] = [
        0x6C, 0x6F, 0x67, 0x65, 0x77, 0x1B, 0x75, 0xDE, 0, 0x20, 0, 0, 0, 0xC0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0, 0xBC, 0x55, 0x27, 0xC8, 0x7F, 0x42, 0x45, 0x12, 0xB7, 0x2C, 0xDA, 0x70, 0xAA,
        0xAB, 0xE0, 0x31, 0, 0, 0xE0, 1, 0, 0, 0, 0, 0, 0, 0xE0, 1, 0, 0, 0, 0, 0x64, 0x65, 0x73, 0x63, 0, 0,
        0, 0, 6, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
    ];
    const GUID: Guid = Guid::from_u128(0xC827_55BC_427F_1245_B72C_DA70_AAAB_E031);
    const LOG_BYTES: u64 = 1 << 20;

    #[test]
    fn entry_header_of_qemu_parses() {
        let header = EntryHeader::parse(&QEMU, GUID, LOG_BYTES).unwrap();
        assert_eq!(
            header,
            EntryHeader {
                length: 8192,
                tail: 0xC000,
                sequence_number: 7,
                descriptors: 1,
                flushed_file_offset: 0x1E0_0000,
                last_file_offset: 0x1E0_0000,
                checksum: 0xDE75_1B77,
            }
        );
        assert_eq!(EntryHeader::parse(&QEMU, Guid::NIL, LOG_BYTES), None);
    }

    #[test]
    fn descriptor_and_data_sector_of_qemu_give_the_sector_of_the_file() {
        let descriptor = Descriptor::parse(QEMU.last_chunk().unwrap(), 7).unwrap();
        let leading = [6, 0, 0x80, 0, 0, 0, 0, 0];
        assert_eq!(descriptor, Descriptor::Data { at: 0x20_0000, leading, trailing: [0; 4] });
        // The first two BAT entries of what follows the descriptor's own.
        let mut stored = b"data\0\0\0\0\x06\0\xF0\0\0\0\0\0\x06\0\x90\0".to_vec();
        stored.resize(4092, 0);
        stored.extend([7, 0, 0, 0]);
        let sector = data_sector(&stored, leading, [1, 2, 3, 4], 7).unwrap();
        assert_eq!(sector.len(), 4096);
        assert_eq!(sector[..20], [6, 0, 0x80, 0, 0, 0, 0, 0, 6, 0, 0xF0, 0, 0, 0, 0, 0, 6, 0, 0x90, 0]);
        assert_eq!(sector[4090..], [0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn headers_that_cannot_be_entries_are_none() {
        let cases: [(usize, &[u8]); 7] = [
            (0, b"LOGE"),
            // The length: nothing, half a sector, more than the log.
            (8, &[0; 4]),
            (8, &[0, 0x28, 0, 0]),
            (8, &[0, 0x10, 0x10, 0]),
            // The tail, the sequence number, more descriptors than fit.
            (12, &[0, 0, 0x10, 0]),
            (16, &[0; 8]),
            (24, &[0xFF, 0, 0, 0]),
        ];
        for (place, bytes) in cases {
            let mut header = QEMU;
            header[place..place + bytes.len()].copy_from_slice(bytes);
            assert_eq!(EntryHeader::parse(&header, GUID, LOG_BYTES), None, "{bytes:x?} at {place}");
        }
    }
}
