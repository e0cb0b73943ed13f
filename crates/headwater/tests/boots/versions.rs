//! The life of a version under real machines: maintained, promoted, gone back from, merged away below those that run.
use std::path::PathBuf;
use std::time::{Duration, Instant};

use control::Caller;
use diskimage::ops::{MergeOptions, SnapshotOptions, merge_base};
use diskimage::{Image, OpenOptions, Watch};
use farm::catalogue::{Catalogue, CatalogueError, Change};
use farm::model::{
    Description, DeviceKind, DeviceName, FileMark, MergeResult, Stored, Subject, Timestamp, Vdisk, Version,
    VersionNumber, VersionState,
};
use farm::rules::lifecycle::{MergeKind, Promotion, Reversion};
use headwater::stream::device;
use lab::{Firmware, Guest, MICRO_READY_WITHIN};

use crate::site::{Device, Dhcp, Site, Storage, read_proof, write_proof};

/// How long a device that is off keeps its version: until its connection is given up (it says no good-bye), and a while.
const FREE_WITHIN: Duration = Duration::from_secs(device::WRITER_RESTS_AFTER.as_secs().saturating_add(240));

/// How long the server may take to hear of a change in the catalogue.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

/// The site's catalogue, and the folder of its vDisk.
struct Books {
    catalogue: Catalogue,
    store: PathBuf,
}

impl Books {
    fn of(site: &Site) -> Self {
        let folder = site.network.folder();
        let catalogue = Catalogue::open_file(&folder.join("state/farm.db")).unwrap();
        Self { catalogue, store: folder.join("store") }
    }

    fn try_change<R>(
        &self,
        work: impl FnMut(&mut Change<'_>) -> Result<R, CatalogueError>,
    ) -> Result<R, CatalogueError> {
        let now: Timestamp = std::time::SystemTime::now().into();
        self.catalogue.change(Caller::local_root(None, now).actor(), now, work)
    }

    fn change<R>(&self, work: impl FnMut(&mut Change<'_>) -> Result<R, CatalogueError>) -> R {
        self.try_change(work).unwrap()
    }

    fn vdisk(&self) -> Stored<Vdisk> {
        self.catalogue.read(|reader| Ok(reader.all()?.remove(0))).unwrap()
    }

    fn version(&self, number: u32) -> Stored<Version> {
        let (vdisk, number) = (self.vdisk().id, VersionNumber::new(number).unwrap());
        self.catalogue.read(|reader| reader.version(vdisk, number)).unwrap()
    }

    fn file(&self, version: &Version) -> PathBuf {
        self.store.join(version.file.as_str())
    }

    fn set_kind(&self, device: &Device, kind: DeviceKind) {
        let name = DeviceName::new(device.name).unwrap();
        let known = self.catalogue.read(|reader| reader.device(&name)).unwrap();
        let mut changed = known.value.clone();
        changed.profile.kind = kind;
        self.change(|change| change.update(known.id, known.revision, changed.clone()));
    }

    /// A version under maintenance, with its file.
    fn new_version(&self) -> Stored<Version> {
        let vdisk = self.vdisk().id;
        let made = self.change(|change| change.new_maintenance(vdisk, None, Description::new("").unwrap()));
        let parent = self.version(made.lineage.parent().unwrap().get());
        let options = SnapshotOptions::default();
        diskimage::ops::snapshot(&self.file(&parent), &self.file(&made), &options).unwrap();
        self.change(|change| change.set_version_state(made.id, made.revision, VersionState::Ready, None))
    }

    /// What the file of a version looks like now.
    fn mark(&self, version: &Version) -> FileMark {
        let image = Image::open(&self.file(version), OpenOptions::default()).unwrap();
        control::marks::of_layer(image.layers().last().unwrap()).unwrap()
    }

    fn promote(&self, number: u32) -> Result<Stored<Version>, CatalogueError> {
        let version = self.version(number);
        let (mark, to) = (self.mark(&version), Promotion::Production(Timestamp::from_ms(0)));
        self.try_change(|change| change.promote(version.id, version.revision, to, mark))
    }

    /// Promotes a version once nobody writes to it any more.
    fn promote_when_free(&self, number: u32) {
        let subject = Subject::Contents(self.version(number).id);
        wait_until("the version is free", FREE_WITHIN, || {
            self.catalogue.read(|reader| reader.leases_on(subject)).unwrap().is_empty()
        });
        self.promote(number).unwrap();
    }

    /// Merges all published versions into a new base, while devices run on them.
    fn merge_all(&self, leaf: u32) -> Stored<Version> {
        let vdisk = self.vdisk().id;
        let comment = Description::new("").unwrap();
        let (_, made) = self.change(|change| {
            change.begin_merge(vdisk, MergeKind::Base, MergeResult::Production, comment.clone())
        });
        let image = Image::open(&self.file(&self.version(leaf)), OpenOptions::default()).unwrap();
        let job = merge_base(&image, &self.file(&made), &MergeOptions::default()).unwrap();
        job.run(&Watch::default()).unwrap();
        let mark = Some(self.mark(&made));
        self.change(|change| change.set_version_state(made.id, made.revision, VersionState::Ready, mark))
    }

    /// Waits until the server has heard of the last change.
    fn settle(&self, site: &Site) {
        let change = self.catalogue.latest_change().unwrap().0;
        wait_until("the server has heard of the change", HEARD_WITHIN, || {
            let text = site.headwater(&["status", "--output", "json"]);
            let status: serde_json::Value = serde_json::from_str(&text).unwrap();
            status["catalogue_change"].as_i64().unwrap() >= change
        });
    }
}

fn wait_until(what: &str, within: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + within;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

/// Which version a device runs on, as the server says.
fn runs(site: &Site, device: &Device) -> u64 {
    let text = site.headwater(&["device", "status", "--output", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    let devices = answer["items"].as_array().unwrap();
    let found = devices.iter().find(|one| one["name"] == device.name).unwrap();
    found["version"].as_u64().unwrap_or_else(|| panic!("{found}"))
}

/// Lets a device boot anew; which version it is on then, and the proof that it finds.
fn boots_anew(site: &Site, device: &Device, guest: &mut Guest) -> (u64, String) {
    guest.reset().unwrap();
    guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
    (runs(site, device), read_proof(guest))
}

/// Boots the maintenance device, lets it install something in place of what it finds, and powers it off.
fn maintain(site: &Site, device: &Device, number: u64, found: &str, installed: &str) {
    let mut guest = site.boot(device, Firmware::BiosIpxeRom);
    assert_eq!((runs(site, device), read_proof(&mut guest)), (number, found.to_owned()));
    write_proof(&mut guest, installed);
    guest.shutdown().unwrap();
}

#[test]
fn version_lives_from_maintenance_to_a_merge_below_machines_that_run() {
    let devices = [Device::new("one", 0), Device::new("two", 1), Device::new("maintainer", 2)];
    let image = lab::micro::micro().unwrap();
    let original = image.vhdx.clone();
    let site = Site::begin_with("versions", Dhcp::Ours, image, &devices, |network| {
        let store = network.folder().join("store");
        std::fs::create_dir(&store).unwrap();
        let copy = store.join("golden.vhdx");
        std::fs::copy(original, &copy).unwrap();
        Storage { vdisks: vec![("golden", copy)], more: String::new() }
    });
    let [first, second, maintainer] = &devices;
    let books = Books::of(&site);
    books.set_kind(maintainer, DeviceKind::Maintenance);
    let (mut one, mut two) =
        (site.start(first, Firmware::BiosIpxeRom), site.start(second, Firmware::BiosIpxeRom));
    for guest in [&mut one, &mut two] {
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        assert_eq!(read_proof(guest), "none");
    }
    assert_eq!((runs(&site, first), runs(&site, second)), (0, 0));

    // A maintenance version: read-write for its device, unseen by all others, not promoted while it is written to.
    books.new_version();
    books.settle(&site);
    maintain(&site, maintainer, 1, "none", "version one");
    let refused = books.promote(1).unwrap_err().to_string();
    assert!(refused.contains("device maintainer"), "{refused}");
    books.promote_when_free(1);
    books.settle(&site);
    assert_eq!(read_proof(&mut one), "none", "what runs stays what it is");
    assert_eq!(boots_anew(&site, first, &mut one), (1, "version one".to_owned()));
    assert_eq!(read_proof(&mut two), "none");

    // The next one, and back from it.
    books.new_version();
    books.settle(&site);
    maintain(&site, maintainer, 2, "version one", "version two");
    // Who does not want to wait until the machine is missed says that it is off.
    site.headwater(&["device", "reset", "maintainer", "--yes"]);
    books.promote_when_free(2);
    books.settle(&site);
    assert_eq!(boots_anew(&site, second, &mut two), (2, "version two".to_owned()));
    let newest = books.version(2);
    books.change(|change| change.revert(newest.id, newest.revision, Reversion::Test));
    books.settle(&site);
    assert_eq!(read_proof(&mut two), "version two", "what runs stays what it is");
    assert_eq!(boots_anew(&site, second, &mut two), (1, "version one".to_owned()));
    books.promote(2).unwrap();
    books.settle(&site);
    assert_eq!(boots_anew(&site, second, &mut two), (2, "version two".to_owned()));

    // A merge below machines that run on the versions that go into it.
    write_proof(&mut one, "written on version one");
    let hash = "echo 3 >/proc/sys/vm/drop_caches; sha256sum </dev/sda2";
    let before = two.run_within(hash, MICRO_READY_WITHIN).unwrap();
    one.start_in_shell("while true; do sha256sum </dev/sda2; echo 3 >/proc/sys/vm/drop_caches; done &")
        .unwrap();
    let merged = books.merge_all(2);
    books.settle(&site);
    assert_eq!(two.run_within(hash, MICRO_READY_WITHIN).unwrap(), before);
    assert_eq!(merged.file.as_str(), "golden.3.vhdx");
    assert_eq!(boots_anew(&site, first, &mut one), (3, "version two".to_owned()));
    assert_eq!((runs(&site, second), read_proof(&mut two)), (2, "version two".to_owned()));
    assert_eq!(two.run_within(hash, MICRO_READY_WITHIN).unwrap(), before);
    assert_eq!(one.run_within(hash, MICRO_READY_WITHIN).unwrap(), before, "the merged base holds the same");
}
