//! The server on its catalogue, from the outside: versions that are made and promoted while it runs, leases, a database
//! that goes and comes back, files that somebody changed.
mod harness;

use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice as _, ByteOffset, Patience};
use control::Caller;
use diskimage::{Childless, Image, MutableImage, OpenOptions};
use farm::catalogue::{Catalogue, CatalogueError, Change, Reader};
use farm::model::{
    Description, Device, DeviceKind, DeviceName, Id, Lease, MenuShow, Owner, Purpose, Sharing, Store, Stored,
    Subject, Timestamp, Vdisk, Version, VersionNumber, VersionState,
};
use farm::rules::lifecycle::Promotion;
use harness::{Site, headwater, target_in, wait_until};
use serde_json::Value;

const MAINTAINER_MAC: &str = "52:54:00:77:00:11";
const MAINTAINER: &str = "iqn.2026-11.org.headwater:maintainer:initiator";
const TWO_DEVICES: &str =
    "[[device]]\nname = \"maintainer\"\nmac = \"52:54:00:77:00:11\"\nvdisk = \"debian\"\n";
const READS_GOLDEN: &str = "read -P 0x5a 0 1M";

/// The site's catalogue, beside the server.
struct Books(Catalogue);

impl Books {
    fn of(site: &Site) -> Self {
        Self(Catalogue::open_file(&site.path("state/farm.db")).unwrap())
    }

    fn change<R>(&self, mut work: impl FnMut(&mut Change<'_>) -> Result<R, CatalogueError>) -> R {
        self.try_change(&mut work).unwrap()
    }

    fn try_change<R>(
        &self,
        work: impl FnMut(&mut Change<'_>) -> Result<R, CatalogueError>,
    ) -> Result<R, CatalogueError> {
        let now: Timestamp = std::time::SystemTime::now().into();
        self.0.change(Caller::local_root(None, now).actor(), now, work)
    }

    fn device(&self, name: &str) -> Stored<Device> {
        let name = DeviceName::new(name).unwrap();
        self.0.read(|reader| reader.device(&name)).unwrap()
    }

    /// All that is imported.
    fn all(&self) -> impl PartialEq + std::fmt::Debug {
        let all = |reader: &mut Reader<'_>| {
            let places = (reader.all::<Store>()?, reader.all::<Vdisk>()?);
            Ok((places, reader.all::<Version>()?, reader.all::<Device>()?))
        };
        self.0.read(all).unwrap()
    }

    fn vdisk(&self) -> Stored<Vdisk> {
        self.0.read(|reader| Ok(reader.all()?.remove(0))).unwrap()
    }

    fn version(&self, number: u32) -> Stored<Version> {
        let (vdisk, number) = (self.vdisk().id, VersionNumber::new(number).unwrap());
        self.0.read(|reader| reader.version(vdisk, number)).unwrap()
    }

    fn leases(&self, version: Id<Version>) -> Vec<Lease> {
        self.0.read(|reader| reader.leases_on(Subject::Contents(version))).unwrap()
    }

    fn make_maintainer(&self, name: &str) {
        let device = self.device(name);
        let mut changed = device.value.clone();
        changed.profile.kind = DeviceKind::Maintenance;
        // Nobody is there to choose among versions.
        changed.profile.menu.show = Some(MenuShow::Never);
        self.change(|change| change.update(device.id, device.revision, changed.clone()));
    }

    /// A maintenance version with its file.
    fn new_version(&self, site: &Site) -> Stored<Version> {
        let vdisk = self.vdisk().id;
        let made = self.change(|change| change.new_maintenance(vdisk, None, Description::new("").unwrap()));
        let parent = self.version(made.lineage.parent().unwrap().get());
        snapshot(&site.path(parent.file.as_str()), &site.path(made.file.as_str()));
        self.change(|change| change.set_version_state(made.id, made.revision, VersionState::Ready, None))
    }

    fn promote(&self, site: &Site, number: u32) -> Result<Stored<Version>, CatalogueError> {
        let version = self.version(number);
        let image = Image::open(&site.path(version.file.as_str()), OpenOptions::default()).unwrap();
        let mark = control::marks::of_layer(image.layers().last().unwrap()).unwrap();
        let to = Promotion::Production(Timestamp::from_ms(0));
        self.try_change(|change| change.promote(version.id, version.revision, to, mark))
    }
}

fn snapshot(parent: &Path, child: &Path) {
    let (ok, said) = headwater(&["image", "snapshot", parent.to_str().unwrap(), child.to_str().unwrap()]);
    assert!(ok, "{said}");
}

/// Fetches scripts until one is not refused: what was changed in the catalogue is known within a second.
fn boot_when_ready(site: &Site, mac: &str) -> String {
    let mut script = String::new();
    wait_until("a script with a target", || {
        script = site.script(mac);
        script.contains(":iqn.")
    });
    target_in(&script)
}

/// Waits until a device that boots anew gets this version; its target.
fn boot_on_version(site: &Site, mac: &str, device: &str, initiator: &str, version: u32) -> String {
    let mut target = String::new();
    wait_until(&format!("{device} on version {version}"), || {
        target = boot_when_ready(site, mac);
        let io = site.io_as(&target, initiator, None, &[READS_GOLDEN]);
        io.ok && runs(site, device) == Some(version)
    });
    target
}

/// Which version a device runs on, as the server says.
fn runs(site: &Site, device: &str) -> Option<u32> {
    let text = site.headwater(&["device", "status", "--output", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
    let devices = answer["items"].as_array().unwrap();
    let device = devices.iter().find(|one| one["name"] == device).unwrap();
    device["version"].as_u64().map(|version| u32::try_from(version).unwrap())
}

#[test]
fn version_goes_its_way_from_maintenance_to_production_while_the_server_runs() {
    let mut site = Site::new("", "", TWO_DEVICES);
    site.start();
    let books = Books::of(&site);
    books.make_maintainer("maintainer");
    let base = books.version(0);
    let running = boot_on_version(&site, harness::MAC, "lab-01", harness::INITIATOR, 0);
    let held = books.leases(base.id);
    assert_eq!((held.len(), held[0].sharing, held[0].purpose), (1, Sharing::Shared, Purpose::Boot));

    // Written by its maintainer, and by nobody else.
    books.new_version(&site);
    let target = boot_on_version(&site, MAINTAINER_MAC, "maintainer", MAINTAINER, 1);
    let one = books.version(1);
    let held = books.leases(one.id);
    let owner = Owner::Device(books.device("maintainer").id);
    assert_eq!(
        (held[0].sharing, held[0].purpose, held[0].owner),
        (Sharing::Exclusive, Purpose::Maintenance, owner)
    );
    let io = site.io_as(&target, MAINTAINER, None, &["write -P 0x11 8M 1M", "flush", "read -P 0x11 8M 1M"]);
    assert!(io.ok, "{}", io.text);
    let refused = books.promote(&site, 1).unwrap_err().to_string();
    assert!(refused.contains("device maintainer (changes it under maintenance"), "{refused}");
    let io = site.io(&running, &["read -P 0 8M 1M"]);
    assert!(io.ok, "production devices have the base alone: {}", io.text);

    // Away for long enough, or told so: the version is free, and what was written is in it.
    site.headwater(&["device", "reset", "maintainer", "--yes"]);
    assert_eq!(books.leases(one.id), []);
    books.promote(&site, 1).unwrap();
    let io = site.io(&running, &["read -P 0 8M 1M"]);
    assert!(io.ok, "a boot keeps its version: {}", io.text);
    let target = boot_on_version(&site, harness::MAC, "lab-01", harness::INITIATOR, 1);
    let io = site.io(&target, &["read -P 0x11 8M 1M", "write -P 0x22 8M 1M", "read -P 0x22 8M 1M"]);
    assert!(io.ok, "{}", io.text);
    assert_eq!((books.leases(base.id).len(), books.leases(one.id).len()), (0, 1));
    // A maintenance device without a version to maintain boots like a test device, with a write cache.
    boot_on_version(&site, MAINTAINER_MAC, "maintainer", MAINTAINER, 1);

    // Held at the base: the next boot is there again. The boot that runs goes on, also after a crash of the server.
    let vdisk = books.vdisk();
    books.change(|change| change.hold(vdisk.id, vdisk.revision, Some(VersionNumber::BASE)));
    site.kill();
    site.start();
    let io = site.io(&target, &["read -P 0x22 8M 1M"]);
    assert!(io.ok, "{}", io.text);
    assert_eq!(runs(&site, "lab-01"), Some(1));
    let target = boot_on_version(&site, harness::MAC, "lab-01", harness::INITIATOR, 0);
    assert!(site.io(&target, &["read -P 0 8M 1M"]).ok);
    let (ok, said) = headwater(&["image", "check", site.path("debian.1.avhdx").to_str().unwrap()]);
    assert!(ok, "{said}");
}

#[test]
fn second_maintenance_device_is_told_who_has_the_version() {
    let more = format!(
        "{TWO_DEVICES}[[device]]\nname = \"second\"\nmac = \"52:54:00:77:00:12\"\nvdisk = \"debian\"\n"
    );
    let mut site = Site::new("", "", &more);
    site.start();
    let books = Books::of(&site);
    books.make_maintainer("maintainer");
    books.make_maintainer("second");
    books.new_version(&site);
    boot_on_version(&site, MAINTAINER_MAC, "maintainer", MAINTAINER, 1);
    let target = boot_when_ready(&site, "52:54:00:77:00:12");
    let io = site.io_as(&target, "iqn.2026-11.org.headwater:second:initiator", None, &[READS_GOLDEN]);
    assert!(!io.ok, "two writers: {}", io.text);
    site.wait_for_log("it is in use by device maintainer (changes it under maintenance");

    // Administrators see who is kept out, by whom, and how to end it.
    let locks = || -> Vec<Value> {
        let said = site.headwater(&["lock", "list", "--output", "json"]);
        serde_json::from_str::<Value>(&said).unwrap()["items"].as_array().unwrap().clone()
    };
    let status = || -> Value {
        let said = site.headwater(&["device", "status", "second", "--output", "json"]);
        serde_json::from_str(&said).unwrap()
    };
    let lock = locks().into_iter().find(|lock| lock["keeps_out"] == 1).unwrap();
    assert_eq!(lock["kept_out"][0]["device"]["name"], "second", "{lock}");
    assert_eq!(status()["kept_out"]["owner"]["name"], "maintainer", "{}", status());
    assert_eq!(status()["kept_out"]["lock"], lock["fence"]);
    let fence = lock["fence"].to_string();

    // It boots something else: nothing keeps it out, though the lock is still there.
    site.headwater(&["device", "set", "second", "kind=production"]);
    boot_on_version(&site, "52:54:00:77:00:12", "second", "iqn.2026-11.org.headwater:second:initiator", 0);
    let same = locks().into_iter().find(|other| other["fence"] == lock["fence"]).unwrap();
    assert_eq!(same["keeps_out"], 0, "{same}");
    books.make_maintainer("second");
    wait_until("the second device is refused again", || {
        let target = boot_when_ready(&site, "52:54:00:77:00:12");
        let io = site.io_as(&target, "iqn.2026-11.org.headwater:second:initiator", None, &[READS_GOLDEN]);
        !io.ok && !status()["kept_out"].is_null()
    });
    site.headwater(&["lock", "break", &fence, "--reason", "its machine burnt", "--yes"]);
    assert!(status()["kept_out"].is_null(), "{}", status());
    boot_on_version(&site, "52:54:00:77:00:12", "second", "iqn.2026-11.org.headwater:second:initiator", 1);
    assert!(locks().iter().all(|lock| lock["keeps_out"] == 0), "{:?}", locks());
}

#[test]
fn file_that_was_changed_behind_the_catalogue_is_refused_with_the_reason() {
    let mut site = Site::new("", "", "");
    site.start();
    let golden = site.path("golden.vhdx");
    let image = MutableImage::open(&golden, None, None, &Childless).unwrap();
    image.write(ByteOffset::new(32 << 20), &[1; 4096], Patience::Blocking).unwrap();
    image.close().unwrap();
    let io = site.io(&site.new_boot(), &[READS_GOLDEN]);
    assert!(!io.ok, "{}", io.text);
    site.wait_for_log("was changed behind the catalogue's back: ");
    assert!(site.log().contains("DataWriteGuid is"), "{}", site.log());
}

#[test]
fn known_devices_boot_while_the_database_is_gone_and_writers_do_not() {
    let mut site = Site::new("", "", TWO_DEVICES);
    site.start();
    let books = Books::of(&site);
    books.make_maintainer("maintainer");
    books.new_version(&site);
    let target = boot_on_version(&site, harness::MAC, "lab-01", harness::INITIATOR, 0);
    boot_on_version(&site, MAINTAINER_MAC, "maintainer", MAINTAINER, 1);
    drop(books);
    assert!(site.stop().0.success());
    let (database, away) = (site.path("state/farm.db"), site.path("away.db"));
    std::fs::rename(&database, &away).unwrap();

    site.start();
    assert!(site.log().contains("the farm's database cannot be used"), "{}", site.log());
    assert!(site.headwater(&["status"]).contains("bring it back from a backup"));
    assert!(site.io(&target, &[READS_GOLDEN]).ok, "a boot goes on");
    let target = site.new_boot();
    assert!(site.io(&target, &[READS_GOLDEN, "write -P 1 8M 1M"]).ok, "another begins");
    let writer = target_in(&site.script(MAINTAINER_MAC));
    assert!(!site.io_as(&writer, MAINTAINER, None, &[READS_GOLDEN]).ok, "nobody can lease it");

    std::fs::rename(&away, &database).unwrap();
    site.wait_for_log("the farm's database can be used again");
    assert!(!site.headwater(&["status"]).contains("database"));
    boot_on_version(&site, MAINTAINER_MAC, "maintainer", MAINTAINER, 1);
    assert!(site.io(&target, &["read -P 1 8M 1M"]).ok, "the boot of the meantime goes on");
}

#[test]
fn import_is_made_at_every_start_and_changes_nothing_the_second_time() {
    let mut site = Site::new("", "", TWO_DEVICES);
    site.start();
    let books = Arc::new(Books::of(&site));
    // What the file cannot say stays.
    books.make_maintainer("maintainer");
    let before = books.all();
    site.stop();
    site.start();
    assert_eq!(books.all(), before);
    assert_eq!(books.device("maintainer").profile.kind, DeviceKind::Maintenance);
    site.stop();
    // What it says is so again.
    let path = site.path("headwater.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace(MAINTAINER_MAC, "52:54:00:77:00:22")).unwrap();
    site.start();
    assert_eq!(books.device("maintainer").macs.as_slice()[0].to_string(), "52:54:00:77:00:22");
    // A machine that was given another name stays what it is.
    let device = books.device("maintainer");
    let renamed = Device { name: DeviceName::new("renamed").unwrap(), ..device.value.clone() };
    books.change(|change| change.update(device.id, device.revision, renamed.clone()));
    site.stop();
    site.start();
    assert!(
        site.log().contains("the catalogue knows the machine with its MAC address as \"renamed\""),
        "{}",
        site.log()
    );
}
