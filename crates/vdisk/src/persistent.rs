//! Going on with a write cache that is there: which of its maps counts, and how the file is made ready.
use std::io;
use std::path::{Path, PathBuf};

use crate::config::WriteCacheConfig;
use crate::directory::{self, ReadHeaderError, failed};
use crate::error::{FileError, OpenError};
use crate::file::CacheFile;
use crate::header::Header;
use crate::identity::{HostBoot, ImageIdentity};
use crate::kind::WriteCacheKind;
use crate::layout::{Layout, WhichMap};
use crate::presence::PresenceMap;
use crate::stored_map;

/// What a write cache holds, as read from its file.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) layout: Layout,
    pub(crate) map: PresenceMap,
    pub(crate) data_clusters: u64,
    /// Whether the map of the last flush says the same.
    pub(crate) all_flushed: bool,
    /// Whether the current map in the file must be made to say the same first.
    store_map: bool,
    /// Whether the header must be on the disk before the first change.
    sync_header: bool,
}

/// Why what is there cannot be gone on with.
#[derive(Debug)]
pub(crate) enum NotKept {
    Damaged { path: PathBuf, what: String },
    ImageChanged { stored: ImageIdentity, found: ImageIdentity },
    Io(FileError),
}

impl Kept {
    /// What a fresh file holds.
    pub(crate) fn nothing(layout: Layout, map: PresenceMap) -> Self {
        Self { layout, map, data_clusters: 0, all_flushed: true, store_map: false, sync_header: false }
    }

    /// Reads what the file of `header` holds, by one of its maps.
    pub(crate) fn load(
        file: &CacheFile,
        path: &Path,
        header: &Header,
        which: WhichMap,
    ) -> Result<Self, NotKept> {
        let damaged = |what: String| NotKept::Damaged { path: path.to_owned(), what };
        let size_bytes = header.image.size_bytes;
        let layout = Layout::new(size_bytes, header.persistent)
            .ok_or_else(|| damaged(format!("it says that its device has {size_bytes} bytes")))?;
        let (map, summary) = match stored_map::load(file, layout, which) {
            Ok(loaded) => loaded,
            Err(stored_map::LoadError::Io(source)) => {
                return Err(NotKept::Io(failed("reading", path)(source)));
            }
            Err(error) => return Err(damaged(error.to_string())),
        };
        if let Some(clean) = header.clean.filter(|clean| *clean != summary) {
            return Err(damaged(format!("its map is {summary:?}, and was {clean:?} when it was closed")));
        }
        let is_clean = header.clean.is_some();
        Ok(Self {
            layout,
            map,
            data_clusters: summary.data_clusters,
            all_flushed: is_clean || which == WhichMap::Flushed,
            store_map: which == WhichMap::Flushed,
            // A host that crashes from here on must not find the old mark of a clean close beside new data; nor one
            // that counts a current map as its own which was another's.
            sync_header: is_clean || which == WhichMap::Flushed,
        })
    }

    /// Makes the file ready for changes: `header` is what it says from now on.
    pub(crate) fn settle(&self, file: &CacheFile, header: &Header) -> io::Result<()> {
        if self.store_map {
            stored_map::store_all(file, self.layout, &self.map)?;
            // Before the header that says that this map can be trusted.
            file.sync()?;
        }
        file.write(self.layout.header_start(), &header.encode())?;
        if self.sync_header { file.sync() } else { Ok(()) }
    }
}

/// Removes the device's persistent write cache, with all that the device wrote; if it has none, nothing happens. For an
/// administrator who says so.
///
/// # Errors
/// [`OpenError::InUse`]; [`OpenError::Io`].
pub fn discard_persistent(config: &WriteCacheConfig) -> Result<(), OpenError> {
    config.check()?;
    let config = WriteCacheConfig { kind: WriteCacheKind::Persistent, ..config.clone() };
    let Some(_held) = directory::take(&config)? else { return Ok(()) };
    let path = config.path();
    let removed = std::fs::remove_file(&path).and_then(|()| directory::sync_directory(&config.directory));
    Ok(removed.map_err(failed("removing", &path))?)
}

/// The persistent write cache in `file`, for a boot that begins; `new` is the header that a fresh one would get.
pub(crate) fn trusted(file: &CacheFile, path: &Path, new: Header) -> Result<(Header, Kept), NotKept> {
    let (header, which) = stored(file, path, &new.device, new.host_boot)?;
    if header.image != new.image {
        return Err(NotKept::ImageChanged { stored: header.image, found: new.image });
    }
    if which == WhichMap::Flushed {
        // After a failed flush memory may show what the disk has not, until it is read anew.
        file.forget_pages();
    }
    Ok((new, Kept::load(file, path, &header, which)?))
}

/// The header of the persistent write cache in `file`, and which of its maps counts: where the host went down since the
/// last change, what was flushed, else everything.
pub(crate) fn stored(
    file: &CacheFile,
    path: &Path,
    device: &str,
    host_boot: HostBoot,
) -> Result<(Header, WhichMap), NotKept> {
    let damaged = |what: String| NotKept::Damaged { path: path.to_owned(), what };
    let header = match directory::read_header(file) {
        Ok((header, _)) => header,
        Err(ReadHeaderError::Damaged(what)) => return Err(damaged(what)),
        Err(ReadHeaderError::Io(source)) => return Err(NotKept::Io(failed("reading", path)(source))),
    };
    if header.device != device {
        return Err(damaged(directory::other_device(&header)));
    }
    if !header.persistent {
        return Err(damaged("it is a volatile write cache".to_owned()));
    }
    let which = if header.host_boot == host_boot || header.clean.is_some() {
        WhichMap::Current
    } else {
        WhichMap::Flushed
    };
    Ok((header, which))
}
