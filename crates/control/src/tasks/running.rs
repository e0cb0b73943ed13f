//! What a task has at hand while it runs.
use std::sync::Arc;

use diskimage::Watch;
use farm::model::{Owner, Purpose, Sharing, Stored, Subject, Task};
use farm::rules::leases::Wanted;

use super::board::Entry;
use crate::caller::Caller;
use crate::error::ControlError;
use crate::notice::Notice;
use crate::whole::Control;

/// A task that runs here.
pub(crate) struct Running<'a> {
    pub(crate) control: &'a Control,
    pub(crate) task: &'a Stored<Task>,
    entry: Arc<Entry>,
}

impl<'a> Running<'a> {
    pub(crate) fn new(control: &'a Control, task: &'a Stored<Task>) -> Self {
        Self { control, task, entry: control.board().adopt(task.id) }
    }

    /// What it says how far it is, and what stops it.
    pub(crate) fn watch(&self) -> &Watch {
        &self.entry.watch
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// In whose name it changes things.
    pub(crate) fn caller(&self) -> Caller {
        Caller::task(self.task, self.control)
    }

    /// Adds a line to its log. One that cannot be written is no reason to stop.
    pub(crate) fn log(&self, text: &str) {
        log(self.control, self.task, text);
    }

    /// Writes down how far it is, for what ends before that is due. That is no reason to stop either.
    pub(crate) fn report(&self) {
        let (done, total) = self.watch().progress();
        let (by, task) = (self.caller(), self.task.id);
        let report = |change: &mut farm::catalogue::Change<'_>| change.report_progress(task, done, total);
        if let Err(error) = self.control.catalogue().change(by.actor(), self.control.now(), report) {
            tracing::debug!(task = task.get(), %error, "progress could not be written down");
        }
    }

    /// Takes a lease, under which it works from now on; one that it has of the same subject already is replaced.
    pub(crate) fn lease(
        &self,
        subject: Subject,
        sharing: Sharing,
        purpose: Purpose,
    ) -> Result<(), ControlError> {
        let wanted = Wanted { subject, sharing, purpose, owner: Owner::Task(self.task.id) };
        let lease = self
            .control
            .change(&self.caller(), |change| Ok(change.lease(&wanted, self.control.server())?))?;
        self.entry.fences().push(lease.fence);
        Ok(())
    }
}

/// Adds a line to a task's log.
pub(crate) fn log(control: &Control, task: &Stored<Task>, text: &str) {
    let by = Caller::task(task, control);
    let written =
        control.catalogue().change(by.actor(), control.now(), |change| change.log_task(task.id, text));
    match written {
        Ok(()) => control.say(Notice::Progress(task.id)),
        Err(error) => tracing::warn!(task = task.id.get(), %error, text, "a line of a task's log was lost"),
    }
}
