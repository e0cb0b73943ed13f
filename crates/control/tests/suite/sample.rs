//! A farm with one server and one store in a temporary folder, and vDisks with real files.
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, ByteLength, ByteOffset, LogicalBlockSize, Patience};
use control::tasks::{self, Status};
use control::{Caller, Control, Options, marks};
use diskimage::storage::FileStorage;
use diskimage::{Childless, Format, Image, MutableImage, NewImageSpec, OpenOptions, Subtype};
use farm::catalogue::Catalogue;
use farm::model::{
    Access, AccessMode, ByteSize, Lineage, Percent, Server, ServerId, Site, Store, StoreId, Stored,
    SubnetAffinity, TaskId, Text, TextRule, Timestamp, Vdisk, VdiskId, Version, VersionNumber, VersionState,
    Weight, WriteCache, WriteCacheKind,
};
use farm::snapshot::{SharedSnapshot, Snapshot};

pub(crate) const START_MS: i64 = 1_795_000_000_000;
pub(crate) const DISK_BYTES: u64 = 16 << 20;

pub(crate) fn text<R: TextRule>(text: &str) -> Text<R> {
    Text::new(text).unwrap()
}

pub(crate) fn n(number: u32) -> VersionNumber {
    VersionNumber::new(number).unwrap()
}

/// A farm, and the server "one" of it.
pub(crate) struct Farm {
    pub(crate) control: Arc<Control>,
    pub(crate) server: ServerId,
    pub(crate) store: StoreId,
    /// The store's folder.
    pub(crate) folder: PathBuf,
    root: PathBuf,
    /// Goes with the farm.
    _temporary: Option<tempfile::TempDir>,
}

impl Farm {
    pub(crate) fn new() -> Self {
        Self::with(|options| options)
    }

    /// With these options.
    pub(crate) fn with(change: fn(Options) -> Options) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let farm = Self::at(temporary.path(), change);
        Self { _temporary: Some(temporary), ..farm }
    }

    /// A new one in this folder.
    pub(crate) fn at(root: &Path, change: fn(Options) -> Options) -> Self {
        let folder = root.join("store");
        std::fs::create_dir_all(&folder).unwrap();
        let catalogue = Catalogue::open_file(&root.join("farm.db")).unwrap();
        let by = Caller::local_root(None, Timestamp::from_ms(START_MS));
        catalogue
            .change(by.actor(), by.at(), |change| {
                let site =
                    change.create(Site { name: text("Berlin"), description: text(""), disabled: false })?.id;
                let server = change.create(Server {
                    name: text("one"),
                    site,
                    description: text(""),
                    addresses: Vec::new(),
                    weight: Weight::DEFAULT,
                    max_devices: None,
                    disabled: false,
                })?;
                let paths = BTreeMap::from([(server.id, text(folder.to_str().unwrap()))]);
                let (name, description) = (text("local"), text(""));
                change.create(Store { name, description, site: None, disabled: false, paths })
            })
            .unwrap();
        Self::reopened(root, change)
    }

    /// The one in this folder.
    pub(crate) fn reopened(root: &Path, change: fn(Options) -> Options) -> Self {
        let catalogue = Catalogue::open_file(&root.join("farm.db")).unwrap();
        let snapshot = Snapshot::load(&catalogue).unwrap();
        let (server, store) = catalogue
            .read(|reader| Ok((reader.server(&text("one"))?.id, reader.store(&text("local"))?.id)))
            .unwrap();
        let exchange = root.join("exchange");
        std::fs::create_dir_all(&exchange).unwrap();
        let options = Options {
            exchange: Some(exchange),
            tasks_at_once: NonZeroUsize::MIN,
            clock: Arc::new(|| Timestamp::from_ms(START_MS)),
            ..Options::of(server)
        };
        let control = Control::open(catalogue, Arc::new(SharedSnapshot::new(snapshot)), change(options));
        Self { control, server, store, folder: root.join("store"), root: root.to_owned(), _temporary: None }
    }

    /// The same farm after its server was ended and started again: nothing of the old one is known but its files.
    pub(crate) fn restarted(self, change: fn(Options) -> Options) -> Self {
        let Self { control, root, _temporary, .. } = self;
        drop(control);
        let farm = Self::reopened(&root, change);
        Self { _temporary, ..farm }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn by(&self) -> Caller {
        Caller::local_root(None, self.control.now())
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The names of the store's files.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = self.folder.read_dir().unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A vDisk with a base in production that holds 1 in its first blocks.
    pub(crate) fn vdisk(&self, name: &str, format: Format) -> VdiskId {
        let file = format!("{name}.{format}");
        blank(&self.path(&file), format);
        write(&self.path(&file), 0, 1);
        let mark = marks::of_file(&self.path(&file)).unwrap();
        let made = self.control.change(&self.by(), |change| {
            let limit = ByteSize::new(1 << 30)?;
            let warn_at = Percent::new(80)?;
            let vdisk = change.create(Vdisk {
                name: text(name),
                store: self.store,
                description: text(""),
                menu_text: None,
                asks_login: false,
                mode: AccessMode::Standard(WriteCache { kind: WriteCacheKind::ServerDisk, limit, warn_at }),
                override_version: None,
                server: None,
                affinity: SubnetAffinity::None,
                disabled: false,
            })?;
            change.create(Version {
                vdisk: vdisk.id,
                number: VersionNumber::BASE,
                lineage: Lineage::Base,
                access: Access::Production { released: change.now() },
                file: text(&file),
                mark: Some(mark),
                state: VersionState::Ready,
                comment: text(""),
                made_at: change.now(),
            })?;
            Ok(vdisk.id)
        });
        made.unwrap()
    }

    pub(crate) fn version(&self, vdisk: VdiskId, number: u32) -> Stored<Version> {
        self.control.read(|reader| Ok(reader.version(vdisk, n(number))?)).unwrap()
    }

    pub(crate) fn numbers(&self, vdisk: VdiskId) -> Vec<u32> {
        let versions = self.control.read(|reader| Ok(reader.versions(vdisk)?)).unwrap();
        versions.iter().map(|version| version.number.get()).collect()
    }

    /// A new version in production, in which a device has written `fill` at `at`.
    pub(crate) fn update(&self, vdisk: VdiskId, at: u64, fill: u8) -> Stored<Version> {
        let made =
            control::versions::new_maintenance(&self.control, &self.by(), vdisk, None, &text("")).unwrap();
        write(&self.path(made.file.as_str()), at, fill);
        let now = farm::rules::lifecycle::Promotion::Production(self.control.now());
        control::versions::promote(&self.control, &self.by(), made.id, made.revision, now).unwrap().version
    }

    /// The first byte of each 1 MiB of a version's disk, as devices read it.
    pub(crate) fn contents(&self, version: &Version) -> Vec<u8> {
        let options = OpenOptions {
            parents: diskimage::chain::Parents::In(self.folder.clone()),
            ..OpenOptions::default()
        };
        let image = Image::open(&self.path(version.file.as_str()), options).unwrap();
        let byte = |at: u64| {
            let mut byte = [0; 512];
            image.read(ByteOffset::new(at), &mut byte, Patience::Blocking).unwrap();
            byte[0]
        };
        (0..DISK_BYTES >> 20).map(|mib| byte(mib << 20)).collect()
    }

    /// Waits until a task has ended.
    pub(crate) fn ended(&self, task: TaskId) -> Status {
        let mut notices = self.control.changes();
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            let status = tasks::get(&self.control, task).unwrap();
            if status.task.state.has_ended() {
                return status;
            }
            assert!(std::time::Instant::now() < deadline, "{status:?}");
            let _missed = notices.blocking_recv();
        }
    }

    pub(crate) fn log(&self, task: TaskId) -> String {
        let lines = tasks::log(&self.control, task, 0).unwrap();
        lines.iter().map(|line| format!("{}\n", line.text)).collect()
    }
}

/// An empty image.
pub(crate) fn blank(path: &Path, format: Format) {
    let spec = NewImageSpec {
        format,
        subtype: Subtype::Dynamic,
        virtual_size: ByteLength::new(DISK_BYTES),
        logical_block: LogicalBlockSize::B512,
        physical_block: 4096,
        payload_block: Some(ByteLength::new(1 << 20)),
        identity: None,
        linkage: None,
        parent: None,
        carried: Vec::new(),
    };
    let spec = if format == Format::Vhd { NewImageSpec { physical_block: 512, ..spec } } else { spec };
    let storage = FileStorage::create_new(path).unwrap();
    diskimage::create(Box::new(storage), &spec).unwrap().finish().unwrap();
}

/// Writes 4 KiB of `fill` at `at`, as a device does.
pub(crate) fn write(path: &Path, at: u64, fill: u8) {
    self::fill(path, at, &[fill; 4096]);
}

/// Writes `data` at `at`, as a device does.
pub(crate) fn fill(path: &Path, at: u64, data: &[u8]) {
    edit(path, |image| image.write(ByteOffset::new(at), data, Patience::Blocking).unwrap());
}

/// Changes an image, as a device does.
pub(crate) fn edit(path: &Path, work: impl FnOnce(&MutableImage)) {
    let options = OpenOptions {
        parents: diskimage::chain::Parents::In(path.parent().unwrap().to_owned()),
        ..OpenOptions::default()
    };
    let parent = Image::open_parent_of(path, options).unwrap();
    let parent = parent.map(|image| Arc::new(image) as Arc<dyn BlockDevice>);
    let image = MutableImage::open(path, None, parent, &Childless).unwrap();
    work(&image);
    image.close().unwrap();
}
