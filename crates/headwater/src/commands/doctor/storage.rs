//! The file systems below the state, the write caches and the stores: are they there, can they be written to, do they share
//! blocks between files (reflinks), how much room is left, and are they of a kind that can carry what lies on them?
//!
//! What a file system can do is found out by doing it with small files of our own.
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::finding::{Finding, Subject};
use crate::config::Config;

/// Below which part of a file system is left free there is a warning, and below which a problem, in percent.
const WARN_FREE_PERCENT: u64 = 10;
const LOW_FREE_PERCENT: u64 = 2;
/// However large the file system is, so much free room is enough.
const ENOUGH_FREE_BYTES: u64 = 100 << 30;

/// A directory, and what lies there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) holds: Holds,
    pub(super) path: PathBuf,
}

/// What lies in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// The server's state and the catalogue.
    State,
    WriteCaches,
    /// Images; the store's name.
    Store(String),
}

impl Place {
    fn label(&self) -> String {
        let path = self.path.display();
        match &self.holds {
            Holds::State => format!("the state directory {path}"),
            Holds::WriteCaches => format!("the directory of write caches {path}"),
            Holds::Store(name) => format!("the store \"{name}\", {path}"),
        }
    }
}

/// The directories of a configuration that the server makes itself.
pub(super) fn own_places(config: &Config) -> Vec<Place> {
    let state = Place { holds: Holds::State, path: config.state_dir.clone() };
    let caches = Place { holds: Holds::WriteCaches, path: config.write_cache.directory.clone() };
    vec![state, caches]
}

pub(super) fn examine(place: &Place) -> Vec<Finding> {
    let label = place.label();
    // The server makes its own directories, but no stores.
    let there = match &place.holds {
        Holds::Store(_) => Some(place.path.as_path()),
        Holds::State | Holds::WriteCaches => place.path.ancestors().find(|path| path.is_dir()),
    };
    let Some(directory) = there.filter(|path| path.is_dir()) else {
        return vec![Finding::problem(
            Subject::Storage,
            format!("{label} is not there"),
            "Nothing boots from it.",
            "mount the file system that it lies on, make it, or give the store another path on this server",
        )];
    };
    let mut findings = vec![writable(place, directory)];
    let written = findings.iter().all(|finding| finding.level == super::finding::Level::Ok);
    findings.extend(kind(place, directory));
    findings.extend(room(place, directory));
    if matches!(place.holds, Holds::Store(_)) && written {
        findings.push(reflinks(place, directory));
    }
    findings
}

fn writable(place: &Place, directory: &Path) -> Finding {
    let label = place.label();
    match probe_file(directory, "w") {
        Ok(probe) if directory == place.path => {
            drop(probe);
            Finding::ok(Subject::Storage, format!("{label} can be written to"))
        }
        Ok(_) => Finding::ok(Subject::Storage, format!("{label} will be made in {}", directory.display())),
        Err(error) => {
            let found = format!("{label} cannot be written to: {error}");
            match place.holds {
                Holds::Store(_) => Finding::warning(
                    Subject::Storage,
                    found,
                    "Devices boot from it; versions cannot be made, merged or imported.",
                    "have the store mounted read-write, and owned by the server's user",
                ),
                Holds::State | Holds::WriteCaches => Finding::problem(
                    Subject::Storage,
                    found,
                    "The server does not start.",
                    "run as the server's user (root, with the package's service), or have the directory owned by it",
                ),
            }
        }
    }
}

fn reflinks(place: &Place, directory: &Path) -> Finding {
    let label = place.label();
    match shares_blocks(directory) {
        Ok(true) => Finding::ok(Subject::Storage, format!("{label} shares blocks between files (reflinks)")),
        Ok(false) => Finding::warning(
            Subject::Storage,
            format!("{label} lies on a file system that does not share blocks between files (no reflinks)"),
            "Copies and merges of images move all their bytes: minutes instead of seconds, and twice the room.",
            "put stores on XFS (mkfs.xfs, as it is) or btrfs; nothing else depends on it",
        ),
        Err(error) => Finding::warning(
            Subject::Storage,
            format!("whether {label} shares blocks between files cannot be tried: {error}"),
            "Copies and merges of images may take longer than they need.",
            "make room there, and look again",
        ),
    }
}

/// Whether two files here can share blocks: tried with `FICLONE`.
fn shares_blocks(directory: &Path) -> io::Result<bool> {
    let (mut first, second) = (probe_file(directory, "1")?, probe_file(directory, "2")?);
    first.file.write_all(&[0x5A; 64 << 10])?;
    first.file.sync_all()?;
    Ok(rustix::fs::ioctl_ficlone(&second.file, &first.file).is_ok())
}

/// A file that is gone when it is dropped.
struct Probe {
    file: File,
    path: PathBuf,
}

impl Drop for Probe {
    fn drop(&mut self) {
        // Best effort; its name says whose it is.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn probe_file(directory: &Path, which: &str) -> io::Result<Probe> {
    let path = directory.join(format!(".headwater-doctor-{}-{which}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    Ok(Probe { file, path })
}

fn room(place: &Place, directory: &Path) -> Option<Finding> {
    let facts = rustix::fs::statvfs(directory).ok()?;
    let unit = facts.f_frsize;
    let room = Room {
        free_bytes: facts.f_bavail.saturating_mul(unit),
        size_bytes: facts.f_blocks.saturating_mul(unit),
        free_files: facts.f_favail,
        files: facts.f_files,
    };
    Some(judge_room(&place.label(), room))
}

/// What is left of a file system.
#[derive(Clone, Copy, Debug)]
struct Room {
    free_bytes: u64,
    size_bytes: u64,
    /// Of how many files there may be; both 0 where there is no limit.
    free_files: u64,
    files: u64,
}

fn judge_room(label: &str, room: Room) -> Finding {
    let percent = |free: u64, of: u64| free.saturating_mul(100).checked_div(of).unwrap_or(100);
    let free = percent(room.free_bytes, room.size_bytes);
    let (size, left) = (crate::columns::bytes(room.size_bytes), crate::columns::bytes(room.free_bytes));
    let found = format!("{label} has {left} of {size} left ({free} %)");
    let meaning = "When it is full, changes are refused, devices' writes fail, and versions cannot be made.";
    let mend = "make room: delete versions that nobody needs, merge long chains, or enlarge the file system";
    if percent(room.free_files, room.files) < LOW_FREE_PERCENT {
        let found = format!("{label}: {} of {} files can still be made", room.free_files, room.files);
        return Finding::problem(Subject::Storage, found, meaning, mend);
    }
    if room.free_bytes >= ENOUGH_FREE_BYTES || free >= WARN_FREE_PERCENT {
        Finding::ok(Subject::Storage, found)
    } else if free >= LOW_FREE_PERCENT {
        Finding::warning(Subject::Storage, found, meaning, mend)
    } else {
        Finding::problem(Subject::Storage, found, meaning, mend)
    }
}

/// Kinds of file systems that say something about what may lie there (`linux/magic.h`).
const TMPFS: u64 = 0x0102_1994;
const NFS: u64 = 0x6969;
const SMB2: u64 = 0xFE53_4D42;
const CIFS: u64 = 0xFF53_4D42;

fn kind(place: &Place, directory: &Path) -> Option<Finding> {
    let magic = u64::try_from(rustix::fs::statfs(directory).ok()?.f_type).ok()?;
    judge_kind(place, magic)
}

fn judge_kind(place: &Place, magic: u64) -> Option<Finding> {
    let label = place.label();
    match (magic, &place.holds) {
        (TMPFS, Holds::State) => Some(Finding::problem(
            Subject::Storage,
            format!("{label} lies in memory (tmpfs)"),
            "The farm is gone when this machine restarts.",
            "set state_dir to a directory on a disk",
        )),
        (TMPFS, Holds::Store(_)) => Some(Finding::warning(
            Subject::Storage,
            format!("{label} lies in memory (tmpfs)"),
            "Its vDisks are gone when this machine restarts.",
            "put the store on a disk",
        )),
        (NFS | SMB2 | CIFS, Holds::State) => Some(Finding::problem(
            Subject::Storage,
            format!("{label} lies on another machine (a network file system)"),
            "The catalogue's write-ahead log needs shared memory and locks that network file systems do not keep: it can be damaged.",
            "set state_dir to a directory on a disk of this machine; several servers share a farm by PostgreSQL",
        )),
        (NFS | SMB2 | CIFS, Holds::WriteCaches) => Some(Finding::warning(
            Subject::Storage,
            format!("{label} lies on another machine (a network file system)"),
            "Every write of a device crosses the network twice.",
            "set write_cache.directory to a directory on a disk of this machine",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn store(path: &Path) -> Place {
        Place { holds: Holds::Store("images".to_owned()), path: path.to_owned() }
    }

    #[test]
    fn absent_store_is_a_problem_and_an_absent_state_directory_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("a/b");
        assert_eq!(examine(&store(&absent))[0].level, Level::Problem);
        let state = examine(&Place { holds: Holds::State, path: absent });
        assert!(state[0].level == Level::Ok && state[0].found.contains("will be made in"), "{state:?}");
    }

    #[test]
    fn probes_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let findings = examine(&store(folder.path()));
        assert!(findings.iter().any(|finding| finding.found.contains("reflinks")), "{findings:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn little_room_is_a_warning_and_hardly_any_a_problem() {
        let level = |free_bytes, size_bytes| {
            judge_room("x", Room { free_bytes, size_bytes, free_files: 0, files: 0 }).level
        };
        assert_eq!(level(50 << 30, 100 << 30), Level::Ok);
        assert_eq!(level(5 << 30, 100 << 30), Level::Warning);
        assert_eq!(level(1 << 30, 100 << 30), Level::Problem);
        assert_eq!(level(200 << 30, 100 << 40), Level::Ok);
        let files = Room { free_bytes: 1 << 40, size_bytes: 1 << 41, free_files: 1, files: 1000 };
        assert_eq!(judge_room("x", files).level, Level::Problem);
    }

    #[test]
    fn state_in_memory_or_on_another_machine_is_a_problem() {
        let state = Place { holds: Holds::State, path: PathBuf::from("/x") };
        for magic in [TMPFS, NFS, SMB2] {
            assert_eq!(judge_kind(&state, magic).map(|finding| finding.level), Some(Level::Problem));
        }
        assert_eq!(judge_kind(&state, 0xEF53), None);
        assert_eq!(judge_kind(&store(Path::new("/x")), NFS), None);
    }
}
