//! The last known state as a file, from which known devices boot when the database is gone.
//!
//! One line that says what it is, the length and the CRC-32C of the rest; then the objects as JSON. It is written beside
//! its place and then put there, so that there is always a whole one; what does not agree with its first line is refused.
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Snapshot;
use super::follow::Parts;
use crate::model::{
    ChangeNumber, Collection, Device, Farm, PersistentCache, Server, Site, Store, Stored, Vdisk, Version,
};

/// Begins the first line; the number is raised when older programs could not read what follows.
const TITLE: &str = "headwater-snapshot 1";

/// The largest file that is read: thirty times what 10,000 devices take.
const MAX_BYTES: u64 = 256 << 20;

/// Why a last known state cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    /// The file system says no.
    #[error("the last known state {} cannot be {what}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// `read`, `written`.
        what: &'static str,
        /// What it says.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("the last known state {} cannot be used: {why}; it is written anew from the database", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

#[derive(Serialize)]
struct Written<'a> {
    change: ChangeNumber,
    farm: Option<&'a Stored<Farm>>,
    sites: Vec<&'a Stored<Site>>,
    servers: Vec<&'a Stored<Server>>,
    stores: Vec<&'a Stored<Store>>,
    vdisks: Vec<&'a Stored<Vdisk>>,
    versions: Vec<&'a Stored<Version>>,
    collections: Vec<&'a Stored<Collection>>,
    devices: Vec<&'a Stored<Device>>,
    caches: Vec<&'a Stored<PersistentCache>>,
}

/// Writes a snapshot to `path`, whole or not at all.
///
/// # Errors
/// [`StoredError::File`].
pub fn save(snapshot: &Snapshot, path: &Path) -> Result<(), StoredError> {
    let failed = |source| StoredError::File { path: path.to_owned(), what: "written", source };
    let written = Written {
        change: snapshot.change,
        farm: snapshot.farm.as_deref(),
        sites: snapshot.sites.values().map(AsRef::as_ref).collect(),
        servers: snapshot.servers.values().map(AsRef::as_ref).collect(),
        stores: snapshot.stores.values().map(AsRef::as_ref).collect(),
        vdisks: snapshot.vdisks.values().map(|facts| &facts.vdisk).collect(),
        versions: snapshot.vdisks.values().flat_map(|facts| &facts.versions).collect(),
        collections: snapshot.collections.values().map(AsRef::as_ref).collect(),
        devices: snapshot.devices.values().map(AsRef::as_ref).collect(),
        caches: snapshot.caches.values().map(AsRef::as_ref).collect(),
    };
    let body = serde_json::to_vec(&written).map_err(|error| failed(error.into()))?;
    let beside = PathBuf::from(format!("{}.new", path.display()));
    let write = || {
        let mut file = std::fs::File::create(&beside)?;
        writeln!(file, "{TITLE} {} {:08x}", body.len(), crc32c::crc32c(&body))?;
        file.write_all(&body)?;
        crate::durable::publish(&beside, path)
    };
    write().map_err(failed)
}

/// Reads what [`save`] wrote.
///
/// # Errors
/// [`StoredError`].
pub fn load(path: &Path) -> Result<Snapshot, StoredError> {
    let failed = |source| StoredError::File { path: path.to_owned(), what: "read", source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    let damaged = |why: String| StoredError::Damaged { path: path.to_owned(), why };
    if length > MAX_BYTES {
        return Err(damaged(format!("it has {length} bytes, and {MAX_BYTES} is the most")));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    parse(&bytes).map_err(damaged)
}

/// Reads the bytes of such a file.
///
/// # Errors
/// In words.
pub fn parse(bytes: &[u8]) -> Result<Snapshot, String> {
    let end = bytes.iter().take(100).position(|byte| *byte == b'\n').ok_or("it has no first line")?;
    let (line, body) = bytes.split_at_checked(end).ok_or("it has no first line")?;
    let body = body.get(1..).unwrap_or_default();
    let expected = format!("{TITLE} {} {:08x}", body.len(), crc32c::crc32c(body));
    if line != expected.as_bytes() {
        let line = String::from_utf8_lossy(line);
        return Err(format!("its first line says {line:?}, and what follows makes it {expected:?}"));
    }
    let parts: Parts = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    Ok(Snapshot::of(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_known_state_that_was_touched_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last");
        save(&Snapshot::default(), &path).unwrap();
        assert_eq!(load(&path).unwrap().change(), ChangeNumber::NONE);
        let good = std::fs::read(&path).unwrap();
        for cut in 0..good.len() {
            assert!(parse(&good[..cut]).is_err(), "cut at {cut}");
            let mut flipped = good.clone();
            flipped[cut] ^= 1;
            assert!(parse(&flipped).is_err(), "flipped at {cut}");
        }
        assert!(matches!(load(&folder.path().join("none")), Err(StoredError::File { what: "read", .. })));
    }

    #[test]
    fn mutated_state_never_panics() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("last");
        save(&Snapshot::default(), &path).unwrap();
        let seed = std::fs::read(&path).unwrap();
        mutate::Mutator::new(vec![seed], 2000).run(2000, |bytes| {
            let _ = parse(bytes);
            let _ = serde_json::from_slice::<Parts>(bytes);
        });
    }
}
