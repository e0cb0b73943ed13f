//! The metadata table: which items there are, and where ([MS-VHDX] §2.6.1).
use super::super::region::Region;
use crate::cursor::Cursor;
use crate::error::Damage;
use crate::guid::Guid;

pub(super) const TABLE_BYTES: usize = 64 << 10;
pub(super) const SIGNATURE: &[u8] = b"metadata";
/// As many entries as fit behind the table's header of 32 bytes ([MS-VHDX] §2.6.1.1).
pub(super) const MAX_ENTRIES: u16 = 2047;
/// [MS-VHDX] §2.6.1.2.
pub(super) const MAX_ITEM_BYTES: u32 = 1 << 20;
pub(super) const NAME: &str = "metadata table";
pub(super) const RULE: &str = "[MS-VHDX] §2.6";

pub(super) const FILE_PARAMETERS: Guid = Guid::from_u128(0xCAA1_6737_FA36_4D43_B3B6_33F0_AA44_E76B);
pub(super) const VIRTUAL_DISK_SIZE: Guid = Guid::from_u128(0x2FA5_4224_CD1B_4876_B211_5DBE_D83B_F4B8);
pub(super) const VIRTUAL_DISK_ID: Guid = Guid::from_u128(0xBECA_12AB_B2E6_4523_93EF_C309_E000_C746);
pub(super) const LOGICAL_SECTOR_SIZE: Guid = Guid::from_u128(0x8141_BF1D_A96F_4709_BA47_F233_A8FA_AB5F);
pub(super) const PHYSICAL_SECTOR_SIZE: Guid = Guid::from_u128(0xCDA3_48C7_445D_4471_9CC9_E988_5251_C556);
pub(super) const PARENT_LOCATOR: Guid = Guid::from_u128(0xA8D3_5F2D_B30B_454D_ABF7_D3D8_4834_AB0C);
/// Our own: the file is being made. Nobody else knows the item, and since it is required, everybody must refuse it.
pub(super) const INCOMPLETE: Guid = Guid::from_u128(0x94DE_C938_64E1_44BE_BDFA_45CF_05B7_306C);

/// Bits of an item's flags ([MS-VHDX] §2.6.1.2).
pub(super) const IS_USER: u32 = 1;
pub(super) const IS_VIRTUAL_DISK: u32 = 2;
pub(super) const IS_REQUIRED: u32 = 4;

/// Whether the system's item `id` is one that this crate reads and writes itself.
pub(in super::super) fn is_known_item(id: Guid) -> bool {
    [
        FILE_PARAMETERS,
        VIRTUAL_DISK_SIZE,
        VIRTUAL_DISK_ID,
        LOGICAL_SECTOR_SIZE,
        PHYSICAL_SECTOR_SIZE,
        PARENT_LOCATOR,
        INCOMPLETE,
    ]
    .contains(&id)
}

/// An entry as it is stored ([MS-VHDX] §2.6.1.2).
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: Guid,
    pub(super) offset: u32,
    pub(super) length: u32,
    pub(super) flags: u32,
}

impl Entry {
    /// All entries of the table.
    pub(super) fn all(table: &[u8], region: Region) -> Result<Vec<Self>, Damage> {
        let damage = |problem: String| Damage::new(NAME, region.at, RULE, problem);
        let short = || damage("it is cut short".into());
        let mut cursor = Cursor::new(table);
        if cursor.slice(SIGNATURE.len()) != Some(SIGNATURE) {
            return Err(damage("the signature \"metadata\" is missing".into()));
        }
        cursor.skip(2).ok_or_else(short)?;
        let count = cursor.le_u16().ok_or_else(short)?;
        cursor.skip(20).ok_or_else(short)?;
        if count > MAX_ENTRIES {
            return Err(damage(format!("it says that it has {count} entries, of at most {MAX_ENTRIES}")));
        }
        let mut entries = Vec::with_capacity(usize::from(count));
        for _ in 0..count {
            let entry = Entry::take(&mut cursor).ok_or_else(short)?;
            entry.check(region).map_err(damage)?;
            entries.push(entry);
        }
        let mut names: Vec<_> =
            entries.iter().map(|entry| (entry.id.to_be_bytes(), entry.is_user())).collect();
        names.sort_unstable();
        // [MS-VHDX] §2.6.1.2: an identifier stands once among the system's items and once among the user's.
        if names.iter().zip(names.iter().skip(1)).any(|(one, other)| one == other) {
            return Err(damage("an item is listed twice".into()));
        }
        Ok(entries)
    }

    fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        let id = Guid::from_le_bytes(cursor.array()?);
        let offset = cursor.le_u32()?;
        let length = cursor.le_u32()?;
        let flags = cursor.le_u32()?;
        let _reserved = cursor.le_u32()?;
        Some(Self { id, offset, length, flags })
    }

    pub(super) fn put(&self, table: &mut Vec<u8>) {
        table.extend(self.id.to_le_bytes());
        table.extend(self.offset.to_le_bytes());
        table.extend(self.length.to_le_bytes());
        table.extend(self.flags.to_le_bytes());
        table.extend([0; 4]);
    }

    pub(super) fn is_user(&self) -> bool {
        self.flags & IS_USER != 0
    }

    pub(super) fn is_required(&self) -> bool {
        self.flags & IS_REQUIRED != 0
    }

    fn check(&self, region: Region) -> Result<(), String> {
        if self.length == 0 {
            return Ok(());
        }
        let end = u64::from(self.offset).saturating_add(u64::from(self.length));
        if (self.offset as usize) < TABLE_BYTES || end > region.length || self.length > MAX_ITEM_BYTES {
            return Err(format!(
                "item {}, {} bytes at {:#x} of the region, does not lie between the table and the region's end",
                self.id, self.length, self.offset
            ));
        }
        Ok(())
    }
}
