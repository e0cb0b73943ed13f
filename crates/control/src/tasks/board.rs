//! Which tasks this server works on at the moment: what only memory knows of them.
use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use diskimage::Watch;
use farm::model::{Fence, TaskId};

/// One task at work.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    /// How far it is, and whether it shall stop.
    pub(crate) watch: Watch,
    /// The leases that it works under.
    pub(crate) fences: Mutex<Vec<Fence>>,
    /// Whether it was stopped because one of them ended.
    pub(crate) lost_lease: AtomicBool,
}

impl Entry {
    pub(crate) fn fences(&self) -> MutexGuard<'_, Vec<Fence>> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All of them, and what their workers wait for.
#[derive(Debug, Default)]
pub(crate) struct Board {
    entries: Mutex<HashMap<TaskId, Arc<Entry>>>,
    woken: Condvar,
    stopping: AtomicBool,
}

impl Board {
    fn entries(&self) -> MutexGuard<'_, HashMap<TaskId, Arc<Entry>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a task as being worked on here. Said inside the transaction that says so in the catalogue, so that at no
    /// moment a task that runs here looks like one whose server died.
    pub(crate) fn adopt(&self, task: TaskId) -> Arc<Entry> {
        Arc::clone(self.entries().entry(task).or_default())
    }

    /// Lists a task as being worked on here, for the one worker that is to begin it: `false` where another has it. Two that saw
    /// the same task wait must not take it off the board of each other.
    pub(crate) fn claim(&self, task: TaskId) -> bool {
        match self.entries().entry(task) {
            Slot::Occupied(_) => false,
            Slot::Vacant(place) => {
                place.insert(Arc::default());
                true
            }
        }
    }

    pub(crate) fn end(&self, task: TaskId) {
        self.entries().remove(&task);
        self.wake();
    }

    pub(crate) fn has(&self, task: TaskId) -> bool {
        self.entries().contains_key(&task)
    }

    pub(crate) fn all(&self) -> Vec<(TaskId, Arc<Entry>)> {
        self.entries().iter().map(|(task, entry)| (*task, Arc::clone(entry))).collect()
    }

    pub(crate) fn cancel(&self, task: TaskId) {
        if let Some(entry) = self.entries().get(&task) {
            entry.watch.cancel();
        }
    }

    /// Says whether it is worked on here.
    pub(crate) fn throttle(&self, task: TaskId, bytes_per_second: Option<NonZeroU64>) -> bool {
        let entries = self.entries();
        let entry = entries.get(&task);
        entry.inspect(|entry| entry.watch.set_limit(bytes_per_second)).is_some()
    }

    /// Lets all work end soon; what it was is begun again by the next start.
    pub(crate) fn stop(&self) {
        let entries = self.entries();
        self.stopping.store(true, Ordering::Relaxed);
        entries.values().for_each(|entry| entry.watch.cancel());
        self.woken.notify_all();
    }

    /// Lets work begin, again.
    pub(crate) fn go(&self) {
        self.stopping.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// There is something to do.
    pub(crate) fn wake(&self) {
        let _between = self.entries();
        self.woken.notify_all();
    }

    /// Waits until there may be something to do, at most this long.
    pub(crate) fn wait(&self, most: Duration) {
        let entries = self.entries();
        if !self.is_stopping() {
            let _waited = self.woken.wait_timeout(entries, most).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farm::model::Id;

    #[test]
    fn task_is_claimed_by_one_worker_and_stays_listed_when_another_comes_too_late() {
        let (board, task) = (Board::default(), Id::new(7).unwrap());
        assert!(board.claim(task));
        assert!(!board.claim(task), "another worker has it");
        let entry = board.adopt(task);
        board.cancel(task);
        assert!(
            entry.watch.advance(0).is_err() && board.has(task),
            "what was claimed is what is told to stop"
        );
        board.end(task);
        assert!(board.claim(task));
    }
}
