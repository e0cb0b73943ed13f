//! Data-In: a read is cut into PDUs as the initiator accepts them, each filled in place (RFC 7143 §11.7).
use super::{Entry, Moved, Outcome, Session, Stage};
use crate::limits::SEND_DATA_SEGMENT_BYTES;
use crate::pdu::Bhs;
use crate::pdu::reply::{DataIn, PduSlot, Residual, put_header};
use connections::ByteQueue;

/// How far the Data-In of a command has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    moved: Moved,
    /// What will be sent in all: what the command has and the initiator expects.
    total_bytes: u64,
    sent_bytes: u64,
    /// Bytes of the current sequence; each is at most MaxBurstLength long.
    burst_bytes: u32,
}

/// The rest of a command's Data-In.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadPiece {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// How a read stands after a piece was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadProgress<W> {
    /// There is more.
    More,
    /// All was sent, with GOOD status; here is the work.
    Done(W),
    /// The command had been aborted; nothing was sent.
    Aborted(W),
}

impl Progress {
    pub(super) fn new(moved: Moved, total_bytes: u64) -> Self {
        Self { moved, total_bytes, sent_bytes: 0, burst_bytes: 0 }
    }

    /// What a command that fails now has moved.
    pub(super) fn moved(&self) -> Moved {
        Moved { actual_bytes: self.sent_bytes, ..self.moved }
    }

    fn rest(&self) -> ReadPiece {
        ReadPiece { offset: self.sent_bytes, bytes: self.total_bytes.saturating_sub(self.sent_bytes) }
    }
}

impl<W> Session<W> {
    /// The first command that has Data-In to send.
    pub(crate) fn next_read(&self) -> Option<u32> {
        self.reading.front().copied()
    }

    /// Sends one PDU of the command's Data-In: `fill` gets the offset in the Data-In and the place for the bytes.
    ///
    /// # Errors
    /// What `fill` answers; nothing was sent then, and the command stands where it stood.
    pub(crate) fn send_read<E>(
        &mut self,
        itt: u32,
        out: &mut ByteQueue,
        fill: impl FnOnce(&W, u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<ReadProgress<W>, E> {
        let Some(Entry { stage: Stage::Reading(work, progress), expected_bytes, .. }) =
            self.entries.get(&itt)
        else {
            self.reading.retain(|other| *other != itt);
            return Ok(ReadProgress::More);
        };
        let (progress, expected) = (*progress, u64::from(*expected_bytes));
        let bytes = self.next_pdu_bytes(&progress);
        let digests = self.start.parameters.digests;
        let slot = PduSlot::open(bytes as usize, digests);
        fill(work, progress.sent_bytes, slot.data(out))?;
        let close = |mut bhs, out: &mut ByteQueue| slot.close(out, &mut bhs, digests);
        Ok(self.commit_read(itt, progress, bytes, expected, out, close))
    }

    /// The work of a reading command, and what its next PDU can carry; `None` where that must pass through the output,
    /// because a digest of it is due.
    pub(crate) fn next_apart(&self, itt: u32) -> Option<(&W, ReadPiece)> {
        match self.entries.get(&itt)? {
            Entry { stage: Stage::Reading(work, progress), .. } if !self.start.parameters.digests.data => {
                let bytes = u64::from(self.next_pdu_bytes(progress));
                Some((work, ReadPiece { bytes, ..progress.rest() }))
            }
            _ => None,
        }
    }

    /// Sends the header of a PDU with the next `bytes` of the command's Data-In, a multiple of 4 and not more than
    /// [`next_apart`](Self::next_apart) says; the driver sends the data behind it.
    pub(crate) fn send_apart(&mut self, itt: u32, bytes: u32, out: &mut ByteQueue) -> ReadProgress<W> {
        let Some(Entry { stage: Stage::Reading(_, progress), expected_bytes, .. }) = self.entries.get(&itt)
        else {
            return ReadProgress::More;
        };
        let (progress, expected) = (*progress, u64::from(*expected_bytes));
        let digests = self.start.parameters.digests;
        let header = |bhs, out: &mut ByteQueue| put_header(out, bhs, bytes, digests);
        self.commit_read(itt, progress, bytes, expected, out, header)
    }

    /// What is left of the Data-In of a reading command.
    pub(crate) fn read_rest(&self, itt: u32) -> Option<u64> {
        match &self.entries.get(&itt)?.stage {
            Stage::Reading(_, progress) => Some(progress.rest().bytes),
            _ => None,
        }
    }

    /// Lends out the work of a reading command, with the rest of its Data-In.
    pub(crate) fn lend_read(&mut self, itt: u32) -> Option<(W, ReadPiece)> {
        self.reading.retain(|other| *other != itt);
        let entry = self.entries.get_mut(&itt)?;
        let stage = std::mem::replace(&mut entry.stage, Stage::Lent(Moved::default()));
        if let Stage::Reading(work, progress) = stage {
            entry.stage = Stage::ReadLent(progress);
            self.lent = self.lent.saturating_add(1);
            return Some((work, progress.rest()));
        }
        entry.stage = stage;
        None
    }

    /// Takes the work back with the next bytes of the Data-In, and sends them.
    pub(crate) fn return_read(
        &mut self,
        itt: u32,
        work: W,
        bytes: &[u8],
        out: &mut ByteQueue,
    ) -> ReadProgress<W> {
        let aborted = match self.entries.get(&itt) {
            Some(Entry { stage: Stage::ReadLent(_), aborted, .. }) => *aborted,
            _ => return ReadProgress::Aborted(work),
        };
        if aborted {
            self.finish(itt, Outcome::Good, out);
            return ReadProgress::Aborted(work);
        }
        self.lent = self.lent.saturating_sub(1);
        if let Some(entry) = self.entries.get_mut(&itt)
            && let Stage::ReadLent(progress) = entry.stage
        {
            entry.stage = Stage::Reading(work, progress);
        }
        self.reading.push_back(itt);
        let mut rest = bytes;
        while !rest.is_empty() {
            let sent = self.send_read(itt, out, |_, _, buffer| {
                // A piece that does not fill the next PDU is left; the driver reads it again.
                let (now, later) = rest.split_at_checked(buffer.len()).ok_or(())?;
                buffer.copy_from_slice(now);
                rest = later;
                Ok(())
            });
            match sent {
                Ok(ReadProgress::More) => {}
                Ok(done) => return done,
                Err(()) => break,
            }
        }
        ReadProgress::More
    }

    /// How much the next PDU carries: what is left, of the burst too, and what the initiator takes.
    fn next_pdu_bytes(&self, progress: &Progress) -> u32 {
        let parameters = &self.start.parameters;
        let left = u32::try_from(progress.rest().bytes).unwrap_or(u32::MAX);
        let burst_left = parameters.max_burst_bytes.saturating_sub(progress.burst_bytes);
        left.min(burst_left).min(parameters.send_data_segment_bytes).min(SEND_DATA_SEGMENT_BYTES)
    }

    fn commit_read(
        &mut self,
        itt: u32,
        mut progress: Progress,
        bytes: u32,
        expected: u64,
        out: &mut ByteQueue,
        write: impl FnOnce(Bhs, &mut ByteQueue),
    ) -> ReadProgress<W> {
        let offset = u32::try_from(progress.sent_bytes).unwrap_or(u32::MAX);
        let data_sn = progress.moved.data_pdus;
        progress.sent_bytes = progress.sent_bytes.saturating_add(u64::from(bytes));
        progress.burst_bytes = progress.burst_bytes.saturating_add(bytes);
        progress.moved.data_pdus = data_sn.saturating_add(1);
        let all = progress.sent_bytes >= progress.total_bytes;
        let last = all || progress.burst_bytes >= self.start.parameters.max_burst_bytes;
        if last {
            progress.burst_bytes = 0;
        }
        let removed = if all {
            self.reading.retain(|other| *other != itt);
            self.remove(itt)
        } else {
            if let Some(Entry { stage: Stage::Reading(_, stored), .. }) = self.entries.get_mut(&itt) {
                *stored = progress;
            }
            None
        };
        // RFC 7143 §11.7.3: GOOD status may ride on the last Data-In PDU.
        let status = all.then(|| Residual::of(expected, progress.moved.actual_bytes));
        let mut numbers = self.numbers();
        if status.is_some() {
            self.stat_sn = self.stat_sn.wrapping_add(1);
        } else {
            numbers.stat_sn = 0;
        }
        let bhs = DataIn { itt, data_sn, buffer_offset: offset, last, status }.header();
        write(bhs.with_numbers(numbers), out);
        match removed.map(|entry| entry.stage) {
            Some(Stage::Reading(work, _)) => {
                self.settle(out);
                ReadProgress::Done(work)
            }
            _ => ReadProgress::More,
        }
    }
}
