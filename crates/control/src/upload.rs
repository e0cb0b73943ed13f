//! Uploads: an image comes into a store in parts, from a browser or a program, and may be broken off and gone on with.
//!
//! What has come of `win11.vhdx` lies beside where it is to be, as `win11.vhdx.upload`, and its length is all the state that
//! there is: whoever goes on, after whatever happened, asks how far it is and sends the rest. Each part comes with its
//! SHA-256, so what lies there is what was sent; the file gets its name when it is as long as was said, and an image of its
//! format. No version has it then: [`adopt`](crate::adopt) makes a vDisk of it. What nobody goes on with for
//! [`ABANDONED_AFTER`] is removed when the next upload into the store begins.
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use diskimage::{Format, LayerInfo};
use farm::model::{FileName, StoreId};
use rustix::fs::{FlockOperation, RenameFlags};
use sha2::{Digest, Sha256};

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::places::{folder_for_images, has_room, is_free};
use crate::whole::Control;

/// The most bytes of a part: what is held in memory at once, and lost when a connection breaks.
pub const MAX_PART_BYTES: usize = 8 << 20;
/// The longest image that is taken: a VHDX of 64 TiB with all its structures ([MS-VHDX] §2.6.2.4) is hardly longer.
pub const MAX_UPLOAD_BYTES: u64 = 65 << 40;
/// After so long an upload that nobody went on with is removed.
pub const ABANDONED_AFTER: Duration = Duration::from_secs(3 * 24 * 3600);
/// What is behind the name of a file that has not come as a whole.
const ENDING: &str = ".upload";

/// Begins an upload, or says where to go on with it: how many bytes of the file are here, from its start.
///
/// # Errors
/// [`Code::BadValue`] of a name that is none of a VHDX or VHD, [`Code::Conflict`] where a file or more of it than
/// `length_bytes` is there already, [`Code::NoSpace`], [`Code::StoreUnreachable`], [`Code::Denied`].
pub fn begin(
    control: &Control,
    by: &Caller,
    store: StoreId,
    name: &FileName,
    length_bytes: u64,
) -> Result<u64, ControlError> {
    let place = Place::of(control, by, store, name)?;
    if length_bytes == 0 || length_bytes > MAX_UPLOAD_BYTES {
        let why = format!("{length_bytes} bytes are no length of an image");
        return Err(ControlError::bad_value("length_bytes", why));
    }
    is_free(&place.whole)?;
    remove_abandoned(&place.folder);
    let here = place.partial.metadata().map_or(0, |there| there.len());
    if here > length_bytes {
        let why = format!("{here} bytes of a longer {name} are here already");
        return Err(ControlError::new(Code::Conflict, why)
            .hint("cancel that upload first, or give the file another name"));
    }
    has_room(&place.folder, length_bytes.saturating_sub(here))?;
    let opened = File::options().create(true).append(true).open(&place.partial);
    opened.map_err(|error| ControlError::file(&place.partial, "made", &error))?;
    Ok(here)
}

/// Takes a part that begins at `offset`; how many bytes are here then. `digest` is the part's SHA-256.
///
/// # Errors
/// [`Code::Conflict`] where another offset is due, or somebody else sends a part; [`Code::BadValue`] of a part that is not
/// what its digest says or is too long; [`Code::NotFound`] of an upload that was not begun.
pub fn append(
    control: &Control,
    by: &Caller,
    store: StoreId,
    name: &FileName,
    offset: u64,
    part: &[u8],
    digest: [u8; 32],
) -> Result<u64, ControlError> {
    let place = Place::of(control, by, store, name)?;
    if part.is_empty() || part.len() > MAX_PART_BYTES {
        let why = format!("a part has 1 to {MAX_PART_BYTES} bytes, and not {}", part.len());
        return Err(ControlError::bad_value("part", why));
    }
    if <[u8; 32]>::from(Sha256::digest(part)) != digest {
        let why = "the part is not what its SHA-256 says: it was damaged on its way, and is to be sent again";
        return Err(ControlError::bad_value("sha256", why));
    }
    let (file, here) = place.open()?;
    if here != offset {
        let why = format!("{here} bytes of {name} are here, and the part begins at {offset}");
        return Err(ControlError::new(Code::Conflict, why).hint("go on where the upload is"));
    }
    let written = file.write_all_at(part, offset);
    // What is acknowledged is not sent again, so it has to outlast the host's crash.
    let written = written.and_then(|()| file.sync_data());
    written.map_err(|error| ControlError::file(&place.partial, "written", &error))?;
    Ok(offset.saturating_add(part.len() as u64))
}

/// Gives the file its name, when all of it is here; `digest` is the SHA-256 of the whole file, where it is known.
///
/// # Errors
/// [`Code::Conflict`] where it is not as long as `length_bytes` says, or a file has its name meanwhile;
/// [`Code::FileDamaged`] where it is no image of its format, or not what the digest says: it stays an upload then, to be cancelled.
pub fn finish(
    control: &Control,
    by: &Caller,
    store: StoreId,
    name: &FileName,
    length_bytes: u64,
    digest: Option<[u8; 32]>,
) -> Result<(), ControlError> {
    let place = Place::of(control, by, store, name)?;
    let (file, here) = place.open()?;
    if here != length_bytes {
        let why = format!("{here} of {length_bytes} bytes of {name} are here");
        return Err(ControlError::new(Code::Conflict, why).hint("send the rest"));
    }
    if digest.is_some_and(|digest| digest_of(&file).map_or(true, |found| found != digest)) {
        let why = format!("{name} is not what its SHA-256 says");
        return Err(ControlError::new(Code::FileDamaged, why).hint("cancel the upload, and send it again"));
    }
    is_image(&place.partial, name)?;
    file.sync_all().map_err(|error| ControlError::file(&place.partial, "written", &error))?;
    let cwd = rustix::fs::CWD;
    let named = rustix::fs::renameat_with(cwd, &place.partial, cwd, &place.whole, RenameFlags::NOREPLACE);
    match named {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => is_free(&place.whole)?,
        Err(error) => return Err(ControlError::file(&place.whole, "named", &error.into())),
    }
    let synced = File::open(&place.folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| ControlError::file(&place.folder, "written", &error))?;
    tracing::info!(file = %place.whole.display(), bytes = here, "an image was uploaded");
    Ok(())
}

/// Removes what has come of an upload.
///
/// # Errors
/// [`Code::NotFound`] where there is none.
pub fn cancel(control: &Control, by: &Caller, store: StoreId, name: &FileName) -> Result<(), ControlError> {
    let place = Place::of(control, by, store, name)?;
    drop(place.open()?);
    std::fs::remove_file(&place.partial)
        .map_err(|error| ControlError::file(&place.partial, "removed", &error))
}

/// Where a file is to be, and where it is until then.
struct Place {
    folder: PathBuf,
    whole: PathBuf,
    partial: PathBuf,
    name: String,
}

impl Place {
    fn of(control: &Control, by: &Caller, store: StoreId, name: &FileName) -> Result<Self, ControlError> {
        let folder = folder_for_images(control, by, store)?;
        if !matches!(Format::of_ending(Path::new(name.as_str())), Some(Format::Vhdx | Format::Vhd)) {
            let why = format!("{name} is not named as a VHDX or VHD image is (.vhdx, .avhdx, .vhd, .avhd)");
            return Err(ControlError::bad_value("name", why)
                .hint("convert others first: headwater image convert disk.qcow2 disk.vhdx"));
        }
        let (whole, partial) = (folder.join(name.as_str()), folder.join(format!("{name}{ENDING}")));
        Ok(Self { folder, whole, partial, name: name.to_string() })
    }

    /// The upload as it is, and its length, with nobody else at it until the file is closed.
    fn open(&self) -> Result<(File, u64), ControlError> {
        let file = File::options().read(true).write(true).open(&self.partial);
        let file = file.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                ControlError::new(Code::NotFound, format!("no upload of {} was begun", self.name))
            }
            _ => ControlError::file(&self.partial, "opened", &error),
        })?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let why = format!("somebody else uploads {} at the moment", self.name);
            ControlError::new(Code::Conflict, why).hint("try again in a moment")
        })?;
        let there =
            file.metadata().map_err(|error| ControlError::file(&self.partial, "looked at", &error))?;
        Ok((file, there.len()))
    }
}

/// The SHA-256 of all that is in a file.
fn digest_of(mut file: &File) -> std::io::Result<[u8; 32]> {
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    file.seek(std::io::SeekFrom::Start(0))?;
    loop {
        let read = file.read(&mut piece)?;
        if read == 0 {
            return Ok(digest.finalize().into());
        }
        digest.update(piece.get(..read).unwrap_or_default());
    }
}

/// Refuses what is no image of the format that its name says.
fn is_image(partial: &Path, name: &FileName) -> Result<(), ControlError> {
    let format = Format::of_ending(Path::new(name.as_str()));
    LayerInfo::of_file(partial, format).map(drop).map_err(|error| {
        ControlError::new(
            Code::FileDamaged,
            format!("{name} is none of the images that it is named as: {error}"),
        )
        .hint("cancel the upload, and look at the file with headwater image check")
    })
}

/// Removes uploads that nobody goes on with. What cannot be removed is there the next time.
fn remove_abandoned(folder: &Path) {
    let Ok(entries) = folder.read_dir() else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().ends_with(ENDING)) {
        let age = entry.metadata().and_then(|there| there.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > ABANDONED_AFTER) {
            tracing::info!(file = %entry.path().display(), "an upload that nobody went on with is removed");
            let _gone = std::fs::remove_file(entry.path());
        }
    }
}
