//! Work that takes longer than a request may: what is written down of it, how far it is, and stopping it.
//!
//! ```text
//! asked for ──> waiting ──> running ──> done          its last transaction makes the work true and the task done
//!                  │           │└─────> failed        what it had begun was undone
//!                  └───────────┴──────> cancelled     also undone
//! ```
//!
//! A task is a row of the catalogue whose parameters are enough to begin again. What runs it keeps to one order: the
//! catalogue says what is to be made, the work makes it beside everything that is in use, and one transaction puts it in
//! place and ends the task. So it can die at any moment: the next start of its server finds the row, and begins again
//! or takes back.
mod board;
mod ending;
mod job;
mod runner;
mod running;

use std::num::NonZeroU64;
use std::time::Duration;

use farm::catalogue::{ListQuery, Page, Reader};
use farm::model::{ObjectKind, Owner, Progress, Stored, Task, TaskId, TaskLine, TaskState, Vdisk};
use farm::rules::leases::stands;
use farm::rules::permission::{Action, Place};

pub(crate) use board::Board;
pub(crate) use ending::execute;
pub(crate) use job::{Begun, Finish, Job, begin_now, record};
pub use runner::Runner;
pub(crate) use running::Running;

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::places;
use crate::whole::Control;

/// A task, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The task.
    pub task: Stored<Task>,
    /// How far it is, in bytes.
    pub progress: Progress,
    /// How fast it has been so far, in bytes a second; `None`: too early to say.
    pub bytes_per_second: Option<u64>,
    /// How long it will take at that rate; `None` where that is not known.
    pub left: Option<Duration>,
}

/// A task, and how far it is.
///
/// # Errors
/// [`Code::NotFound`], or the database's.
pub fn get(control: &Control, task: TaskId) -> Result<Status, ControlError> {
    control.read(|reader| {
        let task = reader.get(task)?;
        status(reader, task)
    })
}

/// A page of tasks.
///
/// # Errors
/// [`Code::BadValue`] of a query that means nothing, or the database's.
pub fn list(control: &Control, query: &ListQuery) -> Result<Page<Status>, ControlError> {
    control.read(|reader| {
        let Page { items, next, total } = reader.list::<Task>(query)?;
        let items: Result<Vec<_>, _> = items.into_iter().map(|task| status(reader, task)).collect();
        Ok(Page { items: items?, next, total })
    })
}

/// The lines of a task's log from line `from` on, the first being 0.
///
/// # Errors
/// [`Code::NotFound`], or the database's.
pub fn log(control: &Control, task: TaskId, from: u32) -> Result<Vec<TaskLine>, ControlError> {
    control.read(|reader| {
        reader.get(task)?;
        Ok(reader.task_log(task, from)?)
    })
}

/// Stops a task: what it has begun is undone. One that nobody has begun ends at once, one that runs ends soon.
///
/// # Errors
/// [`Code::Refused`] of one that has ended, [`Code::Denied`], or the database's.
pub fn cancel(control: &Control, by: &Caller, task: TaskId) -> Result<Stored<Task>, ControlError> {
    let mut adopted = false;
    let cancelling = control.change(by, |change| {
        let old = change.get(task)?;
        operable(change, by, &old)?;
        if old.state.has_ended() {
            return Err(ControlError::new(Code::Refused, format!("task #{task} has ended already")));
        }
        // One whose server is gone for good has no lease any more that somebody renews.
        let now = change.now();
        let lives = change.leases_of(Owner::Task(task))?.iter().any(|lease| stands(lease, now));
        let here = old.server.is_none_or(|server| server == control.server());
        let runs = old.state != TaskState::Waiting && (control.board().has(task) || (!here && lives));
        let server = if runs { old.server } else { Some(control.server()) };
        let cancelling = Task { state: TaskState::Cancelling, server, ..old.value.clone() };
        let cancelling = change.update_as("cancel", task, old.revision, cancelling)?;
        if !runs {
            control.board().adopt(task);
            adopted = true;
        }
        Ok(cancelling)
    });
    let undone = cancelling.and_then(|cancelling| {
        let stopped = ControlError::new(Code::Cancelled, format!("cancelled by {}", by.actor().user));
        if adopted { ending::undo(control, &cancelling, &stopped) } else { Ok(()) }
    });
    if adopted {
        control.board().end(task);
    }
    undone?;
    control.board().cancel(task);
    control.read(|reader| Ok(reader.get(task)?))
}

/// Limits how many bytes a task that runs on this server moves in a second; `None` takes the limit away.
///
/// # Errors
/// [`Code::NotFound`] where it does not run here, [`Code::Refused`] of one that has ended, [`Code::Denied`], or the
/// database's.
pub fn throttle(
    control: &Control,
    by: &Caller,
    task: TaskId,
    bytes_per_second: Option<NonZeroU64>,
) -> Result<(), ControlError> {
    control.read(|reader| {
        let task: Stored<Task> = reader.get(task)?;
        operable(reader, by, &task)?;
        if task.state.has_ended() {
            return Err(ControlError::new(Code::Refused, format!("task #{} has ended already", task.id)));
        }
        Ok(())
    })?;
    if control.board().throttle(task, bytes_per_second) {
        Ok(())
    } else {
        Err(ControlError::new(Code::NotFound, format!("task #{task} does not run on this server")))
    }
}

/// Takes a task that has ended off the list, with its log.
///
/// # Errors
/// [`Code::Refused`] of one that has not ended, [`Code::Denied`], or the database's.
pub fn forget(control: &Control, by: &Caller, task: TaskId) -> Result<(), ControlError> {
    control.change(by, |change| {
        let old = change.get(task)?;
        operable(change, by, &old)?;
        if !old.state.has_ended() {
            let why = format!("task #{task} has not ended: cancel it first");
            return Err(ControlError::new(Code::Refused, why));
        }
        Ok(change.forget_task(task)?)
    })
}

fn operable(reader: &mut Reader<'_>, by: &Caller, task: &Task) -> Result<(), ControlError> {
    let vdisk: Option<Stored<Vdisk>> = match task.vdisk {
        Some(vdisk) => reader.find(vdisk)?,
        None => None,
    };
    let place = match vdisk {
        Some(vdisk) => places::place(reader, &vdisk)?,
        None => Place::Farm,
    };
    Ok(by.may(Action::Operate, ObjectKind::Task, place)?)
}

fn status(reader: &mut Reader<'_>, task: Stored<Task>) -> Result<Status, ControlError> {
    let progress = reader.progress(task.id)?;
    let (bytes_per_second, left) = pace(&task, progress);
    Ok(Status { task, progress, bytes_per_second, left })
}

/// The rate so far, and what is left at that rate.
fn pace(task: &Task, progress: Progress) -> (Option<u64>, Option<Duration>) {
    let end = task.ended_at.unwrap_or(progress.at);
    let Some(elapsed) = task.started_at.map(|start| start.until(end)) else { return (None, None) };
    let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    let rate = progress.done.saturating_mul(1000).checked_div(ms).filter(|rate| *rate > 0);
    let rest = progress.total.saturating_sub(progress.done);
    let left = rate.filter(|_| progress.total > 0 && !task.state.has_ended());
    (rate, left.and_then(|rate| rest.checked_div(rate)).map(Duration::from_secs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use farm::model::{Text, Timestamp};

    #[test]
    fn rate_and_rest_follow_from_what_was_done_since_the_start() {
        let at = Timestamp::from_ms;
        let mut task = Task {
            kind: Text::new("merge").unwrap(),
            vdisk: None,
            parameters: "{}".to_owned(),
            actor: Text::new("ann").unwrap(),
            server: None,
            state: TaskState::Running,
            made_at: at(0),
            started_at: Some(at(1000)),
            ended_at: None,
            result: None,
        };
        let progress = Progress { done: 600, total: 3000, at: at(3000) };
        assert_eq!(pace(&task, progress), (Some(300), Some(Duration::from_secs(8))));
        assert_eq!(pace(&task, Progress { total: 0, ..progress }), (Some(300), None));
        assert_eq!(pace(&task, Progress { done: 0, ..progress }), (None, None));
        (task.state, task.ended_at) = (TaskState::Done, Some(at(2000)));
        assert_eq!(pace(&task, progress), (Some(600), None));
        task.started_at = None;
        assert_eq!(pace(&task, progress), (None, None));
    }
}
