//! How a volume changes: writes, discards and zeroing, segment by segment.
//!
//! The contents of a cluster in the file count only in the state [`State::Data`], and whatever brings a cluster into
//! that state stores all of its bytes first, then its state in the file, then its state in memory. So it does not
//! matter what a failed or interrupted write left behind in an absent cluster.
use std::io;

use block::{BlockError, ByteLength, ByteOffset, ByteRange, Patience};

use crate::cluster::{CLUSTER_BYTES, ClusterRun, State, bytes_in_first_segment, edges, segment_of};
use crate::file::{AtOnce, is_out_of_space};
use crate::fill::FullCause;
use crate::stored_map;
use crate::volume::Volume;

const CLUSTER_LEN: usize = CLUSTER_BYTES as usize;

/// Zeros to write where no hole can be had: less than a cluster at the edges, a cluster at a time inside.
static ZEROS: [u8; CLUSTER_LEN] = [0; CLUSTER_LEN];

/// Why a change was not made, or not all of it.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There was no room.
    Refused(FullCause),
    /// The cache file failed.
    Cache(io::Error),
    /// The image failed when a cluster was to be filled up from it.
    Image(BlockError),
    /// It was not to wait, would have had to, and nothing was changed.
    WouldWait,
}

/// What becomes of clusters that hold data where the file system cannot punch holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WithoutHoles {
    /// They keep what they hold.
    Keep,
    /// Zeros are written.
    WriteZeros,
}

impl Volume {
    /// Writes if that needs no waiting: in one segment, and unless the write cache lies in memory, where no state
    /// changes.
    pub(crate) fn write_at_once(&self, range: ByteRange, data: &[u8]) -> Result<AtOnce, Failure> {
        let run = ClusterRun::touched_by(range);
        if bytes_in_first_segment(range) != range.length().get() {
            return Ok(AtOnce::WouldWait);
        }
        if self.file.is_in_memory() {
            return match self.write_segment(range.start().get(), data, Patience::Now) {
                Ok(()) => Ok(AtOnce::Done),
                Err(Failure::WouldWait) => Ok(AtOnce::WouldWait),
                Err(failure) => Err(failure),
            };
        }
        match self.stripes.shared(segment_of(run.start), Patience::Now) {
            Some(_held) if self.holds_all(run) => {
                let stored = self.file.write_at_once(range.start().get(), data).map_err(Failure::of_cache);
                self.note_data();
                stored
            }
            _ => Ok(AtOnce::WouldWait),
        }
    }

    /// Writes, waiting as long as it takes.
    pub(crate) fn write_all(&self, range: ByteRange, data: &[u8]) -> Result<(), Failure> {
        let mut rest = data;
        let mut at = range.start().get();
        while !rest.is_empty() {
            let Some(left) = ByteRange::new(ByteOffset::new(at), ByteLength::of(rest)) else { break };
            let length = usize::try_from(bytes_in_first_segment(left)).unwrap_or(usize::MAX);
            let Some((piece, behind)) = rest.split_at_checked(length) else { break };
            self.write_segment(at, piece, Patience::Blocking)?;
            at = at.saturating_add(piece.len() as u64);
            rest = behind;
        }
        Ok(())
    }

    /// Discards the whole clusters of a range.
    pub(crate) fn discard_all(&self, range: ByteRange) -> Result<(), Failure> {
        self.clear_all(ClusterRun::inside(range, self.geometry.size), WithoutHoles::Keep)
    }

    /// Makes a range read as zeros: whole clusters become holes, the edges are written.
    pub(crate) fn zero_all(&self, range: ByteRange) -> Result<(), Failure> {
        let inside = ClusterRun::inside(range, self.geometry.size);
        for edge in edges(range, inside).into_iter().flatten() {
            self.zero_edge(edge)?;
        }
        self.clear_all(inside, WithoutHoles::WriteZeros)
    }

    fn holds_all(&self, run: ClusterRun) -> bool {
        self.map.first_run(run) == (State::Data, run)
    }

    /// Writes a piece that lies in one segment. [`Patience::Now`] takes a write cache in memory.
    fn write_segment(&self, at: u64, data: &[u8], patience: Patience) -> Result<(), Failure> {
        let end = at.saturating_add(data.len() as u64);
        let run = ClusterRun { start: at / CLUSTER_BYTES, end: end.div_ceil(CLUSTER_BYTES) };
        let segment = segment_of(run.start);
        {
            let _held = self.stripes.shared(segment, patience).ok_or(Failure::WouldWait)?;
            if self.holds_all(run) {
                let stored = self.file.write(at, data).map_err(Failure::of_cache);
                self.note_data();
                return stored;
            }
        }
        let _held = self.stripes.exclusive(segment, patience).ok_or(Failure::WouldWait)?;
        let missing = run.count().saturating_sub(self.map.count(run, State::Data));
        let reservation = self.fill.reserve(missing).map_err(Failure::Refused)?;
        let (mut before, mut behind) = ([0; CLUSTER_LEN], [0; CLUSTER_LEN]);
        let before = self.surroundings(run.start_offset(), at, &mut before, patience)?;
        let behind = self.surroundings(end, run.end_offset(), &mut behind, patience)?;
        let start = at.saturating_sub(before.len() as u64);
        let stored = self.file.write_pieces(start, [before, data, behind]);
        match stored.and_then(|()| stored_map::store(&self.file, self.layout, run, State::Data)) {
            Ok(()) => {
                self.set_states(run, State::Data);
                reservation.keep();
                Ok(())
            }
            Err(error) => {
                self.free_unused(run);
                Err(Failure::of_cache(error))
            }
        }
    }

    /// What surrounds a write in its first or last cluster, where that cluster does not hold data yet: zeros where it
    /// is a hole or lies behind the end of the device, else what the image holds. Empty where there is nothing to
    /// fill up.
    fn surroundings<'b>(
        &self,
        from: u64,
        to: u64,
        buffer: &'b mut [u8; CLUSTER_LEN],
        patience: Patience,
    ) -> Result<&'b [u8], Failure> {
        let length = usize::try_from(to.saturating_sub(from)).unwrap_or_default();
        let state = self.map.state(from / CLUSTER_BYTES);
        let Some(buffer) = buffer.get_mut(..length) else { return Ok(&[]) };
        if buffer.is_empty() || state == State::Data {
            return Ok(&[]);
        }
        let on_device = to.min(self.geometry.size.get()).saturating_sub(from);
        let on_device = usize::try_from(on_device).unwrap_or_default();
        if let (State::Absent, Some(wanted @ [_, ..])) = (state, buffer.get_mut(..on_device)) {
            let read = self.image.read(ByteOffset::new(from), wanted, patience);
            read.map_err(|error| match error {
                BlockError::WouldBlock => Failure::WouldWait,
                error => Failure::Image(error),
            })?;
        }
        Ok(buffer)
    }

    /// Gives back what a failed write has taken in clusters that do not hold data. Where that fails too, the space
    /// stays taken until the next boot; the contents do not matter.
    fn free_unused(&self, run: ClusterRun) {
        for (state, part) in self.map.runs(run) {
            if state != State::Data {
                let _ = self.file.punch(part.start_offset(), part.bytes());
            }
        }
    }

    /// Writes zeros over less than a cluster, if they are not there already.
    fn zero_edge(&self, edge: ByteRange) -> Result<(), Failure> {
        // An edge without a whole cluster between can touch two clusters.
        let mut at = edge.start().get();
        while at < edge.end().get() {
            let cluster = at / CLUSTER_BYTES;
            let end = cluster.saturating_add(1).saturating_mul(CLUSTER_BYTES).min(edge.end().get());
            let length = usize::try_from(end.saturating_sub(at)).unwrap_or_default();
            if self.map.state(cluster) != State::Hole {
                self.write_segment(at, ZEROS.get(..length).unwrap_or_default(), Patience::Blocking)?;
            }
            at = end;
        }
        Ok(())
    }

    fn clear_all(&self, run: ClusterRun, without_holes: WithoutHoles) -> Result<(), Failure> {
        let mut rest = run;
        while !rest.is_empty() {
            let (part, behind) = rest.cut();
            let _held = self.stripes.exclusive(segment_of(part.start), Patience::Blocking);
            for (state, run) in self.map.runs(part) {
                match state {
                    State::Hole => {}
                    State::Absent => self.make_hole(run)?,
                    State::Data => self.clear_data(run, without_holes)?,
                }
            }
            rest = behind;
        }
        Ok(())
    }

    fn set_states(&self, run: ClusterRun, state: State) {
        self.map.set(run, state);
        if let Some(lasting) = &self.lasting {
            lasting.note_states(run);
        }
    }

    /// What was stored has to be flushed, even where storing failed in its midst.
    fn note_data(&self) {
        if let Some(lasting) = &self.lasting {
            lasting.note_data();
        }
    }

    fn clear_data(&self, run: ClusterRun, without_holes: WithoutHoles) -> Result<(), Failure> {
        if self.file.punch(run.start_offset(), run.bytes()).map_err(Failure::of_cache)? {
            self.make_hole(run)?;
            self.fill.release(run.count());
            return Ok(());
        }
        if without_holes == WithoutHoles::WriteZeros {
            for cluster in run.start..run.end {
                let at = cluster.saturating_mul(CLUSTER_BYTES);
                self.file.write(at, &ZEROS).map_err(Failure::of_cache)?;
            }
            self.note_data();
        }
        Ok(())
    }

    fn make_hole(&self, run: ClusterRun) -> Result<(), Failure> {
        stored_map::store(&self.file, self.layout, run, State::Hole).map_err(Failure::of_cache)?;
        self.set_states(run, State::Hole);
        Ok(())
    }
}

impl Failure {
    fn of_cache(error: io::Error) -> Self {
        if is_out_of_space(&error) { Self::Refused(FullCause::FileSystem) } else { Self::Cache(error) }
    }
}
