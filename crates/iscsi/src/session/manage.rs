//! Task management (RFC 7143 §11.5, §11.6): commands are taken off the list; those whose work is out are waited for.
use super::{Event, Session, Stage};
use crate::bytes::ByteQueue;
use crate::limits::MAX_IMMEDIATE_TASKS;
use crate::pdu::reply;
use crate::pdu::request::TaskManagement;

/// Which commands of the session a function ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The one with this task tag.
    Task(u32),
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

    /// Ends the commands in `scope`; answers request `itt` when none of them runs any more.
    pub(crate) fn abort(&mut self, itt: u32, scope: Scope, out: &mut ByteQueue) {
        let chosen: Vec<u32> = match scope {
            Scope::Task(tag) => self.entries.get_key_value(&tag).map(|(tag, _)| *tag).into_iter().collect(),
            Scope::Lun(lun) => {
                self.entries.iter().filter(|(_, entry)| entry.lun == lun).map(|(tag, _)| *tag).collect()
            }
            Scope::Session => self.entries.keys().copied().collect(),
        };
        if chosen.is_empty() && matches!(scope, Scope::Task(_)) {
            self.manage_answer(itt, ManageResponse::NoSuchTask, out);
            return;
        }
        let mut waits_for = Vec::new();
        for tag in chosen {
            if self.abort_one(tag) {
                waits_for.push(tag);
            }
        }
        self.managing.push(Pending { itt, waits_for });
        self.settle(out);
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
        if !self.write_flow.waiting.is_empty() {
            self.continue_waiting_writes(out);
        }
    }

    /// Answers the functions that have nothing to wait for any more.
    fn settle_managing(&mut self, out: &mut ByteQueue) {
        let mut done = Vec::new();
        let entries = &self.entries;
        self.managing.retain_mut(|pending| {
            pending.waits_for.retain(|tag| entries.get(tag).is_some_and(|entry| entry.aborted));
            if pending.waits_for.is_empty() {
                done.push(pending.itt);
            }
            !pending.waits_for.is_empty()
        });
        for itt in done {
            self.manage_answer(itt, ManageResponse::Complete, out);
        }
    }
}
