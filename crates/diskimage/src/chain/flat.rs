//! One map for all files of a chain, made piece by piece when a piece is first asked for.
//!
//! A chain does not change while it is open, so where a run of the disk comes from is decided once. The disk is cut
//! into segments; the first read of a segment asks the files from the leaf downwards, each only for what those above
//! it left open, and keeps the outcome as a sorted list of runs, neighbours put together. From then on a lookup is a
//! search in that list: no lock, no system call, and nothing in it knows how many files there are.
//!
//! Nothing is read when a chain is opened. Memory is bounded by [`MAX_RESIDENT_BYTES`]: past it, and in segments that
//! are divided into more than [`MAX_RUNS`] runs, a lookup asks the files one after the other.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use block::{ByteLength, ByteOffset, ByteRange, Patience};

use super::Chain;
use crate::bitmap::Scratch;
use crate::error::ResolveError;
use crate::extent::{Extent, Held, LayerExtent, LayerIndex, Source, head_of, tail_of};
use crate::storage::StorageError;

/// How much of the disk is flattened in one go: some tens of blocks of the usual sizes in each file, which takes
/// microseconds; and the places of runs within it fit into 32 bits.
const SEGMENT_BYTES: u64 = 64 << 20;
/// How many segments' places are made in one go: 32 GiB of disk. A disk of 64 TiB begins with 2048 empty pages.
const SEGMENTS_PER_PAGE: u64 = 512;
/// Into how many runs a segment may be divided: twice as many as it has pages of 4 KiB, the unit in which operating
/// systems write. They take 512 KiB.
const MAX_RUNS: usize = 32 << 10;
/// How much memory the map may take.
const MAX_RESIDENT_BYTES: usize = 64 << 20;
/// How many runs a file may be asked for by one that must not wait: some hundred microseconds.
const MAX_STEPS_NOW: usize = 2 << 10;

/// The map.
#[derive(Debug)]
pub(super) struct FlatMap {
    pages: Box<[OnceLock<Page>]>,
    resident_bytes: AtomicUsize,
    disk_bytes: u64,
}

type Page = Box<[OnceLock<Segment>]>;

#[derive(Debug)]
enum Segment {
    /// Sorted; the first begins with the segment. All of one segment as a rule is few.
    Runs(Box<[Run]>),
    /// Divided into more runs than are kept.
    TooFine,
}

/// A run of a segment; it ends where the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// In bytes from the start of the segment.
    start: u32,
    layer: LayerIndex,
    kind: Kind,
    /// The place of its first byte in the layer's file; 0 of what is in none.
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Zero,
    File,
    Replayed,
    Encoded,
}

impl FlatMap {
    /// The map, still empty, of a disk of `disk_bytes`, of at most 64 TiB.
    pub(super) fn new(disk_bytes: u64) -> Self {
        let pages = disk_bytes.div_ceil(SEGMENT_BYTES).div_ceil(SEGMENTS_PER_PAGE);
        let pages = (0..pages).map(|_| OnceLock::new()).collect();
        Self { pages, resident_bytes: AtomicUsize::new(0), disk_bytes }
    }

    /// The extent with which `range` begins. `None` where the map does not have it, and cannot: the files have to be
    /// asked. The map is that of `chain`.
    pub(super) fn extent(
        &self,
        chain: &Chain,
        range: ByteRange,
        patience: Patience,
    ) -> Result<Option<Extent>, ResolveError> {
        let start = range.start().get();
        let (segment, within) = (start / SEGMENT_BYTES, start % SEGMENT_BYTES);
        let (page, place) = (segment / SEGMENTS_PER_PAGE, segment % SEGMENTS_PER_PAGE);
        let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let Some(page) = self.pages.get(index(page)) else { return Ok(None) };
        let slot = page.get().and_then(|page| page.get(index(place)));
        if let Some(kept) = slot.and_then(OnceLock::get) {
            return Ok(kept.extent(within, range));
        }
        if self.resident_bytes.load(Ordering::Relaxed) >= MAX_RESIDENT_BYTES {
            return Ok(None);
        }
        let Some(whole) = self.range_of(segment) else { return Ok(None) };
        let made = flatten(chain, whole, patience)?;
        let page = page.get_or_init(|| {
            let slots: Page = (0..SEGMENTS_PER_PAGE).map(|_| OnceLock::new()).collect();
            self.grow(size_of_val(&*slots));
            slots
        });
        let Some(slot) = page.get(index(place)) else { return Ok(None) };
        // Where two threads flatten the same segment at once, one of them wins; both have found the same.
        let kept = slot.get_or_init(|| {
            if let Segment::Runs(runs) = &made {
                self.grow(size_of_val(&**runs));
            }
            made
        });
        Ok(kept.extent(within, range))
    }

    fn grow(&self, bytes: usize) {
        self.resident_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn range_of(&self, segment: u64) -> Option<ByteRange> {
        let start = segment.saturating_mul(SEGMENT_BYTES);
        let length = self.disk_bytes.saturating_sub(start).min(SEGMENT_BYTES);
        ByteRange::new(ByteOffset::new(start), ByteLength::new(length))
    }
}

impl Segment {
    fn extent(&self, within: u64, range: ByteRange) -> Option<Extent> {
        let Self::Runs(runs) = self else { return None };
        let next = runs.partition_point(|run| u64::from(run.start) <= within);
        let run = runs.get(next.checked_sub(1)?)?;
        let end = runs.get(next).map_or(SEGMENT_BYTES, |next| u64::from(next.start));
        let at = ByteOffset::new(run.at.saturating_add(within.saturating_sub(u64::from(run.start))));
        let layer = run.layer;
        let source = match run.kind {
            Kind::Zero => Source::Zero,
            Kind::File => Source::File { layer, at },
            Kind::Replayed => Source::Replayed { layer, at },
            Kind::Encoded => Source::Encoded { layer },
        };
        Some(Extent { range: head_of(range, end.saturating_sub(within)), source })
    }
}

impl Run {
    /// Whether `next`, which follows this run, goes on where it ends.
    fn goes_on_in(&self, next: &Self) -> bool {
        let length = u64::from(next.start.saturating_sub(self.start));
        let goes_on = self.kind == Kind::Zero || self.at.checked_add(length) == Some(next.at);
        (self.kind, self.layer) == (next.kind, next.layer) && goes_on
    }
}

/// Asks the files for a segment.
fn flatten(chain: &Chain, segment: ByteRange, patience: Patience) -> Result<Segment, ResolveError> {
    let mut runs = Runs { start: segment.start(), runs: Vec::new() };
    let mut steps = 0_usize;
    // What the files above have left open, in order.
    let mut open = vec![segment];
    for (index, layer) in chain.layers().rev() {
        let mut scratch = Scratch::default();
        let mut left_open: Vec<ByteRange> = Vec::new();
        for hole in open {
            let mut left = hole;
            while !left.is_empty() {
                steps = steps.saturating_add(1);
                if patience == Patience::Now && steps > MAX_STEPS_NOW {
                    return Err(StorageError::WouldBlock.into());
                }
                // A parent may be smaller than its child, which then reads as zeros from the parent's end on.
                let inside = layer.size().get().saturating_sub(left.start().get());
                let extent = match inside {
                    0 => LayerExtent { range: left, held: Held::Zero },
                    inside => layer.extent(head_of(left, inside), patience, &mut scratch)?,
                };
                left = tail_of(left, extent.range.end());
                if !runs.push(extent, index) {
                    leave_open(&mut left_open, extent.range);
                }
            }
        }
        open = left_open;
    }
    for hole in open {
        runs.push(LayerExtent { range: hole, held: Held::Zero }, LayerIndex::BASE);
    }
    Ok(runs.merged())
}

fn leave_open(open: &mut Vec<ByteRange>, range: ByteRange) {
    if let Some(last) = open.last_mut()
        && last.end() == range.start()
        && let Some(both) = last.length().get().checked_add(range.length().get())
        && let Some(both) = ByteRange::new(last.start(), ByteLength::new(both))
    {
        *last = both;
    } else {
        open.push(range);
    }
}

/// The runs of a segment, as they are found: file by file.
struct Runs {
    start: ByteOffset,
    runs: Vec<Run>,
}

impl Runs {
    /// Takes a run that the layer `layer` has, and says whether it has it.
    fn push(&mut self, extent: LayerExtent, layer: LayerIndex) -> bool {
        let (kind, layer, at) = match extent.held {
            Held::Zero => (Kind::Zero, LayerIndex::BASE, 0),
            Held::File { at } => (Kind::File, layer, at),
            Held::Replayed { at } => (Kind::Replayed, layer, at),
            Held::Encoded => (Kind::Encoded, layer, 0),
            Held::Parent => return false,
        };
        let start = extent.range.start().get().saturating_sub(self.start.get());
        // Segments are shorter than 4 GiB.
        self.runs.push(Run { start: u32::try_from(start).unwrap_or(u32::MAX), layer, kind, at });
        true
    }

    /// All of them in order, neighbours put together.
    fn merged(mut self) -> Segment {
        self.runs.sort_unstable_by_key(|run| run.start);
        let mut merged: Vec<Run> = Vec::new();
        for run in self.runs {
            if !merged.last().is_some_and(|last| last.goes_on_in(&run)) {
                merged.push(run);
            }
        }
        if merged.len() > MAX_RUNS { Segment::TooFine } else { Segment::Runs(merged.into()) }
    }
}
