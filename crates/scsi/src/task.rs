//! One command on its way: what it moves, and the moving.
use block::{BlockError, ByteRange, Patience};

use crate::sense::CheckCondition;

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
    /// WRITE, WRITE AND VERIFY, WRITE SAME.
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
pub struct Task {}

impl Task {
    /// Which way the data goes, and how much.
    #[must_use]
    pub fn transfer(&self) -> Transfer {
        Transfer::None
    }

    /// What kind of task it is, and on which part of the device; `None` where statistics do not count it. The range
    /// of UNMAP, which stands in its Data-Out, is given as empty.
    #[must_use]
    pub fn kind(&self) -> Option<(TaskKind, ByteRange)> {
        None
    }

    /// Fills `buffer` with the Data-In from byte `offset` on. Any part can be had in any order; on boundaries of
    /// logical blocks it costs least. What lies behind the end of the Data-In is filled with zeros.
    ///
    /// # Errors
    /// [`Failure`]; the contents of `buffer` are then unspecified.
    pub fn read_in(&self, _offset: u64, _buffer: &mut [u8], _patience: Patience) -> Result<(), Failure> {
        Ok(())
    }

    /// Carries out a task that has no Data-In. `data_out` is what the initiator sent: what exceeds
    /// [`transfer`](Self::transfer) is ignored; of a WRITE that got less, the whole logical blocks that came are
    /// written (the initiator announced a shorter transfer than its CDB).
    ///
    /// # Errors
    /// [`Failure`]; part of the task may have taken effect.
    pub fn run(&self, _data_out: &[u8], _patience: Patience) -> Result<(), Failure> {
        Ok(())
    }
}
