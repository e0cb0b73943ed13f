//! How many files a server may have open: each connection is one, and so is each device's write cache.
//!
//! Most systems start a program with a soft limit of 1024, for the sake of old programs that count files in bits of a
//! fixed array, and with a hard limit up to which a program may raise it itself. A server of thousands of connections does.
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// For images, sockets that listen, logs and the like.
const OTHER_FILES: u64 = 512;

/// The limit is too low for what may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process may have {allowed} files open, and up to {wanted} connections and write caches need as many and \
     {OTHER_FILES} more; those that find none are turned away: raise the hard limit (LimitNOFILE= of the service, or \
     ulimit -Hn)"
)]
pub struct TooFewFiles {
    /// As far as the limit could be raised.
    pub allowed: u64,
    /// How many were wished for.
    pub wanted: u64,
}

/// Raises this process's limit of open files as far as it may, so that `wanted` connections and write caches find room.
///
/// # Errors
/// [`TooFewFiles`] where they do not; the limit is as high as it gets all the same.
pub fn allow_open_files(wanted: u64) -> Result<(), TooFewFiles> {
    let limit = getrlimit(Resource::Nofile);
    let allowed = match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    check(allowed, wanted)
}

/// `None` is no limit.
fn check(allowed: Option<u64>, wanted: u64) -> Result<(), TooFewFiles> {
    match allowed {
        Some(allowed) if allowed < wanted.saturating_add(OTHER_FILES) => Err(TooFewFiles { allowed, wanted }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_is_raised_to_the_hard_one() {
        let hard = getrlimit(Resource::Nofile).maximum;
        let low = hard.map_or(64, |hard| hard.min(64));
        setrlimit(Resource::Nofile, Rlimit { current: Some(low), maximum: hard }).unwrap();
        let result = allow_open_files(1);
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
        assert_eq!(result, check(hard, 1));
    }

    #[test]
    fn limit_that_leaves_no_room_is_told_with_both_numbers() {
        assert_eq!(check(Some(4096), 4000), Err(TooFewFiles { allowed: 4096, wanted: 4000 }));
        assert_eq!(check(Some(4096 + OTHER_FILES), 4000), Ok(()));
        assert_eq!(check(None, u64::MAX), Ok(()));
    }
}
