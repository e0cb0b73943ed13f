//! Threads that may wait: for storage, or for the owner's decisions.
//!
//! Jobs wait in lanes: each disk has one for what waits for storage, and one for what is done in turn. A lane has at most
//! so many threads at a time, and lanes take turns, so that a disk with much to do holds up no other. Disks whose bytes lie
//! in one store stall together; however many they are, a store gets no more threads than it leaves free: of one that hangs the others see nothing, and each further one that
//! hangs takes half of the rest at most. Where all threads wait, more are started, up to a limit; those that have had
//! nothing to do for a while end again.
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread beyond those that there always are waits for something to do.
const WORKER_IDLE: Duration = Duration::from_secs(10);

/// Something to do on a worker. It tells its result itself.
pub type Job = Box<dyn FnOnce() + Send>;

/// Which queue a job waits in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lane {
    /// The store that is waited for.
    pub store: u32,
    /// The disk, or whatever else takes turns with its like.
    pub disk: usize,
    /// What may be done at the same time.
    pub pace: Pace,
}

/// How many jobs of a lane may be under way at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pace {
    /// As many as the crew allows: each waits for storage most of the time.
    #[default]
    Abreast,
    /// One after the other: for jobs that keep a processor busy and hold each other up. Such are writes to the page
    /// cache, which file systems take one at a time of each file. Whoever waits there spins, and takes the processor from
    /// the one that is waited for (measured: writes of 1 MiB by 16 threads cost twice as much as by one).
    ///
    /// So one that hangs holds up those behind it, in its own lane alone: other disks, and whatever else is asked of this
    /// one, go on. A second thread would gain them nothing, as it would wait in the kernel for the same file's lock, and
    /// each further disk of the store would tie up one more.
    InTurn,
}

impl Lane {
    /// How many threads it may have.
    fn threads(self, crew: Crew) -> usize {
        match self.pace {
            Pace::Abreast => crew.a_lane,
            Pace::InTurn => 1,
        }
    }
}

/// How many threads there are, and how they are shared out.
#[derive(Clone, Copy, Debug)]
pub struct Crew {
    /// So many there always are.
    pub least: usize,
    /// So many at most, while all others wait.
    pub most: usize,
    /// So many at most for one lane.
    pub a_lane: usize,
    /// A store gets no more than it leaves free.
    pub stores_leave_room: bool,
}

/// The threads and their queues. The queues are bounded by what their users have in flight: a connection has at most a
/// window of requests and one question.
pub struct Workers {
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
    stores: HashMap<u32, Store>,
    /// Stores with lanes that wait until the store may have another thread.
    held: Vec<u32>,
    /// Lanes that have a job and may have another thread, in turn; each at most once.
    ready: VecDeque<Lane>,
    running: usize,
    /// Threads that are at a job.
    active: usize,
    idle: usize,
    /// Counts the threads ever started, for their names.
    started: usize,
    open: bool,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    active: usize,
    /// It stands among the lanes whose turn comes, or among those that its store holds.
    is_queued: bool,
}

#[derive(Default)]
struct Store {
    active: usize,
    /// Lanes that could have a thread if the store could.
    lanes: VecDeque<Lane>,
}

impl Workers {
    /// Starts the least number of threads.
    ///
    /// # Errors
    /// What the operating system says where it has no more threads.
    pub fn start(name: &str, crew: Crew) -> std::io::Result<Self> {
        let state = State {
            lanes: HashMap::new(),
            stores: HashMap::new(),
            held: Vec::new(),
            ready: VecDeque::new(),
            running: 0,
            active: 0,
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
    pub fn submit(&self, lane: Lane, job: Job) {
        let mut state = self.shared.lock();
        state.lanes.entry(lane).or_default().jobs.push_back(job);
        state.make_ready(lane, self.shared.crew);
        self.shared.muster(&mut state);
    }

    /// Lets the queues run dry and ends the threads; `false` where some still wait for storage after `patience`.
    pub fn stop(&self, patience: Duration) -> bool {
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
    fn make_ready(&mut self, lane: Lane, crew: Crew) {
        let Some(waiting) = self.lanes.get_mut(&lane) else { return };
        if !waiting.is_queued && !waiting.jobs.is_empty() && waiting.active < lane.threads(crew) {
            waiting.is_queued = true;
            self.ready.push_back(lane);
        }
    }

    /// Whether a store may have another thread: it then has no more than are left.
    fn has_room(&self, store: u32, crew: Crew) -> bool {
        let has = self.stores.get(&store).map_or(0, |store| store.active);
        !crew.stores_leave_room || has.saturating_add(self.active) < crew.most
    }

    /// The next job, whose lane and store have a thread more from now on.
    fn take(&mut self, crew: Crew) -> Option<(Lane, Job)> {
        loop {
            let lane = self.ready.pop_front()?;
            if !self.has_room(lane.store, crew) {
                self.hold(lane);
                continue;
            }
            let Some(waiting) = self.lanes.get_mut(&lane) else { continue };
            waiting.is_queued = false;
            let Some(job) = waiting.jobs.pop_front() else { continue };
            waiting.active = waiting.active.saturating_add(1);
            self.active = self.active.saturating_add(1);
            let store = self.stores.entry(lane.store).or_default();
            store.active = store.active.saturating_add(1);
            self.make_ready(lane, crew);
            return Some((lane, job));
        }
    }

    /// Has `lane` wait until its store may have another thread.
    fn hold(&mut self, lane: Lane) {
        let store = self.stores.entry(lane.store).or_default();
        if store.lanes.is_empty() {
            self.held.push(lane.store);
        }
        store.lanes.push_back(lane);
    }

    /// A job of `lane` is done.
    fn give_back(&mut self, lane: Lane, crew: Crew) {
        self.active = self.active.saturating_sub(1);
        if let Some(waiting) = self.lanes.get_mut(&lane) {
            waiting.active = waiting.active.saturating_sub(1);
            if waiting.active == 0 && waiting.jobs.is_empty() {
                self.lanes.remove(&lane);
            }
        }
        if let Some(store) = self.stores.get_mut(&lane.store) {
            store.active = store.active.saturating_sub(1);
            if store.active == 0 && store.lanes.is_empty() {
                self.stores.remove(&lane.store);
            }
        }
        self.make_ready(lane, crew);
        self.let_go(crew);
    }

    /// Lets lanes go on whose stores may have another thread, one of each store.
    fn let_go(&mut self, crew: Crew) {
        for store in std::mem::take(&mut self.held) {
            let room = self.has_room(store, crew);
            let Some(held) = self.stores.get_mut(&store) else { continue };
            if room && let Some(lane) = held.lanes.pop_front() {
                self.ready.push_back(lane);
            }
            if !held.lanes.is_empty() {
                self.held.push(store);
            }
        }
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

    /// Gets a thread for the next lane in turn, if there is one.
    fn muster(self: &Arc<Self>, state: &mut State) {
        if state.ready.is_empty() {
            return;
        }
        if state.idle > 0 {
            self.changed.notify_one();
        } else if state.running < self.crew.most {
            // Where there is no further thread to be had, those that there are do it later.
            let _ = self.start_thread(state);
        }
    }

    fn work(self: &Arc<Self>) {
        let mut state = self.lock();
        loop {
            let Some((lane, job)) = state.take(self.crew) else {
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
            // A job that is done may let several lanes go on.
            self.muster(&mut state);
            drop(state);
            // A panic in a block device or in the owner's code must not take the thread with it.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                tracing::error!("a job panicked; nobody hears of its result");
            }
            state = self.lock();
            state.give_back(lane, self.crew);
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

    fn crew(least: usize, most: usize, a_lane: usize) -> Crew {
        Crew { least, most, a_lane, stores_leave_room: false }
    }

    fn lane(store: u32, disk: usize) -> Lane {
        Lane { store, disk, pace: Pace::Abreast }
    }

    fn quick(workers: &Workers, lane: Lane) -> Receiver<()> {
        let (done, receiver) = channel();
        workers.submit(lane, Box::new(move || done.send(()).unwrap()));
        receiver
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn lane_that_stalls_leaves_threads_to_the_others() {
        let workers = Workers::start("test", crew(2, 4, 2)).unwrap();
        let (said, running) = channel();
        let held: Vec<_> = (0..10)
            .map(|_| {
                let (release, job) = stalled(&said);
                workers.submit(lane(0, 1), job);
                release
            })
            .collect();
        running.recv_timeout(PATIENCE).unwrap();
        running.recv_timeout(PATIENCE).unwrap();
        quick(&workers, lane(0, 2)).recv_timeout(PATIENCE).unwrap();
        assert!(running.try_recv().is_err(), "a third thread for the lane that stalls");
        drop(held);
        assert!(workers.stop(PATIENCE));
        assert_eq!(running.iter().take(8).count(), 8, "what waited is done before the end");
    }

    #[test]
    fn jobs_in_turn_have_one_thread_and_hold_up_no_others_of_their_disk() {
        let workers = Workers::start("test", crew(4, 4, 4)).unwrap();
        let in_turn = Lane { pace: Pace::InTurn, ..lane(0, 1) };
        let (said, running) = channel();
        let (release, first) = stalled(&said);
        workers.submit(in_turn, first);
        running.recv_timeout(PATIENCE).unwrap();
        let (done, order) = channel();
        for number in 0..20 {
            let done = done.clone();
            workers.submit(in_turn, Box::new(move || done.send(number).unwrap()));
        }
        (0..20).for_each(|_| quick(&workers, lane(0, 1)).recv_timeout(PATIENCE).unwrap());
        assert!(order.try_recv().is_err(), "a second thread for jobs that are done in turn");
        drop(release);
        assert!(order.iter().take(20).eq(0..20), "their order is kept");
        assert!(workers.stop(PATIENCE));
    }

    #[test]
    fn stores_that_hang_leave_threads_to_the_others_however_many_disks_they_have() {
        let workers = Workers::start("test", Crew { stores_leave_room: true, ..crew(1, 6, 2) }).unwrap();
        let (said, running) = channel();
        let mut held = Vec::new();
        // Of 6 threads the first takes 3, the second 2 of the 3 that are left.
        for (store, threads) in [(1, 3), (2, 2)] {
            for disk in 0..8 {
                let (release, job) = stalled(&said);
                workers.submit(lane(store, disk), job);
                held.push(release);
            }
            (0..threads).for_each(|_| running.recv_timeout(PATIENCE).unwrap());
        }
        for disk in 0..8 {
            quick(&workers, lane(3, disk)).recv_timeout(PATIENCE).unwrap();
        }
        assert!(running.try_recv().is_err(), "a store that hangs got more than it leaves free");
        drop(held);
        assert!(workers.stop(PATIENCE));
        assert_eq!(running.iter().take(11).count(), 11, "what waited is done before the end");
    }

    #[test]
    fn disk_with_much_to_do_takes_turns_with_the_others() {
        let workers = Workers::start("test", crew(1, 1, 1)).unwrap();
        let (said, running) = channel();
        let (release, job) = stalled(&said);
        workers.submit(lane(0, 1), job);
        running.recv_timeout(PATIENCE).unwrap();
        let (done, order) = channel();
        for (disk, jobs) in [(1, 50), (2, 1), (3, 1)] {
            for _ in 0..jobs {
                let done = done.clone();
                workers.submit(lane(0, disk), Box::new(move || done.send(disk).unwrap()));
            }
        }
        drop(release);
        let order: Vec<usize> = order.iter().take(52).collect();
        assert_eq!(order[..4], [2, 3, 1, 1], "the greedy one has had its turn");
        assert!(workers.stop(PATIENCE));
    }

    #[test]
    fn threads_are_started_when_all_wait_up_to_the_most() {
        let workers = Workers::start("test", crew(1, 3, 1)).unwrap();
        let (said, running) = channel();
        let mut held = Vec::new();
        for disk in 1..=3 {
            let (release, job) = stalled(&said);
            workers.submit(lane(0, disk), job);
            running.recv_timeout(PATIENCE).unwrap();
            held.push(release);
        }
        let fourth = quick(&workers, lane(0, 4));
        assert!(fourth.try_recv().is_err());
        assert!(!workers.stop(Duration::from_millis(50)), "jobs still run");
        held.pop();
        fourth.recv_timeout(PATIENCE).unwrap();
        drop(held);
        assert!(workers.stop(PATIENCE));
    }

    #[test]
    fn job_that_panics_costs_neither_thread_nor_lane() {
        let workers = Workers::start("test", crew(1, 1, 1)).unwrap();
        for _ in 0..3 {
            workers.submit(lane(0, 1), Box::new(|| std::panic::panic_any("meant")));
        }
        quick(&workers, lane(0, 1)).recv_timeout(PATIENCE).unwrap();
        assert!(workers.stop(PATIENCE));
    }
}
