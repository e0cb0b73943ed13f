//! Data-Out: immediate and unsolicited data, and what is asked for with R2T (RFC 7143 §4.2.5, §11.7, §11.8).
//!
//! Order within a command is fixed (DataPDUInOrder, DataSequenceInOrder), so its data only ever grows at the end.
//! How much solicited data may be on its way at once has a budget for the session; commands wait for it in turn, and for
//! the driver, which knows of the other sessions.
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use scsi::{AdditionalSense, CheckCondition, SenseKey};

use super::{Entry, Event, Moved, Outcome, Session, Stage, broken};
use crate::limits::WRITE_BUDGET_BYTES;
use crate::pdu::NO_TAG;
use crate::pdu::reply::{R2t, put_pdu};
use crate::pdu::request::{DataOut, Malformed, ScsiCommand};
use connections::ByteQueue;

/// How far the Data-Out of a command has come.
#[derive(Debug)]
pub(super) struct Progress {
    moved: Moved,
    /// What the command takes: what its CDB says and the initiator has.
    wanted_bytes: u64,
    data: Vec<u8>,
    /// Asked for, or had.
    requested_bytes: u64,
    r2ts: VecDeque<OpenR2t>,
    r2t_sn: u32,
}

/// Unsolicited Data-Out that is still on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unsolicited {
    next_offset: u64,
    data_sn: u32,
    limit_bytes: u64,
}

/// An R2T that is not wholly answered.
#[derive(Debug)]
struct OpenR2t {
    ttt: u32,
    next_offset: u64,
    end_offset: u64,
    data_sn: u32,
}

/// The session's write data: asked for, or here and not yet written.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Of commands whose data is asked for.
    pub(super) used_bytes: u64,
    /// Of all others: what came unasked, and what may still come so.
    pub(super) unasked_bytes: u64,
    /// Commands whose data is to be asked for, in turn.
    pub(super) waiting: VecDeque<u32>,
    /// Commands that wait for data, with the time at which that was seen first.
    due: Vec<Due>,
}

/// A sequence of Data-Out that is due.
#[derive(Clone, Copy, Debug)]
struct Due {
    itt: u32,
    /// Its Target Transfer Tag; [`NO_TAG`] of unsolicited data.
    ttt: u32,
    since: Instant,
}

impl Progress {
    pub(super) fn new(moved: Moved, wanted_bytes: u64, immediate: &[u8]) -> Self {
        let mut progress = Self {
            moved,
            wanted_bytes,
            data: Vec::new(),
            requested_bytes: 0,
            r2ts: VecDeque::new(),
            r2t_sn: 0,
        };
        progress.append(immediate);
        progress
    }

    /// Keeps of `data` what the command takes.
    fn append(&mut self, data: &[u8]) {
        let room = self.wanted_bytes.saturating_sub(self.data.len() as u64);
        let taken = data.get(..usize::try_from(room).unwrap_or(usize::MAX)).unwrap_or(data);
        self.data.extend_from_slice(taken);
    }

    fn complete(&self) -> bool {
        self.moved.unsolicited.is_none() && self.data.len() as u64 >= self.wanted_bytes
    }

    /// Checks a Data-Out PDU against what is due and takes it.
    fn accept(&mut self, pdu: &DataOut, data: &[u8]) -> Result<(), BadData> {
        if pdu.ttt == NO_TAG {
            let due =
                self.moved.unsolicited.as_mut().ok_or(broken("unsolicited data that was not announced"))?;
            if due.accept(pdu, data.len())? {
                self.moved.unsolicited = None;
            }
        } else {
            let due = self.r2ts.front_mut().filter(|r2t| r2t.ttt == pdu.ttt);
            let due = due.ok_or(broken("data for an R2T that is not open"))?;
            let end = due.next_offset.saturating_add(data.len() as u64);
            check_place(pdu, due.next_offset, due.data_sn)?;
            // RFC 7143 §11.8.4: exactly what was asked for, and F at its end.
            if end > due.end_offset || (end == due.end_offset) != pdu.last {
                return Err(broken("an answer to R2T that is longer or shorter than it asked for").into());
            }
            due.next_offset = end;
            due.data_sn = due.data_sn.wrapping_add(1);
            if pdu.last {
                self.r2ts.pop_front();
            }
        }
        self.append(data);
        Ok(())
    }

    /// The sequence that comes next, by its tag.
    fn due(&self) -> Option<u32> {
        self.moved.unsolicited.map(|_| NO_TAG).or_else(|| self.r2ts.front().map(|r2t| r2t.ttt))
    }

    /// What still comes when nothing of it is wanted any more.
    fn rest(&self) -> Rest {
        let unsolicited = self.moved.unsolicited.map(|_| NO_TAG);
        Rest { tags: self.r2ts.iter().map(|r2t| r2t.ttt).chain(unsolicited).collect() }
    }

    /// Opens the next R2T, where one is due.
    fn next_r2t(&mut self, ttt: u32, max_burst: u32, max_outstanding: u32) -> Option<(u32, u32, u32)> {
        if self.moved.unsolicited.is_some() || self.r2ts.len() >= max_outstanding as usize {
            return None;
        }
        let offset = self.requested_bytes.max(self.data.len() as u64);
        let left = self.wanted_bytes.checked_sub(offset).filter(|left| *left > 0)?;
        let bytes = u32::try_from(left).unwrap_or(u32::MAX).min(max_burst);
        let end_offset = offset.saturating_add(u64::from(bytes));
        self.requested_bytes = end_offset;
        self.r2ts.push_back(OpenR2t { ttt, next_offset: offset, end_offset, data_sn: 0 });
        let r2t_sn = self.r2t_sn;
        self.r2t_sn = r2t_sn.wrapping_add(1);
        Some((r2t_sn, u32::try_from(offset).ok()?, bytes))
    }
}

impl Unsolicited {
    /// How much it may be, together with what came with the command.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Checks a PDU of it; `true` where it was the last.
    fn accept(&mut self, pdu: &DataOut, data_bytes: usize) -> Result<bool, BadData> {
        check_place(pdu, self.next_offset, self.data_sn)?;
        self.next_offset = self.next_offset.saturating_add(data_bytes as u64);
        self.data_sn = self.data_sn.wrapping_add(1);
        if self.next_offset > self.limit_bytes {
            return Err(broken("more unsolicited data than FirstBurstLength or than was announced").into());
        }
        Ok(pdu.last)
    }
}

/// Data that still comes for a command which is over: sequences by their tag, each ended by a PDU with F.
#[derive(Debug)]
pub(super) struct Rest {
    tags: Vec<u32>,
}

impl Rest {
    /// Unsolicited data.
    pub(super) fn unsolicited() -> Self {
        Self { tags: vec![NO_TAG] }
    }

    /// Drops a PDU; `true` where it was the last.
    fn drop_pdu(&mut self, pdu: &DataOut) -> Result<bool, Malformed> {
        let at = self.tags.iter().position(|tag| *tag == pdu.ttt);
        let at = at.ok_or(broken("data for an R2T that is not open"))?;
        if pdu.last {
            self.tags.swap_remove(at);
        }
        Ok(self.tags.is_empty())
    }
}

/// What is wrong with a Data-Out PDU.
enum BadData {
    /// Data before it is missing: the command fails (RFC 7143 §7.9 with §7.8).
    OutOfSequence,
    /// The initiator breaks the protocol.
    Broken(Malformed),
}

impl From<Malformed> for BadData {
    fn from(malformed: Malformed) -> Self {
        Self::Broken(malformed)
    }
}

fn check_place(pdu: &DataOut, offset: u64, data_sn: u32) -> Result<(), BadData> {
    if u64::from(pdu.buffer_offset) == offset && pdu.data_sn == data_sn {
        Ok(())
    } else {
        Err(BadData::OutOfSequence)
    }
}

impl<W> Session<W> {
    /// Checks what a command brings along, and gives what unsolicited data will still follow.
    pub(super) fn check_unsolicited(
        &self,
        command: &ScsiCommand,
        immediate_bytes: usize,
    ) -> Result<Option<Unsolicited>, Malformed> {
        let parameters = &self.start.parameters;
        let limit_bytes = u64::from(parameters.first_burst_bytes.min(command.expected_bytes));
        let immediate = immediate_bytes as u64;
        if immediate > 0 && !parameters.immediate_data {
            return Err(broken("immediate data where ImmediateData=No was agreed on"));
        }
        if immediate > limit_bytes {
            return Err(broken("more immediate data than FirstBurstLength or than was announced"));
        }
        if command.last {
            return Ok(None);
        }
        if parameters.initial_r2t {
            return Err(broken("unsolicited data where InitialR2T=Yes was agreed on"));
        }
        Ok(Some(Unsolicited { next_offset: immediate, data_sn: 0, limit_bytes }))
    }

    /// Takes a Data-Out PDU.
    pub(super) fn data_out<'d>(
        &mut self,
        pdu: &DataOut,
        data: &'d [u8],
        out: &mut ByteQueue,
    ) -> Result<Event<'d, W>, Malformed> {
        let Some(entry) = self.entries.get_mut(&pdu.itt) else {
            // The rest of a command that was aborted: RFC 7143 §11.5.1 lets it come and be dropped.
            return Ok(Event::Nothing);
        };
        match &mut entry.stage {
            Stage::Writing(_, progress) => match progress.accept(pdu, data) {
                Ok(()) if progress.complete() => return Ok(self.take_write(pdu.itt)),
                Ok(()) => self.continue_write(pdu.itt, out),
                Err(BadData::OutOfSequence) => {
                    // RFC 7143 §7.8 b), §11.4.7.2: CHECK CONDITION, PROTOCOL SERVICE CRC ERROR.
                    let check =
                        CheckCondition::new(SenseKey::AbortedCommand, AdditionalSense::PROTOCOL_CRC_ERROR);
                    let outcome = Outcome::Check(check.to_bytes().to_vec());
                    entry.stage = Stage::Draining(outcome, progress.moved, progress.rest());
                    return self.data_out(pdu, data, out);
                }
                Err(BadData::Broken(malformed)) => return Err(malformed),
            },
            Stage::Draining(outcome, moved, rest) => {
                if rest.drop_pdu(pdu)? {
                    let (outcome, moved) = (outcome.clone(), *moved);
                    self.respond(pdu.itt, &outcome, moved, out);
                }
            }
            Stage::Lent(moved) => {
                // Carried out already, or being so, with data still to come.
                if moved.unsolicited.is_none() || pdu.ttt != NO_TAG {
                    return Err(broken("data for a command that has all of it"));
                }
                if pdu.last {
                    moved.unsolicited = None;
                }
            }
            Stage::Reading(..) | Stage::ReadLent(_) => return Err(broken("data for a command that reads")),
        }
        Ok(Event::Nothing)
    }

    /// Asks for the next data of a write, as far as its R2Ts go; one that has not been asked for any stands in line.
    pub(super) fn continue_write(&mut self, itt: u32, out: &mut ByteQueue) {
        let parameters = self.start.parameters;
        let Some(Entry { stage: Stage::Writing(_, progress), budget_bytes, .. }) = self.entries.get(&itt)
        else {
            return;
        };
        if *budget_bytes == 0 {
            if progress.moved.unsolicited.is_none() {
                self.write_flow.waiting.push_back(itt);
            }
            return;
        }
        loop {
            let ttt = self.new_tag();
            let Some(Entry { stage: Stage::Writing(_, progress), lun, .. }) = self.entries.get_mut(&itt)
            else {
                return;
            };
            let next = progress.next_r2t(ttt, parameters.max_burst_bytes, parameters.max_outstanding_r2t);
            let Some((r2t_sn, buffer_offset, desired_bytes)) = next else {
                return;
            };
            progress.moved.data_pdus = progress.r2t_sn;
            let r2t = R2t { lun: *lun, itt, ttt, r2t_sn, buffer_offset, desired_bytes };
            // RFC 7143 §11.8: an R2T carries the next StatSN and does not use it up.
            let bhs = r2t.header().with_numbers(self.numbers());
            put_pdu(out, bhs, &[], parameters.digests);
        }
    }

    /// Write data that has been asked for and is not yet written.
    pub(crate) fn solicited_bytes(&self) -> u64 {
        self.write_flow.used_bytes
    }

    /// Write data that came unasked and is not yet written, and what may still come so.
    pub(crate) fn unasked_bytes(&self) -> u64 {
        self.write_flow.unasked_bytes
    }

    /// How much the next write takes whose data could be asked for; `None` where none waits, or the session has its share.
    pub(crate) fn solicited_wish(&self) -> Option<u64> {
        let flow = &self.write_flow;
        let bytes = self.writing(*flow.waiting.front()?)?.wanted_bytes;
        // One write of any size passes.
        let fits = flow.used_bytes == 0 || flow.used_bytes.saturating_add(bytes) <= WRITE_BUDGET_BYTES;
        fits.then_some(bytes)
    }

    /// Asks for the data of the write that [`solicited_wish`](Self::solicited_wish) told of.
    pub(crate) fn solicit_next(&mut self, out: &mut ByteQueue) {
        let Some(itt) = self.write_flow.waiting.pop_front() else { return };
        let Some(entry) = self.entries.get_mut(&itt) else { return };
        let Stage::Writing(_, progress) = &entry.stage else { return };
        entry.budget_bytes = progress.wanted_bytes;
        let flow = &mut self.write_flow;
        flow.used_bytes = flow.used_bytes.saturating_add(entry.budget_bytes);
        // What came with the command is part of it.
        flow.unasked_bytes = flow.unasked_bytes.saturating_sub(std::mem::take(&mut entry.unasked_bytes));
        self.continue_write(itt, out);
    }

    /// Whether the initiator owes a sequence of Data-Out for longer than `deadline`. To be asked from time to time: a
    /// sequence is due from the first time on.
    pub(crate) fn data_is_overdue(&mut self, now: Instant, deadline: Duration) -> bool {
        if self.write_flow.used_bytes == 0 && self.write_flow.unasked_bytes == 0 {
            self.write_flow.due.clear();
            return false;
        }
        let before = std::mem::take(&mut self.write_flow.due);
        let due = self.entries.iter().filter_map(|(itt, entry)| match &entry.stage {
            Stage::Writing(_, progress) => Some((*itt, progress.due()?)),
            _ => None,
        });
        let since = |itt, ttt| before.iter().find(|known| (known.itt, known.ttt) == (itt, ttt));
        let known: Vec<_> = due
            .map(|(itt, ttt)| Due { itt, ttt, since: since(itt, ttt).map_or(now, |known| known.since) })
            .collect();
        self.write_flow.due = known;
        self.write_flow.due.iter().any(|due| now.saturating_duration_since(due.since) > deadline)
    }

    fn writing(&self, itt: u32) -> Option<&Progress> {
        match &self.entries.get(&itt)?.stage {
            Stage::Writing(_, progress) => Some(progress),
            _ => None,
        }
    }

    /// Hands out a write whose data is complete.
    fn take_write(&mut self, itt: u32) -> Event<'static, W> {
        let Some(entry) = self.entries.get_mut(&itt) else {
            return Event::Nothing;
        };
        let stage = std::mem::replace(&mut entry.stage, Stage::Lent(Moved::default()));
        let Stage::Writing(work, progress) = stage else {
            entry.stage = stage;
            return Event::Nothing;
        };
        entry.stage = Stage::Lent(progress.moved);
        self.lent = self.lent.saturating_add(1);
        Event::WriteReady { itt, work, data: progress.data }
    }
}
