//! How blocks lie in a file that we write.
//!
//! A block is its bitmap and, right behind it, its data. We put the end of the bitmap at a multiple of 4 KiB, as
//! Windows and blktap do: the data is then aligned for file systems that clone blocks and for disks with large
//! sectors. The footer takes the last sector before a multiple of 4 KiB, which is where the bitmap of the next block
//! goes; a file so is a whole number of 4 KiB long.
use super::{DynamicHeader, SECTOR_BYTES};

/// The alignment of a block's data, and of the file's end.
pub(super) const ALIGNMENT: u64 = 4096;

/// The sizes of a block's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockShape {
    pub(super) data_bytes: u64,
    pub(super) bitmap_bytes: u64,
}

/// Where a block lies in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPlace {
    pub(super) bitmap_at: u64,
    pub(super) data_at: u64,
    /// Behind its last byte.
    pub(super) end: u64,
}

impl BlockShape {
    pub(super) fn of(header: &DynamicHeader) -> Self {
        Self::of_bytes(u64::from(header.block_bytes))
    }

    pub(super) fn of_bytes(data_bytes: u64) -> Self {
        // [VHD] "Data Blocks": one bit for each sector, padded to a whole sector.
        let bitmap_bytes = (data_bytes / SECTOR_BYTES).div_ceil(8).next_multiple_of(SECTOR_BYTES);
        Self { data_bytes, bitmap_bytes }
    }

    /// The block that begins at this sector of the file.
    pub(super) fn at_sector(self, sector: u32) -> BlockPlace {
        self.at(u64::from(sector).saturating_mul(SECTOR_BYTES))
    }

    /// The place for a block behind `end`.
    pub(super) fn behind(self, end: u64) -> BlockPlace {
        let data_at = aligned(end.saturating_add(self.bitmap_bytes));
        self.at(data_at.saturating_sub(self.bitmap_bytes))
    }

    fn at(self, bitmap_at: u64) -> BlockPlace {
        let data_at = bitmap_at.saturating_add(self.bitmap_bytes);
        BlockPlace { bitmap_at, data_at, end: data_at.saturating_add(self.data_bytes) }
    }
}

impl BlockPlace {
    /// As the block allocation table has it. `None` where that cannot: its numbers have 32 bits, and the last of them
    /// says that there is no block.
    pub(super) fn sector(self) -> Option<u32> {
        u32::try_from(self.bitmap_at / SECTOR_BYTES).ok().filter(|&sector| sector != u32::MAX)
    }
}

/// Where the footer goes if all else ends at `end`.
pub(super) fn footer_behind(end: u64) -> u64 {
    aligned(end.saturating_add(SECTOR_BYTES)).saturating_sub(SECTOR_BYTES)
}

/// The next multiple of [`ALIGNMENT`]. Places that no file has come out as the last one.
pub(super) fn aligned(place: u64) -> u64 {
    place.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_windows() {
        // dfvfs' `fat-differential.vhd`: the locators end at 0x13000.
        let shape = BlockShape::of_bytes(2 << 20);
        let place = shape.behind(0x13000);
        assert_eq!(place, BlockPlace { bitmap_at: 0x13E00, data_at: 0x14000, end: 0x21_4000 });
        assert_eq!(place.sector(), Some(0x9F));
        assert_eq!(shape.at_sector(0x9F), place);
        assert_eq!(footer_behind(place.end), 0x21_4E00);
        assert_eq!(shape.behind(place.end).bitmap_at, footer_behind(place.end));
    }

    #[test]
    fn data_is_aligned_whatever_the_size_of_the_bitmap() {
        for data_bytes in [4 << 10, 64 << 10, 2 << 20, 16 << 20, 256 << 20] {
            let shape = BlockShape::of_bytes(data_bytes);
            for end in [1536, 4096, 5000, 8191] {
                let place = shape.behind(end);
                assert!(place.bitmap_at >= end && place.data_at.is_multiple_of(ALIGNMENT));
                assert_eq!(place.data_at - place.bitmap_at, shape.bitmap_bytes);
            }
        }
    }

    #[test]
    fn sector_that_means_absent_names_no_place() {
        let shape = BlockShape::of_bytes(2 << 20);
        assert_eq!(shape.at(u64::from(u32::MAX - 1) * 512).sector(), Some(u32::MAX - 1));
        assert_eq!(shape.at(u64::from(u32::MAX) * 512).sector(), None);
        assert_eq!(shape.at(1 << 41).sector(), None);
    }
}
