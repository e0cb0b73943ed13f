//! Recording the block requests of devices: off by default, started for one device, and written to a file while it goes on.
//!
//! A session asks one atomic boolean for each request, and where that says yes appends the request to a buffer under a mutex that
//! is otherwise taken only to empty it: compressing and writing go on outside of it. The buffer is bounded: where the disk under the files cannot keep up, requests are
//! dropped from the trace and counted, and no device waits. [`Tracer::write`] empties the buffers; its owner calls it
//! again and again.
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trace::{Appender, Header, Request};

use super::time::Moment;
use crate::config::DeviceName;

/// The most requests of one device that wait to be written: 3 MiB, and a tenth of a second of more than any network brings.
const MAX_WAITING: usize = 65_536;

/// The most devices that are recorded at once.
const MAX_RECORDINGS: usize = 64;

/// How much text is compressed at once, at least: smaller pieces compress badly.
const PIECE_BYTES: usize = 256 * 1024;

/// What is recorded of which device.
#[derive(Debug)]
pub struct Tracer {
    directory: PathBuf,
    switches: Mutex<HashMap<DeviceName, Arc<Switch>>>,
}

/// One device's: sessions look at it for every request.
#[derive(Debug, Default)]
pub struct Switch {
    on: AtomicBool,
    /// What makes the file. Taken before `recording`, and for as long as a piece is compressed and written.
    file: Mutex<Option<Appender>>,
    recording: Mutex<Option<Recording>>,
}

#[derive(Debug)]
struct Recording {
    wanted: Wanted,
    phase: TracePhase,
    path: PathBuf,
    began: Moment,
    waiting: Vec<Request>,
    recorded: u64,
    dropped: u64,
    trouble: Option<String>,
}

/// What is to be recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// From the first login of another boot than this one on; `None`: from now on.
    pub after_boot: Option<String>,
    /// Until the device says that it is ready.
    pub until_ready: bool,
    /// For this long.
    pub seconds: Option<u64>,
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePhase {
    /// It begins with the device's next boot.
    Waiting,
    /// It goes on.
    Recording,
    /// It is over; its file is whole.
    Done,
}

/// A recording as it is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceState {
    /// How far it is.
    pub phase: TracePhase,
    /// Requests recorded.
    pub recorded: u64,
    /// Requests that there was no room for.
    pub dropped: u64,
    /// Its file.
    pub path: PathBuf,
    /// Why it ended early.
    pub trouble: Option<String>,
}

/// What a trace is of, as its file tells it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// For people: device, vDisk, boot.
    pub title: &'a str,
    /// The size of the disk in bytes; 0 where it is not known.
    pub disk_bytes: u64,
}

/// A session that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Began<'a> {
    pub(super) boot: &'a str,
    pub(super) subject: Subject<'a>,
    pub(super) now: Moment,
}

impl Tracer {
    /// What writes its files into this folder.
    #[must_use]
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), switches: Mutex::default() }
    }

    /// Begins to record a device, or waits for its next boot. What was recorded of it before is gone.
    ///
    /// # Errors
    /// `QuotaExceeded` where too many are recorded, or what the operating system says of the file.
    pub fn start(
        &self,
        device: &DeviceName,
        wanted: Wanted,
        subject: Subject<'_>,
        now: Moment,
    ) -> io::Result<TraceState> {
        let switch = self.switch(device);
        let others = lock(&self.switches).values().filter(|switch| switch.is_active()).count();
        if others >= MAX_RECORDINGS && !switch.is_active() {
            let message = format!("{MAX_RECORDINGS} devices are being recorded: stop one of these first");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, message));
        }
        let path = self.directory.join(format!("{}.csv.gz", device.as_str()));
        fs::create_dir_all(&self.directory)?;
        File::create(&path)?;
        let mut recording = Recording {
            phase: if wanted.after_boot.is_some() { TracePhase::Waiting } else { TracePhase::Recording },
            wanted,
            path,
            began: now,
            waiting: Vec::new(),
            recorded: 0,
            dropped: 0,
            trouble: None,
        };
        let mut file = lock(&switch.file);
        let mut slot = lock(&switch.recording);
        *file = (recording.phase == TracePhase::Recording).then(|| recording.begin(subject, now));
        switch.on.store(file.is_some(), Relaxed);
        let state = recording.state();
        *slot = Some(recording);
        Ok(state)
    }

    /// Ends a recording: its file is whole then. `None`: there is none.
    #[must_use]
    pub fn stop(&self, device: &DeviceName) -> Option<TraceState> {
        let switch = self.switch(device);
        switch.finish();
        lock(&switch.recording).as_ref().map(Recording::state)
    }

    /// How far a recording is. `None`: nothing was recorded of the device since the server started.
    #[must_use]
    pub fn state(&self, device: &DeviceName) -> Option<TraceState> {
        let switch = lock(&self.switches).get(device).map(Arc::clone)?;
        lock(&switch.recording).as_ref().map(Recording::state)
    }

    /// Writes what was recorded since the last time, and ends recordings whose time is over.
    pub fn write(&self, now: Moment) {
        let switches: Vec<Arc<Switch>> = lock(&self.switches).values().map(Arc::clone).collect();
        for switch in switches.iter().filter(|switch| switch.on.load(Relaxed)) {
            let over = lock(&switch.recording).as_ref().is_some_and(|recording| recording.is_over(now));
            if over { switch.finish() } else { switch.write(PIECE_BYTES) }
        }
    }

    /// A session of a device begins: it looks at what this gives.
    pub(super) fn login(&self, device: &DeviceName, began: Began<'_>) -> Arc<Switch> {
        let switch = self.switch(device);
        let is_meant = |recording: &&mut Recording| {
            recording.phase == TracePhase::Waiting
                && recording.wanted.after_boot.as_deref() != Some(began.boot)
        };
        let waits = lock(&switch.recording).as_mut().filter(is_meant).is_some();
        if waits {
            let mut file = lock(&switch.file);
            // Another session of the boot may have begun it meanwhile.
            if let Some(recording) = lock(&switch.recording).as_mut().filter(is_meant) {
                *file = Some(recording.begin(began.subject, began.now));
                switch.on.store(true, Relaxed);
            }
        }
        switch
    }

    /// A device is ready.
    pub(super) fn ready(&self, device: &DeviceName) {
        let switch = self.switch(device);
        let is_meant =
            |recording: &Recording| recording.wanted.until_ready && recording.phase == TracePhase::Recording;
        let ends = lock(&switch.recording).as_ref().is_some_and(is_meant);
        if ends {
            switch.finish();
        }
    }

    fn switch(&self, device: &DeviceName) -> Arc<Switch> {
        Arc::clone(lock(&self.switches).entry(device.clone()).or_default())
    }
}

impl Switch {
    /// Whether requests are recorded now.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    /// Records a request that was answered at `now`; its own time is reckoned back from that.
    pub(super) fn push(&self, now: Moment, request: Request) {
        let mut slot = lock(&self.recording);
        let Some(recording) = slot.as_mut().filter(|recording| recording.phase == TracePhase::Recording)
        else {
            return;
        };
        if recording.waiting.len() >= MAX_WAITING || recording.is_full() {
            recording.dropped = recording.dropped.saturating_add(1);
            return;
        }
        let done_us = now.since(recording.began).us();
        let at_us = done_us.saturating_sub(request.latency_us);
        recording.waiting.push(Request { at_us, ..request });
        recording.recorded = recording.recorded.saturating_add(1);
    }

    fn is_active(&self) -> bool {
        lock(&self.recording).as_ref().is_some_and(|recording| recording.phase != TracePhase::Done)
    }

    /// Writes all that waits, and ends the recording.
    fn finish(&self) {
        self.on.store(false, Relaxed);
        self.write(0);
        let mut file = lock(&self.file);
        if let Some(recording) = lock(&self.recording).as_mut() {
            recording.phase = TracePhase::Done;
        }
        *file = None;
    }

    /// Moves what waits into the file, if it makes a piece of at least this many bytes.
    fn write(&self, least_bytes: usize) {
        let mut file = lock(&self.file);
        let taken = lock(&self.recording).as_mut().map(|recording| {
            (std::mem::take(&mut recording.waiting), recording.path.clone(), recording.is_full())
        });
        let (Some(appender), Some((waiting, path, is_full))) = (file.as_mut(), taken) else { return };
        for request in &waiting {
            appender.push(request);
        }
        if !is_full && appender.waiting_bytes() < least_bytes {
            return;
        }
        let piece = appender.take();
        let append = || File::options().append(true).open(&path)?.write_all(&piece);
        let trouble = match append() {
            Err(error) => format!("{} cannot be written: {error}", path.display()),
            Ok(()) if is_full => format!("a trace holds at most {} requests", trace::MAX_REQUESTS),
            Ok(()) => return,
        };
        self.on.store(false, Relaxed);
        if let Some(recording) = lock(&self.recording).as_mut() {
            (recording.phase, recording.trouble) = (TracePhase::Done, Some(trouble));
        }
    }
}

impl Recording {
    fn begin(&mut self, subject: Subject<'_>, now: Moment) -> Appender {
        self.phase = TracePhase::Recording;
        self.began = now;
        let Subject { title, disk_bytes } = subject;
        Appender::new(&Header { title: title.to_owned(), disk_bytes, started_unix_us: now.unix_us() })
    }

    fn is_full(&self) -> bool {
        self.recorded >= trace::MAX_REQUESTS as u64
    }

    fn is_over(&self, now: Moment) -> bool {
        let lasted_us = now.since(self.began).us();
        self.wanted.seconds.is_some_and(|most| lasted_us >= most.saturating_mul(1_000_000))
    }

    fn state(&self) -> TraceState {
        TraceState {
            phase: self.phase,
            recorded: self.recorded,
            dropped: self.dropped,
            path: self.path.clone(),
            trouble: self.trouble.clone(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is guarded is valid between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::{Kind, Stage};

    fn at(ms: u64) -> Moment {
        Moment::from_unix_us(1_000_000_000 + ms * 1000)
    }

    fn device() -> DeviceName {
        DeviceName::parse("lab-01").unwrap()
    }

    fn read(offset: u64) -> Request {
        Request {
            at_us: 0,
            kind: Kind::Read,
            offset,
            length: 512,
            stage: Stage::First,
            latency_us: 40,
            ok: true,
        }
    }

    fn of(title: &str) -> Subject<'_> {
        Subject { title, disk_bytes: 3 << 30 }
    }

    fn began(boot: &str, ms: u64) -> Began<'_> {
        Began { boot, subject: of("lab-01, debian"), now: at(ms) }
    }

    fn stored(state: &TraceState) -> trace::Trace {
        trace::read(&fs::read(&state.path).unwrap()).unwrap()
    }

    #[test]
    fn requests_between_start_and_stop_stand_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let tracer = Tracer::new(dir.path());
        let switch = tracer.login(&device(), began("b1", 0));
        assert!(!switch.is_on());
        tracer.start(&device(), Wanted::default(), of("lab-01"), at(1000)).unwrap();
        assert!(switch.is_on());
        switch.push(at(1001), read(512));
        tracer.write(at(1100));
        switch.push(at(1200), read(1024));
        let state = tracer.stop(&device()).unwrap();
        assert_eq!((state.phase, state.recorded, state.dropped), (TracePhase::Done, 2, 0));
        assert!(!switch.is_on());
        switch.push(at(1300), read(4096));
        let found = stored(&state);
        let header = &found.header;
        assert_eq!((header.title.as_str(), header.disk_bytes), ("lab-01", 3 << 30));
        assert_eq!(header.started_unix_us, at(1000).unix_us());
        let times: Vec<(u64, u64)> = found.requests.iter().map(|r| (r.at_us, r.offset)).collect();
        assert_eq!(times, [(960, 512), (199_960, 1024)]);
    }

    #[test]
    fn next_boot_is_recorded_from_its_login_until_it_is_ready() {
        let dir = tempfile::tempdir().unwrap();
        let tracer = Tracer::new(dir.path());
        let wanted = Wanted { after_boot: Some("b1".into()), until_ready: true, seconds: None };
        tracer.start(&device(), wanted, of(""), at(0)).unwrap();
        let old = tracer.login(&device(), began("b1", 5));
        assert!(!old.is_on(), "the boot that runs is not meant");
        let new = tracer.login(&device(), began("b2", 10));
        new.push(at(11), read(0));
        tracer.ready(&device());
        let state = tracer.state(&device()).unwrap();
        assert_eq!((state.phase, state.recorded), (TracePhase::Done, 1));
        let header = stored(&state).header;
        assert_eq!((header.title.as_str(), header.disk_bytes), ("lab-01, debian", 3 << 30));
    }

    #[test]
    fn recording_ends_when_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let tracer = Tracer::new(dir.path());
        let wanted = Wanted { seconds: Some(2), ..Wanted::default() };
        tracer.start(&device(), wanted, of(""), at(0)).unwrap();
        tracer.write(at(1999));
        assert_eq!(tracer.state(&device()).unwrap().phase, TracePhase::Recording);
        tracer.write(at(2000));
        assert_eq!(tracer.state(&device()).unwrap().phase, TracePhase::Done);
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_and_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let tracer = Tracer::new(dir.path());
        let switch = tracer.login(&device(), began("b1", 0));
        tracer.start(&device(), Wanted::default(), of(""), at(0)).unwrap();
        for n in 0..MAX_WAITING as u64 + 5 {
            switch.push(at(1), read(n * 512));
        }
        let state = tracer.stop(&device()).unwrap();
        assert_eq!((state.recorded, state.dropped), (MAX_WAITING as u64, 5));
        assert_eq!(stored(&state).requests.len(), MAX_WAITING);
    }

    #[test]
    fn file_that_cannot_be_written_ends_the_recording_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let tracer = Tracer::new(dir.path());
        let switch = tracer.login(&device(), began("b1", 0));
        let state = tracer.start(&device(), Wanted::default(), of(""), at(0)).unwrap();
        fs::remove_file(&state.path).unwrap();
        switch.push(at(1), read(0));
        let state = tracer.stop(&device()).unwrap();
        assert!(state.trouble.unwrap().contains("lab-01.csv.gz cannot be written"));
    }

    #[test]
    fn devices_that_can_be_recorded_at_once_are_limited() {
        let dir = tempfile::tempdir().unwrap();
        let tracer = Tracer::new(dir.path());
        let name = |n: usize| DeviceName::parse(&format!("d{n}")).unwrap();
        for n in 0..MAX_RECORDINGS {
            tracer.start(&name(n), Wanted::default(), of(""), at(0)).unwrap();
        }
        let refused = tracer.start(&name(MAX_RECORDINGS), Wanted::default(), of(""), at(0));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        let _ = tracer.stop(&name(3));
        assert!(tracer.start(&name(MAX_RECORDINGS), Wanted::default(), of(""), at(0)).is_ok());
    }
}
