//! Progress lines with times, on standard error.
use std::time::Instant;

/// Prints one line for each step of a longer piece of work, with the seconds since it began.
pub(crate) struct Progress {
    work: String,
    began: Instant,
}

impl Progress {
    pub(crate) fn begin(work: &str) -> Self {
        let progress = Self { work: work.to_owned(), began: Instant::now() };
        progress.step("begins");
        progress
    }

    pub(crate) fn step(&self, what: &str) {
        eprintln!("[{:6.1} s] {}: {what}", self.began.elapsed().as_secs_f32(), self.work);
    }
}
