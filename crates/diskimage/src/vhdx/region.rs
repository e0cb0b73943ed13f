//! The region table: which large parts the file has, and where they are ([MS-VHDX] §2.2.3).
use super::{MIB, Owned, checksum, read_bytes, sealed};
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::guid::Guid;
use crate::storage::Storage;

/// Where the two copies of the table are.
pub(super) const PLACES: [u64; 2] = [0x30000, 0x40000];
/// How long a copy is.
pub(super) const TABLE_BYTES: usize = 64 << 10;
const SIGNATURE: &[u8] = b"regi";
/// As many entries as fit behind the table's header of 16 bytes ([MS-VHDX] §2.2.3.1).
const MAX_ENTRIES: u32 = 2047;
const NAME: &str = "region table";
const RULE: &str = "[MS-VHDX] §2.2.3";

const BAT: Guid = Guid::from_u128(0x2DC2_7766_F623_4200_9D64_115E_9BFD_4A08);
const METADATA: Guid = Guid::from_u128(0x8B7C_A206_4790_4B9A_B8FE_575F_050F_886E);

/// A region of the file, both of whose ends are whole MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) at: u64,
    pub(super) length: u64,
}

/// The regions of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RegionTable {
    pub(super) bat: Region,
    pub(super) metadata: Region,
    /// Optional ones of which nothing is known but that they are not ours to use.
    unknown: Vec<Region>,
}

impl Region {
    /// The byte behind the last.
    pub(super) fn end(self) -> u64 {
        self.at.saturating_add(self.length)
    }
}

impl RegionTable {
    /// The table, from the first of its two copies that is sound.
    pub(super) fn read(storage: &dyn Storage) -> Result<Self, Refusal> {
        for at in PLACES {
            let bytes = read_bytes::<TABLE_BYTES>(storage, at)?;
            if is_sound(&bytes[..]) {
                return Self::parse(&bytes[..], at);
            }
        }
        let [at, _] = PLACES;
        let problem = "neither of the two copies has a signature and a matching checksum";
        Err(Damage::new(NAME, at, RULE, problem).into())
    }

    /// The table of a file that we make.
    pub(super) fn new(bat: Region, metadata: Region) -> Self {
        Self { bat, metadata, unknown: Vec::new() }
    }

    /// One copy as it is stored, with its checksum. Regions that are not known are not kept: only of files that we
    /// make is the table written anew.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0; 4]);
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend([0; 4]);
        for (guid, region) in [(BAT, self.bat), (METADATA, self.metadata)] {
            bytes.extend(guid.to_le_bytes());
            bytes.extend(region.at.to_le_bytes());
            // The BAT of the largest disk in the smallest blocks has 513 MiB.
            bytes.extend(u32::try_from(region.length).unwrap_or(u32::MAX).to_le_bytes());
            bytes.extend(1_u32.to_le_bytes());
        }
        bytes.resize(TABLE_BYTES, 0);
        sealed(bytes)
    }

    /// One copy of the table that `storage` holds, but with the block allocation table in another region.
    pub(super) fn with_bat_at(bat: Region, storage: &dyn Storage) -> Result<Vec<u8>, Refusal> {
        let [first, second] = PLACES;
        let mut bytes = read_bytes::<TABLE_BYTES>(storage, first)?;
        if !is_sound(&bytes[..]) {
            bytes = read_bytes::<TABLE_BYTES>(storage, second)?;
        }
        let mut bytes = bytes.to_vec();
        // Behind the table's header of 16 bytes, entries of 32: identifier, place, length, whether it is required.
        let mut entries = bytes.get_mut(16..).unwrap_or_default().chunks_exact_mut(32);
        if let Some(entry) = entries.find(|entry| entry.starts_with(&BAT.to_le_bytes())) {
            let length = u32::try_from(bat.length).unwrap_or(u32::MAX);
            let fields = bat.at.to_le_bytes().into_iter().chain(length.to_le_bytes());
            for (target, byte) in entry.iter_mut().skip(16).zip(fields) {
                *target = byte;
            }
        }
        Ok(sealed(bytes))
    }

    pub(super) fn parse(bytes: &[u8], at: u64) -> Result<Self, Refusal> {
        let damage = |problem: String| Damage::new(NAME, at, RULE, problem);
        let mut cursor = Cursor::new(bytes);
        let short = || damage("it is cut short".into());
        // Signature and checksum were looked at before.
        cursor.skip(8).ok_or_else(short)?;
        let count = cursor.le_u32().ok_or_else(short)?;
        cursor.skip(4).ok_or_else(short)?;
        if count > MAX_ENTRIES {
            return Err(
                damage(format!("it says that it has {count} entries, of at most {MAX_ENTRIES}")).into()
            );
        }
        let (mut bat, mut metadata, mut unknown) = (None, None, Vec::new());
        for index in 0..count {
            let entry = Entry::take(&mut cursor).ok_or_else(short)?;
            let region = entry.region(index).map_err(damage)?;
            let slot = match entry.guid {
                BAT => &mut bat,
                METADATA => &mut metadata,
                // [MS-VHDX] §2.2.3.2: a file with an unknown region that is required must not be opened.
                guid if entry.required => {
                    return Err(Refusal::unsupported(RULE, format!("the required region {guid}")));
                }
                _ => {
                    unknown.push(region);
                    continue;
                }
            };
            if slot.replace(region).is_some() {
                return Err(damage(format!("region {} is listed twice", entry.guid)).into());
            }
        }
        let missing = |what| damage(format!("there is no {what} region"));
        Ok(Self {
            bat: bat.ok_or_else(|| missing("block allocation table"))?,
            metadata: metadata.ok_or_else(|| missing("metadata"))?,
            unknown,
        })
    }

    /// What the regions own of the file.
    pub(super) fn owned(&self) -> impl Iterator<Item = Owned> {
        let known = [("the block allocation table", self.bat), ("the metadata region", self.metadata)];
        let unknown = self.unknown.iter().map(|&region| ("an unknown region", region));
        let all = known.into_iter().chain(unknown);
        all.map(|(what, region)| Owned { what, start: region.at, end: region.end() })
    }
}

/// Whether these bytes have the table's signature and a matching checksum.
pub(super) fn is_sound(bytes: &[u8]) -> bool {
    let mut cursor = Cursor::new(bytes);
    cursor.slice(SIGNATURE.len()) == Some(SIGNATURE) && cursor.le_u32() == Some(checksum(bytes))
}

/// An entry as it is stored ([MS-VHDX] §2.2.3.2).
struct Entry {
    guid: Guid,
    at: u64,
    length: u32,
    required: bool,
}

impl Entry {
    fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        let guid = Guid::from_le_bytes(cursor.array()?);
        let at = cursor.le_u64()?;
        let length = cursor.le_u32()?;
        let required = cursor.le_u32()? & 1 != 0;
        Some(Self { guid, at, length, required })
    }

    fn region(&self, index: u32) -> Result<Region, String> {
        let length = u64::from(self.length);
        let aligned = self.at.is_multiple_of(MIB) && length.is_multiple_of(MIB);
        if !aligned || self.at < MIB || length == 0 || self.at.checked_add(length).is_none() {
            return Err(format!(
                "entry {index} ({}), {length:#x} bytes at {:#x}, is not made of whole MiB behind the first",
                self.guid, self.at
            ));
        }
        Ok(Region { at: self.at, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;
    use block::ByteOffset;

    /// What a refusal says, and the change that brings it about.
    type Case = (&'static str, fn(&mut [u8]));

    /// The region table of a file that Windows 6.2.9200 made (qemu's test images, `iotest-dynamic-1G.vhdx`), without
    /// the zeros that fill it up.
    const WINDOWS: [u8; 80] = [
        0x72, 0x65, 0x67, 0x69, 0xAE, 0x8C, 0x6B, 0xC6, 2, 0, 0, 0, 0, 0, 0, 0, 0x66, 0x77, 0xC2, 0x2D, 0x23,
        0xF6, 0, 0x42, 0x9D, 0x64, 0x11, 0x5E, 0x9B, 0xFD, 0x4A, 0x08, 0, 0, 0x30, 0, 0, 0, 0, 0, 0, 0, 0x10,
        0, 1, 0, 0, 0, 0x06, 0xA2, 0x7C, 0x8B, 0x90, 0x47, 0x9A, 0x4B, 0xB8, 0xFE, 0x57, 0x5F, 0x05, 0x0F,
        0x88, 0x6E, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 1, 0, 0, 0,
    ];

    fn windows() -> Vec<u8> {
        let mut bytes = WINDOWS.to_vec();
        bytes.resize(TABLE_BYTES, 0);
        bytes
    }

    fn changed(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut bytes = windows();
        change(&mut bytes);
        let sum = checksum(&bytes);
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn read(first: &[u8], second: &[u8]) -> Result<RegionTable, Refusal> {
        let mut file = MemoryStorage::sparse(block::ByteLength::new(MIB));
        file.put(ByteOffset::new(PLACES[0]), first);
        file.put(ByteOffset::new(PLACES[1]), second);
        RegionTable::read(&file)
    }

    #[test]
    fn region_table_of_windows_parses() {
        assert_eq!(
            read(&windows(), &[]).unwrap(),
            RegionTable {
                bat: Region { at: 3 * MIB, length: MIB },
                metadata: Region { at: 2 * MIB, length: MIB },
                unknown: vec![],
            }
        );
    }

    #[test]
    fn region_table_encodes_to_the_bytes_of_windows() {
        let table = read(&windows(), &[]).unwrap();
        assert_eq!(table.encode(), windows());
        assert_eq!(RegionTable::new(table.bat, table.metadata), table);
    }

    #[test]
    fn second_copy_stands_in_for_a_damaged_first() {
        let mut damaged = windows();
        damaged[TABLE_BYTES - 1] = 1;
        read(&damaged, &windows()).unwrap();
        let error = read(&damaged, &damaged).unwrap_err().to_string();
        assert!(error.contains("neither of the two copies"), "{error}");
    }

    #[test]
    fn unknown_region_is_refused_if_required_and_kept_if_not() {
        let with_third = |required: u8| {
            changed(|bytes| {
                bytes[8] = 3;
                let third = bytes[48..80].to_vec();
                bytes[80..112].copy_from_slice(&third);
                bytes[80] ^= 0xFF;
                bytes[96 + 2] = 0x50;
                bytes[108] = required;
            })
        };
        let error = read(&with_third(1), &[]).unwrap_err().to_string();
        assert!(error.contains("required region 8b7ca2f9-"), "{error}");
        let table = read(&with_third(0), &[]).unwrap();
        assert_eq!(table.unknown, [Region { at: 5 * MIB, length: MIB }]);
    }

    #[test]
    fn tables_that_break_a_rule_are_refused() {
        let cases: [Case; 7] = [
            ("2048 entries", |bytes| bytes[8..12].copy_from_slice(&2048_u32.to_le_bytes())),
            ("4294967295 entries", |bytes| bytes[8..12].copy_from_slice(&[0xFF; 4])),
            ("whole MiB", |bytes| bytes[33] = 1),
            ("whole MiB", |bytes| bytes[34] = 0),
            ("whole MiB", |bytes| bytes[32..40].copy_from_slice(&(!0xF_FFFF_u64).to_le_bytes())),
            ("listed twice", |bytes| bytes.copy_within(16..32, 48)),
            ("no metadata region", |bytes| bytes[8] = 1),
        ];
        for (expected, change) in cases {
            let error = read(&changed(change), &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
