//! Servers that die, machines that lose power, machines that reach for what is not theirs.
use std::time::Duration;

use lab::Firmware;

use crate::site::{Device, Site, read_proof, write_proof};

/// An initiator tries again within seconds once the server is back; emulated machines are slow.
const RECOVERS_WITHIN: Duration = Duration::from_secs(90);

#[test]
fn machine_survives_a_killed_and_a_restarted_server() {
    let device = Device::new("survivor", 0);
    let mut site = Site::micro("server-restart", &[Device::new("survivor", 0)]);
    let mut guest = site.boot(&device, Firmware::BiosIpxeRom);
    write_proof(&mut guest, "before");
    // Killed: the machine's I/O stalls, then goes on, and nothing that it wrote is lost.
    site.server.kill().unwrap();
    guest.start_in_shell("echo during >/data/during && sync && echo STALLED-WRITE-IS-DONE").unwrap();
    site.server.restart().unwrap();
    guest.wait_for("STALLED-WRITE-IS-DONE", RECOVERS_WITHIN).unwrap();
    assert_eq!(read_proof(&mut guest), "before");
    assert_eq!(guest.run("cat /data/during").unwrap().trim(), "during");
    // Stopped in an orderly way: the same.
    assert!(site.server.terminate().unwrap().success());
    site.server.restart().unwrap();
    guest.run_within("echo 3 >/proc/sys/vm/drop_caches; cat /data/during", RECOVERS_WITHIN).unwrap();
    write_proof(&mut guest, "after");
}

#[test]
fn killed_machine_boots_with_a_clean_disk() {
    let device = Device::new("powerless", 0);
    let site = Site::micro("power-cut", &[Device::new("powerless", 0)]);
    let mut guest = site.boot(&device, Firmware::BiosIpxeRom);
    write_proof(&mut guest, "before the power cut");
    guest.kill().unwrap();
    let mut guest = site.boot(&device, Firmware::BiosIpxeRom);
    assert_eq!(read_proof(&mut guest), "none");
}

#[test]
fn machine_cannot_log_in_to_another_devices_disk() {
    let devices = [Device::new("mine", 0), Device::new("theirs", 1)];
    let mut site = Site::micro("masking", &devices);
    let mut guest = site.boot(&devices[0], Firmware::BiosIpxeRom);
    // Under its own name, at the other's target: refused, and the administrator reads of it.
    let login = "iscsistart -i iqn.2026-11.org.headwater:mine:initiator -t iqn.2026-11.org.headwater:theirs \
                 -g 1 -a 10.77.0.1 -p 3260";
    let (said, status) = guest.run_for_status(login, Duration::from_secs(60)).unwrap();
    assert_ne!(status, 0, "the login succeeded: {said}");
    site.server.service().wait_for_log("theirs", Duration::from_secs(10)).unwrap();
    assert_eq!(guest.run("ls /sys/class/iscsi_session | wc -l").unwrap().trim(), "1");
    write_proof(&mut guest, "still at work");
}
