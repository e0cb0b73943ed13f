//! Tasks: work that takes longer than a request may.
use serde::{Deserialize, Serialize};

use super::choice::Choice;
use super::id::Id;
use super::places::ServerId;
use super::text::{UserName, Word};
use super::values::Timestamp;
use super::vdisk::VdiskId;

/// Names a task.
pub type TaskId = Id<Task>;

/// The longest parameters, result or failure of a task, in bytes.
pub const MAX_TASK_TEXT_BYTES: usize = 65_536;

/// The most lines that the log of one task keeps; later ones are dropped, but for the last of all: its result.
pub const MAX_TASK_LOG_LINES: i64 = 1000;

/// Work that takes longer than a request may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// What kind of work: `merge`, `convert`, `import`. Known to whoever runs it.
    pub kind: Word,
    /// On which vDisk; `None`: on none.
    pub vdisk: Option<VdiskId>,
    /// What exactly, as JSON: enough to take it up again after a restart.
    pub parameters: String,
    /// Who asked for it.
    pub actor: UserName,
    /// The server that runs it; `None` until one has taken it.
    pub server: Option<ServerId>,
    /// How far it is.
    pub state: TaskState,
    /// When it was asked for.
    pub made_at: Timestamp,
    /// When it was begun.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// What came of it, as JSON; of a failed one, why, in words.
    pub result: Option<String>,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// Nobody has begun it.
    Waiting,
    /// A server works on it.
    Running,
    /// A server works on it and was asked to stop.
    Cancelling,
    /// It did what was asked.
    Done,
    /// It could not; what it had begun was undone.
    Failed,
    /// It was stopped; what it had begun was undone.
    Cancelled,
}

impl TaskState {
    /// Whether nothing more will happen.
    #[must_use]
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

impl Choice for TaskState {
    const WHAT: &'static str = "a state of a task";
    const RULE: &'static str = "waiting, running, cancelling, done, failed or cancelled";
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Waiting, "waiting"),
        (Self::Running, "running"),
        (Self::Cancelling, "cancelling"),
        (Self::Done, "done"),
        (Self::Failed, "failed"),
        (Self::Cancelled, "cancelled"),
    ];
}

/// How much of a task is done: not audited, and no new revision of the task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Units of work that are done.
    pub done: u64,
    /// Units of work in all; 0 where that is not known yet.
    pub total: u64,
    /// When this was true.
    pub at: Timestamp,
}

/// A line of a task's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskLine {
    /// When.
    pub at: Timestamp,
    /// What.
    pub text: String,
}
