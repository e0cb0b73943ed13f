//! The dynamic disk header: where the block allocation table is, how large the blocks are, and which parent there is.
use block::{ByteOffset, Patience};

use super::footer::DiskType;
use super::locator::ParentReference;
use super::{Footer, checksum, put_fields, seal};
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::storage::Storage;

pub(crate) const HEADER_BYTES: usize = 1024;
/// There is one header, and nothing behind it.
const NO_NEXT: u64 = u64::MAX;
const VERSION: u32 = 0x0001_0000;
const COOKIE: &[u8] = b"cxsparse";
const CHECKSUM_FIELD: usize = 36;
const RULE: &str = "[VHD] Dynamic Disk Header Format";

/// Blocks are powers of two. The default is 2 MiB, and Provisioning Services uses 16 MiB; the limits are ours: below
/// them the table would be larger than is sensible, above them one block's bitmap would be.
pub(super) const BLOCK_BYTES_RANGE: std::ops::RangeInclusive<u32> = (4 << 10)..=(256 << 20);

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DynamicHeader {
    /// Where the block allocation table stands.
    pub(crate) table_offset: u64,
    /// How many entries it has.
    pub(crate) table_entries: u32,
    /// How much of the disk a block holds: a power of two in [`BLOCK_BYTES_RANGE`].
    pub(crate) block_bytes: u32,
    /// Of a differencing image: what it says of its parent.
    pub(crate) parent: Option<ParentReference>,
}

impl DynamicHeader {
    pub(crate) fn read(storage: &dyn Storage, footer: &Footer) -> Result<Self, Refusal> {
        let at = footer.data_offset;
        let mut bytes = [0; HEADER_BYTES];
        storage.read_at(ByteOffset::new(at), &mut bytes, Patience::Blocking)?;
        let mut header = Self::parse(&bytes, at)?;
        if footer.disk_type == DiskType::Differencing {
            header.parent = Some(ParentReference::read(storage, &bytes, at)?);
        }
        Ok(header)
    }

    /// The header's bytes; of the parent also what it says in the header, but not the paths elsewhere in the file.
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        self.encode_over(&mut bytes);
        bytes
    }

    /// Puts the fields into `bytes`, and the checksum; what `bytes` has besides stays.
    pub(super) fn encode_over(&self, bytes: &mut [u8; HEADER_BYTES]) {
        let fields: [&[u8]; 6] = [
            COOKIE,
            &NO_NEXT.to_be_bytes(),
            &self.table_offset.to_be_bytes(),
            &VERSION.to_be_bytes(),
            &self.table_entries.to_be_bytes(),
            &self.block_bytes.to_be_bytes(),
        ];
        put_fields(bytes, &fields);
        if let Some(parent) = &self.parent {
            parent.encode_over(bytes);
        }
        seal(bytes, CHECKSUM_FIELD);
    }

    /// What the header itself says, without its parent.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES], at: u64) -> Result<Self, Refusal> {
        let damage = |problem: String| Refusal::from(Damage::new("dynamic disk header", at, RULE, problem));
        if !bytes.starts_with(COOKIE) {
            return Err(damage("the cookie \"cxsparse\" is missing".into()));
        }
        let (Some((header, version, stored)), computed) =
            (Self::fields(&mut Cursor::new(bytes)), checksum(bytes, CHECKSUM_FIELD))
        else {
            return Err(damage("it is cut short".into()));
        };
        if stored != computed {
            return Err(damage(format!("the checksum is {computed:#x}, not {stored:#x} as stored")));
        }
        if version >> 16 != 1 {
            return Err(Refusal::unsupported(RULE, format!("dynamic disk header version {version:#x}")));
        }
        if !header.block_bytes.is_power_of_two() || !BLOCK_BYTES_RANGE.contains(&header.block_bytes) {
            let problem = format!(
                "the block size, {} bytes, is no power of two from 4 KiB to 256 MiB",
                header.block_bytes
            );
            return Err(damage(problem));
        }
        Ok(header)
    }

    fn fields(cursor: &mut Cursor<'_>) -> Option<(Self, u32, u32)> {
        cursor.skip(COOKIE.len())?;
        let _data_offset = cursor.be_u64()?;
        let table_offset = cursor.be_u64()?;
        let version = cursor.be_u32()?;
        let table_entries = cursor.be_u32()?;
        let block_bytes = cursor.be_u32()?;
        let checksum = cursor.be_u32()?;
        let parent = None;
        Some((Self { table_offset, table_entries, block_bytes, parent }, version, checksum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of a disk that Hyper-V 2012 R2 made (qemu's test images, `hyperv2012r2-dynamic.vhd`), without the
    /// zeros that fill it up.
    const HYPER_V: [u8; 40] = [
        0x63, 0x78, 0x73, 0x70, 0x61, 0x72, 0x73, 0x65, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0,
        0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 0, 0xFE, 0, 0, 0x20, 0, 0, 0xFF, 0xFF, 0xF3, 0x79,
    ];

    fn hyper_v() -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..HYPER_V.len()].copy_from_slice(&HYPER_V);
        bytes
    }

    #[test]
    fn header_of_hyper_v_parses() {
        let header = DynamicHeader::parse(&hyper_v(), 0x200).unwrap();
        assert_eq!(
            header,
            DynamicHeader { table_offset: 0x600, table_entries: 0xFE00, block_bytes: 2 << 20, parent: None }
        );
    }

    #[test]
    fn encoded_header_is_the_one_that_hyper_v_wrote() {
        assert_eq!(DynamicHeader::parse(&hyper_v(), 0x200).unwrap().encode(), hyper_v());
    }

    #[test]
    fn any_changed_byte_is_refused() {
        for place in (0..HYPER_V.len()).chain([HEADER_BYTES - 1]) {
            let mut bytes = hyper_v();
            bytes[place] ^= 1;
            let result = DynamicHeader::parse(&bytes, 0x200);
            assert!(matches!(result, Err(Refusal::Damaged(_))), "byte {place}: {result:?}");
        }
    }

    #[test]
    fn block_sizes_that_are_none_are_refused() {
        for size in [0_u32, 512, 3 << 20, 512 << 20, u32::MAX] {
            let mut bytes = hyper_v();
            bytes[32..36].copy_from_slice(&size.to_be_bytes());
            let sum = checksum(&bytes, CHECKSUM_FIELD);
            bytes[CHECKSUM_FIELD..CHECKSUM_FIELD + 4].copy_from_slice(&sum.to_be_bytes());
            let refusal = DynamicHeader::parse(&bytes, 0x200).unwrap_err().to_string();
            assert!(refusal.contains(&format!("block size, {size} bytes")), "{refusal}");
        }
    }
}
