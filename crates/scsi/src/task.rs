//! One command on its way: what it moves, and the moving.
use std::sync::{Arc, OnceLock};

use block::{BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Patience};

use crate::disk::Disk;
use crate::medium::{Medium, Operation};
use crate::mode::ModeSelect;
use crate::nexus::Nexus;
use crate::port::InitiatorPort;
use crate::reservation::PersistentOut;
use crate::sense::{AdditionalSense, CheckCondition, Rejection};
use crate::shared::Shared;

/// Which way a task's data goes, and how many bytes of it there really are. What the initiator expected may differ;
/// the transport reports the residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// None.
    None,
    /// To the initiator.
    In {
        /// How many.
        bytes: u64,
    },
    /// From the initiator.
    Out {
        /// How many.
        bytes: u64,
    },
}

/// The kinds of task that statistics tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TaskKind {
    /// READ.
    Read,
    /// WRITE, WRITE AND VERIFY, WRITE SAME, COMPARE AND WRITE, ORWRITE.
    Write,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// UNMAP, WRITE SAME with UNMAP.
    Discard,
}

/// Why a task was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Only with [`Patience::Now`]: this would have to wait. The same call with [`Patience::Blocking`] will do it.
    #[error("this would have to wait for storage")]
    WouldBlock,
    /// The answer is CHECK CONDITION.
    #[error("{0}")]
    Check(CheckCondition),
    /// The answer is RESERVATION CONFLICT.
    #[error("reservation conflict")]
    ReservationConflict,
    /// The answer is CHECK CONDITION, because the device failed.
    #[error("{check}")]
    Device {
        /// What the initiator is told.
        check: CheckCondition,
        /// What the administrator should be told.
        #[source]
        cause: BlockError,
    },
}

/// A decoded, legal command. It holds all that it needs to be carried out, on any thread.
#[derive(Debug)]
pub struct Task(Work);

/// What carrying it out means.
#[derive(Debug)]
pub(crate) enum Work {
    /// There is nothing to do.
    Nothing,
    /// These bytes are the whole Data-In.
    Reply(Vec<u8>),
    /// A command whose parameter list changes what the unit keeps.
    Change(Change),
    /// It is done on the medium.
    Medium(Medium),
}

/// A change of what the unit keeps for all of its sessions, asked for by one of them.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) shared: Arc<Shared>,
    pub(crate) nexus: Arc<Nexus>,
    pub(crate) what: What,
}

/// Which change.
#[derive(Debug)]
pub(crate) enum What {
    ModeSelect(ModeSelect, Disk),
    /// PERSISTENT RESERVE OUT; when it has run, the ports whose tasks are to be aborted.
    Reserve(PersistentOut, OnceLock<Vec<InitiatorPort>>),
}

impl Change {
    fn list_bytes(&self) -> usize {
        match &self.what {
            What::ModeSelect(select, _) => select.list_bytes,
            What::Reserve(out, _) => out.list_bytes,
        }
    }

    fn run(&self, list: &[u8]) -> Result<(), Rejection> {
        match &self.what {
            What::ModeSelect(select, disk) => {
                let mode = select.apply(disk, self.shared.mode(), list)?;
                self.shared.set_mode(&self.nexus, mode);
            }
            What::Reserve(out, aborted) => {
                let ports = self.shared.change_reservations(&self.nexus, out.action(list)?)?;
                // It runs once.
                let _ = aborted.set(ports);
            }
        }
        Ok(())
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Check(check) => Self::Check(check),
            Rejection::ReservationConflict => Self::ReservationConflict,
        }
    }
}

impl Task {
    pub(crate) fn new(work: Work) -> Self {
        Self(work)
    }

    /// Which way the data goes, and how much.
    #[must_use]
    pub fn transfer(&self) -> Transfer {
        let (inward, bytes) = match &self.0 {
            Work::Nothing => (false, 0),
            Work::Reply(data) => (true, ByteLength::of(data).get()),
            Work::Change(change) => (false, length(change.list_bytes())),
            Work::Medium(medium) => match medium.operation {
                Operation::Read(range) => (true, range.length().get()),
                Operation::LbaStatus { reply_bytes, .. } => (true, length(reply_bytes)),
                Operation::Write { range, .. } | Operation::VerifyData(range) | Operation::Or(range) => {
                    (false, range.length().get())
                }
                Operation::CompareAndWrite(range) => (false, range.length().get().saturating_mul(2)),
                Operation::VerifyMedium(_) | Operation::Flush(_) => (false, 0),
                Operation::Unmap { list_bytes } => (false, length(list_bytes)),
                Operation::WriteSame { data, .. } => {
                    (false, if data { medium.disk.block_bytes() } else { 0 })
                }
            },
        };
        match (inward, bytes) {
            (_, 0) => Transfer::None,
            (true, bytes) => Transfer::In { bytes },
            (false, bytes) => Transfer::Out { bytes },
        }
    }

    /// What kind of task it is, and on which part of the device; `None` where statistics do not count it. The range
    /// of UNMAP, which stands in its Data-Out, is given as empty.
    #[must_use]
    pub fn kind(&self) -> Option<(TaskKind, ByteRange)> {
        let Work::Medium(medium) = &self.0 else { return None };
        match medium.operation {
            Operation::Read(range) => Some((TaskKind::Read, range)),
            Operation::Write { range, .. }
            | Operation::WriteSame { range, unmap: false, .. }
            | Operation::CompareAndWrite(range)
            | Operation::Or(range) => Some((TaskKind::Write, range)),
            Operation::Flush(range) => Some((TaskKind::Flush, range)),
            Operation::WriteSame { range, unmap: true, .. } => Some((TaskKind::Discard, range)),
            Operation::Unmap { .. } => {
                ByteRange::new(ByteOffset::ZERO, ByteLength::ZERO).map(|nothing| (TaskKind::Discard, nothing))
            }
            Operation::VerifyMedium(_) | Operation::VerifyData(_) | Operation::LbaStatus { .. } => None,
        }
    }

    /// Whether it stores its Data-Out and does nothing more: neither waits for stable storage nor reads.
    #[must_use]
    pub fn only_stores(&self) -> bool {
        let Work::Medium(medium) = &self.0 else { return false };
        !medium.lasting && matches!(medium.operation, Operation::Write { verify: false, .. })
    }

    /// Where the Data-In from byte `offset` on, at most `bytes` of it, lies in a file; see
    /// [`BlockDevice::file_span`](block::BlockDevice::file_span). `None` says nothing but that
    /// [`read_in`](Self::read_in) has to be asked.
    #[must_use]
    pub fn file_span(&self, offset: u64, bytes: u64, patience: Patience) -> Option<FileSpan> {
        match &self.0 {
            Work::Medium(medium @ Medium { operation: Operation::Read(range), .. }) => {
                medium.file_span(*range, offset, bytes, patience)
            }
            Work::Medium(_) | Work::Nothing | Work::Reply(_) | Work::Change(_) => None,
        }
    }

    /// The ports whose tasks on the unit are to be aborted before this one is answered, now that it has run
    /// (PREEMPT AND ABORT, SPC-4 §5.13.11.5).
    #[must_use]
    pub fn aborts_tasks_of(&self) -> &[InitiatorPort] {
        match &self.0 {
            Work::Change(Change { what: What::Reserve(_, aborted), .. }) => {
                aborted.get().map_or(&[], Vec::as_slice)
            }
            Work::Change(_) | Work::Medium(_) | Work::Nothing | Work::Reply(_) => &[],
        }
    }

    /// Fills `buffer` with the Data-In from byte `offset` on. Any part can be had in any order; on boundaries of
    /// logical blocks it costs least. What lies behind the end of the Data-In is filled with zeros.
    ///
    /// # Errors
    /// [`Failure`]; the contents of `buffer` are then unspecified.
    pub fn read_in(&self, offset: u64, buffer: &mut [u8], patience: Patience) -> Result<(), Failure> {
        match &self.0 {
            Work::Medium(medium @ Medium { operation: Operation::Read(range), .. }) => {
                medium.read_in(*range, offset, buffer, patience)
            }
            Work::Reply(data) => {
                copy_from(offset, buffer, data);
                Ok(())
            }
            Work::Medium(medium @ Medium { operation: Operation::LbaStatus { range, .. }, .. }) => {
                copy_from(offset, buffer, &medium.lba_status(*range, patience)?);
                Ok(())
            }
            Work::Nothing | Work::Change(_) | Work::Medium(_) => {
                buffer.fill(0);
                Ok(())
            }
        }
    }

    /// Judges how much Data-Out the initiator announces, which it may do before any of it moves.
    ///
    /// More than [`transfer`](Self::transfer) is a residual, and so is less for a WRITE or VERIFY, of which as many
    /// logical blocks are carried out as come. But half a block, a cut parameter list, and anything but one block for
    /// WRITE SAME contradict the CDB.
    ///
    /// # Errors
    /// The CHECK CONDITION to answer with instead of asking for the data.
    pub fn check_announced(&self, data_out_bytes: u64) -> Result<(), CheckCondition> {
        let list = |list_bytes: usize| {
            if data_out_bytes < length(list_bytes) {
                return Err(CheckCondition::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR));
            }
            Ok(())
        };
        match &self.0 {
            Work::Nothing | Work::Reply(_) => Ok(()),
            Work::Change(change) => list(change.list_bytes()),
            Work::Medium(medium) => match medium.operation {
                Operation::Unmap { list_bytes } => list(list_bytes),
                _ => medium.check_announced(data_out_bytes),
            },
        }
    }

    /// Carries out a task that has no Data-In; one that has ([`Transfer::In`]) has nothing to be done here.
    ///
    /// `data_out` is what the initiator sent; its length is judged by [`check_announced`](Self::check_announced), and
    /// what exceeds [`transfer`](Self::transfer) is ignored.
    ///
    /// # Errors
    /// [`Failure`]; part of the task may have taken effect.
    pub fn run(&self, data_out: &[u8], patience: Patience) -> Result<(), Failure> {
        self.check_announced(ByteLength::of(data_out).get()).map_err(Failure::Check)?;
        match &self.0 {
            Work::Nothing | Work::Reply(_) => Ok(()),
            Work::Change(change) => Ok(change.run(data_out)?),
            Work::Medium(medium) => medium.run(data_out, patience),
        }
    }
}

/// Fills `buffer` with `data` from `offset` on, and with zeros behind its end.
fn copy_from(offset: u64, buffer: &mut [u8], data: &[u8]) {
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let source = data.get(from..).unwrap_or_default().iter().copied();
    let source = source.chain(std::iter::repeat(0));
    buffer.iter_mut().zip(source).for_each(|(target, byte)| *target = byte);
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
