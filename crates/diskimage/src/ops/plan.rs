//! What a job will do, without doing it.
use std::path::PathBuf;

use block::ByteLength;

use super::run::MIN_SHARED_BYTES;
use super::shape::Shape;
use super::view::{Content, Piece};
use crate::extent::LayerIndex;
use crate::format::Format;
use crate::image::Subtype;

/// Steps that are kept; the sums count all.
const MAX_STEPS: usize = 100_000;

/// What a job will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The new image.
    pub target: PathBuf,
    /// Its format.
    pub format: Format,
    /// How it keeps its blocks.
    pub subtype: Subtype,
    /// How large the disk is.
    pub virtual_size: ByteLength,
    /// How much of the disk one payload block holds.
    pub payload_block: ByteLength,
    /// What is done, in the order in which it is. Neighbouring blocks with which the same is done are one step.
    pub steps: Vec<Step>,
    /// How many steps are not in `steps`, because there are too many.
    pub steps_left_out: u64,
    /// What all steps come to, those that are left out among them.
    pub totals: Totals,
    /// What becomes of the payload blocks.
    pub blocks: Blocks,
}

/// What all steps of each kind come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Extents that will be shared with a source.
    pub clone: Total,
    /// What will be copied. Where zeros are looked for, fewer bytes.
    pub copy: Total,
    /// Zeros that take no room.
    pub zero: Total,
    /// What is held of blocks that are held in part; its bytes are those of other steps.
    pub set_state: Total,
}

/// What steps of one kind come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many they are.
    pub steps: u64,
    /// How many bytes of the disk they are about.
    pub bytes: u64,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// The first payload block of the new image with which it is done.
    pub block: u64,
    /// With how many blocks.
    pub blocks: u64,
    /// Where the bytes come from; `None` where there are none, or where they have to be decoded.
    pub layer: Option<LayerIndex>,
    /// How many bytes of the disk it is about.
    pub bytes: u64,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Shares extents of a file of the source.
    Clone,
    /// Copies bytes.
    Copy,
    /// Makes blocks zeros, without room in the file.
    Zero,
    /// Marks the sectors of a block that are held here; the others are left to the parent.
    SetState,
}

/// Payload blocks by what becomes of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Blocks {
    /// Held whole.
    pub whole: u64,
    /// Held in part.
    pub partly: u64,
    /// Zeros without room in the file.
    pub zero: u64,
    /// Left to the parent.
    pub absent: u64,
}

impl Plan {
    pub(super) fn take(&mut self, block: Block<'_>, shares: impl Fn(LayerIndex) -> Option<u64>) {
        self.blocks.count(block.shape);
        let step = |action, layer, bytes| Step { action, block: block.index, blocks: 1, layer, bytes };
        match block.shape {
            Shape::Absent => return,
            Shape::Zero => {
                let bytes = block.pieces.iter().map(|piece| piece.length).sum();
                return self.push(step(Action::Zero, None, bytes));
            }
            Shape::Partly(_) => {
                let held = block.pieces.iter().filter(|piece| piece.content != Content::Parent);
                self.push(step(Action::SetState, None, held.map(|piece| piece.length).sum()));
            }
            Shape::Whole => {}
        }
        for piece in block.pieces.iter().filter(|piece| piece.is_data()) {
            let Content::File { layer, at } = piece.content else {
                self.push(step(Action::Copy, None, piece.length));
                continue;
            };
            let cloned = shares(layer).map_or(0, |unit| shared_bytes(*piece, at, block.start, unit));
            for (action, bytes) in
                [(Action::Clone, cloned), (Action::Copy, piece.length.saturating_sub(cloned))]
            {
                if bytes > 0 {
                    self.push(step(action, Some(layer), bytes));
                }
            }
        }
    }

    fn push(&mut self, step: Step) {
        let total = self.totals.of(step.action);
        total.bytes = total.bytes.saturating_add(step.bytes);
        if let Some(last) = self.steps.last_mut()
            && (last.action, last.layer) == (step.action, step.layer)
        {
            let last_block = last.block.saturating_add(last.blocks).saturating_sub(1);
            if step.block <= last_block.saturating_add(1) {
                last.bytes = last.bytes.saturating_add(step.bytes);
                last.blocks = step.block.saturating_sub(last.block).saturating_add(1);
                return;
            }
        }
        let total = self.totals.of(step.action);
        total.steps = total.steps.saturating_add(1);
        if self.steps.len() < MAX_STEPS {
            self.steps.push(step);
        } else {
            self.steps_left_out = self.steps_left_out.saturating_add(1);
        }
    }
}

impl Totals {
    fn of(&mut self, action: Action) -> &mut Total {
        match action {
            Action::Clone => &mut self.clone,
            Action::Copy => &mut self.copy,
            Action::Zero => &mut self.zero,
            Action::SetState => &mut self.set_state,
        }
    }
}

/// A payload block of the new image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'p> {
    pub(super) index: u64,
    /// Where it begins on the disk.
    pub(super) start: u64,
    pub(super) pieces: &'p [Piece],
    pub(super) shape: &'p Shape,
}

/// How much of a piece can be shared, in a block that has its place at a whole unit.
pub(super) fn shared_bytes(piece: Piece, at: u64, block_start: u64, unit: u64) -> u64 {
    let to = piece.start.saturating_sub(block_start);
    let within = |place: u64| place.checked_rem(unit).unwrap_or_default();
    if within(at) != within(to) {
        return 0;
    }
    let end = at.saturating_add(piece.length);
    let first = at.checked_next_multiple_of(unit).unwrap_or(end);
    let shared = end.saturating_sub(within(end)).saturating_sub(first);
    if shared >= MIN_SHARED_BYTES { shared } else { 0 }
}

impl Blocks {
    pub(super) fn count(&mut self, shape: &Shape) {
        let count = match shape {
            Shape::Whole => &mut self.whole,
            Shape::Partly(_) => &mut self.partly,
            Shape::Zero => &mut self.zero,
            Shape::Absent => &mut self.absent,
        };
        *count = count.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: LayerIndex = LayerIndex::BASE;

    fn plan() -> Plan {
        Plan {
            target: "new.vhdx".into(),
            format: Format::Vhdx,
            subtype: Subtype::Dynamic,
            virtual_size: ByteLength::new(8 << 20),
            payload_block: ByteLength::new(1 << 20),
            steps: Vec::new(),
            steps_left_out: 0,
            totals: Totals::default(),
            blocks: Blocks::default(),
        }
    }

    fn take(plan: &mut Plan, index: u64, pieces: &[(u64, Content)]) {
        let start = index << 20;
        let mut at = start;
        let pieces: Vec<_> = pieces
            .iter()
            .map(|&(length, content)| {
                let piece = Piece { start: at, length, content };
                at = piece.end();
                piece
            })
            .collect();
        let shape = Shape::of(&pieces, start, 1 << 20, 512);
        plan.take(Block { index, start, pieces: &pieces, shape: &shape }, |layer| {
            (layer == BASE).then_some(4096)
        });
    }

    #[test]
    fn neighbouring_blocks_of_one_kind_are_one_step() {
        let mut plan = plan();
        take(&mut plan, 0, &[(1 << 20, Content::File { layer: BASE, at: 4 << 20 })]);
        take(&mut plan, 1, &[(1 << 20, Content::File { layer: BASE, at: 9 << 20 })]);
        take(&mut plan, 2, &[(1 << 20, Content::Zero)]);
        take(&mut plan, 3, &[(1 << 20, Content::Parent)]);
        take(&mut plan, 4, &[(1 << 20, Content::Zero)]);
        take(&mut plan, 5, &[(512, Content::Parent), ((1 << 20) - 512, Content::Read)]);
        let steps: Vec<_> = plan
            .steps
            .iter()
            .map(|step| (step.action, step.block, step.blocks, step.layer, step.bytes))
            .collect();
        assert_eq!(
            steps,
            [
                (Action::Clone, 0, 2, Some(BASE), 2 << 20),
                (Action::Zero, 2, 1, None, 1 << 20),
                (Action::Zero, 4, 1, None, 1 << 20),
                (Action::SetState, 5, 1, None, (1 << 20) - 512),
                (Action::Copy, 5, 1, None, (1 << 20) - 512),
            ]
        );
        assert_eq!(plan.blocks, Blocks { whole: 2, partly: 1, zero: 2, absent: 1 });
        let total = |steps, bytes| Total { steps, bytes };
        let expected = Totals {
            clone: total(1, 2 << 20),
            copy: total(1, (1 << 20) - 512),
            zero: total(2, 2 << 20),
            set_state: total(1, (1 << 20) - 512),
        };
        assert_eq!(plan.totals, expected);
    }

    #[test]
    fn piece_is_shared_in_whole_units_where_both_places_stand_alike() {
        let shared =
            |start, length, at| shared_bytes(Piece { start, length, content: Content::Read }, at, 0, 4096);
        assert_eq!(shared(4096, 1 << 20, 8192), 1 << 20);
        assert_eq!(shared(512, 1 << 20, 8192 + 512), (1 << 20) - 4096);
        assert_eq!(shared(512, 1 << 20, 8192), 0, "they stand differently");
        assert_eq!(shared(0, 32 << 10, 8192), 0, "too short to pay");
    }
}
