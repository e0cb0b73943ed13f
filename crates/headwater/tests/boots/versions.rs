//! The life of a version under real machines, with the commands that an administrator types: maintained, tested, released,
//! gone back from, merged away below those that run.
//!
//! What was typed and answered is printed at the end (`cargo test -p headwater --test boots version_lives -- --nocapture`).
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headwater::stream::device;
use lab::{Firmware, Guest, MICRO_READY_WITHIN};
use serde_json::Value;

use crate::site::{Device, Dhcp, Site, Storage, read_proof, write_proof};

/// How long a device that is off keeps its version: until its connection is given up (it says no good-bye), and a while.
const FREE_WITHIN: Duration = Duration::from_secs(device::WRITER_RESTS_AFTER.as_secs().saturating_add(240));

/// How often it is asked whether a version is free.
const ASKED_EVERY: Duration = Duration::from_secs(1);

/// How often it is looked whether versions have gone that nobody uses any more.
const SWEPT_EVERY: Duration = Duration::from_secs(5);

/// What is read of a disk past the page cache: the file system of the base, which no version changes, and the program that
/// the last version brought.
const HASH: &str = "echo 3 >/proc/sys/vm/drop_caches; cat $(findfs LABEL=root) /data/program | sha256sum";

/// Brings a program that no two versions have alike.
const INSTALLS: &str = "dd if=/dev/urandom of=/data/program bs=64k count=64 2>/dev/null && sync";

/// A site, and what was typed and answered so far.
struct Session {
    site: Site,
    store: PathBuf,
    text: String,
}

impl Session {
    fn begin(devices: &[Device]) -> Self {
        let image = lab::micro::micro().unwrap();
        let original = image.vhdx.clone();
        let site = Site::begin_with("versions", Dhcp::Ours, image, devices, |network| {
            let store = network.folder().join("store");
            std::fs::create_dir(&store).unwrap();
            let copy = store.join("golden.vhdx");
            std::fs::copy(original, &copy).unwrap();
            // The kernel comes over HTTP: emulated firmware reads disks slowly, and machines boot often here.
            let more = format!(
                "[stores]\nimages = \"{}\"\n\
                 [[vdisk]]\nname = \"golden\"\nfile = \"golden.vhdx\"\nboot = \"kernel\"",
                store.display()
            );
            Storage { vdisks: Vec::new(), more }
        });
        let store = site.network.folder().join("store");
        Self { site, store, text: String::new() }
    }

    /// Types a command that does what it is asked to.
    fn types(&mut self, words: &str) {
        let (ok, said) = self.asks(words);
        self.note(&format!("$ headwater {words}\n{said}"));
        assert!(ok, "{words}: {said}");
    }

    /// Types a command that is refused; why.
    fn is_refused(&mut self, words: &str) -> String {
        let (ok, said) = self.asks(words);
        self.note(&format!("$ headwater {words}\n{said}"));
        assert!(!ok, "{words}: {said}");
        said
    }

    /// Types a command again and again, until what stands against it has gone.
    fn types_until_it_is_done(&mut self, words: &str) {
        let begun = Instant::now();
        let said = loop {
            let (ok, said) = self.asks(words);
            if ok {
                break said;
            }
            assert!(begun.elapsed() < FREE_WITHIN, "{words}: {said}");
            std::thread::park_timeout(ASKED_EVERY);
        };
        let waited_s = begun.elapsed().as_secs();
        self.note(&format!("# {waited_s} s later\n$ headwater {words}\n{said}"));
    }

    fn asks(&self, words: &str) -> (bool, String) {
        self.site.asks(&words.split(' ').collect::<Vec<_>>())
    }

    /// Writes down what else happens.
    fn note(&mut self, text: &str) {
        writeln!(self.text, "{}", text.trim_end()).unwrap();
    }

    /// Which version a device runs on, as the server says.
    fn version_of(&self, device: &Device) -> u64 {
        let text = self.site.headwater(&["device", "status", "--output", "json"]);
        let answer: Value = serde_json::from_str(&text).unwrap();
        let devices = answer["items"].as_array().unwrap();
        let found = devices.iter().find(|one| one["name"] == device.name).unwrap();
        found["version"].as_u64().unwrap_or_else(|| panic!("{found}"))
    }

    /// That a machine that has booted runs on this version, and finds this on its disk.
    fn finds(&mut self, device: &Device, guest: &mut Guest, version: u64, proof: &str) {
        let found = (self.version_of(device), read_proof(guest));
        self.note(&format!("# {} runs on version {}, and finds: {}", device.name, found.0, found.1));
        assert_eq!(found, (version, proof.to_owned()), "{}", device.name);
    }

    /// Boots a machine anew, which is on this version then.
    fn reboots(&mut self, device: &Device, guest: &mut Guest, version: u64, proof: &str) {
        self.note(&format!("# {} is restarted", device.name));
        guest.reset().unwrap();
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        self.finds(device, guest, version, proof);
    }

    /// Boots a machine that is off.
    fn boots(&mut self, device: &Device, version: u64, proof: &str) -> Guest {
        self.note(&format!("# {} is switched on", device.name));
        let mut guest = self.site.boot(device, Firmware::BiosIpxeRom);
        self.finds(device, &mut guest, version, proof);
        guest
    }

    /// Boots the maintenance device, lets it install something in place of what it finds, and powers it off.
    fn maintains(&mut self, device: &Device, version: u64, found: &str, installed: &str) {
        let mut guest = self.boots(device, version, found);
        guest.run_within(INSTALLS, MICRO_READY_WITHIN).unwrap();
        write_proof(&mut guest, installed);
        self.note(&format!("# {} installs: {installed}", device.name));
        self.types("lock list");
        guest.shutdown().unwrap();
        self.note(&format!("# {} is switched off", device.name));
    }

    /// Has obsolete versions deleted until these files are left: each that goes uncovers what it stood on.
    fn deletes_obsolete(&mut self, left: &[&str]) {
        let begun = Instant::now();
        loop {
            self.types("vdisk delete-obsolete golden --yes");
            if self.files() == left {
                return;
            }
            assert!(begun.elapsed() < FREE_WITHIN, "still there after {} s", begun.elapsed().as_secs());
            std::thread::park_timeout(SWEPT_EVERY);
        }
    }

    /// The files of the store.
    fn files(&mut self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.store).unwrap();
        let mut files: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        files.sort();
        self.note(&format!("# in the store: {}", files.join(", ")));
        files
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        println!("{}", self.text);
    }
}

#[test]
fn version_lives_from_maintenance_to_a_merge_below_machines_that_run() {
    let devices = [
        Device::new("one", 0),
        Device::new("two", 1),
        Device::new("maintainer", 2),
        Device::new("tester", 3),
    ];
    let mut session = Session::begin(&devices);
    let [first, second, maintainer, tester] = &devices;
    session.types("device set maintainer kind=maintenance");
    session.types("device set tester kind=test");
    session.note("# one and two are switched on");
    let mut guests = [first, second].map(|device| session.site.start(device, Firmware::BiosIpxeRom));
    for (device, guest) in [first, second].into_iter().zip(&mut guests) {
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        session.finds(device, guest, 0, "none");
    }
    let [one, two] = &mut guests;
    session.types("device status");

    first_version(&mut session, maintainer, tester);
    assert_eq!(read_proof(one), "none", "what runs stays what it is");
    session.types("version promote golden/1");
    assert_eq!(read_proof(one), "none", "what runs stays what it is");
    session.reboots(first, one, 1, "release one");
    session.finds(second, two, 0, "none");
    session.types("device status");

    second_version_and_back(&mut session, maintainer, second, two);
    merges(&mut session, first, one, two);
    session.reboots(first, one, 4, "release two");
    session.finds(second, two, 2, "release two");

    // What was merged goes, but for what a machine still runs on.
    session.types("vdisk delete-obsolete golden --yes");
    session.types("device status");
    assert_eq!(session.files(), ["golden.1.avhdx", "golden.2.avhdx", "golden.4.vhdx", "golden.vhdx"]);
    let before = two.run_within(HASH, MICRO_READY_WITHIN).unwrap();
    session.reboots(second, two, 4, "release two");
    assert_eq!(two.run_within(HASH, MICRO_READY_WITHIN).unwrap(), before, "the merged base holds the same");
    session.note("# the tester, which lost power, keeps its version until it has been away for long, or is said to be off");
    session.types("device reset tester --yes");
    session.deletes_obsolete(&["golden.4.vhdx"]);
    session.types("vdisk versions golden");
    session.types("device status");
    session.types("audit list --filter kind=version --sort number --columns at,actor,action,name");
}

/// A version under maintenance: read-write for its device, unseen by all others, not given on while it is written to; then
/// on a test device, and on no other.
fn first_version(session: &mut Session, maintainer: &Device, tester: &Device) {
    session.types("version create golden --comment updates-of-november");
    session.maintains(maintainer, 1, "none", "release one");
    let refused = session.is_refused("version promote golden/1 --to test");
    assert!(refused.contains("device maintainer"), "{refused}");
    session.types_until_it_is_done("version promote golden/1 --to test");
    let guest = session.boots(tester, 1, "release one");
    session.types("device status");
    drop(guest);
    session.note("# tester loses power");
}

/// The next version, and back from it.
fn second_version_and_back(session: &mut Session, maintainer: &Device, device: &Device, guest: &mut Guest) {
    session.types("version create golden --comment updates-of-december");
    session.maintains(maintainer, 2, "release one", "release two");
    session.note("# who does not want to wait until the machine is missed says that it is off");
    session.types("device reset maintainer --yes");
    session.types("version promote golden/2");
    session.reboots(device, guest, 2, "release two");
    session.types("version revert golden/2 --to test");
    session.finds(device, guest, 2, "release two");
    session.reboots(device, guest, 1, "release one");
    session.types("version promote golden/2");
    session.reboots(device, guest, 2, "release two");
    session.types("vdisk versions golden");
}

/// Merges the updates into one, and all into a new base, below machines that run on what goes into them, and read.
fn merges(session: &mut Session, reader: &Device, one: &mut Guest, two: &mut Guest) {
    write_proof(one, "written on version one");
    let before = two.run_within(HASH, MICRO_READY_WITHIN).unwrap();
    one.start_in_shell(&format!("while true; do {HASH}; done >/dev/null &")).unwrap();
    session.note("# one reads its disk again and again, past its page cache");
    session.types("vdisk merge golden --wait");
    session.types("vdisk merge golden --base --verify --wait");
    assert_eq!(two.run_within(HASH, MICRO_READY_WITHIN).unwrap(), before);
    assert_eq!(session.version_of(reader), 1, "a merge moves nobody");
    session.types("vdisk versions golden");
    let files = session.files();
    assert_eq!(files, ["golden.1.avhdx", "golden.2.avhdx", "golden.3.avhdx", "golden.4.vhdx", "golden.vhdx"]);
}
