//! What a payload block of a new image becomes, told from the pieces that it is made of.
use super::view::{Content, Piece};

/// What a payload block becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Nothing: the parent tells.
    Absent,
    /// Zeros, without room in the file.
    Zero,
    /// Held whole.
    Whole,
    /// The sectors whose bits are set are held, the others left to the parent.
    Partly(Vec<u8>),
}

impl Shape {
    /// Of a block of `block_bytes` that begins at `start` of the disk, in sectors of `sector_bytes`; the pieces cover
    /// what the disk has of it. Sectors that are zeros among others are held: a format's bits say where the bytes lie
    /// and not what they are, and in a new file they are zeros without being written.
    pub(super) fn of(pieces: &[Piece], start: u64, block_bytes: u64, sector_bytes: u64) -> Self {
        let is = |content| move |piece: &Piece| piece.content == content;
        if pieces.iter().all(is(Content::Parent)) {
            return Self::Absent;
        }
        if pieces.iter().all(is(Content::Zero)) {
            return Self::Zero;
        }
        if !pieces.iter().any(is(Content::Parent)) {
            return Self::Whole;
        }
        let sectors = |bytes: u64| bytes.checked_div(sector_bytes).unwrap_or_default();
        let bytes = usize::try_from(sectors(block_bytes).div_ceil(8)).unwrap_or_default();
        let mut bitmap = vec![0; bytes];
        for piece in pieces.iter().filter(|piece| piece.content != Content::Parent) {
            let first = sectors(piece.start.saturating_sub(start));
            set(&mut bitmap, first, first.saturating_add(sectors(piece.length)));
        }
        Self::Partly(bitmap)
    }
}

/// Sets the bits from `first` to before `end`, the first of each byte in its least significant bit.
fn set(bitmap: &mut [u8], first: u64, end: u64) {
    let mut bit = first;
    while bit < end {
        let Some(byte) = usize::try_from(bit / 8).ok().and_then(|byte| bitmap.get_mut(byte)) else { return };
        let (from, to) = (bit % 8, end.saturating_sub(bit).saturating_add(bit % 8).min(8));
        let mask = |bits: u64| 0xFF_u16.checked_shl(u32::try_from(bits).unwrap_or(8)).unwrap_or(0xFF00);
        *byte |= u8::try_from(mask(from) & !mask(to) & 0xFF).unwrap_or(0xFF);
        bit = bit.saturating_add(to.saturating_sub(from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::LayerIndex;

    const FILE: Content = Content::File { layer: LayerIndex::BASE, at: 0 };

    fn shape(contents: &[(u64, Content)]) -> Shape {
        let mut start = 1 << 20;
        let pieces = contents.iter().map(|&(sectors, content)| {
            let piece = Piece { start, length: sectors * 512, content };
            start = piece.end();
            piece
        });
        Shape::of(&pieces.collect::<Vec<_>>(), 1 << 20, 32 * 512, 512)
    }

    #[test]
    fn blocks_of_one_kind_take_no_room() {
        assert_eq!(shape(&[(32, Content::Parent)]), Shape::Absent);
        assert_eq!(shape(&[(32, Content::Zero)]), Shape::Zero);
        // The last block, of which the disk has a part.
        assert_eq!(shape(&[(3, Content::Zero)]), Shape::Zero);
    }

    #[test]
    fn block_of_which_nothing_is_left_to_the_parent_is_whole() {
        assert_eq!(shape(&[(32, FILE)]), Shape::Whole);
        assert_eq!(shape(&[(3, Content::Zero), (29, FILE)]), Shape::Whole);
        assert_eq!(shape(&[(31, Content::Read), (1, Content::Zero)]), Shape::Whole);
    }

    #[test]
    fn bits_are_set_for_what_is_held_zeros_among_it() {
        let partly = |bytes: [u8; 4]| Shape::Partly(bytes.into());
        assert_eq!(shape(&[(3, FILE), (29, Content::Parent)]), partly([0b111, 0, 0, 0]));
        let held = [(5, Content::Parent), (1, FILE), (12, Content::Zero), (14, Content::Parent)];
        assert_eq!(shape(&held), partly([0b1110_0000, 0xFF, 0b11, 0]));
        assert_eq!(shape(&[(8, Content::Parent), (24, FILE)]), partly([0, 0xFF, 0xFF, 0xFF]));
    }
}
