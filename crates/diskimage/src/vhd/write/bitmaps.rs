//! The bitmaps of blocks while an image is written: those that have changed, some that have not, and which are full.
use std::collections::BTreeMap;

use crate::bitmap::{BitOrder, Run, run};
use crate::vhd::SECTOR_BYTES;

/// How much memory the bitmaps take that are kept: as many as of 64 GiB of disk in blocks of 2 MiB.
const MAX_BYTES: usize = 16 << 20;

/// Which sectors of a block the file holds, most significant bit first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SectorBits {
    bytes: Box<[u8]>,
    /// Whether the file does not have it yet as it stands here.
    pub(super) is_changed: bool,
}

/// The bitmaps that are kept, by their blocks. A bitmap that has changed is always among them.
#[derive(Debug, Default)]
pub(super) struct Bitmaps {
    kept: BTreeMap<u32, SectorBits>,
}

impl SectorBits {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes: bytes.into(), is_changed: false }
    }

    /// The bits of a new block.
    pub(super) fn new(bytes: u64, held: bool) -> Self {
        let fill = if held { 0xFF } else { 0 };
        let bytes = vec![fill; usize::try_from(bytes).unwrap_or_default()];
        Self { bytes: bytes.into(), is_changed: true }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The run that begins with `sector`.
    pub(super) fn run(&self, sector: u64) -> Run {
        run(&self.bytes, sector, BitOrder::Msb)
    }

    /// Whether all `count` sectors from `first` on are held.
    pub(super) fn holds(&self, first: u64, count: u64) -> bool {
        matches!(self.run(first), Run { held: true, sectors } if sectors >= count)
    }

    /// Notes that the `count` sectors from `first` on are held.
    pub(super) fn hold(&mut self, first: u64, count: u64) {
        if self.holds(first, count) {
            return;
        }
        let end = first.saturating_add(count);
        let (from, to) = (first / 8, end.div_ceil(8));
        for byte in from..to {
            // The sectors of this byte that are meant, counted within it.
            let start = first.saturating_sub(byte.saturating_mul(8)).min(8);
            let stop = end.saturating_sub(byte.saturating_mul(8)).min(8);
            let mask = mask_from(start) & !mask_from(stop);
            if let Some(bits) = usize::try_from(byte).ok().and_then(|byte| self.bytes.get_mut(byte)) {
                *bits |= mask;
            }
        }
        self.is_changed = true;
    }
}

/// The bits of a byte from the `from`-th on, counted from the most significant one.
fn mask_from(from: u64) -> u8 {
    u32::try_from(from).ok().and_then(|from| 0xFF_u8.checked_shr(from)).unwrap_or_default()
}

impl Bitmaps {
    pub(super) fn get(&self, block: u32) -> Option<&SectorBits> {
        self.kept.get(&block)
    }

    pub(super) fn get_mut(&mut self, block: u32) -> Option<&mut SectorBits> {
        self.kept.get_mut(&block)
    }

    pub(super) fn put(&mut self, block: u32, bits: SectorBits) {
        self.kept.insert(block, bits);
    }

    pub(super) fn remove(&mut self, block: u32) {
        self.kept.remove(&block);
    }

    pub(super) fn changed(&self) -> impl Iterator<Item = (u32, &SectorBits)> {
        self.kept.iter().filter(|(_, bits)| bits.is_changed).map(|(&block, bits)| (block, bits))
    }

    /// Notes that the file has all bitmaps as they stand here.
    pub(super) fn settle(&mut self) {
        self.kept.values_mut().for_each(|bits| bits.is_changed = false);
    }

    /// Whether more is kept than should be, in bitmaps of `bytes` bytes.
    pub(super) fn is_over_limit(&self, bytes: u64) -> bool {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.kept.len().saturating_mul(bytes) > MAX_BYTES
    }

    /// Forgets what the file has.
    pub(super) fn forget_settled(&mut self) {
        self.kept.retain(|_, bits| bits.is_changed);
    }
}

/// How many sectors lie in so many bytes.
pub(super) fn sectors(bytes: u64) -> u64 {
    bytes / SECTOR_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_sectors_are_set_from_the_most_significant_bit_on() {
        let mut bits = SectorBits::of(vec![0; 4]);
        bits.hold(3, 2);
        assert_eq!(bits.bytes(), [0b0001_1000, 0, 0, 0]);
        assert!(bits.is_changed);
        bits.hold(6, 12);
        assert_eq!(bits.bytes(), [0b0001_1011, 0xFF, 0b1100_0000, 0]);
        assert_eq!(bits.run(5), Run { held: false, sectors: 1 });
        assert!(bits.holds(6, 12) && !bits.holds(6, 13) && !bits.holds(2, 1));
        bits.hold(24, 8);
        assert_eq!(bits.bytes()[3], 0xFF);
    }

    #[test]
    fn holding_what_is_held_changes_nothing() {
        let mut bits = SectorBits::of(vec![0xF0]);
        bits.hold(0, 4);
        assert!(!bits.is_changed);
    }

    #[test]
    fn changed_bitmaps_are_not_forgotten() {
        let mut bitmaps = Bitmaps::default();
        for block in 0..40_000 {
            bitmaps.put(block, SectorBits { is_changed: block == 7, ..SectorBits::of(vec![0; 512]) });
        }
        assert!(bitmaps.is_over_limit(512));
        bitmaps.forget_settled();
        assert_eq!(bitmaps.changed().map(|(block, _)| block).collect::<Vec<_>>(), [7]);
        assert!(bitmaps.get(8).is_none() && !bitmaps.is_over_limit(512));
        bitmaps.settle();
        assert_eq!(bitmaps.changed().count(), 0);
    }
}
