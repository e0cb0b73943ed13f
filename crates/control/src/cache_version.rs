//! What a device wrote into its persistent write cache, as a new version under maintenance: to look at, to go on with,
//! and to promote for all devices.
//!
//! The new version is a difference of the one that the write cache was made on, and of nothing newer: what a device
//! wrote means something there alone. The write cache stays as it is; the device goes on with it until somebody
//! discards it.
use std::sync::Arc;

use block::{BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::ops::{SnapshotOptions, snapshot};
use diskimage::{Childless, Image, MutableImage};
use farm::model::{
    Description, Device, Id, Owner, PersistentCache, Purpose, Sharing, Stored, Subject, Task, Version,
    VersionId, VersionNumber, VersionState,
};
use farm::rules::Refusal;
use farm::rules::leases::{Conflict, stands};
use serde::{Deserialize, Serialize};
use serde_json::json;
use vdisk::{DEFAULT_WARN_PERCENT, Held, StoredCache, WriteCacheConfig, WriteCacheKind};

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::making::Making;
use crate::marks;
use crate::places::{changeable, folder, is_free, reachable, reading};
use crate::tasks::{Begun, Finish, Job, Running, record};
use crate::versions::lease_chain;
use crate::whole::Control;

/// What is moved at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// A version of what a device wrote, as it stands in its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CacheVersion {
    pub(crate) version: VersionId,
    /// The device's name, which its write cache's file has.
    pub(crate) device: String,
}

/// Begins to make a version under maintenance of what a device wrote into its persistent write cache.
///
/// # Errors
/// What the rules say of a new version; [`Code::InUse`] while the device runs; [`Code::Unsupported`] where the write
/// cache is on another server.
pub fn begin(
    control: &Control,
    by: &Caller,
    cache: Id<PersistentCache>,
    comment: &Description,
) -> Result<Stored<Task>, ControlError> {
    let task = control.change(by, |change| {
        let cache = change.get(cache)?;
        let of = changeable(change, by, cache.vdisk)?;
        let device: Stored<Device> = change.get(cache.device)?;
        if cache.server != control.server() || control.options().caches.is_none() {
            let server = change.name_of(cache.server)?;
            let why = format!("the write cache of device \"{}\" is on server \"{server}\"", device.name);
            return Err(ControlError::new(Code::Unsupported, why).hint("ask that server"));
        }
        let now = change.now();
        let leases = change.leases_of(Owner::Device(device.id))?;
        let held: Vec<_> = leases.into_iter().filter(|lease| stands(lease, now)).collect();
        if !held.is_empty() {
            let names = held.iter().map(|_| device.name.to_string()).collect();
            return Err(Refusal::InUse(Conflict { held, names }).into());
        }
        let version = change.new_maintenance(cache.vdisk, Some(cache.version), comment.clone())?;
        let folder = folder(change, control.server(), &of)?;
        reachable(&folder)?;
        is_free(&folder.join(version.file.as_str()))?;
        let job = Job::CacheVersion(CacheVersion { version: version.id, device: device.name.to_string() });
        let task = record(change, control, by, job, Some(cache.vdisk), Begun::Later)?;
        lease_chain(change, control, &task, cache.vdisk, Purpose::Change)?;
        Ok(task)
    })?;
    control.board().wake();
    Ok(task)
}

impl CacheVersion {
    pub(crate) fn run(&self, running: &Running<'_>) -> Result<Finish, ControlError> {
        let making = Making::read(running.control, self.version)?;
        running.lease(Subject::Chain(making.vdisk.id), Sharing::Exclusive, Purpose::Change)?;
        let stored = self.open(running.control)?;
        let chain = making.chain_of(making.version.lineage.parent().unwrap_or(VersionNumber::BASE))?;
        let leaf = chain.first().map(|leaf| making.path_of(leaf)).unwrap_or_default();
        let parent = Image::open(&leaf, reading(&making.folder))?;
        marks::verify(&parent, &chain)?;
        let (disk, cache) = (parent.virtual_size(), stored.size());
        if disk != cache {
            let why = format!("the write cache is of a disk of {cache} bytes, and the version's has {disk}");
            return Err(ControlError::new(Code::FileChanged, why));
        }
        let target = making.target();
        // Of a start that the server did not live to see the end of: it may lack anything. The name is this version's.
        let _there = std::fs::remove_file(&target);
        let options = SnapshotOptions { open: reading(&making.folder), ..SnapshotOptions::default() };
        snapshot(&leaf, &target, &options)?;
        let image = MutableImage::open(&target, None, Some(Arc::new(parent)), &Childless)?;
        fill(running, &stored, &image)?;
        image.close().map_err(|error| writing(&error))?;
        let (version, number) = (self.version, making.version.number);
        Ok(Box::new(move |change| {
            let made: Stored<Version> = change.get(version)?;
            change.set_version_state(version, made.revision, VersionState::Ready, None)?;
            Ok(json!({ "version": number, "file": made.file }))
        }))
    }

    fn open(&self, control: &Control) -> Result<StoredCache, ControlError> {
        let about = |what: String| format!("the persistent write cache of device \"{}\" {what}", self.device);
        let Some(directory) = control.options().caches.clone() else {
            return Err(ControlError::new(
                Code::Unsupported,
                "this server is not told where its write caches lie",
            ));
        };
        let config = WriteCacheConfig {
            kind: WriteCacheKind::Persistent,
            directory,
            device: self.device.clone(),
            limit: ByteLength::new(0),
            warn_percent: DEFAULT_WARN_PERCENT,
        };
        match StoredCache::open(&config) {
            Ok(Some(stored)) => Ok(stored),
            Ok(None) => Err(ControlError::new(Code::NotFound, about("is not there".to_owned()))),
            Err(vdisk::OpenError::InUse(error)) => {
                Err(ControlError::new(Code::InUse, about(error.to_string())))
            }
            Err(error) => {
                Err(ControlError::new(Code::FileDamaged, about(format!("cannot be read: {error}"))))
            }
        }
    }
}

/// Writes what the device wrote into the new version.
fn fill(running: &Running<'_>, stored: &StoredCache, image: &MutableImage) -> Result<(), ControlError> {
    let data = stored.changes().filter(|(_, held)| *held == Held::Data);
    let total = data.fold(0_u64, |sum, (range, _)| sum.saturating_add(range.length().get()));
    running.watch().expect(total);
    running.log(&format!("the device wrote {total} bytes"));
    let mut buffer = Vec::new();
    for (range, held) in stored.changes() {
        if held == Held::Zeros {
            running.watch().advance(0)?;
            image.write_zeroes(range, Patience::Blocking).map_err(|error| writing(&error))?;
            continue;
        }
        for piece in pieces(range) {
            buffer.resize(usize::try_from(piece.length().get()).unwrap_or_default(), 0);
            running.watch().pace(piece.length().get())?;
            stored
                .read(piece.start(), &mut buffer)
                .map_err(|error| ControlError::new(Code::FileFailed, error.to_string()))?;
            image.write(piece.start(), &buffer, Patience::Blocking).map_err(|error| writing(&error))?;
            running.watch().advance(piece.length().get())?;
        }
    }
    image.flush(Patience::Blocking).map_err(|error| writing(&error))
}

/// A range in pieces of at most [`CHUNK_BYTES`].
fn pieces(range: ByteRange) -> impl Iterator<Item = ByteRange> {
    let mut start = range.start().get();
    let end = range.end().get();
    std::iter::from_fn(move || {
        let length = end.checked_sub(start).filter(|left| *left > 0)?.min(CHUNK_BYTES);
        let piece = ByteRange::new(ByteOffset::new(start), ByteLength::new(length))?;
        start = start.saturating_add(length);
        Some(piece)
    })
}

fn writing(error: &BlockError) -> ControlError {
    let code = match error {
        BlockError::NoSpace { .. } => Code::NoSpace,
        _ => Code::FileFailed,
    };
    ControlError::new(code, format!("the new version cannot be written: {error}"))
}
