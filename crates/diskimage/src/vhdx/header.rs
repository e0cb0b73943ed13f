//! The two headers: which state of the file counts, and whether its log must be replayed ([MS-VHDX] §2.2.2).
use super::{MIB, Owned, checksum, read_bytes, sealed};
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::guid::Guid;
use crate::storage::Storage;

/// Where the two headers are.
pub(super) const PLACES: [u64; 2] = [0x10000, 0x20000];
/// How long a header is.
pub(super) const HEADER_BYTES: usize = 4096;
const SIGNATURE: &[u8] = b"head";
const RULE: &str = "[MS-VHDX] §2.2.2";

/// What a header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The header with the greater one counts.
    pub(super) sequence_number: u64,
    /// Changes before the first change of the file after it was opened for writing.
    pub(super) file_write_guid: Guid,
    /// Set while the log holds entries that must be replayed.
    pub(super) log_guid: Guid,
    /// Changes before the first change of the disk's contents: what children hold on to.
    pub(super) data_write_guid: Guid,
    log_version: u16,
    version: u16,
    pub(super) log_length: u32,
    pub(super) log_offset: u64,
}

/// The header that counts.
pub(super) fn read_current(storage: &dyn Storage) -> Result<Header, Refusal> {
    read_current_with_place(storage).map(|(header, _)| header)
}

/// The header that counts, and its place, one of [`PLACES`]. The next header goes to the other place ([MS-VHDX]
/// §2.2.2).
pub(super) fn read_current_with_place(storage: &dyn Storage) -> Result<(Header, u64), Refusal> {
    let [first_at, second_at] = PLACES;
    let first = Header::parse(&*read_bytes(storage, first_at)?);
    let second = Header::parse(&*read_bytes(storage, second_at)?);
    let (header, at) = current_of(first, second)?;
    header.check(at)?;
    Ok((header, at))
}

/// Which of the two headers counts, and its place. A header without signature or matching checksum is `None`.
pub(super) fn current_of(first: Option<Header>, second: Option<Header>) -> Result<(Header, u64), Damage> {
    let [first_at, second_at] = PLACES;
    Ok(match (first, second) {
        (Some(first), Some(second)) if first.sequence_number == second.sequence_number => {
            // Disk2vhd writes the same header twice. Two different ones would leave nobody to say which counts.
            if first != second {
                let problem = format!("both have sequence number {}, and differ", first.sequence_number);
                return Err(Damage::new("headers", first_at, RULE, problem));
            }
            (first, first_at)
        }
        (Some(first), Some(second)) if first.sequence_number > second.sequence_number => (first, first_at),
        (_, Some(second)) => (second, second_at),
        (Some(first), None) => (first, first_at),
        (None, None) => {
            let problem = "neither of the two has a signature and a matching checksum";
            return Err(Damage::new("headers", first_at, RULE, problem));
        }
    })
}

impl Header {
    /// The header of a file whose log, which is empty, is these bytes of the file.
    pub(super) fn new(
        sequence_number: u64,
        file_write_guid: Guid,
        data_write_guid: Guid,
        log_offset: u64,
        log_length: u32,
    ) -> Self {
        Self {
            sequence_number,
            file_write_guid,
            log_guid: Guid::NIL,
            data_write_guid,
            log_version: 0,
            version: 1,
            log_length,
            log_offset,
        }
    }

    /// As it is stored, with its checksum.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0; 4]);
        bytes.extend(self.sequence_number.to_le_bytes());
        bytes.extend(self.file_write_guid.to_le_bytes());
        bytes.extend(self.data_write_guid.to_le_bytes());
        bytes.extend(self.log_guid.to_le_bytes());
        bytes.extend(self.log_version.to_le_bytes());
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.log_length.to_le_bytes());
        bytes.extend(self.log_offset.to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        sealed(bytes)
    }

    /// The header in these bytes, if signature and checksum are right.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        if !bytes.starts_with(SIGNATURE) {
            return None;
        }
        let mut cursor = Cursor::new(bytes);
        cursor.skip(SIGNATURE.len())?;
        if cursor.le_u32()? != checksum(bytes) {
            return None;
        }
        let sequence_number = cursor.le_u64()?;
        let file_write_guid = Guid::from_le_bytes(cursor.array()?);
        let data_write_guid = Guid::from_le_bytes(cursor.array()?);
        let log_guid = Guid::from_le_bytes(cursor.array()?);
        let log_version = cursor.le_u16()?;
        let version = cursor.le_u16()?;
        let log_length = cursor.le_u32()?;
        let log_offset = cursor.le_u64()?;
        Some(Self {
            sequence_number,
            file_write_guid,
            log_guid,
            data_write_guid,
            log_version,
            version,
            log_length,
            log_offset,
        })
    }

    pub(super) fn check(&self, at: u64) -> Result<(), Refusal> {
        if self.version != 1 {
            return Err(Refusal::unsupported(RULE, format!("VHDX version {}", self.version)));
        }
        // A log of an unknown version does no harm while there is nothing in it.
        if self.log_version != 0 && self.log_guid != Guid::NIL {
            return Err(Refusal::unsupported(RULE, format!("VHDX log version {}", self.log_version)));
        }
        let aligned = self.log_offset.is_multiple_of(MIB) && u64::from(self.log_length).is_multiple_of(MIB);
        let fits = self.log_offset.checked_add(u64::from(self.log_length)).is_some();
        if !aligned || !fits {
            let problem = format!(
                "the log of {:#x} bytes at {:#x} is not made of whole MiB",
                self.log_length, self.log_offset
            );
            return Err(Damage::new("header", at, RULE, problem).into());
        }
        if self.log_length == 0 && self.log_guid != Guid::NIL {
            let problem = format!("the log {} has no room", self.log_guid);
            return Err(Damage::new("header", at, RULE, problem).into());
        }
        Ok(())
    }

    /// Where the log is, if there is one.
    pub(super) fn log(&self) -> Option<Owned> {
        let end = self.log_offset.saturating_add(u64::from(self.log_length));
        (self.log_length != 0).then_some(Owned { what: "the log", start: self.log_offset, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;
    use block::ByteOffset;

    /// What a refusal says, and the change that brings it about.
    type Case = (&'static str, fn(&mut [u8]));

    /// The second header of a file that Windows 6.2.9200 made (qemu's test images, `iotest-dynamic-1G.vhdx`), without
    /// the zeros that fill it up.
    const WINDOWS: [u8; 80] = [
        0x68, 0x65, 0x61, 0x64, 0x6F, 0x27, 0x02, 0xB5, 0x0F, 0, 0, 0, 0, 0, 0, 0, 0x6D, 0xEA, 0x90, 0x8E,
        0x36, 0xB6, 0x49, 0x1C, 0xB7, 0xD4, 0x35, 0x10, 0x9E, 0x60, 0x0C, 0x0C, 0xB2, 0xCB, 0x47, 0xD2, 0xB6,
        0x15, 0x4B, 0x40, 0x91, 0x33, 0x79, 0x07, 0x33, 0xD6, 0x94, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x10, 0, 0, 0, 0x10, 0, 0, 0, 0, 0,
    ];

    fn windows() -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..WINDOWS.len()].copy_from_slice(&WINDOWS);
        bytes
    }

    fn changed(change: impl FnOnce(&mut [u8])) -> [u8; HEADER_BYTES] {
        let mut bytes = windows();
        change(&mut bytes);
        let sum = checksum(&bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn current_in(first: &[u8], second: &[u8]) -> Result<Header, Refusal> {
        let mut file = MemoryStorage::sparse(block::ByteLength::new(MIB));
        file.put(ByteOffset::new(PLACES[0]), first);
        file.put(ByteOffset::new(PLACES[1]), second);
        read_current(&file)
    }

    #[test]
    fn header_of_windows_parses() {
        let header = Header::parse(&windows()).unwrap();
        assert_eq!(
            header,
            Header {
                sequence_number: 15,
                file_write_guid: Guid::from_u128(0x8E90_EA6D_B636_1C49_B7D4_3510_9E60_0C0C),
                log_guid: Guid::NIL,
                data_write_guid: Guid::from_u128(0xD247_CBB2_15B6_404B_9133_7907_33D6_94C0),
                log_version: 0,
                version: 1,
                log_length: 1 << 20,
                log_offset: 1 << 20,
            }
        );
        header.check(0).unwrap();
    }

    #[test]
    fn header_encodes_to_the_bytes_of_windows() {
        let header = Header::parse(&windows()).unwrap();
        assert_eq!(header.encode(), windows());
        let new = Header::new(15, header.file_write_guid, header.data_write_guid, header.log_offset, 1 << 20);
        assert_eq!(new, header);
    }

    #[test]
    fn any_changed_byte_makes_a_header_invalid() {
        for place in (0..WINDOWS.len()).chain([HEADER_BYTES - 1]) {
            let mut bytes = windows();
            bytes[place] ^= 0x10;
            assert_eq!(Header::parse(&bytes), None, "byte {place}");
        }
    }

    #[test]
    fn greater_sequence_number_counts() {
        let newer = changed(|bytes| bytes[8] = 0x10);
        assert_eq!(current_in(&windows(), &newer).unwrap().sequence_number, 16);
        assert_eq!(current_in(&newer, &windows()).unwrap().sequence_number, 16);
    }

    #[test]
    fn one_valid_header_is_enough_and_none_is_not() {
        assert_eq!(current_in(&[0; 4096], &windows()).unwrap().sequence_number, 15);
        assert_eq!(current_in(&windows(), &[0; 4096]).unwrap().sequence_number, 15);
        let error = current_in(&[0; 4096], &[0; 4096]).unwrap_err().to_string();
        assert!(error.contains("neither of the two"), "{error}");
    }

    #[test]
    fn equal_sequence_numbers_count_only_if_the_headers_agree() {
        assert_eq!(current_in(&windows(), &windows()).unwrap().sequence_number, 15);
        let other = changed(|bytes| bytes[40] ^= 1);
        let error = current_in(&windows(), &other).unwrap_err().to_string();
        assert!(error.contains("both have sequence number 15"), "{error}");
    }

    #[test]
    fn headers_that_cannot_be_obeyed_are_refused() {
        let cases: [Case; 5] = [
            ("VHDX version 2", |bytes| bytes[66] = 2),
            ("VHDX log version 1", |bytes| {
                bytes[64] = 1;
                bytes[48] = 1;
            }),
            ("not made of whole MiB", |bytes| bytes[69] = 1),
            ("not made of whole MiB", |bytes| bytes[72..80].copy_from_slice(&(!0xF_FFFF_u64).to_le_bytes())),
            ("has no room", |bytes| {
                bytes[70] = 0;
                bytes[48] = 1;
            }),
        ];
        for (expected, change) in cases {
            let header = changed(change);
            let error = current_in(&header, &header).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let harmless = changed(|bytes| bytes[64] = 1);
        current_in(&harmless, &harmless).unwrap();
    }
}
