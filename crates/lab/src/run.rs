//! A run of the lab, and how nothing of it stays behind.
//!
//! Whoever makes namespaces and processes first *begins a run*: a folder in `/run/headwater-lab` with a `lock` that the
//! run holds by `flock` as long as its process lives, and a `record` of what it is going to make, written before it is
//! made. One script (`assets/cleanup.sh`) removes what a record names; it runs, always under the lock,
//! - when the run is dropped, also by a panic;
//! - when the process dies in any other way (Ctrl-C, SIGKILL): a watcher waits for the lock, and gets it by our death;
//! - in [`sweep`], for what is left when the watcher was killed, too.
//!
//! Guests and servers moreover get SIGKILL from the kernel when our process dies. A process is known by pid and start
//! time, so that one that got a dead guest's number is left alone. After a power loss there is nothing to do: `/run`,
//! namespaces and processes are gone by themselves; the folders below [`home`](crate::home) go with the next sweep.
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::command::{output, spawn};
use crate::home;

const REGISTRY: &str = "/run/headwater-lab";
const CLEANUP: &str = include_str!("../assets/cleanup.sh");
/// How many failed runs' logs stay.
const FAILED_RUNS_KEPT: usize = 10;
/// A folder that a beginning run has not locked and named yet is younger than this.
const BEGINNING: Duration = Duration::from_secs(60);

/// Removes what dead runs left. [`Network::begin`](crate::Network::begin) does it by itself. Gives the names of the runs.
///
/// # Errors
/// Where a leftover cannot be removed.
pub fn sweep() -> Result<Vec<String>> {
    sweep_registry(Path::new(REGISTRY), &home())
}

fn sweep_registry(registry: &Path, home: &Path) -> Result<Vec<String>> {
    let mut swept = Vec::new();
    let mut alive = Vec::new();
    for entry in fs::read_dir(registry).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') && is_younger_than(&entry.path(), BEGINNING) {
            continue;
        }
        let lock = match File::open(entry.path().join("lock")) {
            Ok(lock) => lock,
            // Its owner or its watcher is removing it just now, or never came to locking it.
            Err(_) if name.starts_with('.') => {
                fs::remove_dir_all(entry.path())?;
                continue;
            }
            Err(_) => continue,
        };
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                clean_up(&entry.path())?;
                swept.push(name);
            }
            Err(Errno::WOULDBLOCK) => alive.push(name),
            Err(error) => return Err(error).with_context(|| format!("cannot lock the lab run {name}")),
        }
    }
    drop_unregistered(&home.join("runs"), &alive)?;
    keep_newest(&home.join("failed"), FAILED_RUNS_KEPT)?;
    Ok(swept)
}

/// Removes run folders of runs that the registry does not know (any more): the machine was switched off under them.
fn drop_unregistered(runs: &Path, alive: &[String]) -> Result<()> {
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_alive =
            alive.iter().any(|id| name.strip_prefix(id.as_str()).is_some_and(|rest| rest.starts_with('-')));
        if !is_alive && !is_younger_than(&entry.path(), BEGINNING) {
            crate::cache::remove_tree(&entry.path())?;
        }
    }
    Ok(())
}

fn is_younger_than(path: &Path, age: Duration) -> bool {
    let changed = fs::metadata(path).and_then(|data| data.modified());
    changed.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|passed| passed < age))
}

fn keep_newest(folder: &Path, count: usize) -> Result<()> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort_by_key(|path| {
        fs::metadata(path).and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    });
    let surplus = found.len().saturating_sub(count);
    found.iter().take(surplus).try_for_each(|path| crate::cache::remove_tree(path))
}

fn cleanup_script(run: &Path) -> [&std::ffi::OsStr; 4] {
    ["-c".as_ref(), CLEANUP.as_ref(), "cleanup".as_ref(), run.as_os_str()]
}

fn clean_up(run: &Path) -> Result<()> {
    output(Command::new("sh").args(cleanup_script(run))).map(|_| ())
}

/// What one user of the lab makes; removed when this is dropped.
pub(crate) struct Run {
    id: String,
    /// In the registry: `lock`, `record`, sockets.
    registered: PathBuf,
    /// Below the lab's home: everything else.
    folder: PathBuf,
    keep_logs: AtomicBool,
    watcher: Child,
    /// Let go after everything is cleaned up.
    _lock: File,
}

impl Run {
    /// Sweeps, then begins a run. `name` says in its folder's name whose it is.
    pub(crate) fn begin(name: &str) -> Result<Self> {
        home::require_root("making lab networks and guests")?;
        for swept in sweep()? {
            eprintln!("lab: removed what the dead run {swept} left");
        }
        Self::begin_in(Path::new(REGISTRY), &home(), name)
    }

    fn begin_in(registry: &Path, home: &Path, name: &str) -> Result<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let id = format!("{:x}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let beginning = registry.join(format!(".{id}"));
        fs::create_dir_all(&beginning).with_context(|| format!("cannot make {}", beginning.display()))?;
        let lock = File::create(beginning.join("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let folder = home.join("runs").join(format!("{id}-{name}"));
        fs::write(beginning.join("record"), format!("folder {}\n", folder.display()))?;
        let registered = registry.join(&id);
        fs::rename(&beginning, &registered)?;
        let mut watch = Command::new("setsid");
        watch.arg("flock").arg(registered.join("lock")).arg("sh").args(cleanup_script(&registered));
        watch.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let watcher = spawn(watch)?;
        let run = Self { id, registered, folder, keep_logs: AtomicBool::new(false), watcher, _lock: lock };
        fs::create_dir_all(run.folder.join("logs"))?;
        Ok(run)
    }

    /// A short name that no other living run has.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The folder for everything that a run writes.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A path for a socket: short, since Unix sockets' paths end at 107 bytes.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.registered.join(name)
    }

    /// A path for a log; logs outlive a run that failed.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.folder.join("logs").join(format!("{name}.log"))
    }

    /// Keeps the logs when the run ends, in the lab's folder `failed`.
    pub(crate) fn keep_logs(&self) {
        self.keep_logs.store(true, Ordering::Relaxed);
    }

    /// Call this before the namespace is made.
    pub(crate) fn record_namespace(&self, name: &str) -> Result<()> {
        self.record(&format!("namespace {name}"))
    }

    /// Call this before something is mounted there.
    pub(crate) fn record_mount(&self, place: &Path) -> Result<()> {
        self.record(&format!("mount {}", place.display()))
    }

    /// Call this as soon as the process is started; until then only the kernel's death signal covers it.
    pub(crate) fn record_process(&self, pid: u32) -> Result<()> {
        match start_time(pid) {
            Some(start) => self.record(&format!("process {pid} {start}")),
            None => Ok(()),
        }
    }

    fn record(&self, line: &str) -> Result<()> {
        let mut record = File::options().append(true).open(self.registered.join("record"))?;
        Ok(writeln!(record, "{line}")?)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.keep_logs.load(Ordering::Relaxed) {
            // Without the mark the logs are kept: no harm.
            let _ = fs::write(self.registered.join("discard-logs"), "");
        } else {
            let runs = self.folder.parent().and_then(Path::parent);
            let kept =
                runs.unwrap_or(&self.folder).join("failed").join(self.folder.file_name().unwrap_or_default());
            eprintln!("lab: logs are kept in {}", kept.display());
        }
        if let Err(error) = clean_up(&self.registered) {
            eprintln!("lab: clean-up of run {} failed, the next run will try again: {error:#}", self.id);
        }
        // The watcher has nothing left to do. It can only have ended by itself.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
    }
}

/// When a process started, in clock ticks since the machine did: field 22 of its `stat` (proc(5)).
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name, is in parentheses and may hold anything, spaces and parentheses too.
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }
        fn registry(&self) -> PathBuf {
            self.0.path().join("registry")
        }
        fn home(&self) -> PathBuf {
            self.0.path().join("home")
        }
        fn begin(&self) -> Run {
            Run::begin_in(&self.registry(), &self.home(), "test").unwrap()
        }
        fn sweep(&self) -> Vec<String> {
            sweep_registry(&self.registry(), &self.home()).unwrap()
        }
        /// Leaves a run as a process leaves it that was killed together with the run's watcher.
        fn die(&self, mut run: Run) -> (PathBuf, String) {
            run.watcher.kill().unwrap();
            run.watcher.wait().unwrap();
            let lock = run._lock.try_clone().unwrap();
            let found = (run.folder.clone(), run.id.clone());
            std::mem::forget(run);
            rustix::fs::flock(&lock, FlockOperation::Unlock).unwrap();
            found
        }
    }

    fn is_sleeping(child: &mut Child) -> bool {
        child.try_wait().unwrap().is_none()
    }

    #[test]
    fn living_run_is_not_swept() {
        let place = Place::new();
        let run = place.begin();
        assert!(place.sweep().is_empty());
        assert!(run.folder().join("logs").is_dir());
    }

    #[test]
    fn dropped_run_leaves_nothing() {
        let place = Place::new();
        let run = place.begin();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        run.record_process(child.id()).unwrap();
        let (folder, registered) = (run.folder.clone(), run.registered.clone());
        drop(run);
        assert!(!folder.exists() && !registered.exists());
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn dead_run_is_swept_with_its_processes_and_its_logs_are_kept() {
        let place = Place::new();
        let run = place.begin();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        run.record_process(child.id()).unwrap();
        fs::write(run.log("guest"), "last words").unwrap();
        let (folder, id) = place.die(run);
        assert_eq!(place.sweep(), std::slice::from_ref(&id));
        assert!(!child.wait().unwrap().success());
        assert!(!folder.exists());
        let kept = place.home().join("failed").join(format!("{id}-test")).join("guest.log");
        assert_eq!(fs::read_to_string(kept).unwrap(), "last words");
        assert!(place.sweep().is_empty());
    }

    #[test]
    fn process_that_reused_a_pid_is_left_alone() {
        let place = Place::new();
        let run = place.begin();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        run.record(&format!("process {} {}", child.id(), start_time(child.id()).unwrap() - 1)).unwrap();
        place.die(run);
        assert_eq!(place.sweep().len(), 1);
        assert!(is_sleeping(&mut child));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn watcher_cleans_up_when_the_lock_is_let_go() {
        let place = Place::new();
        let mut run = place.begin();
        let (folder, registered) = (run.folder.clone(), run.registered.clone());
        rustix::fs::flock(&run._lock, FlockOperation::Unlock).unwrap();
        assert!(run.watcher.wait().unwrap().success());
        assert!(!folder.exists() && !registered.exists());
    }

    #[test]
    fn folder_of_a_run_that_a_power_loss_ended_goes_when_it_is_old() {
        let place = Place::new();
        let (old, new) = (place.home().join("runs/1-0-old"), place.home().join("runs/1-1-new"));
        fs::create_dir_all(&old).unwrap();
        fs::create_dir_all(&new).unwrap();
        let hour_ago = SystemTime::now() - Duration::from_secs(3600);
        File::open(&old).unwrap().set_modified(hour_ago).unwrap();
        assert!(place.sweep().is_empty());
        assert!(!old.exists() && new.exists());
    }

    #[test]
    fn start_time_of_a_process_with_an_odd_name_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a) b (c");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(program).arg("600").spawn().unwrap();
        assert!(start_time(child.id()).unwrap() >= start_time(std::process::id()).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
