//! The metadata of a file that we make, as bytes.
use super::entry::{
    Entry, FILE_PARAMETERS, INCOMPLETE, IS_REQUIRED, IS_USER, IS_VIRTUAL_DISK, LOGICAL_SECTOR_SIZE,
    MAX_ENTRIES, PARENT_LOCATOR, PHYSICAL_SECTOR_SIZE, SIGNATURE, TABLE_BYTES, VIRTUAL_DISK_ID,
    VIRTUAL_DISK_SIZE,
};
use super::{HAS_PARENT, LEAVE_BLOCKS_ALLOCATED, Metadata};
use crate::new_image::MetadataItem;

/// What a file that we make says of itself besides [`Metadata`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Making<'a> {
    /// It is being made: it has the mark, and not yet the items that are carried over.
    Incomplete,
    /// It is whole, with these items from elsewhere.
    Complete { carried: &'a [MetadataItem] },
}

impl Metadata {
    /// The table and the items behind it, as they are stored; `None` where the locator cannot be stored.
    ///
    /// The entries that say what the disk is like, and the mark of an incomplete file, lie in the table's first 512
    /// bytes. A disk writes those wholly or not at all: the mark cannot get lost on its own.
    pub(in super::super) fn encode(&self, making: Making<'_>) -> Option<Vec<u8>> {
        let bit = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
        let flags =
            bit(self.leave_blocks_allocated, LEAVE_BLOCKS_ALLOCATED) | bit(self.parent.is_some(), HAS_PARENT);
        let parameters = [self.block_bytes.to_le_bytes(), flags.to_le_bytes()].concat();
        let of_disk = IS_VIRTUAL_DISK | IS_REQUIRED;
        let mut items = vec![
            (FILE_PARAMETERS, IS_REQUIRED, parameters),
            (VIRTUAL_DISK_SIZE, of_disk, self.virtual_bytes.to_le_bytes().to_vec()),
            (LOGICAL_SECTOR_SIZE, of_disk, self.logical_block_u32().to_le_bytes().to_vec()),
            (PHYSICAL_SECTOR_SIZE, of_disk, self.physical_block.to_le_bytes().to_vec()),
            (VIRTUAL_DISK_ID, of_disk, self.virtual_disk_id.to_le_bytes().to_vec()),
        ];
        if let Some(parent) = &self.parent {
            items.push((PARENT_LOCATOR, IS_REQUIRED, parent.encode()?));
        }
        match making {
            Making::Incomplete => items.push((INCOMPLETE, IS_REQUIRED, Vec::new())),
            Making::Complete { carried } => {
                items.extend(
                    carried.iter().map(|item| {
                        (item.id, bit(item.is_user, IS_USER) | IS_VIRTUAL_DISK, item.bytes.clone())
                    }),
                );
            }
        }
        let mut table = SIGNATURE.to_vec();
        table.extend([0; 2]);
        let count = u16::try_from(items.len()).ok().filter(|&count| count <= MAX_ENTRIES)?;
        table.extend(count.to_le_bytes());
        table.extend([0; 20]);
        let mut stored = Vec::new();
        for (id, flags, bytes) in items {
            // [MS-VHDX] §2.6.1.2: an item without bytes is nowhere.
            let at = if bytes.is_empty() { 0 } else { TABLE_BYTES.checked_add(stored.len())? };
            let entry = Entry {
                id,
                offset: u32::try_from(at).ok()?,
                length: u32::try_from(bytes.len()).ok()?,
                flags,
            };
            entry.put(&mut table);
            stored.extend(bytes);
        }
        table.resize(TABLE_BYTES, 0);
        table.extend(stored);
        Some(table)
    }
}
