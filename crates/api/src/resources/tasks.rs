//! Tasks: work that takes longer than a request may, and how far it is.
use control::ControlError;
use farm::catalogue::Reader;

use farm::model::{ObjectKind, Stored, Task, TaskState, Timestamp};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::object::{Resource, Told, Which, operations, tell};
use super::vdisks::Vdisks;
use crate::asked::Asked;
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, Word, find};

pub(super) fn all() -> Vec<Operation> {
    let mut all = operations::<Tasks>(Which { make: false, change: false, delete: false });
    all.push(
        Operation::post(
            "/v1/tasks/{task}/cancel",
            "cancelTask",
            "tasks",
            "Stops a task: what it has begun is undone.",
            cancel,
        )
        .gives::<Told<Tasks>>(),
    );
    all.push(Operation::delete(
        "/v1/tasks/{task}",
        "forgetTask",
        "tasks",
        "Takes a task that has ended off the list.",
        forget,
    ));
    all.push(
        Operation::get(
            "/v1/tasks/{task}/log",
            "getTaskLog",
            "tasks",
            "Tells the lines of a task's log.",
            log,
        )
        .query(
            "from",
            ParameterKind::Number(0, 1_000_000),
            "the first line that is told; the first of all is 0",
        )
        .gives::<LogAnswer>(),
    );
    all
}

/// A task has no body of its own: it is begun by what it is for.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskBody {}

/// What is told of a task.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TaskMore {
    /// What kind of work.
    kind: String,
    /// On which vDisk; null: on none.
    vdisk: Option<Ref>,
    /// Who asked for it.
    actor: String,
    /// The server that runs it; null: none has taken it yet.
    server: Option<Ref>,
    /// How far it is.
    state: Word<TaskState>,
    /// When it was asked for.
    made_at: Plain<Timestamp>,
    /// When it was begun.
    started_at: Option<Plain<Timestamp>>,
    /// When it ended.
    ended_at: Option<Plain<Timestamp>>,
    /// What came of it, as JSON; of a failed one, why, in words.
    result: Option<String>,
    /// What exactly, as JSON.
    parameters: String,
    /// Units of work that are done.
    done: u64,
    /// Units of work in all; 0 where that is not known yet.
    total: u64,
    /// How many of a hundred are done; null where that is not known.
    percent: Option<u64>,
    /// When that was true.
    progress_at: Plain<Timestamp>,
    /// How many units it has done in a second so far; null: it is too early to say, or it has ended.
    rate: Option<u64>,
    /// How long it will take at that rate; null where that is not known.
    left_s: Option<u64>,
}

pub(crate) enum Tasks {}

impl Resource for Tasks {
    type Record = Task;
    type Body = TaskBody;
    type More = TaskMore;
    const NAME: &'static str = "Task";
    const ONE: &'static str = "a task";
    const PATH: &'static str = "/v1/tasks";
    const PARAMETER: &'static str = "task";

    fn place(reader: &mut Reader<'_>, task: &Task) -> Result<Place, ControlError> {
        // What it was about may be gone.
        let vdisk = task.vdisk.map(|vdisk| reader.find(vdisk)).transpose()?.flatten();
        vdisk.map_or(Ok(Place::Farm), |vdisk| Vdisks::place(reader, &vdisk.value))
    }

    fn body(_: &mut Names, _: &mut Reader<'_>, _: &Task) -> Result<TaskBody, ControlError> {
        Ok(TaskBody {})
    }

    fn more(
        names: &mut Names,
        reader: &mut Reader<'_>,
        task: &Stored<Task>,
    ) -> Result<TaskMore, ControlError> {
        let progress = reader.progress(task.id)?;
        // What moved no bytes is done all the same.
        let whole = (task.state == TaskState::Done).then_some(100);
        let part = progress.done.min(progress.total).checked_mul(100);
        let percent = whole.or_else(|| part?.checked_div(progress.total));
        let runs = task.started_at.filter(|_| !task.state.has_ended());
        let ran = runs.map_or(0, |begun| u64::try_from(begun.until(progress.at).as_millis()).unwrap_or(0));
        let rate = progress.done.saturating_mul(1000).checked_div(ran).filter(|rate| *rate > 0);
        let rest = progress.total.saturating_sub(progress.done);
        Ok(TaskMore {
            kind: task.kind.to_string(),
            vdisk: task.vdisk.map(|vdisk| names.vdisk(reader, vdisk)).transpose()?,
            actor: task.actor.to_string(),
            server: task.server.map(|server| names.server(reader, server)).transpose()?,
            state: Word(task.state),
            made_at: Plain(task.made_at),
            started_at: task.started_at.map(Plain),
            ended_at: task.ended_at.map(Plain),
            result: task.result.clone(),
            parameters: task.parameters.clone(),
            done: progress.done,
            total: progress.total,
            percent,
            progress_at: Plain(progress.at),
            rate,
            left_s: rate.filter(|_| progress.total > 0).and_then(|rate| rest.checked_div(rate)),
        })
    }

    fn record(_: &mut Reader<'_>, _: TaskBody, _: Option<&Task>) -> Result<Task, ControlError> {
        Err(ControlError::new(control::Code::Unsupported, "a task is begun by what it is for"))
    }
}

/// A task as it is told.
fn told(asked: &Asked<'_>, task: &Stored<Task>) -> Result<Value, Problem> {
    Ok(asked.control().read(|reader| tell::<Tasks>(&mut Names::default(), reader, task))?)
}

/// What is answered when a task was begun.
pub(super) fn begun(asked: &Asked<'_>, task: &Stored<Task>) -> Result<Reply, Problem> {
    let reply = Reply::json(&told(asked, task)?)?.revision(task.revision);
    Ok(reply.accepted(format!("{}/{}", Tasks::PATH, task.id)))
}

fn wanted(asked: &Asked<'_>) -> Result<Stored<Task>, Problem> {
    let wanted = asked.parameter("task")?;
    Ok(asked.control().read(|reader| find::<Task>(reader, wanted))?)
}

fn cancel(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let task = wanted(asked)?;
    let cancelled = control::tasks::cancel(asked.control(), asked.caller()?, task.id)?;
    Ok(Reply::json(&told(asked, &cancelled)?)?.revision(cancelled.revision))
}

fn forget(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let expected = asked.expected()?;
    let task = wanted(asked)?;
    if expected.or(task.revision) != task.revision {
        return Err(
            ControlError::new(control::Code::Stale, "the task has got on since it was looked at").into()
        );
    }
    control::tasks::forget(asked.control(), asked.caller()?, task.id)?;
    Ok(Reply::nothing())
}

/// Lines of a task's log.
#[derive(Debug, Serialize, JsonSchema)]
struct LogAnswer {
    /// The lines.
    lines: Vec<LineAnswer>,
    /// How many lines there are before the first of these, and with them: what to ask for as `from` the next time.
    next: usize,
}

/// A line of a task's log.
#[derive(Debug, Serialize, JsonSchema)]
struct LineAnswer {
    /// When.
    at: Plain<Timestamp>,
    /// What.
    text: String,
}

fn log(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let from: u32 = asked.wanted("from", "a number")?.unwrap_or(0);
    let (caller, wanted) = (asked.caller()?, asked.parameter("task")?);
    let lines = asked.control().read(|reader| {
        let task = find::<Task>(reader, wanted)?;
        caller.may(Action::See, ObjectKind::Task, Tasks::place(reader, &task.value)?)?;
        Ok(reader.task_log(task.id, from)?)
    })?;
    let next = usize::try_from(from).unwrap_or(usize::MAX).saturating_add(lines.len());
    let lines = lines.into_iter().map(|line| LineAnswer { at: Plain(line.at), text: line.text });
    Reply::json(&LogAnswer { lines: lines.collect(), next })
}
