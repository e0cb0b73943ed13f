//! Task management (RFC 7143 §11.5, §11.6): commands are taken off the list; those whose work is out are waited for.
//!
//! A function that reaches into other sessions is not answered either before those have done their part: the driver
//! says so with [`Session::others_are_done`].
use super::{Event, Session, Stage};
use crate::limits::MAX_IMMEDIATE_TASKS;
use crate::pdu::reply;
use crate::pdu::request::TaskManagement;
use connections::ByteQueue;

/// Which commands of the session a function ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The one with this task tag, of this logical unit.
    Task(u32, [u8; 8]),
    /// All of one logical unit.
    Lun([u8; 8]),
    /// All.
    Session,
}

/// RFC 7143 §11.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ManageResponse {
    Complete = 0,
    NoSuchTask = 1,
    NoSuchLun = 2,
    NotSupported = 5,
    Rejected = 255,
}

/// A function that waits for work to come back.
#[derive(Debug)]
pub(super) struct Pending {
    itt: u32,
    waits_for: Vec<u32>,
    waits_for_others: bool,
}

impl<W> Session<W> {
    pub(super) fn manage(&mut self, request: TaskManagement, out: &mut ByteQueue) -> Event<'static, W> {
        if self.managing.len() >= MAX_IMMEDIATE_TASKS {
            self.manage_answer(request.itt, ManageResponse::Rejected, out);
            return Event::Nothing;
        }
        Event::Manage(request)
    }

    /// Answers a task management request.
    pub(crate) fn manage_answer(&mut self, itt: u32, response: ManageResponse, out: &mut ByteQueue) {
        self.send(reply::task_management_response(itt, response as u8), &[], out);
    }

    /// Ends the commands in `scope`; answers request `itt` when none of them runs any more, and other sessions are done
    /// where `waits_for_others`.
    pub(crate) fn abort(&mut self, itt: u32, scope: Scope, waits_for_others: bool, out: &mut ByteQueue) {
        let chosen = self.chosen(scope);
        if chosen.is_empty() && matches!(scope, Scope::Task(..)) {
            self.manage_answer(itt, ManageResponse::NoSuchTask, out);
            return;
        }
        let waits_for = self.abort_all(chosen);
        self.managing.push(Pending { itt, waits_for, waits_for_others });
        self.settle(out);
    }

    /// Ends the commands in `scope` because another session wants it so; they are not answered (SAM-5 §5.8.3, TAS is
    /// 0). Gives how many there were, and the tags of those that still run: see [`runs_aborted`](Self::runs_aborted).
    pub(crate) fn abort_for_another(&mut self, scope: Scope, out: &mut ByteQueue) -> (usize, Vec<u32>) {
        let chosen = self.chosen(scope);
        let count = chosen.len();
        let running = self.abort_all(chosen);
        self.settle(out);
        (count, running)
    }

    /// Whether a command that was ended still runs.
    pub(crate) fn runs_aborted(&self, tag: u32) -> bool {
        self.entries.get(&tag).is_some_and(|entry| entry.aborted)
    }

    /// The other sessions have done their part of request `itt`.
    pub(crate) fn others_are_done(&mut self, itt: u32, out: &mut ByteQueue) {
        for pending in self.managing.iter_mut().filter(|pending| pending.itt == itt) {
            pending.waits_for_others = false;
        }
        self.settle(out);
    }

    fn chosen(&self, scope: Scope) -> Vec<u32> {
        let chosen = self.entries.iter().filter(|(tag, entry)| match scope {
            Scope::Task(wanted, lun) => **tag == wanted && entry.lun == lun,
            Scope::Lun(lun) => entry.lun == lun,
            Scope::Session => true,
        });
        chosen.map(|(tag, _)| *tag).collect()
    }

    /// Ends these commands; gives those that still run.
    fn abort_all(&mut self, tags: Vec<u32>) -> Vec<u32> {
        tags.into_iter().filter(|tag| self.abort_one(*tag)).collect()
    }

    /// Ends one command; `true` where its work is out and has to come back first.
    fn abort_one(&mut self, tag: u32) -> bool {
        let Some(entry) = self.entries.get_mut(&tag) else {
            return false;
        };
        entry.aborted = true;
        if matches!(entry.stage, Stage::Lent(_) | Stage::ReadLent(_)) {
            return true;
        }
        self.reading.retain(|other| *other != tag);
        self.remove(tag);
        false
    }

    /// Goes on with what may have waited for the end of a command.
    pub(super) fn settle(&mut self, out: &mut ByteQueue) {
        if !self.managing.is_empty() {
            self.settle_managing(out);
        }
    }

    /// Answers the functions that have nothing to wait for any more.
    fn settle_managing(&mut self, out: &mut ByteQueue) {
        let mut done = Vec::new();
        let entries = &self.entries;
        self.managing.retain_mut(|pending| {
            pending.waits_for.retain(|tag| entries.get(tag).is_some_and(|entry| entry.aborted));
            let waits = pending.waits_for_others || !pending.waits_for.is_empty();
            if !waits {
                done.push(pending.itt);
            }
            waits
        });
        for itt in done {
            self.manage_answer(itt, ManageResponse::Complete, out);
        }
    }
}
