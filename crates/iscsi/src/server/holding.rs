//! Commands that a limit on their disk holds back. They wait here, and not in the socket: behind them come pings, aborts and
//! the data of other commands, which are not to wait. A session has no more of them than its window has commands, and
//! no more data than its share of what may be in flight.
//!
//! They go on in their order, reads and writes alike. What neither reads nor changes the medium is never held.
use std::time::Instant;

use scsi::TaskKind;

use super::event_loop::Context;
use super::full::Full;
use super::link::Work;
use super::mailbox::ConnectionId;
use crate::session::Outcome;
use connections::ByteQueue;

/// A command that waits until a limit lets it go.
pub(super) struct Held {
    itt: u32,
    work: Work,
    moved_bytes: u64,
    then: Then,
}

/// What becomes of it then.
enum Then {
    /// Its Data-In is sent.
    Read,
    /// It is carried out with this data.
    Run(Vec<u8>),
}

impl Full {
    /// What the limits have to be asked about for this command; `None` where there is nothing to ask.
    pub(super) fn limited_bytes(&self, work: &Work) -> Option<u64> {
        if self.gate.is_open() && self.held.is_empty() {
            return None;
        }
        let (kind, range) = work.task.kind()?;
        Some(if matches!(kind, TaskKind::Read | TaskKind::Write) { range.length().get() } else { 0 })
    }

    /// Whether a command that moves so many bytes has to wait.
    pub(super) fn must_wait(&mut self, limited_bytes: Option<u64>, context: &Context) -> bool {
        let Some(bytes) = limited_bytes else { return false };
        if self.held.is_empty() && self.gate.pass(bytes, context.now).is_ok() {
            return false;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.hold_back();
        }
        true
    }

    /// Has a command that was admitted to send Data-In wait.
    pub(super) fn hold_read(&mut self, itt: u32, moved_bytes: Option<u64>) {
        if let Some((work, _)) = self.session.lend_read(itt) {
            let moved_bytes = moved_bytes.unwrap_or(0);
            self.held.push_back(Held { itt, work, moved_bytes, then: Then::Read });
        }
    }

    /// Has a command wait whose data is complete.
    pub(super) fn hold_run(&mut self, itt: u32, work: Work, moved_bytes: Option<u64>, data: Vec<u8>) {
        let moved_bytes = moved_bytes.unwrap_or(0);
        self.held.push_back(Held { itt, work, moved_bytes, then: Then::Run(data) });
    }

    /// Has commands go on that need not wait any more; until when the next one has to.
    pub(super) fn let_go(
        &mut self,
        out: &mut ByteQueue,
        context: &Context,
        id: ConnectionId,
    ) -> Option<Instant> {
        while let Some(first) = self.held.front() {
            if let Err(until) = self.gate.pass(first.moved_bytes, context.now) {
                return Some(until);
            }
            let Held { itt, work, then, .. } = self.held.pop_front()?;
            match then {
                Then::Read => {
                    self.session.return_read(itt, work, &[], out);
                }
                Then::Run(data) => self.run(itt, work, data, out, context, id),
            }
        }
        None
    }

    /// Lets go of commands that were aborted meanwhile: whoever had them aborted waits for that.
    pub(super) fn drop_aborted(&mut self, out: &mut ByteQueue) {
        let session = &self.session;
        let (aborted, kept) =
            std::mem::take(&mut self.held).into_iter().partition(|held| session.runs_aborted(held.itt));
        self.held = kept;
        self.drop_commands(aborted, out);
    }

    /// The connection is gone: nothing of what waits will be done.
    pub(super) fn drop_held(&mut self, out: &mut ByteQueue) {
        let held = std::mem::take(&mut self.held);
        self.drop_commands(held, out);
    }

    fn drop_commands(&mut self, commands: std::collections::VecDeque<Held>, out: &mut ByteQueue) {
        for Held { itt, .. } in commands {
            self.session.finish(itt, Outcome::Good, out);
        }
    }
}
