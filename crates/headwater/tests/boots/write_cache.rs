//! Write caches of every kind under real machines: what each keeps, and one that fills.
use std::time::Duration;

use lab::Firmware;

use crate::site::{Device, Dhcp, Site, Storage, read_proof, write_proof};

/// How long a refusal, a warning or an initiator that tries again may take; emulated machines are slow.
const SHOWS_WITHIN: Duration = Duration::from_secs(90);

#[test]
fn full_write_cache_is_a_clean_error_and_a_warning_and_corrupts_nothing() {
    let devices = [Device::with("hungry", 0, "write_cache_limit = \"24 MiB\""), Device::new("modest", 1)];
    let mut site = Site::micro("full-cache", &devices);
    let mut hungry = site.boot(&devices[0], Firmware::BiosIpxeRom);
    write_proof(&mut hungry, "written before");
    let fill = "dd if=/dev/urandom of=/data/fill bs=1M count=64 conv=fsync";
    let (said, status) = hungry.run_for_status(fill, Duration::from_secs(120)).unwrap();
    assert_ne!(status, 0, "64 MiB went into 24 MiB: {said}");
    let heard = hungry.run("dmesg").unwrap();
    assert!(heard.contains("Space allocation failed"), "{heard}");
    let log = site.server.service();
    log.wait_for_log("WARN", Duration::from_secs(10)).unwrap();
    let full = log.wait_for_log("ERROR", Duration::from_secs(10)).unwrap();
    assert!(full.contains("hungry"), "{full}");
    // What was there before is whole, the machine answers, and others do not notice.
    assert_eq!(read_proof(&mut hungry), "written before");
    let mut modest = site.boot(&devices[1], Firmware::BiosIpxeRom);
    write_proof(&mut modest, "not disturbed");
    // Its next boot begins with room again.
    hungry.reset().unwrap();
    hungry.wait_for(lab::micro::READY, lab::MICRO_READY_WITHIN).unwrap();
    assert_eq!(read_proof(&mut hungry), "none");
    write_proof(&mut hungry, "room again");
}

#[test]
fn persistent_write_cache_outlives_server_and_boots_and_one_in_memory_neither() {
    let devices = [
        Device::with("keeper", 0, "write_cache = \"persistent\""),
        Device::with("forgetful", 1, "write_cache = \"memory\""),
    ];
    let image = lab::micro::micro().unwrap();
    let original = image.vhdx.clone();
    // An image of its own, to be changed below.
    let mut site = Site::begin_with("kinds", Dhcp::Ours, image, &devices, |network| {
        let copy = network.folder().join("golden.vhdx");
        std::fs::copy(original, &copy).unwrap();
        Storage { vdisks: vec![("golden", copy)], more: String::new() }
    });
    let [mut keeper, mut forgetful] = site.boot_all(&devices);
    write_proof(&mut keeper, "kept");
    write_proof(&mut forgetful, "not kept");

    // The server dies. What was in its memory is gone, and the machine that ran on it is told so, never given half.
    site.server.kill().unwrap();
    site.server.restart().unwrap();
    let lost =
        site.server.service().wait_for_log("write cache of a running boot is lost", SHOWS_WITHIN).unwrap();
    assert!(lost.contains("forgetful"), "{lost}");
    keeper.run_within("echo 3 >/proc/sys/vm/drop_caches; grep -q kept /data/proof", SHOWS_WITHIN).unwrap();

    // Both lose power.
    drop((keeper, forgetful));
    let [mut keeper, mut forgetful] = site.boot_all(&devices);
    assert_eq!(read_proof(&mut keeper), "kept");
    assert_eq!(read_proof(&mut forgetful), "none");
    drop((keeper, forgetful));

    site.headwater(&["device", "reset", "keeper", "--discard-persistent", "--yes"]);
    let mut keeper = site.boot(&devices[0], Firmware::BiosIpxeRom);
    assert_eq!(read_proof(&mut keeper), "none");
    drop(keeper);

    // Another image below it: refused until an administrator decides.
    assert!(site.server.terminate().unwrap().success());
    let file = std::fs::File::options().write(true).open(site.network.folder().join("golden.vhdx")).unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
    site.server.restart().unwrap();
    let refused = site.start(&devices[0], Firmware::BiosIpxeRom);
    let why = site.server.service().wait_for_log("no write cache for the device", SHOWS_WITHIN).unwrap();
    assert!(why.contains("keeper") && why.contains("discard the write cache"), "{why}");
    drop(refused);
}
