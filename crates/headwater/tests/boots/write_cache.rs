//! A write cache that fills.
use std::time::Duration;

use lab::Firmware;

use crate::site::{Device, Site, read_proof, write_proof};

#[test]
fn full_write_cache_is_a_clean_error_and_a_warning_and_corrupts_nothing() {
    let devices = [
        Device { name: "hungry", index: 0, more: "write_cache_limit = \"24 MiB\"" },
        Device::new("modest", 1),
    ];
    let mut site = Site::micro("full-cache", &devices);
    let mut hungry = site.boot(&devices[0], Firmware::BiosIpxeRom);
    write_proof(&mut hungry, "written before");
    let fill = "dd if=/dev/urandom of=/data/fill bs=1M count=64 conv=fsync";
    let (said, status) = hungry.run_for_status(fill, Duration::from_secs(120)).unwrap();
    assert_ne!(status, 0, "64 MiB went into 24 MiB: {said}");
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
