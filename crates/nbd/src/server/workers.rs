//! Threads that may wait: for storage, or for the owner's decisions.
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Something to do on a worker. It tells its result itself.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads and a queue. The queue is bounded by what its users have in flight: a connection has at
/// most a named number of jobs and one question.
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    queue: Mutex<Queue>,
    /// A job or the end has come, or a worker has ended.
    changed: Condvar,
}

struct Queue {
    jobs: VecDeque<Job>,
    running: usize,
    open: bool,
}

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// What the operating system says where it has no more threads.
    pub(super) fn start(name: &str, count: usize) -> std::io::Result<Self> {
        let queue = Queue { jobs: VecDeque::new(), running: 0, open: true };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        let workers = Self { shared, threads: Mutex::new(Vec::new()) };
        for number in 0..count.max(1) {
            let shared = Arc::clone(&workers.shared);
            let builder = std::thread::Builder::new().name(format!("{name}-{number}"));
            let thread = builder.spawn(move || shared.work())?;
            let mut queue = workers.shared.lock();
            queue.running = queue.running.saturating_add(1);
            drop(queue);
            workers.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(workers)
    }

    /// Has `job` done by the next free thread.
    pub(super) fn submit(&self, job: Job) {
        self.shared.lock().jobs.push_back(job);
        self.shared.changed.notify_one();
    }

    /// Lets the queue run dry and ends the threads; `false` where some still wait for storage after `patience`.
    pub(super) fn stop(&self, patience: Duration) -> bool {
        let deadline = Instant::now().checked_add(patience);
        let mut queue = self.shared.lock();
        queue.open = false;
        self.shared.changed.notify_all();
        while queue.running > 0 {
            let left = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(queue);
        for thread in self.threads.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = thread.join();
        }
        true
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A job that panics is caught below; the queue itself is never left half-changed.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut queue = self.lock();
            let job = loop {
                if let Some(job) = queue.jobs.pop_front() {
                    break Some(job);
                }
                if !queue.open {
                    break None;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            let Some(job) = job else {
                queue.running = queue.running.saturating_sub(1);
                self.changed.notify_all();
                return;
            };
            drop(queue);
            // A panic in a block device or in the owner's code must not take the thread with it.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                tracing::error!("a question to the owner of the exports panicked; it will not be answered");
            }
        }
    }
}
