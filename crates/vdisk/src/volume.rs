//! The volume: an image with a write cache on it, as a block device.
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use block::{
    Access, Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Geometry,
    Patience,
};

use crate::change::Failure;
use crate::cluster::{CLUSTER_BYTES, ClusterRun, State};
use crate::config::WriteCacheConfig;
use crate::directory::{self, ReadHeaderError, TakeError, failed};
use crate::error::{FileError, OpenError, ResumeError};
use crate::file::{AtOnce, CacheFile};
use crate::fill::{CacheObserver, CacheUsage, Fill, FullCause};
use crate::gate::Gate;
use crate::header::Header;
use crate::identity::{BootId, HostBoot, ImageFingerprint, ImageIdentity};
use crate::kind::WriteCacheKind;
use crate::lasting::Lasting;
use crate::layout::{Layout, WhichMap};
use crate::persistent::{self, Kept, NotKept};
use crate::presence::PresenceMap;
use crate::stored_map;
use crate::stripes::Stripes;

/// A cluster, as geometry tells it.
const CLUSTER_U32: u32 = CLUSTER_BYTES as u32;

/// A read-only image with the write cache of one boot of one device on it. What it promises stands in the crate's
/// documentation.
#[derive(Debug)]
pub struct Volume {
    pub(crate) image: Arc<dyn BlockDevice>,
    pub(crate) geometry: Geometry,
    pub(crate) file: CacheFile,
    pub(crate) layout: Layout,
    pub(crate) map: PresenceMap,
    pub(crate) stripes: Stripes,
    pub(crate) fill: Fill,
    /// Of a persistent write cache.
    pub(crate) lasting: Option<Lasting>,
    gate: Gate,
    observer: Arc<dyn CacheObserver>,
    path: PathBuf,
    directory: PathBuf,
    /// As it stands in the file while the volume is open.
    header: Header,
}

impl Volume {
    /// Begins a boot of the device. A volatile write cache starts empty, and whatever the device had is discarded; a
    /// persistent one goes on with what it holds, as of the last flush at least.
    ///
    /// An earlier volume of the device must have been [closed](Self::close) or [abandoned](Self::abandon) first.
    /// May wait for storage.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn begin_boot(
        image: Arc<dyn BlockDevice>,
        fingerprint: ImageFingerprint,
        config: &WriteCacheConfig,
        boot: BootId,
        observer: Arc<dyn CacheObserver>,
    ) -> Result<Self, OpenError> {
        config.check()?;
        let identity = ImageIdentity::new(&image.geometry(), fingerprint);
        let path = config.path();
        let host_boot = HostBoot::current().map_err(failed("reading the boot of the host for", &path))?;
        let persistent = config.kind == WriteCacheKind::Persistent;
        let header = Header {
            device: config.device.clone(),
            boot,
            image: identity,
            host_boot,
            owner_pid: std::process::id(),
            persistent,
            clean: None,
        };
        let layout = Layout::new(identity.size_bytes, persistent);
        let layout = layout.ok_or(OpenError::TooLarge { size_bytes: identity.size_bytes })?;
        if let WriteCacheKind::Memory(_) = config.kind {
            let file = in_memory(layout, &header).map_err(failed("making", &path))?;
            return Self::empty(image, file, layout, header, config, observer);
        }
        let old = directory::take(config)?;
        match old {
            Some(file) if persistent => {
                let (header, kept) = persistent::trusted(&file, &path, header)?;
                kept.settle(&file, &header).map_err(failed("writing", &path))?;
                Ok(Self::kept(image, file, kept, header, config, observer))
            }
            old => {
                if let Some(old) = &old {
                    invalidate(old).map_err(failed("discarding", &path))?;
                }
                let file = directory::replace(config, layout, &header, old.as_ref())?;
                if persistent {
                    let synced = file.sync().and_then(|()| directory::sync_directory(&config.directory));
                    synced.map_err(failed("writing", &path))?;
                }
                Self::empty(image, file, layout, header, config, observer)
            }
        }
    }

    /// Goes on with the boot of the device that an earlier volume served, in this process or in one that has ended.
    /// May wait for storage.
    ///
    /// # Errors
    /// [`ResumeError`].
    pub fn resume(
        image: Arc<dyn BlockDevice>,
        fingerprint: ImageFingerprint,
        config: &WriteCacheConfig,
        boot: BootId,
        observer: Arc<dyn CacheObserver>,
    ) -> Result<Self, ResumeError> {
        config.check()?;
        let path = config.path();
        if let WriteCacheKind::Memory(_) = config.kind {
            return Err(ResumeError::NotKept { device: config.device.clone() });
        }
        let host_boot = HostBoot::current().map_err(failed("reading the boot of the host for", &path))?;
        let Some(file) = directory::take(config)? else { return Err(ResumeError::NoCache { path }) };
        let found = ImageIdentity::new(&image.geometry(), fingerprint);
        let stored = header_to_resume(&file, config, &boot, found, host_boot)?;
        let kept = Kept::load(&file, &path, &stored, WhichMap::Current)?;
        let header = Header { boot, host_boot, owner_pid: std::process::id(), clean: None, ..stored };
        kept.settle(&file, &header).map_err(failed("writing", &path))?;
        Ok(Self::kept(image, file, kept, header, config, observer))
    }

    /// What a volume on this image is like.
    #[must_use]
    pub fn geometry_on(image: &dyn BlockDevice) -> Geometry {
        Geometry {
            physical_block: CLUSTER_U32,
            discard_granularity: Some(CLUSTER_U32),
            access: Access::ReadWrite,
            ..image.geometry()
        }
    }

    /// How full the write cache is.
    #[must_use]
    pub fn usage(&self) -> CacheUsage {
        self.fill.usage()
    }

    /// The boot that the volume serves.
    #[must_use]
    pub fn boot(&self) -> &BootId {
        &self.header.boot
    }

    /// Closes the volume so that it can be resumed, even after a clean restart of the host: waits for changes under
    /// way and until everything lies on stable storage. Requests that come later are answered with
    /// [`BlockError::Closed`]. Closing again does nothing.
    ///
    /// # Errors
    /// [`FileError`]; the volume is closed all the same, and can be resumed until the host restarts.
    pub fn close(&self) -> Result<(), FileError> {
        let closed = self.gate.close(|| {
            let made_lasting = self.make_lasting();
            made_lasting.and(self.file.unlock())
        });
        closed.unwrap_or(Ok(())).map_err(failed("closing", &self.path))
    }

    /// Closes the volume without the wait for stable storage: for one whose device has gone or boots anew. It can
    /// still be resumed until the host restarts.
    pub fn abandon(&self) {
        // Where unlocking fails the lock goes with the file, when the volume is dropped.
        let _ = self.gate.close(|| self.file.unlock());
    }

    /// A volume whose write cache holds nothing.
    fn empty(
        image: Arc<dyn BlockDevice>,
        file: CacheFile,
        layout: Layout,
        header: Header,
        config: &WriteCacheConfig,
        observer: Arc<dyn CacheObserver>,
    ) -> Result<Self, OpenError> {
        let map = PresenceMap::new(layout.clusters());
        let map = map.ok_or(OpenError::TooLarge { size_bytes: header.image.size_bytes })?;
        Ok(Self::assemble(image, file, Kept::nothing(layout, map), header, config, observer))
    }

    /// A volume that goes on with what its write cache holds.
    fn kept(
        image: Arc<dyn BlockDevice>,
        file: CacheFile,
        kept: Kept,
        header: Header,
        config: &WriteCacheConfig,
        observer: Arc<dyn CacheObserver>,
    ) -> Self {
        let volume = Self::assemble(image, file, kept, header, config, observer);
        volume.report(None);
        volume
    }

    pub(crate) fn assemble(
        image: Arc<dyn BlockDevice>,
        file: CacheFile,
        kept: Kept,
        header: Header,
        config: &WriteCacheConfig,
        observer: Arc<dyn CacheObserver>,
    ) -> Self {
        let geometry = Self::geometry_on(&*image);
        let lasting = header.persistent.then(Lasting::default);
        if let Some(lasting) = lasting.as_ref().filter(|_| !kept.all_flushed) {
            lasting.note_all(&kept.map);
        }
        let budget = config.kind.budget().cloned();
        Self {
            image,
            geometry,
            file,
            layout: kept.layout,
            map: kept.map,
            stripes: Stripes::new(),
            fill: Fill::new(config.limit, config.warn_percent, kept.data_clusters, budget),
            lasting,
            gate: Gate::default(),
            observer,
            path: config.path(),
            directory: config.directory.clone(),
            header,
        }
    }

    /// Data first, then the mark that it is all there.
    fn make_lasting(&self) -> io::Result<()> {
        if self.file.is_in_memory() {
            return Ok(());
        }
        match &self.lasting {
            Some(lasting) => lasting.flush(&self.file, self.layout, &self.map)?,
            None => self.file.sync()?,
        }
        let clean = Some(stored_map::summarize(&self.map));
        let header = Header { clean, ..self.header.clone() };
        self.file.write(self.layout.header_start(), &header.encode())?;
        self.file.sync()?;
        directory::sync_directory(&self.directory)
    }

    /// A flush has failed: which of the data are on the disk is as unknown as after a crash of the host. Whoever opens the
    /// file next, in this process or another, is to go on with what was flushed before.
    fn distrust(&self) {
        let header = Header { host_boot: HostBoot::NONE, ..self.header.clone() };
        if let Err(error) = self.file.write(self.layout.header_start(), &header.encode()) {
            tracing::warn!(device = %self.header.device, %error, "a failed flush could not be noted in the write cache");
        }
    }

    fn report(&self, refused: Option<FullCause>) {
        self.fill.report(refused, &self.header.device, &*self.observer);
    }

    /// Tells the observer what came of a change, and the caller in the contract's terms.
    fn conclude(&self, range: ByteRange, result: Result<(), Failure>) -> Result<(), BlockError> {
        let refused = match &result {
            Err(Failure::Refused(cause)) => Some(*cause),
            _ => None,
        };
        self.report(refused);
        result.map_err(|failure| match failure {
            Failure::Refused(cause) => BlockError::NoSpace { what: self.describe_full(cause) },
            Failure::Cache(source) => BlockError::Storage { range, source },
            Failure::Image(error) => error,
            Failure::WouldWait => BlockError::WouldBlock,
        })
    }

    fn describe_full(&self, cause: FullCause) -> String {
        let (device, usage) = (&self.header.device, self.usage());
        match cause {
            FullCause::Limit => {
                format!("the write cache of device \"{device}\" has reached its limit of {}", usage.limit)
            }
            FullCause::FileSystem => format!(
                "the file system of {}, the write cache of device \"{device}\", is full; {} of its limit of {} \
                 are used",
                self.path.display(),
                usage.used,
                usage.limit
            ),
            FullCause::Memory => format!(
                "all write caches in the server's memory together have reached their limit; that of device \
                 \"{device}\" uses {} of its own limit of {}",
                usage.used, usage.limit
            ),
        }
    }

    /// The start of `range`, as far as its clusters are all in one state, and that state.
    fn first_run(&self, range: ByteRange) -> (State, ByteRange) {
        let (state, run) = self.map.first_run(ClusterRun::touched_by(range));
        let end = run.end_offset().min(range.end().get());
        let length = ByteLength::new(end.saturating_sub(range.start().get()));
        (state, ByteRange::new(range.start(), length).unwrap_or(range))
    }

    fn read_run(
        &self,
        state: State,
        at: ByteOffset,
        buffer: &mut [u8],
        patience: Patience,
    ) -> Result<(), BlockError> {
        match (state, patience) {
            (State::Absent, _) => return self.image.read(at, buffer, patience),
            (State::Hole, _) => {
                buffer.fill(0);
                return Ok(());
            }
            (State::Data, Patience::Blocking) => self.file.read(at.get(), buffer),
            (State::Data, Patience::Now) => match self.file.read_at_once(at.get(), buffer) {
                Ok(AtOnce::Done) => return Ok(()),
                Ok(AtOnce::WouldWait) => return Err(BlockError::WouldBlock),
                Err(error) => Err(error),
            },
        }
        .map_err(|source| storage_error(at, buffer.len(), source))
    }
}

impl BlockDevice for Volume {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check(at, ByteLength::of(buffer))?;
        self.gate.pass()?;
        let mut rest = buffer;
        let mut place = at;
        for (state, run) in self.map.runs(ClusterRun::touched_by(range)) {
            let end = run.end_offset().min(range.end().get());
            let length = usize::try_from(end.saturating_sub(place.get())).unwrap_or(usize::MAX);
            let Some((piece, behind)) = rest.split_at_mut_checked(length) else { break };
            self.read_run(state, place, piece, patience)?;
            rest = behind;
            place = ByteOffset::new(end);
        }
        Ok(())
    }

    /// With [`Patience::Now`] only a write that lies in one segment: in memory any, in a file only one into clusters that
    /// hold data already, and only where the file system can write so.
    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check_writable(at, ByteLength::of(data))?;
        let _open = self.gate.enter(patience)?;
        if range.is_empty() {
            return Ok(());
        }
        match patience {
            Patience::Now => match self.write_at_once(range, data) {
                Ok(AtOnce::Done) => Ok(()),
                Ok(AtOnce::WouldWait) => Err(BlockError::WouldBlock),
                Err(failure) => self.conclude(range, Err(failure)),
            },
            Patience::Blocking => self.conclude(range, self.write_all(range, data)),
        }
    }

    /// Of a volatile write cache nothing is left to do: an acknowledged write has its data and its map in the page
    /// cache, which is what survives the death of the process. A persistent one waits for the disk.
    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        let Some(lasting) = &self.lasting else { return self.gate.pass() };
        let _open = self.gate.enter(patience)?;
        match patience {
            _ if lasting.is_flushed() => Ok(()),
            Patience::Now => Err(BlockError::WouldBlock),
            Patience::Blocking => lasting.flush(&self.file, self.layout, &self.map).map_err(|source| {
                self.distrust();
                storage_error(ByteOffset::ZERO, 0, source)
            }),
        }
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check_writable(range.start(), range.length())?;
        let _open = self.gate.enter(patience)?;
        match patience {
            _ if ClusterRun::inside(range, self.geometry.size).is_empty() => Ok(()),
            Patience::Now => Err(BlockError::WouldBlock),
            Patience::Blocking => self.conclude(range, self.discard_all(range)),
        }
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check_writable(range.start(), range.length())?;
        let _open = self.gate.enter(patience)?;
        match patience {
            _ if range.is_empty() => Ok(()),
            Patience::Now => Err(BlockError::WouldBlock),
            Patience::Blocking => self.conclude(range, self.zero_all(range)),
        }
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        let range = self.geometry.check(range.start(), range.length())?;
        self.gate.pass()?;
        let (state, run) = self.first_run(range);
        match state {
            State::Absent => self.image.allocation(run, patience),
            State::Data => Ok((Allocation::Data, run.length())),
            State::Hole => Ok((Allocation::Hole, run.length())),
        }
    }

    /// Only what the device has not written: the cache file changes under a reader, the image never does.
    ///
    /// A cluster may be written after its span was told and before whoever asked has read the file. That read then gives
    /// what the image holds, which is what the device held when the two began at once: either order is right. It never
    /// gives anything else, for nothing is ever stored where the span lies.
    fn file_span(&self, range: ByteRange, patience: Patience) -> Option<FileSpan> {
        let range = self.geometry.check(range.start(), range.length()).ok()?;
        self.gate.pass().ok()?;
        match self.first_run(range) {
            (State::Absent, run) => self.image.file_span(run, patience),
            (State::Data | State::Hole, _) => None,
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            let cause = error.source.to_string();
            tracing::warn!(device = %self.header.device, %error, cause, "a write cache was not closed cleanly");
        }
    }
}

/// A write cache in memory.
fn in_memory(layout: Layout, header: &Header) -> io::Result<CacheFile> {
    let file = CacheFile::in_memory()?;
    file.set_length(layout.file_bytes())?;
    file.write(layout.header_start(), &header.encode())?;
    Ok(file)
}

/// A crash of the host from here on may bring the old file back under its name. One that was in use is void then by
/// itself; one that was closed cleanly must lose that mark for good first.
fn invalidate(old: &CacheFile) -> io::Result<()> {
    match directory::read_header(old) {
        Ok((header, layout)) if header.clean.is_some() => {
            old.write(layout.header_start(), &Header { clean: None, ..header }.encode())?;
            old.sync()
        }
        Ok(_) | Err(ReadHeaderError::Damaged(_)) => Ok(()),
        Err(ReadHeaderError::Io(error)) => Err(error),
    }
}

/// The header of a file that the boot may go on with.
fn header_to_resume(
    file: &CacheFile,
    config: &WriteCacheConfig,
    boot: &BootId,
    found: ImageIdentity,
    host: HostBoot,
) -> Result<Header, ResumeError> {
    let path = config.path();
    let header = match directory::read_header(file) {
        Ok((header, _)) => header,
        Err(ReadHeaderError::Damaged(what)) => return Err(ResumeError::Damaged { path, what }),
        Err(ReadHeaderError::Io(source)) => return Err(failed("reading", &path)(source).into()),
    };
    if header.device != config.device {
        return Err(ResumeError::Damaged { path, what: directory::other_device(&header) });
    }
    if header.boot != *boot {
        return Err(ResumeError::OtherBoot(header.boot));
    }
    if header.image != found {
        return Err(ResumeError::ImageChanged { stored: header.image, found });
    }
    if header.host_boot != host && header.clean.is_none() {
        return Err(ResumeError::Lost { path, boot: header.boot });
    }
    Ok(header)
}

impl From<TakeError> for OpenError {
    fn from(error: TakeError) -> Self {
        match error {
            TakeError::InUse(error) => Self::InUse(error),
            TakeError::Io(error) => Self::Io(error),
        }
    }
}

impl From<NotKept> for OpenError {
    fn from(error: NotKept) -> Self {
        match error {
            NotKept::Damaged { path, what } => Self::Damaged { path, what },
            NotKept::ImageChanged { stored, found } => Self::ImageChanged { stored, found },
            NotKept::Io(error) => Self::Io(error),
        }
    }
}

impl From<NotKept> for ResumeError {
    fn from(error: NotKept) -> Self {
        match error {
            NotKept::Damaged { path, what } => Self::Damaged { path, what },
            NotKept::ImageChanged { stored, found } => Self::ImageChanged { stored, found },
            NotKept::Io(error) => Self::Io(error),
        }
    }
}

impl From<TakeError> for ResumeError {
    fn from(error: TakeError) -> Self {
        match error {
            TakeError::InUse(error) => Self::InUse(error),
            TakeError::Io(error) => Self::Io(error),
        }
    }
}

fn storage_error(at: ByteOffset, length: usize, source: io::Error) -> BlockError {
    let range = ByteRange::new(at, ByteLength::new(length as u64));
    range.map_or(BlockError::Closed, |range| BlockError::Storage { range, source })
}
