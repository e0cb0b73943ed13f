//! Requests that answer without data, and BLOCK_STATUS: a body, a flush where FUA asks for one, an answer.
use std::time::Instant;

use meter::Kind;

use super::jobs::{Answer, Job};
use crate::exports::RequestKind;
use crate::transmission::check::Command;
use crate::transmission::request::Tag;
use crate::wire::Errno;

/// A request that is being carried out.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) tag: Tag,
    pub(super) command: Command,
    pub(super) arrived: Instant,
    /// Storage had to be waited for.
    pub(super) waited: bool,
    /// What went wrong first.
    pub(super) failure: Option<(Errno, &'static str)>,
    /// Jobs of it that are with the workers.
    pub(super) lent: usize,
    /// Payload of it is still to come.
    pub(super) receiving: bool,
    pub(super) answer: Answer,
    flushed: bool,
}

impl Change {
    pub(super) fn new(tag: Tag, command: Command, arrived: Instant) -> Self {
        Self {
            tag,
            command,
            arrived,
            waited: false,
            failure: None,
            lent: 0,
            receiving: command.kind == RequestKind::Write,
            answer: Answer::Nothing,
            flushed: false,
        }
    }

    /// Everything but a flush is done.
    pub(super) fn body_is_done(&self) -> bool {
        self.lent == 0 && !self.receiving
    }

    /// Whether a flush must come now; says so once.
    pub(super) fn take_flush(&mut self) -> bool {
        let wanted = self.command.options.fua && self.failure.is_none() && !self.flushed;
        self.flushed |= wanted;
        wanted
    }
}

/// What a request is counted as.
pub(super) fn counted_as(command: &Command) -> Kind {
    match command.kind {
        RequestKind::Read => Kind::Read,
        RequestKind::Write => Kind::Write,
        RequestKind::Flush => Kind::Flush,
        RequestKind::WriteZeroes if command.options.no_hole => Kind::Write,
        RequestKind::Trim | RequestKind::WriteZeroes => Kind::Unmap,
        RequestKind::Cache | RequestKind::BlockStatus => Kind::Other,
    }
}

/// What a request costs of a limit on bytes.
pub(super) fn moved_bytes(command: &Command) -> u64 {
    let moves = matches!(counted_as(command), Kind::Read | Kind::Write) || command.kind == RequestKind::Cache;
    if moves { command.range.length().get() } else { 0 }
}

/// What a request without payload asks of the device.
///
/// # Errors
/// The errno to answer at once.
pub(super) fn job(command: &Command) -> Result<Job, (Errno, &'static str)> {
    let range = command.range;
    match command.kind {
        RequestKind::Flush => Ok(Job::Flush),
        RequestKind::Trim => Ok(Job::Trim(range)),
        RequestKind::WriteZeroes if !command.options.no_hole => Ok(Job::Zero(range)),
        // Zeros that take space are written like any other bytes.
        RequestKind::WriteZeroes if command.options.fast_zero => {
            Err((Errno::NotSupported, "zeros without a hole are no faster than a write"))
        }
        RequestKind::WriteZeroes => Ok(Job::StoreZeroes(range)),
        RequestKind::Cache => Ok(Job::Cache(range)),
        RequestKind::BlockStatus => Ok(Job::Status { range, one: command.options.one }),
        RequestKind::Read | RequestKind::Write => Err((Errno::Invalid, "not a request of this kind")),
    }
}
