//! Carrying a task out, from the moment that it is this server's: work, last step, and what happens when either fails.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use farm::catalogue::Change;
use farm::model::{Choice, Fence, Owner, Stored, Task, TaskState, Version, VersionState};
use serde_json::Value;

use super::job::{Finish, Parameters};
use super::running::{Running, log};
use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::versions;
use crate::whole::Control;

/// Does the work of a task that the catalogue says is running here, and ends it: done, undone, or put back where this
/// server stops. Gives its result.
pub(crate) fn execute(control: &Control, task: &Stored<Task>) -> Result<Value, ControlError> {
    let running = Running::new(control, task);
    running.watch().set_limit(control.options().task_rate);
    let result = work(&running);
    running.report();
    let result = result.and_then(|finish| last_step(&running, finish));
    let result = match result {
        Err(error) if error.code == Code::Cancelled && running.entry().lost_lease.load(Ordering::Relaxed) => {
            let why = "a lease that it worked under ended or was broken";
            Err(ControlError::new(Code::LeaseLost, why))
        }
        result => result,
    };
    if let Err(error) = &result {
        let stopped = error.code == Code::Cancelled && control.board().is_stopping();
        let ended = if stopped { put_back(control, task) } else { undo(control, task, error) };
        if let Err(failed) = ended {
            // The row says that it runs, and nobody is at it: the next round finds it so, and takes it back.
            tracing::warn!(task = task.id.get(), error = %failed, "a task could not be ended for now");
        }
    }
    control.board().end(task.id);
    result
}

fn work(running: &Running<'_>) -> Result<Finish, ControlError> {
    let parameters = Parameters::read(running.task)?;
    catch_unwind(AssertUnwindSafe(|| parameters.job.run(running))).unwrap_or_else(|_| {
        let why = "the work died of a mistake of ours: its reason stands in the server's log";
        Err(ControlError::new(Code::Internal, why))
    })
}

/// Makes true what was made, and the task done, at once. While the database is away, what took hours to make waits for
/// it.
fn last_step(running: &Running<'_>, mut finish: Finish) -> Result<Value, ControlError> {
    let (control, task) = (running.control, running.task);
    loop {
        let fences = running.entry().fences().clone();
        let ended = control.change(&running.caller(), |change| {
            let now = change.get(task.id)?;
            if now.state == TaskState::Done {
                // The commit before this one was lost on its way back, not on its way there.
                return Ok(Value::Null);
            }
            if now.state == TaskState::Cancelling {
                return Err(ControlError::new(Code::Cancelled, "cancelled"));
            }
            still_held(change, &fences)?;
            let value = finish(change)?;
            let result = Some(value.to_string());
            end(change, &now, TaskState::Done, result)?;
            Ok(value)
        });
        match ended {
            Err(error) if error.code == Code::Unavailable && !control.board().is_stopping() => {
                tracing::warn!(task = task.id.get(), %error, "a task is done, and waits for the database");
                control.board().wait(super::runner::POLLED_EVERY);
            }
            ended => return ended,
        }
    }
}

/// Whoever lost a lease must not make true what it made under it.
fn still_held(change: &mut Change<'_>, fences: &[Fence]) -> Result<(), ControlError> {
    let now = change.now();
    let mut held = fences.iter().map(|fence| change.held_lease(*fence, now));
    held.try_for_each(|lease| lease.map(|_| ()).map_err(ControlError::from))
}

/// Takes back what a task has begun, and ends it: cancelled where that is why, else failed.
pub(crate) fn undo(control: &Control, task: &Stored<Task>, why: &ControlError) -> Result<(), ControlError> {
    let job = Parameters::read(task).map(|parameters| parameters.job).ok();
    if let Some(job) = &job {
        job.clean(control, task.id)?;
    }
    let state = if why.code == Code::Cancelled { TaskState::Cancelled } else { TaskState::Failed };
    let by = Caller::task(task, control);
    if let Some(version) = job.and_then(|job| job.version()) {
        control.change(&by, |change| {
            let made: Option<Stored<Version>> = change.find(version)?;
            if let Some(made) = made.filter(|made| made.state == VersionState::Making) {
                change.set_version_state(made.id, made.revision, VersionState::Leaving, None)?;
            }
            Ok(())
        })?;
        if let Err(error) = versions::sweep(control, version) {
            // It is listed as leaving: housekeeping goes on with it.
            tracing::warn!(version = version.get(), %error, "what a task has made stays for now");
        }
    }
    control.change(&by, |change| {
        let now = change.get(task.id)?;
        if now.state.has_ended() {
            return Ok(());
        }
        change.log_task(task.id, &format!("{}: {why}; what was begun is undone", state.word()))?;
        end(change, &now, state, Some(why.to_string()))
    })
}

fn end(
    change: &mut Change<'_>,
    task: &Stored<Task>,
    state: TaskState,
    result: Option<String>,
) -> Result<(), ControlError> {
    for lease in change.leases_of(Owner::Task(task.id))? {
        change.end_lease(lease.fence)?;
    }
    let ended = Task { state, ended_at: Some(change.now()), result, ..task.value.clone() };
    change.update_as("end", task.id, task.revision, ended)?;
    Ok(())
}

/// Lets a task wait for its next start, which begins it again.
pub(crate) fn put_back(control: &Control, task: &Stored<Task>) -> Result<(), ControlError> {
    let pinned = Parameters::read(task).is_ok_and(|parameters| parameters.job.is_pinned());
    control.change(&Caller::task(task, control), |change| {
        let now = change.get(task.id)?;
        if now.state != TaskState::Running {
            return Ok(());
        }
        for lease in change.leases_of(Owner::Task(task.id))? {
            change.end_lease(lease.fence)?;
        }
        let server = now.server.filter(|_| pinned);
        let waiting = Task { state: TaskState::Waiting, server, ..now.value.clone() };
        change.update_as("put-back", task.id, now.revision, waiting)?;
        Ok(())
    })?;
    log(control, task, "the server ended while it was at this; it is begun again");
    Ok(())
}
