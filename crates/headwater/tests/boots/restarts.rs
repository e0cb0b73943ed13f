//! A server that is restarted again and again under a machine that boots and under one that works.
use std::time::{Duration, Instant};

use lab::{Firmware, GOLDEN_READY_WITHIN, Guest};

use crate::site::{Device, Dhcp, Site, write_proof};

const RESTARTS: u32 = 10;
/// How long the machine may take to be back after one restart.
const RECOVERS_WITHIN: Duration = Duration::from_secs(120);
/// Firmware and GRUB read about 18 MB. All restarts fall into that stage: between the initramfs's login and the start of
/// `iscsid` no initiator of Linux repairs a lost connection, whatever the server does.
const BETWEEN_RESTARTS_OF_BOOT_BYTES: u64 = 256 << 10;
/// So that much is left to read at the last restart, however long it takes from traffic that is seen to a server that is
/// killed.
const SLOWLY: &str = "bandwidth_limit = \"1 MiB\"\nlimit_burst_ms = 100";
const BETWEEN_RESTARTS_OF_FIO_BYTES: u64 = 8 << 20;

/// Random writes at depth 8 past the page cache, then all of it read and checked. No error is forgiven.
const FIO: &str = "fio --name=verify --filename=/root/fio --size=64m --bs=32k --rw=randwrite --direct=1 \
                   --ioengine=libaio --iodepth=8 --verify=crc32c --do_verify=1 --verify_fatal=1 --end_fsync=1 \
                   --output=/run/fio.log";

#[test]
fn machine_boots_while_its_server_is_restarted_ten_times() {
    let device = Device::with("stubborn", 0, SLOWLY);
    let mut site = Site::micro("ten-restarts", std::slice::from_ref(&device));
    let mut guest = site.start(&device, Firmware::BiosIpxeRom);
    site.server.service().wait_for_log("session begins", RECOVERS_WITHIN).unwrap();
    restart_while_it_works(&mut site, BETWEEN_RESTARTS_OF_BOOT_BYTES);
    assert!(!guest.has_said("iscsistart"), "the firmware was done before the last restart");
    guest.wait_for(lab::micro::READY, lab::MICRO_READY_WITHIN).unwrap();
    write_proof(&mut guest, "up in spite of all");
}

#[test]
fn fio_verifies_in_debian_while_its_server_is_restarted_ten_times() {
    let device = Device::new("unshaken", 0);
    let image = lab::golden::golden().unwrap();
    let mut site = Site::begin("fio-restarts", Dhcp::Ours, image, std::slice::from_ref(&device));
    let mut guest = Guest::start(&site.network, &device.spec(Firmware::BiosIpxeRom)).unwrap();
    guest.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN).unwrap();
    guest.run("sync").unwrap();
    guest.start_in_shell(&format!("{FIO}; echo FIO-EN''DED $?")).unwrap();
    restart_while_it_works(&mut site, BETWEEN_RESTARTS_OF_FIO_BYTES);
    assert!(!guest.has_said("FIO-ENDED"), "fio was done before the last restart");
    let end = guest.wait_for("FIO-ENDED", RECOVERS_WITHIN).unwrap();
    let report = guest.run("cat /run/fio.log").unwrap();
    assert!(end.text.contains("FIO-ENDED 0") && report.contains("err= 0"), "{}\n{report}", end.text);
    let errors = guest.run("dmesg | grep -iE 'I/O error|EXT4-fs error|remounting' || true").unwrap();
    assert_eq!(errors.trim(), "", "the machine saw errors");
}

/// Kills the server, or ends it in an orderly way, whenever this much more has gone over the network.
fn restart_while_it_works(site: &mut Site, bytes: u64) {
    for restart in 0..RESTARTS {
        let due = site.network.traffic_bytes().unwrap() + bytes;
        wait_for_traffic(site, due);
        if restart % 2 == 0 {
            site.server.kill().unwrap();
        } else {
            assert!(site.server.terminate().unwrap().success());
        }
        site.server.restart().unwrap();
        let back = Instant::now();
        site.server.service().wait_for_log("session begins", RECOVERS_WITHIN).unwrap();
        eprintln!(
            "restart {restart}: the session is back {} ms after the server",
            back.elapsed().as_millis()
        );
    }
}

fn wait_for_traffic(site: &mut Site, due: u64) {
    let network = site.network.clone();
    let what = format!("{due} bytes of traffic");
    let reached = |_: &lab::Service| network.traffic_bytes().is_ok_and(|bytes| bytes >= due).then_some(());
    site.server.service().wait_until(&what, RECOVERS_WITHIN, reached).unwrap();
}
