//! Comparing what two images hold, whatever their formats.
//!
//! Runs that are zeros in both, and runs that both have from the same place of the same file (versions of one chain,
//! clones do not count), are known to be the same without being read. All else is read and compared, in stripes that
//! several threads take one after the other.
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use block::{BlockDevice, BlockError, ByteOffset, Patience};

use super::view::{Content, Piece, View};
use super::zeros::is_zero;
use crate::extent::LayerIndex;
use crate::image::Image;
use crate::watch::{Cancelled, Watch};

/// What a thread takes at once.
const STRIPE_BYTES: u64 = 8 << 20;
/// What is read at once.
const READ_BYTES: u64 = 512 << 10;
/// Differences are told in units of this.
const SECTOR_BYTES: usize = 512;
/// Differing ranges that are kept; the sums count all.
const MAX_RANGES: usize = 1000;
/// More threads than this only wait for each other.
const MAX_THREADS: usize = 4;

/// How to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompareOptions {
    /// Images of different size are different, even if all that the longer one has more is zeros.
    pub strict: bool,
    /// Whether the first difference is enough. Then no more than that is counted.
    pub stop_at_first: bool,
}

/// What a comparison has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Both sizes.
    pub sizes: [u64; 2],
    /// The first byte that differs; where only the sizes do, the end of the shorter one.
    pub first_difference: Option<ByteOffset>,
    /// How many bytes differ.
    pub differing_bytes: u64,
    /// Where: sectors of 512 bytes with a difference, neighbours as one range. The first ones of many.
    pub ranges: Vec<DifferingRange>,
    /// How many ranges are not in `ranges`.
    pub ranges_left_out: u64,
    /// How many bytes were read of each image. Of the others it was known that they are the same.
    pub read_bytes: u64,
}

/// Sectors with a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferingRange {
    /// Where they begin on the disk.
    pub start: ByteOffset,
    /// How long they are, in bytes.
    pub bytes: u64,
}

/// Images could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// It was asked to stop.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The first image cannot be read.
    #[error("the first image cannot be read")]
    First(#[source] BlockError),
    /// The second image cannot be read.
    #[error("the second image cannot be read")]
    Second(#[source] BlockError),
}

impl Comparison {
    /// Whether the two are the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.first_difference.is_none()
    }

    fn differ(&mut self, start: u64, sector: (&[u8], &[u8])) {
        let differs = |(_, (one, other)): &(usize, (&u8, &u8))| one != other;
        let mut places = sector.0.iter().zip(sector.1).enumerate().filter(differs).map(|(place, _)| place);
        let Some(first) = places.next() else { return };
        let at = start.saturating_add(u64::try_from(first).unwrap_or_default());
        self.first_difference.get_or_insert(ByteOffset::new(at));
        let count = u64::try_from(places.count()).unwrap_or_default().saturating_add(1);
        self.differing_bytes = self.differing_bytes.saturating_add(count);
        let bytes = u64::try_from(sector.0.len()).unwrap_or_default();
        self.push(DifferingRange { start: ByteOffset::new(start), bytes });
    }

    fn push(&mut self, range: DifferingRange) {
        if self.ranges_left_out == 0
            && let Some(last) = self.ranges.last_mut()
            && last.start.get().saturating_add(last.bytes) == range.start.get()
        {
            last.bytes = last.bytes.saturating_add(range.bytes);
        } else if self.ranges.len() < MAX_RANGES {
            self.ranges.push(range);
        } else {
            self.ranges_left_out = self.ranges_left_out.saturating_add(1);
        }
    }

    /// Adds what was found behind all that is known.
    fn append(&mut self, next: Self) {
        self.first_difference = self.first_difference.or(next.first_difference);
        self.differing_bytes = self.differing_bytes.saturating_add(next.differing_bytes);
        self.read_bytes = self.read_bytes.saturating_add(next.read_bytes);
        next.ranges.into_iter().for_each(|range| self.push(range));
        self.ranges_left_out = self.ranges_left_out.saturating_add(next.ranges_left_out);
    }
}

/// Compares what two images hold. Where one is longer, the other counts as followed by zeros.
///
/// # Errors
/// [`CompareError`].
pub fn compare(
    first: &Image,
    second: &Image,
    options: &CompareOptions,
    watch: &Watch,
) -> Result<Comparison, CompareError> {
    let sizes = [first, second].map(|image| image.virtual_size().get());
    let [least, most] =
        [sizes.iter().min(), sizes.iter().max()].map(|size| size.copied().unwrap_or_default());
    let mut result = Comparison { sizes, ..Comparison::default() };
    if options.strict && least != most {
        result.first_difference = Some(ByteOffset::new(least));
        if options.stop_at_first {
            return Ok(result);
        }
    }
    let work = Work {
        images: [first, second],
        files: [first, second].map(files),
        size: most,
        next: AtomicU64::new(0),
        stop_behind: AtomicU64::new(u64::MAX),
        stop_at_first: options.stop_at_first,
        watch,
    };
    watch.expect(most);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let stripes = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| work.run())).collect();
        let mut stripes = work.run()?;
        for other in others {
            match other.join() {
                Ok(result) => stripes.extend(result?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok::<_, CompareError>(stripes)
    });
    let mut stripes = stripes?;
    stripes.sort_unstable_by_key(|(start, _)| *start);
    let by_size = result.first_difference.take();
    for (_, stripe) in stripes {
        result.append(stripe);
    }
    result.first_difference = result.first_difference.into_iter().chain(by_size).min();
    Ok(result)
}

/// What the threads share.
struct Work<'a> {
    images: [&'a Image; 2],
    /// Device and inode of the files of each image, by layer.
    files: [Vec<Option<(u64, u64)>>; 2],
    size: u64,
    /// Where the next stripe begins.
    next: AtomicU64,
    /// Stripes behind this one need no look any more.
    stop_behind: AtomicU64,
    stop_at_first: bool,
    watch: &'a Watch,
}

/// Where a stripe begins, and what was found in it.
type Stripe = (u64, Comparison);

impl Work<'_> {
    /// Compares stripes until there are none. Stripes without a difference are put together, so that there are not
    /// more than differences.
    fn run(&self) -> Result<Vec<Stripe>, CompareError> {
        let result = self.run_stripes();
        if result.is_err() {
            self.next.store(self.size, Ordering::Relaxed);
        }
        result
    }

    fn run_stripes(&self) -> Result<Vec<Stripe>, CompareError> {
        let mut found: Vec<Stripe> = Vec::new();
        let mut worker = Worker {
            work: self,
            views: self.images.map(View::of),
            pieces: [Vec::new(), Vec::new()],
            buffers: [Vec::new(), Vec::new()],
            result: Comparison::default(),
        };
        loop {
            let start = self.next.fetch_add(STRIPE_BYTES, Ordering::Relaxed);
            if start >= self.size || start > self.stop_behind.load(Ordering::Relaxed) {
                break;
            }
            let end = start.saturating_add(STRIPE_BYTES).min(self.size);
            worker.stripe(start, end)?;
            if worker.result.is_same() {
                continue;
            }
            if self.stop_at_first {
                self.stop_behind.fetch_min(start, Ordering::Relaxed);
            }
            if found.len() < MAX_RANGES {
                found.push((start, std::mem::take(&mut worker.result)));
            } else if let Some((_, last)) = found.last_mut() {
                // Stripes of one thread come in order.
                last.append(std::mem::take(&mut worker.result));
            }
        }
        // What was read of stripes without a difference.
        found.push((u64::MAX, worker.result));
        Ok(found)
    }
}

/// One thread.
struct Worker<'w, 'a> {
    work: &'w Work<'a>,
    views: [View<'a>; 2],
    pieces: [Vec<Piece>; 2],
    buffers: [Vec<u8>; 2],
    result: Comparison,
}

impl Worker<'_, '_> {
    fn stripe(&mut self, start: u64, end: u64) -> Result<(), CompareError> {
        for ((view, pieces), failed) in
            self.views.iter_mut().zip(&mut self.pieces).zip([CompareError::First, CompareError::Second])
        {
            let known = end.min(view.size()).max(start);
            view.pieces(start, known, pieces).map_err(failed)?;
            if known < end {
                let length = end.saturating_sub(known);
                pieces.push(Piece { start: known, length, content: Content::Zero });
            }
        }
        let [first, second] = std::mem::take(&mut self.pieces);
        let result = self.pairs(&first, &second);
        self.pieces = [first, second];
        result
    }

    /// Goes through both lists of pieces at once, in runs that are one piece in both.
    fn pairs(&mut self, first: &[Piece], second: &[Piece]) -> Result<(), CompareError> {
        let (mut first, mut second) = (first.iter().copied(), second.iter().copied());
        let (mut one, mut other) = (first.next(), second.next());
        while let (Some(left), Some(right)) = (one, other) {
            let end = left.end().min(right.end());
            if let (Some(left), Some(right)) = (left.clip(left.start, end), right.clip(right.start, end)) {
                self.pair(left, right)?;
            }
            one = left.clip(end, u64::MAX).or_else(|| first.next());
            other = right.clip(end, u64::MAX).or_else(|| second.next());
        }
        Ok(())
    }

    fn pair(&mut self, left: Piece, right: Piece) -> Result<(), CompareError> {
        if self.is_known_same(left, right) {
            return Ok(self.work.watch.advance(left.length)?);
        }
        let mut at = left.start;
        while at < left.end() && (self.result.is_same() || !self.work.stop_at_first) {
            let length = left.end().saturating_sub(at).min(READ_BYTES);
            self.read_and_compare(at, length, left, right)?;
            self.work.watch.advance(length)?;
            at = at.saturating_add(length);
        }
        Ok(())
    }

    fn is_known_same(&self, left: Piece, right: Piece) -> bool {
        let file = |side: usize, layer: LayerIndex| {
            let files = self.work.files.get(side)?;
            files.get(usize::from(layer.get())).copied().flatten()
        };
        match (left.content, right.content) {
            (Content::Zero, Content::Zero) => true,
            (Content::File { layer, at }, Content::File { layer: other, at: place }) => {
                at == place && file(0, layer).is_some() && file(0, layer) == file(1, other)
            }
            _ => false,
        }
    }

    fn read_and_compare(
        &mut self,
        at: u64,
        length: u64,
        left: Piece,
        right: Piece,
    ) -> Result<(), CompareError> {
        self.work.watch.pace(length)?;
        let count = usize::try_from(length).unwrap_or_default();
        for (side, piece) in [left, right].into_iter().enumerate() {
            let (Some(buffer), Some(image)) = (self.buffers.get_mut(side), self.work.images.get(side)) else {
                return Ok(());
            };
            buffer.resize(count, 0);
            if piece.content == Content::Zero {
                // Read from the other side only.
                continue;
            }
            let read = image.read(ByteOffset::new(at), buffer, Patience::Blocking);
            read.map_err(if side == 0 { CompareError::First } else { CompareError::Second })?;
        }
        self.result.read_bytes = self.result.read_bytes.saturating_add(length);
        let [first, second] = &mut self.buffers;
        match (left.content, right.content) {
            (Content::Zero, _) if is_zero(second) => return Ok(()),
            (Content::Zero, _) => first.fill(0),
            (_, Content::Zero) if is_zero(first) => return Ok(()),
            (_, Content::Zero) => second.fill(0),
            _ if first == second => return Ok(()),
            _ => {}
        }
        let mut start = at;
        for sector in first.chunks(SECTOR_BYTES).zip(second.chunks(SECTOR_BYTES)) {
            if sector.0 != sector.1 {
                self.result.differ(start, sector);
            }
            start = start.saturating_add(SECTOR_BYTES as u64);
        }
        Ok(())
    }
}

/// Device and inode of each file of the image that is one of the operating system's.
fn files(image: &Image) -> Vec<Option<(u64, u64)>> {
    let of = |layer| {
        let metadata = image.layer_storage(layer)?.file()?.metadata().ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    image.layers().iter().map(|file| of(file.layer)).collect()
}
