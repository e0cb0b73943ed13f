//! What makes a persistent write cache survive a crash of the host: a second map in the file, which changes only in a
//! flush.
//!
//! The first map is stored with each change and, like the data, lies in the page cache: it outlives the process. What
//! of it and of the data has reached the disk when the host goes down, nobody knows; so after that the first map is
//! not looked at. The second one is: a flush stores in it only states whose data are on the disk already.
//!
//! 1. Take a copy of the states of every page of the map in which one has changed since the last flush.
//! 2. Wait until all data are on the disk. A state that was in the copy had its data in the file before.
//! 3. Store the copied pages in the second map, and wait until they are on the disk.
//!
//! A crash in between leaves each byte of the second map old or new, and both are right: what is new was flushed
//! before, what is old has the data of before, since clusters have fixed places that nothing else is ever written to.
//!
//! Where the wait for the disk fails, nothing is known of what was written since the last one (the system tells of a
//! failed write once and forgets the page), so every later flush is refused as well, and whoever opens the file next goes
//! on with the second map, as after a crash of the host.
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cluster::{CLUSTER_BYTES, ClusterRun};
use crate::file::CacheFile;
use crate::layout::Layout;
use crate::presence::PresenceMap;
use crate::stored_map;

/// What a persistent write cache has to flush.
#[derive(Debug, Default)]
pub(crate) struct Lasting {
    /// Whether anything was written since the last flush began.
    written: AtomicBool,
    /// The pages of the map in which a state was set since then.
    pages: Mutex<BTreeSet<u64>>,
    /// Held by a flush; whether one has failed.
    failed: Mutex<bool>,
}

impl Lasting {
    /// Data were stored. Called after they were, and before that is acknowledged.
    pub(crate) fn note_data(&self) {
        self.written.store(true, Ordering::Release);
    }

    /// States of `run` were set. Called after they were, and before that is acknowledged.
    pub(crate) fn note_states(&self, run: ClusterRun) {
        let first = run.start / CLUSTER_BYTES;
        let end = run.end.div_ceil(CLUSTER_BYTES);
        self.pages().extend(first..end);
        self.note_data();
    }

    /// A write cache that goes on after the death of its server: what of it was flushed is not known.
    pub(crate) fn note_all(&self, map: &PresenceMap) {
        self.pages().extend(stored_map::used_pages(map));
        self.note_data();
    }

    /// Whether a flush would have nothing to do.
    pub(crate) fn is_flushed(&self) -> bool {
        // A flush under way has not made lasting yet what it has taken note of.
        !self.written.load(Ordering::Acquire) && self.failed.try_lock().is_ok_and(|failed| !*failed)
    }

    /// Makes all that was noted before lasting.
    pub(crate) fn flush(&self, file: &CacheFile, layout: Layout, map: &PresenceMap) -> io::Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *failed {
            let what = "an earlier flush failed: what was written since is not known to be on the disk";
            return Err(io::Error::other(what));
        }
        if !self.written.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let pages = std::mem::take(&mut *self.pages());
        let copies: Vec<_> = pages.iter().map(|&page| (page, stored_map::page_of(map, page))).collect();
        let flushed = file.sync().and_then(|()| {
            for (page, bytes) in &copies {
                file.write(layout.flushed_map_page(*page), bytes)?;
            }
            if copies.is_empty() { Ok(()) } else { file.sync() }
        });
        *failed = flushed.is_err();
        flushed
    }

    fn pages(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
