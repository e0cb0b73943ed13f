//! What tasks do: the parameters that stand in their rows, and who carries each kind out.
use farm::catalogue::Change;
use farm::model::{MAX_TASK_TEXT_BYTES, Stored, Task, TaskId, TaskState, VdiskId, VersionId, Word};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::running::Running;
use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::whole::Control;
use crate::{cache_version, merge, transfer, vdisks, versions};

/// How often work is begun that its server did not live to end: more, and it may be what the server dies of.
pub(crate) const MAX_STARTS: u32 = 3;

/// The last step of a task, in the transaction that ends it: makes true what was made, and gives the result.
pub(crate) type Finish = Box<dyn FnMut(&mut Change<'_>) -> Result<Value, ControlError>>;

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "kebab-case")]
pub(crate) enum Job {
    /// The file of a maintenance version.
    NewVersion(versions::NewVersion),
    /// One file of several, or of another format.
    Merge(merge::Merge),
    /// An empty disk.
    NewDisk(vdisks::NewDisk),
    /// A version of what a device wrote.
    CacheVersion(cache_version::CacheVersion),
    /// A chain into a folder.
    Export(transfer::Export),
    /// A chain out of a folder.
    Import(transfer::Import),
}

impl Job {
    /// The kind of its task.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::NewVersion(_) => "new-version",
            Self::Merge(merge) => merge.kind.word(),
            Self::NewDisk(_) => "new-disk",
            Self::CacheVersion(_) => "cache-version",
            Self::Export(_) => "export",
            Self::Import(_) => "import",
        }
    }

    /// The version whose file it makes.
    pub(crate) fn version(&self) -> Option<VersionId> {
        match self {
            Self::NewVersion(job) => Some(job.version),
            Self::Merge(job) => Some(job.version),
            Self::NewDisk(job) => Some(job.version),
            Self::CacheVersion(job) => Some(job.version),
            Self::Export(_) | Self::Import(_) => None,
        }
    }

    /// Does it, but for its last step.
    pub(crate) fn run(&self, running: &Running<'_>) -> Result<Finish, ControlError> {
        match self {
            Self::NewVersion(job) => job.run(running),
            Self::Merge(job) => job.run(running),
            Self::NewDisk(job) => job.run(running),
            Self::CacheVersion(job) => job.run(running),
            Self::Export(job) => job.run(running),
            Self::Import(job) => job.run(running),
        }
    }

    /// Whether it belongs to the server that was asked for it, as paths of it are named, or what lies on it.
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self, Self::Export(_) | Self::Import(_) | Self::CacheVersion(_))
    }

    /// Removes what it has begun outside of the catalogue, besides its version's file.
    pub(crate) fn clean(&self, control: &Control, task: TaskId) -> Result<(), ControlError> {
        match self {
            Self::NewVersion(_) | Self::Merge(_) | Self::NewDisk(_) | Self::CacheVersion(_) => Ok(()),
            Self::Export(job) => job.clean(task),
            Self::Import(job) => job.clean(control, task),
        }
    }
}

/// What stands in a task's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parameters {
    #[serde(flatten)]
    pub(crate) job: Job,
    /// How often it was begun.
    pub(crate) starts: u32,
}

impl Parameters {
    pub(crate) fn read(task: &Task) -> Result<Self, ControlError> {
        serde_json::from_str(&task.parameters).map_err(|error| {
            let why = format!("the parameters of the task cannot be read: {error}");
            ControlError::new(Code::Internal, why).hint("a newer version of the program may have made it")
        })
    }

    pub(crate) fn text(&self) -> Result<String, ControlError> {
        let text = serde_json::to_string(self)
            .map_err(|error| ControlError::new(Code::Internal, format!("a task is no JSON: {error}")))?;
        if text.len() > MAX_TASK_TEXT_BYTES {
            let why =
                format!("the task has {} bytes of parameters; {MAX_TASK_TEXT_BYTES} is the most", text.len());
            return Err(ControlError::new(Code::BadValue, why));
        }
        Ok(text)
    }
}

/// Who begins a task that is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// A worker, when one is free.
    Later,
    /// The caller, right away.
    Now,
}

/// Writes a task down.
pub(crate) fn record(
    change: &mut Change<'_>,
    control: &Control,
    by: &Caller,
    job: Job,
    vdisk: Option<VdiskId>,
    begun: Begun,
) -> Result<Stored<Task>, ControlError> {
    let (state, server, started_at, starts) = match begun {
        Begun::Later => (TaskState::Waiting, job.is_pinned().then(|| control.server()), None, 0),
        Begun::Now => (TaskState::Running, Some(control.server()), Some(change.now()), 1),
    };
    let kind = Word::new(job.word())?;
    let task = Task {
        kind,
        vdisk,
        parameters: Parameters { job, starts }.text()?,
        actor: by.actor().user.clone(),
        server,
        state,
        made_at: change.now(),
        started_at,
        ended_at: None,
        result: None,
    };
    Ok(change.create(task)?)
}

/// Makes what `work` says, and with it a task that the caller carries out itself. Gives the task and what else `work`
/// gives.
pub(crate) fn begin_now<R>(
    control: &Control,
    by: &Caller,
    mut work: impl FnMut(&mut Change<'_>) -> Result<(Stored<Task>, R), ControlError>,
) -> Result<(Stored<Task>, R), ControlError> {
    let mut adopted = None;
    let begun = control.change(by, |change| {
        let (task, more) = work(change)?;
        control.board().adopt(task.id);
        adopted = Some(task.id);
        Ok((task, more))
    });
    if begun.is_err() {
        adopted.into_iter().for_each(|task| control.board().end(task));
    }
    begun
}
