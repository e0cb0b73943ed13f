//! Sector bitmaps: which sectors of a payload block its file holds.
//!
//! Both formats keep one bit for each sector; VHDX counts from the least significant bit of a byte, VHD from the most
//! significant one. A bitmap may have 64 KiB: it is looked at through a window that is kept from one lookup to the
//! next, so that a map of a finely divided block reads each part of its bitmap once.
use block::{ByteOffset, Patience};

use crate::storage::{Storage, StorageError};

/// How much of a bitmap is read in one go: that of 2 MiB of disk in sectors of 512 bytes.
pub(crate) const WINDOW_BYTES: u64 = 512;

/// Which bit of a byte is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BitOrder {
    /// The least significant: VHDX.
    Lsb,
    /// The most significant: VHD.
    Msb,
}

/// The part of a bitmap that was read last, for the next lookup. Belongs to one reader of one layer.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Option<Window>);

#[derive(Debug)]
struct Window {
    at: u64,
    length: usize,
    bytes: [u8; WINDOW_BYTES as usize],
}

/// A bitmap of a block in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bitmap {
    /// Where its first byte stands in the file.
    pub(crate) at: u64,
    /// How long it is.
    pub(crate) bytes: u64,
    pub(crate) order: BitOrder,
}

/// Sectors from one on that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Whether the file holds them.
    pub(crate) held: bool,
    /// How many there are: at least one. There may be more behind what was looked at.
    pub(crate) sectors: u64,
}

impl Bitmap {
    /// The run that begins with `sector` of the block.
    pub(crate) fn run(
        self,
        sector: u64,
        storage: &dyn Storage,
        patience: Patience,
        scratch: &mut Scratch,
    ) -> Result<Run, StorageError> {
        let byte = sector / 8;
        let within = byte.saturating_sub(byte % WINDOW_BYTES);
        let length = usize::try_from(self.bytes.saturating_sub(within).min(WINDOW_BYTES)).unwrap_or_default();
        let at = self.at.saturating_add(within);
        let kept = scratch.0.take().filter(|window| window.at == at && window.length == length);
        let window = match kept {
            Some(window) => window,
            None => {
                let mut window = Window { at, length, bytes: [0; WINDOW_BYTES as usize] };
                let bytes = window.bytes.get_mut(..length).unwrap_or_default();
                storage.read_at(ByteOffset::new(at), bytes, patience)?;
                window
            }
        };
        let window = scratch.0.insert(window);
        let bytes = window.bytes.get(..length).unwrap_or_default();
        Ok(run(bytes, sector.saturating_sub(within.saturating_mul(8)), self.order))
    }

    /// Whether one window holds all of it.
    pub(crate) fn is_small(self) -> bool {
        self.bytes <= WINDOW_BYTES
    }
}

/// How the bit `first` stands, and how many bits from it on stand the same way. A bit behind the end is not set.
pub(crate) fn run(bitmap: &[u8], first: u64, order: BitOrder) -> Run {
    let bits = u64::try_from(bitmap.len()).unwrap_or(u64::MAX).saturating_mul(8);
    let held = word_at(bitmap, first, order) & 1 != 0;
    let mut sectors = 0_u64;
    loop {
        let place = first.saturating_add(sectors);
        if place >= bits {
            break;
        }
        let word = word_at(bitmap, place, order);
        let alike = u64::from(if held { word.trailing_ones() } else { word.trailing_zeros() });
        let looked_at = 64_u64.saturating_sub(place % 8).min(bits.saturating_sub(place));
        sectors = sectors.saturating_add(alike.min(looked_at));
        if alike < looked_at {
            break;
        }
    }
    Run { held, sectors: sectors.max(1) }
}

/// The 64 bits of the eight bytes in which the bit `place` lies, that one as the lowest, as many as there are.
fn word_at(bitmap: &[u8], place: u64, order: BitOrder) -> u64 {
    let byte = usize::try_from(place / 8).unwrap_or(usize::MAX);
    let mut word = [0; 8];
    for (target, byte) in word.iter_mut().zip(bitmap.get(byte..).unwrap_or_default()) {
        *target = *byte;
    }
    let word = match order {
        BitOrder::Lsb => u64::from_le_bytes(word),
        BitOrder::Msb => u64::from_be_bytes(word).reverse_bits(),
    };
    word.checked_shr(u32::try_from(place % 8).unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(sectors: u64) -> Run {
        Run { held: true, sectors }
    }

    fn missing(sectors: u64) -> Run {
        Run { held: false, sectors }
    }

    #[test]
    fn runs_are_counted_in_the_order_of_the_format() {
        let msb = [0b1110_0000, 0b0000_0001, 0xFF];
        let lsb = [0b0000_0111, 0b1000_0000, 0xFF];
        for (bitmap, order) in [(msb, BitOrder::Msb), (lsb, BitOrder::Lsb)] {
            assert_eq!(run(&bitmap, 0, order), held(3));
            assert_eq!(run(&bitmap, 2, order), held(1));
            assert_eq!(run(&bitmap, 3, order), missing(12));
            assert_eq!(run(&bitmap, 15, order), held(9));
            assert_eq!(run(&bitmap, 24, order), missing(1));
        }
    }

    #[test]
    fn runs_agree_with_counting_bit_by_bit() {
        let mut word = 0x9E37_79B9_7F4A_7C15_u64;
        let mut bitmap = vec![0_u8; 61];
        for (i, byte) in bitmap.iter_mut().enumerate() {
            word = word.rotate_left(13).wrapping_mul(0x2545_F491_4F6C_DD1D);
            // Long runs of both kinds, and mixtures.
            *byte = [0, 0xFF, (word >> 7) as u8][(i / 9) % 3];
        }
        for order in [BitOrder::Lsb, BitOrder::Msb] {
            let bit = |place: usize| {
                let shift = if order == BitOrder::Lsb { place % 8 } else { 7 - place % 8 };
                bitmap[place / 8] >> shift & 1 != 0
            };
            for first in 0..bitmap.len() * 8 {
                let alike = (first..bitmap.len() * 8).take_while(|&place| bit(place) == bit(first));
                let expected = Run { held: bit(first), sectors: alike.count() as u64 };
                assert_eq!(run(&bitmap, first as u64, order), expected, "{order:?} {first}");
            }
        }
    }
}
