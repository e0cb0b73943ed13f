//! Stores that fail, hang or run full under a running machine: those of images, and those of write caches.
use std::time::Duration;

use lab::{Firmware, FlakyDisk, FlakyFile};
use nbd::Errno;
use nbd::client::{ChangeOptions, Client, ClientError, ConnectOptions, ServerAddress};

use crate::site::{Device, Dhcp, Site, Storage, read_proof, write_proof};

const ENDS_WITHIN: Duration = Duration::from_secs(120);

/// A partition that no boot by BIOS reads: the first reads of it go to the store.
const READ_UNREAD: &str = "echo 3 >/proc/sys/vm/drop_caches; sha256sum </dev/sda2";

#[test]
fn store_that_fails_hangs_or_runs_full_is_told_to_the_machine_and_holds_up_no_other() {
    let devices = [Device::new("victim", 0), Device { vdisk: "sound", ..Device::new("bystander", 1) }];
    let image = lab::micro::micro().unwrap();
    let file = image.vhdx.clone();
    let mut flaky = None;
    let mut site = Site::begin_with("store", Dhcp::Ours, image, &devices, |network| {
        let store = flaky.insert(FlakyFile::begin(network, &file).unwrap());
        let caches = network.small_file_system("caches", 32).unwrap();
        Storage {
            vdisks: vec![("golden", store.path().to_owned()), ("sound", file)],
            more: format!("[write_cache]\ndirectory = \"{}\"", caches.display()),
        }
    });
    let flaky = flaky.unwrap();
    let [mut victim, mut bystander] = site.boot_all(&devices);
    write_proof(&mut victim, "written before");
    write_proof(&mut bystander, "elsewhere");

    // EIO: the machine is told that its medium cannot be read (SPC-4: MEDIUM ERROR, UNRECOVERED READ ERROR).
    flaky.fail(true).unwrap();
    let (said, status) = victim.run_for_status(READ_UNREAD, ENDS_WITHIN).unwrap();
    assert_ne!(status, 0, "read from a store that fails: {said}");
    let heard = victim.run("dmesg").unwrap();
    assert!(heard.contains("Medium Error") && heard.contains("Unrecovered read error"), "{heard}");
    assert_eq!(read_proof(&mut victim), "written before", "the write cache lies on another store");
    let sum = bystander.run(READ_UNREAD).unwrap();
    flaky.fail(false).unwrap();

    // A store that hangs: whoever needs it waits, all others do not, and it goes on where it was.
    flaky.hang(true).unwrap();
    victim.start_in_shell(&format!("{READ_UNREAD}; echo READ-EN''DED")).unwrap();
    assert_eq!(bystander.run_within(READ_UNREAD, ENDS_WITHIN).unwrap(), sum);
    write_proof(&mut bystander, "not held up");
    assert!(!victim.has_said("READ-ENDED"), "it read from a store that hangs");
    flaky.hang(false).unwrap();
    victim.wait_for("READ-ENDED", ENDS_WITHIN).unwrap();
    assert_eq!(victim.run_within(READ_UNREAD, ENDS_WITHIN).unwrap(), sum);

    // ENOSPC below the write cache's own limit.
    let fill = "dd if=/dev/urandom of=/data/fill bs=1M count=64 conv=fsync";
    let (said, status) = victim.run_for_status(fill, ENDS_WITHIN).unwrap();
    assert_ne!(status, 0, "64 MiB went into 32 MiB: {said}");
    let heard = victim.run("dmesg").unwrap();
    assert!(heard.contains("Space allocation failed"), "{heard}");
    let told =
        site.server.service().wait_for_log("the file system under the write cache is full", ENDS_WITHIN);
    assert!(told.unwrap().contains("victim"));
    assert_eq!(read_proof(&mut victim), "written before");
}

/// Two devices, the first with a persistent write cache on a disk that fails when it is told to.
fn site_on_a_flaky_disk(name: &str, devices: &[Device]) -> (Site, FlakyDisk) {
    let mut flaky = None;
    let image = lab::micro::micro().unwrap();
    let vdisks = vec![("golden", image.vhdx.clone())];
    let site = Site::begin_with(name, Dhcp::Ours, image, devices, |network| {
        let disk = flaky.insert(FlakyDisk::begin(network, "caches", 256).unwrap());
        let (caches, socket) = (disk.path().display(), network.socket("nbd"));
        let nbd = format!("[nbd]\nunix_socket = \"{}\"", socket.display());
        Storage { vdisks, more: format!("[write_cache]\ndirectory = \"{caches}\"\n{nbd}") }
    });
    (site, flaky.unwrap())
}

fn keeper_and_bystander() -> [Device; 2] {
    [
        Device::with("victim", 0, "write_cache = \"persistent\""),
        Device::with("bystander", 1, "write_cache = \"memory\""),
    ]
}

/// A client of the device's next boot.
fn next_boot(site: &Site, device: &Device) -> Client {
    let mac = device.spec(Firmware::BiosIpxeRom).mac;
    let url = format!("http://10.77.0.1:8080/v1/boot/script?mac={mac}&platform=pcbios");
    let script = site.network.command("curl").args(["--silent", "--fail", &url]).output().unwrap();
    let script = String::from_utf8_lossy(&script.stdout).into_owned();
    let named = format!(":{}:b", device.name);
    let boot = script.split_once(&named).and_then(|(_, rest)| rest.split_whitespace().next());
    let boot = boot.unwrap_or_else(|| panic!("no boot in:\n{script}"));
    let export = format!("device/{}@{boot}", device.name);
    let address = ServerAddress::Unix(site.network.socket("nbd"));
    Client::connect(&address, &ConnectOptions { export, ..ConnectOptions::default() }).unwrap()
}

const PIECE: usize = 64 * 1024;

fn write(client: &mut Client, place: u64, value: u8) {
    client.write(place, &[value; PIECE], ChangeOptions::default()).unwrap();
}

fn errno(result: Result<(), ClientError>) -> Option<Errno> {
    match result {
        Err(ClientError::Errno(errno)) => Some(errno),
        other => panic!("no errno: {other:?}"),
    }
}

fn holds(client: &mut Client, place: u64, value: u8) -> bool {
    let mut bytes = vec![0; PIECE];
    client.read(place, &mut bytes).unwrap();
    bytes == [value; PIECE]
}

#[test]
fn flush_to_a_disk_that_lost_writes_fails_until_the_next_boot_which_has_what_was_flushed() {
    const KEPT: u64 = 1 << 20;
    let devices = keeper_and_bystander();
    let (mut site, flaky) = site_on_a_flaky_disk("cache-flush", &devices);
    let [mut victim, mut bystander] = devices.each_ref().map(|device| next_boot(&site, device));
    write(&mut victim, KEPT, 1);
    victim.flush().unwrap();

    flaky.store().hang(true).unwrap();
    write(&mut victim, 0, 2);
    let flush = std::thread::spawn(move || {
        victim.flush().unwrap();
        victim
    });
    for value in 0..20 {
        write(&mut bystander, 0, value);
        bystander.flush().unwrap();
    }
    assert!(!flush.is_finished(), "a flush ended on a disk that hangs");
    flaky.store().hang(false).unwrap();
    let mut victim = flush.join().unwrap();

    flaky.store().fail(true).unwrap();
    write(&mut victim, 0, 3);
    assert_eq!(errno(victim.flush()), Some(Errno::Io));
    write(&mut bystander, 0, 21);
    bystander.flush().unwrap();
    // The system tells of a lost write once, and would call the next flush a success.
    flaky.store().fail(false).unwrap();
    assert_eq!(errno(victim.flush()), Some(Errno::Io));
    let told = site.server.service().wait_for_log("storage failed", ENDS_WITHIN).unwrap();
    assert!(told.contains("victim"), "{told}");
    drop(victim);

    let mut victim = next_boot(&site, &devices[0]);
    assert!(
        holds(&mut victim, 0, 2),
        "what was lost on the way to the disk is not taken up again from memory"
    );
    write(&mut victim, 0, 4);
    victim.flush().unwrap();
    assert!(holds(&mut victim, 0, 4) && holds(&mut victim, KEPT, 1) && holds(&mut bystander, 0, 21));
    drop((victim, bystander));
    assert!(site.server.terminate().unwrap().success());
}
