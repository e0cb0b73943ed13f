//! What a new image is made of: the source's disk, in pieces that each come from one place.
use block::{BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Patience};

use super::holes::Holes;
use crate::extent::{LayerIndex, Source};
use crate::image::Image;

/// A piece of the disk that comes from one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Where it lies on the disk, in bytes.
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) content: Content,
}

/// Where a piece comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// From the new image's parent: the new image says nothing of it.
    Parent,
    /// It is zeros.
    Zero,
    /// It lies in a file of the source, byte for byte.
    File { layer: LayerIndex, at: u64 },
    /// Only the source image can read it.
    Read,
}

/// The source.
#[derive(Debug)]
pub(super) struct View<'a> {
    image: &'a Image,
    /// Where given, what this layer and those below hold is left to the parent.
    floor: Option<LayerIndex>,
    unit: u64,
    holes: Vec<Holes>,
}

impl Piece {
    pub(super) fn end(self) -> u64 {
        self.start.saturating_add(self.length)
    }

    pub(super) fn is_data(self) -> bool {
        matches!(self.content, Content::File { .. } | Content::Read)
    }

    /// What of it lies from `start` to `end`.
    pub(super) fn clip(self, start: u64, end: u64) -> Option<Self> {
        let from = self.start.max(start);
        let length = self.end().min(end).checked_sub(from).filter(|&length| length > 0)?;
        let content = match self.content {
            Content::File { layer, at } => {
                Content::File { layer, at: at.saturating_add(from.saturating_sub(self.start)) }
            }
            other => other,
        };
        Some(Self { start: from, length, content })
    }

    /// Whether `next` goes on where this one ends, on the disk and where it comes from.
    fn is_continued_by(self, next: Self) -> bool {
        let place = match (self.content, next.content) {
            (Content::File { layer, at }, Content::File { layer: other, at: next }) => {
                layer == other && at.saturating_add(self.length) == next
            }
            (one, other) => one == other,
        };
        place && self.end() == next.start
    }
}

impl<'a> View<'a> {
    /// All of the image.
    pub(super) fn of(image: &'a Image) -> Self {
        let unit = image.geometry().logical_block.bytes();
        let holes = image.layers().iter().map(|_| Holes::default()).collect();
        Self { image, floor: None, unit, holes }
    }

    /// What the files above `floor` say.
    pub(super) fn above(image: &'a Image, floor: LayerIndex) -> Self {
        Self { floor: Some(floor), ..Self::of(image) }
    }

    pub(super) fn size(&self) -> u64 {
        self.image.virtual_size().get()
    }

    /// Puts the pieces of the disk from `start` to `end` into `pieces`, instead of what is there. Both are multiples
    /// of the logical block; neighbours of one kind are one piece.
    pub(super) fn pieces(&mut self, start: u64, end: u64, pieces: &mut Vec<Piece>) -> Result<(), BlockError> {
        pieces.clear();
        let mut at = start;
        while at < end {
            let piece = self.first_piece(at, end)?;
            at = piece.end();
            match pieces.last_mut() {
                Some(last) if last.is_continued_by(piece) => {
                    last.length = last.length.saturating_add(piece.length);
                }
                _ => pieces.push(piece),
            }
        }
        Ok(())
    }

    fn first_piece(&mut self, start: u64, end: u64) -> Result<Piece, BlockError> {
        let length = end.saturating_sub(start);
        let Some(range) = ByteRange::new(ByteOffset::new(start), ByteLength::new(length)) else {
            return Ok(Piece { start, length, content: Content::Zero });
        };
        let (found, source) = match self.floor {
            Some(floor) => self.image.extent_above(floor, range, Patience::Blocking)?,
            None => {
                let extent = self.image.extent(range, Patience::Blocking)?;
                (extent.range, Some(extent.source))
            }
        };
        let content = match source {
            None => Content::Parent,
            Some(Source::Zero) => Content::Zero,
            Some(Source::File { layer, at }) => Content::File { layer, at: at.get() },
            Some(Source::Replayed { .. } | Source::Encoded { .. }) => Content::Read,
        };
        let whole = |length: u64| length.saturating_sub(length.checked_rem(self.unit).unwrap_or_default());
        // A raw file may end inside a logical block. That block is read, all else is whole blocks.
        let (length, content) = match whole(found.length().get()) {
            0 => (self.unit.min(length), Content::Read),
            found => (found.min(length), content),
        };
        let mut piece = Piece { start, length, content };
        if let Content::File { layer, at } = content
            && let Some(file) = self.image.layer_storage(layer).and_then(|storage| storage.file())
            && let Some(holes) = self.holes.get_mut(usize::from(layer.get()))
        {
            let (is_hole, run) = holes.look(file, at, length);
            // Holes are whole blocks of the file system, which may lie across blocks of the disk.
            match (is_hole, whole(run)) {
                (_, 0) => {}
                (true, run) => piece = Piece { start, length: run, content: Content::Zero },
                (false, run) => piece.length = run,
            }
        }
        Ok(piece)
    }
}
