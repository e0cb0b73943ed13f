//! Threads that may wait: for storage, or for the owner's decisions.
//!
//! Jobs wait in lanes, one for each thing that may stall (a disk). A lane has at most so many threads at a time, and
//! lanes take turns: a store that hangs holds up its own disks and no others. Where all threads wait, more are started,
//! up to a limit; those that have had nothing to do for a while end again.
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits::WORKER_IDLE;

/// Something to do on a worker. It tells its result itself.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Which queue a job waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lane(usize);

/// How many threads there are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crew {
    /// Always.
    pub(super) least: usize,
    /// While all others wait.
    pub(super) most: usize,
    /// For one lane.
    pub(super) a_lane: usize,
}

/// The threads and their queues. The queues are bounded by what their users have in flight: a connection has at most a
/// window of commands and one login question.
pub(super) struct Workers {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    crew: Crew,
    state: Mutex<State>,
    /// A job or the end has come, or a worker has ended.
    changed: Condvar,
}

struct State {
    lanes: HashMap<Lane, Waiting>,
    /// Lanes that have a job and may have another thread, in turn; each at most once.
    ready: VecDeque<Lane>,
    running: usize,
    idle: usize,
    /// Counts the threads ever started, for their names.
    started: usize,
    open: bool,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    active: usize,
    is_ready: bool,
}

impl Lane {
    /// The lane of all that waits for the same disk.
    pub(super) fn of(unit: &Arc<scsi::LogicalUnit>) -> Self {
        Self(Arc::as_ptr(unit).addr())
    }

    /// The lane of what is no disk's.
    pub(super) const COMMON: Self = Self(0);
}

impl Workers {
    /// Starts the least number of threads.
    ///
    /// # Errors
    /// What the operating system says where it has no more threads.
    pub(super) fn start(name: &str, crew: Crew) -> std::io::Result<Self> {
        let state = State {
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            running: 0,
            idle: 0,
            started: 0,
            open: true,
        };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            crew,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        for _ in 0..crew.least.max(1) {
            shared.start_thread(&mut shared.lock())?;
        }
        Ok(Self { shared })
    }

    /// Has `job` done by the next free thread that its lane may have.
    pub(super) fn submit(&self, lane: Lane, job: Job) {
        let mut state = self.shared.lock();
        state.lanes.entry(lane).or_default().jobs.push_back(job);
        state.make_ready(lane, self.shared.crew.a_lane);
        if state.idle == 0 && !state.ready.is_empty() && state.running < self.shared.crew.most {
            // Where there is no further thread to be had, those that there are do it later.
            let _ = self.shared.start_thread(&mut state);
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Lets the queues run dry and ends the threads; `false` where some still wait for storage after `patience`.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        let deadline = Instant::now().checked_add(patience);
        let mut state = self.shared.lock();
        state.open = false;
        self.shared.changed.notify_all();
        while state.running > 0 {
            let left = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl State {
    /// Puts `lane` among those whose turn comes, if it has a job and may have another thread.
    fn make_ready(&mut self, lane: Lane, most_active: usize) {
        let Some(waiting) = self.lanes.get_mut(&lane) else { return };
        if !waiting.is_ready && !waiting.jobs.is_empty() && waiting.active < most_active {
            waiting.is_ready = true;
            self.ready.push_back(lane);
        }
    }

    /// The next job, whose lane has a thread more from now on.
    fn take(&mut self, most_active: usize) -> Option<(Lane, Job)> {
        let lane = self.ready.pop_front()?;
        let waiting = self.lanes.get_mut(&lane)?;
        waiting.is_ready = false;
        let job = waiting.jobs.pop_front()?;
        waiting.active = waiting.active.saturating_add(1);
        self.make_ready(lane, most_active);
        Some((lane, job))
    }

    /// A job of `lane` is done.
    fn give_back(&mut self, lane: Lane, most_active: usize) {
        if let Some(waiting) = self.lanes.get_mut(&lane) {
            waiting.active = waiting.active.saturating_sub(1);
            if waiting.active == 0 && waiting.jobs.is_empty() {
                self.lanes.remove(&lane);
            }
        }
        self.make_ready(lane, most_active);
    }

    fn is_done(&self) -> bool {
        !self.open && self.lanes.values().all(|waiting| waiting.jobs.is_empty())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A job that panics is caught below; the queues themselves are never left half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_thread(self: &Arc<Self>, state: &mut State) -> std::io::Result<()> {
        let shared = Arc::clone(self);
        let builder = std::thread::Builder::new().name(format!("{}-{}", self.name, state.started));
        builder.spawn(move || shared.work())?;
        state.started = state.started.wrapping_add(1);
        state.running = state.running.saturating_add(1);
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            let Some((lane, job)) = state.take(self.crew.a_lane) else {
                if state.is_done() {
                    break;
                }
                state.idle = state.idle.saturating_add(1);
                let waited = self.changed.wait_timeout(state, WORKER_IDLE);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.idle = state.idle.saturating_sub(1);
                if timeout.timed_out() && state.ready.is_empty() && state.running > self.crew.least.max(1) {
                    break;
                }
                continue;
            };
            drop(state);
            // A panic in a block device or in the owner's code must not take the thread with it.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                tracing::error!("a question to the directory panicked; its login will not be answered");
            }
            state = self.lock();
            state.give_back(lane, self.crew.a_lane);
        }
        state.running = state.running.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A job that says that it runs, and then waits until the sender is dropped.
    fn stalled(said: &Sender<()>) -> (Sender<()>, Job) {
        let (release, wait) = channel::<()>();
        let said = said.clone();
        let job = Box::new(move || {
            said.send(()).unwrap();
            let _ = wait.recv();
        });
        (release, job)
    }

    fn quick(workers: &Workers, lane: Lane) -> Receiver<()> {
        let (done, receiver) = channel();
        workers.submit(lane, Box::new(move || done.send(()).unwrap()));
        receiver
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn lane_that_stalls_leaves_threads_to_the_others() {
        let workers = Workers::start("test", Crew { least: 2, most: 4, a_lane: 2 }).unwrap();
        let (said, running) = channel();
        let held: Vec<_> = (0..10)
            .map(|_| {
                let (release, job) = stalled(&said);
                workers.submit(Lane(1), job);
                release
            })
            .collect();
        running.recv_timeout(PATIENCE).unwrap();
        running.recv_timeout(PATIENCE).unwrap();
        quick(&workers, Lane(2)).recv_timeout(PATIENCE).unwrap();
        assert!(running.try_recv().is_err(), "a third thread for the lane that stalls");
        drop(held);
        assert!(workers.stop(PATIENCE));
        assert_eq!(running.iter().take(8).count(), 8, "what waited is done before the end");
    }

    #[test]
    fn threads_are_started_when_all_wait_up_to_the_most() {
        let workers = Workers::start("test", Crew { least: 1, most: 3, a_lane: 1 }).unwrap();
        let (said, running) = channel();
        let mut held = Vec::new();
        for lane in 1..=3 {
            let (release, job) = stalled(&said);
            workers.submit(Lane(lane), job);
            running.recv_timeout(PATIENCE).unwrap();
            held.push(release);
        }
        let fourth = quick(&workers, Lane(4));
        assert!(fourth.try_recv().is_err());
        assert!(!workers.stop(Duration::from_millis(50)), "jobs still run");
        held.pop();
        fourth.recv_timeout(PATIENCE).unwrap();
        drop(held);
        assert!(workers.stop(PATIENCE));
    }

    #[test]
    fn job_that_panics_costs_neither_thread_nor_lane() {
        let workers = Workers::start("test", Crew { least: 1, most: 1, a_lane: 1 }).unwrap();
        for _ in 0..3 {
            workers.submit(Lane(1), Box::new(|| std::panic::panic_any("meant")));
        }
        quick(&workers, Lane(1)).recv_timeout(PATIENCE).unwrap();
        assert!(workers.stop(PATIENCE));
    }
}
