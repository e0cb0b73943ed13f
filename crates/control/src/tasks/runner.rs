//! The threads behind tasks: workers, one that reports how far they are, and one that keeps house.
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farm::catalogue::{Change, ListQuery};
use farm::filter::Filter;
use farm::model::{Choice, Stored, Task, TaskState, Vdisk, Version, VersionState};
use farm::rules::leases::RENEWED_EVERY;

use super::ending::{execute, put_back, undo};
use super::job::{MAX_STARTS, Parameters};
use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::notice::Notice;
use crate::whole::Control;
use crate::{inspect, places, versions};

/// How often workers look for tasks that other servers were asked for.
pub(crate) const POLLED_EVERY: Duration = Duration::from_secs(5);
/// How often it is written down how far tasks are.
const REPORTED_EVERY: Duration = Duration::from_secs(1);
/// How often what is to go is looked for.
const SWEPT_EVERY: Duration = Duration::from_secs(30);
/// How often all files are compared with their marks: 500 of them take less than a second.
const INSPECTED_EVERY: Duration = Duration::from_secs(600);
/// The most waiting tasks of which the first that can be worked on is taken.
const LOOKED_AT: usize = 100;

/// The threads. Dropped, it lets them end: tasks that run are stopped, and begun again by the next start.
#[derive(Debug)]
pub struct Runner {
    control: Arc<Control>,
    threads: Vec<JoinHandle<()>>,
}

impl Runner {
    /// Takes up what the last start of this server left behind, and begins to work.
    ///
    /// # Errors
    /// Threads cannot be made.
    pub(crate) fn start(control: &Arc<Control>) -> std::io::Result<Self> {
        control.board().go();
        // Before anything new begins: what is listed as running here was left behind.
        keep_house(control);
        let mut runner = Self { control: Arc::clone(control), threads: Vec::new() };
        for number in 1..=control.options().tasks_at_once.get() {
            runner.thread(&format!("task-{number}"), work)?;
        }
        runner.thread("task-report", report)?;
        runner.thread("housekeeping", housekeeping)?;
        Ok(runner)
    }

    fn thread(&mut self, name: &str, run: fn(&Control)) -> std::io::Result<()> {
        let control = Arc::clone(&self.control);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&control))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.control.board().stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the task runner died");
            }
        }
    }
}

/// A worker: one task after the other.
fn work(control: &Control) {
    while !control.board().is_stopping() {
        match claim(control) {
            Ok(Some(task)) => {
                let span = tracing::info_span!("task", id = task.id.get(), kind = task.kind.as_str());
                let _entered = span.enter();
                tracing::info!("begun");
                match execute(control, &task) {
                    Ok(_) => tracing::info!("done"),
                    Err(error) => tracing::warn!(%error, "not done"),
                }
            }
            Ok(None) => control.board().wait(POLLED_EVERY),
            Err(error) => {
                tracing::warn!(%error, "tasks cannot be looked up");
                control.board().wait(POLLED_EVERY);
            }
        }
    }
}

/// Takes the oldest task that waits and whose store this server reaches.
fn claim(control: &Control) -> Result<Option<Stored<Task>>, ControlError> {
    let waiting = with_state(control, TaskState::Waiting)?;
    let ours = |task: &Stored<Task>| task.server.is_none_or(|server| server == control.server());
    for task in waiting.into_iter().filter(ours) {
        let can = control.read(|reader| {
            let vdisk: Option<Stored<Vdisk>> = match task.vdisk {
                Some(vdisk) => reader.find(vdisk)?,
                None => None,
            };
            Ok(vdisk.is_none_or(|vdisk| places::folder(reader, control.server(), &vdisk).is_ok()))
        })?;
        if can && let Some(task) = take(control, &task)? {
            return Ok(Some(task));
        }
    }
    Ok(None)
}

/// The task, as this server's; `None` where another was faster.
fn take(control: &Control, task: &Stored<Task>) -> Result<Option<Stored<Task>>, ControlError> {
    let parameters = match Parameters::read(task) {
        Ok(parameters) => Parameters { starts: parameters.starts.saturating_add(1), ..parameters }.text()?,
        // What cannot be read fails where it is carried out.
        Err(_) => task.parameters.clone(),
    };
    // Before the catalogue says that it runs here, so that at no moment it looks like one whose server died.
    if !control.board().claim(task.id) {
        return Ok(None);
    }
    let taken = control.change(&Caller::task(task, control), |change| {
        let started_at = Some(change.now());
        let (state, server) = (TaskState::Running, Some(control.server()));
        let running =
            Task { state, server, started_at, parameters: parameters.clone(), ..task.value.clone() };
        Ok(change.update_as("begin", task.id, task.revision, running)?)
    });
    match taken {
        Ok(task) => Ok(Some(task)),
        Err(error) => {
            control.board().end(task.id);
            if matches!(error.code, Code::Stale | Code::NotFound) { Ok(None) } else { Err(error) }
        }
    }
}

fn with_state(control: &Control, state: TaskState) -> Result<Vec<Stored<Task>>, ControlError> {
    let query = ListQuery {
        filter: Filter::equal("state", state.word()),
        order: Some("id".to_owned()),
        limit: LOOKED_AT,
        ..ListQuery::default()
    };
    control.read(|reader| Ok(reader.list::<Task>(&query)?.items))
}

/// Writes down how far tasks are, hears of cancels by other servers, and keeps leases.
fn report(control: &Control) {
    let mut renewed = Instant::now();
    while !control.board().is_stopping() {
        control.board().wait(REPORTED_EVERY);
        if renewed.elapsed() >= RENEWED_EVERY {
            renewed = Instant::now();
            if let Err(error) = keep_leases(control) {
                tracing::warn!(%error, "the leases of tasks could not be renewed");
            }
        }
        for (task, entry) in control.board().all() {
            let (done, total) = entry.watch.progress();
            let by = control.system();
            let report = |change: &mut Change<'_>| change.report_progress(task, done, total);
            match control.catalogue().change(by.actor(), control.now(), report) {
                Ok(TaskState::Cancelling) => entry.watch.cancel(),
                Ok(_) => control.say(Notice::Progress(task)),
                Err(error) => tracing::warn!(task = task.get(), %error, "progress could not be written down"),
            }
        }
    }
}

/// Renews the leases of this server, and stops tasks that lost theirs.
fn keep_leases(control: &Control) -> Result<(), ControlError> {
    let by = control.system();
    let server = control.server();
    let held = control.catalogue().change(by.actor(), control.now(), |change| change.renew_leases(server))?;
    let held: HashSet<_> = held.into_iter().collect();
    for (task, entry) in control.board().all() {
        let lost = entry.fences().iter().any(|fence| !held.contains(fence));
        if lost && !entry.lost_lease.swap(true, Ordering::Relaxed) {
            tracing::warn!(task = task.get(), "a task lost a lease and is stopped");
            entry.watch.cancel();
        }
    }
    Ok(())
}

fn housekeeping(control: &Control) {
    let mut inspected: Option<Instant> = None;
    while !control.board().is_stopping() {
        keep_house(control);
        if inspected.is_none_or(|last| last.elapsed() >= INSPECTED_EVERY) {
            inspected = Some(Instant::now());
            inspect::all(control);
        }
        let round = Instant::now();
        while !control.board().is_stopping() && round.elapsed() < SWEPT_EVERY {
            control.board().wait(SWEPT_EVERY.saturating_sub(round.elapsed()));
        }
    }
}

/// Takes up what was left behind, and takes away what is to go.
fn keep_house(control: &Control) {
    let steps: [(&str, Step); 4] = [
        ("tasks that were left behind could not be taken up", recover),
        ("versions that were left unmade could not be taken away", drop_unmade),
        ("versions that are to go could not be taken away", versions::sweep_all),
        ("leases that have ended could not be cleared away", clear_leases),
    ];
    for (what, step) in steps {
        if let Err(error) = step(control) {
            tracing::warn!(%error, "{what}");
        }
    }
}

type Step = fn(&Control) -> Result<(), ControlError>;

fn clear_leases(control: &Control) -> Result<(), ControlError> {
    let by = control.system();
    let ended = control
        .catalogue()
        .change(by.actor(), control.now(), |change: &mut Change<'_>| change.clear_ended_leases())?;
    if !ended.is_empty() {
        tracing::info!(count = ended.len(), "leases that ended were cleared away");
    }
    Ok(())
}

/// Tasks that the catalogue lists as running here and that nobody is at: their server died.
fn recover(control: &Control) -> Result<(), ControlError> {
    for state in [TaskState::Running, TaskState::Cancelling] {
        for task in with_state(control, state)? {
            if task.server != Some(control.server()) || control.board().has(task.id) {
                continue;
            }
            let starts = Parameters::read(&task).map_or(MAX_STARTS, |parameters| parameters.starts);
            if state == TaskState::Cancelling {
                undo(control, &task, &ControlError::new(Code::Cancelled, "cancelled"))?;
            } else if starts >= MAX_STARTS {
                let why = format!("the server ended {starts} times while it was at this");
                undo(control, &task, &ControlError::new(Code::Internal, why))?;
            } else {
                put_back(control, &task)?;
            }
            tracing::info!(task = task.id.get(), starts, "took up a task that was left behind");
        }
    }
    Ok(())
}

/// Versions that are listed as being made, and that no task is making.
fn drop_unmade(control: &Control) -> Result<(), ControlError> {
    let unmade = control.read(|reader| {
        let query = |field, value| ListQuery { filter: Filter::equal(field, value), ..ListQuery::default() };
        let made = reader.list::<Version>(&query("state", VersionState::Making.word()))?.items;
        let mut expected = HashSet::new();
        for state in [TaskState::Waiting, TaskState::Running, TaskState::Cancelling] {
            let tasks = reader.list::<Task>(&query("state", state.word()))?.items;
            let jobs = tasks.iter().filter_map(|task| Parameters::read(task).ok());
            expected.extend(jobs.filter_map(|parameters| parameters.job.version()));
        }
        Ok(made.into_iter().filter(|version| !expected.contains(&version.id)).collect::<Vec<_>>())
    })?;
    for version in unmade {
        control.change(&control.system(), |change| {
            let leaving = VersionState::Leaving;
            Ok(change.set_version_state(version.id, version.revision, leaving, None)?)
        })?;
        tracing::warn!(version = version.id.get(), "a version that nobody makes any more is taken away");
    }
    Ok(())
}
