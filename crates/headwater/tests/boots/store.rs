//! Stores that fail, hang or run full under a running machine: those of images, and those of write caches.
use std::time::Duration;

use lab::{FlakyDisk, FlakyFile};

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

#[test]
fn disk_of_the_write_caches_that_fails_or_hangs_is_told_to_the_machine_and_holds_up_no_other() {
    let devices = [
        Device::with("victim", 0, "write_cache = \"persistent\""),
        Device::with("bystander", 1, "write_cache = \"memory\""),
    ];
    let mut flaky = None;
    let image = lab::micro::micro().unwrap();
    let vdisks = vec![("golden", image.vhdx.clone())];
    let mut site = Site::begin_with("cache-disk", Dhcp::Ours, image, &devices, |network| {
        let disk = flaky.insert(FlakyDisk::begin(network, "caches", 256).unwrap());
        Storage { vdisks, more: format!("[write_cache]\ndirectory = \"{}\"", disk.path().display()) }
    });
    // Goes after the server, which has files on it.
    let flaky = flaky.unwrap();
    let [mut victim, mut bystander] = site.boot_all(&devices);
    write_proof(&mut victim, "written before");

    // A disk that hangs: what the machine wants to be sure of waits, and goes on where it was.
    flaky.store().hang(true).unwrap();
    victim.start_in_shell("echo 'through a pause' >/data/proof; sync; echo SYNC-EN''DED").unwrap();
    write_proof(&mut bystander, "not held up");
    assert!(!victim.has_said("SYNC-ENDED"), "a flush ended on a disk that hangs");
    flaky.store().hang(false).unwrap();
    victim.wait_for("SYNC-ENDED", ENDS_WITHIN).unwrap();
    assert_eq!(read_proof(&mut victim), "through a pause");

    // EIO: the write goes to the server's memory and is lost on the way to the disk. The flush hears of it, and the machine
    // with it (SPC-4: MEDIUM ERROR, WRITE ERROR).
    flaky.store().fail(true).unwrap();
    let write = "dd if=/dev/urandom of=/data/lost bs=64k count=8 conv=fsync";
    let (said, status) = victim.run_for_status(write, ENDS_WITHIN).unwrap();
    assert_ne!(status, 0, "flushed to a disk that fails: {said}");
    let heard = victim.run("dmesg").unwrap();
    assert!(heard.contains("Medium Error") && heard.contains("Write error"), "{heard}");
    write_proof(&mut bystander, "not concerned");
    flaky.store().fail(false).unwrap();
    let told = site.server.service().wait_for_log("storage failed", ENDS_WITHIN).unwrap();
    assert!(told.contains("victim"), "{told}");

    // The disk is well again. What had been flushed before is there at the next boot, and more can be.
    victim.reset().unwrap();
    victim.wait_for(lab::micro::READY, lab::MICRO_READY_WITHIN).unwrap();
    assert_eq!(read_proof(&mut victim), "through a pause");
    write_proof(&mut victim, "written after");
    write_proof(&mut bystander, "all along");
    drop((victim, bystander));
    assert!(site.server.terminate().unwrap().success());
}
