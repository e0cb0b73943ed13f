//! A server that is killed at each step of a boot: the machine gets there all the same.
//!
//! One step is left out: between the initramfs's login and the start of `iscsid` no initiator of Linux repairs a lost connection,
//! whatever the server does.
use std::cell::Cell;
use std::time::{Duration, Instant};

use lab::{Firmware, Guest, MICRO_READY_WITHIN};

use crate::site::{Device, Site, read_proof, write_proof};

/// How long a step may take to come, firmware's own pauses after a failure included.
const STEP_WITHIN: Duration = Duration::from_secs(240);
/// When nothing has gone over the network for so long, the kernel unpacks its initramfs.
const QUIET: Duration = Duration::from_secs(2);
/// What OVMF says of its boot file, iPXE's 850 KB.
const FETCHING: &str = "Downloading NBP file";
const FETCHED: &str = "NBP file downloaded successfully";
/// In the middle of loader, kernel and initramfs, 18 MB.
const IN_THE_FIRST_STAGE_BYTES: u64 = 3 << 20;

#[test]
fn uefi_machine_gets_there_though_its_server_is_killed_at_every_step() {
    let device = Device::new("every-step", 0);
    let mut site = Site::micro("every-step", std::slice::from_ref(&device));
    let mut guest = site.start(&device, Firmware::UefiPxe);
    kill_after(&mut site, "address given");
    if gave_up_before(&mut guest, FETCHING) {
        guest.wait_for(FETCHING, STEP_WITHIN).unwrap();
    }
    kill(&mut site, "in the boot file");
    gave_up_before(&mut guest, FETCHED);
    kill_after(&mut site, "boot planned");
    kill_in_the_first_stage_at_the_hand_over_and_after_it(&mut site, &mut guest);
}

#[test]
fn bios_machine_gets_there_though_its_server_is_killed_at_every_step() {
    let device = Device::new("every-step-bios", 1);
    let mut site = Site::micro("every-step-bios", std::slice::from_ref(&device));
    let mut guest = site.start(&device, Firmware::BiosIpxeRom);
    kill_after(&mut site, "address given");
    kill_after(&mut site, "boot planned");
    kill_in_the_first_stage_at_the_hand_over_and_after_it(&mut site, &mut guest);
}

#[test]
fn machine_that_fetches_its_kernel_gets_there_though_its_server_is_killed_in_the_middle() {
    let device = Device::new("kernel-killed", 2);
    let vdisk = "boot = \"kernel\"\n";
    let mut site = Site::with_vdisk("kernel-killed", vdisk, std::slice::from_ref(&device));
    let mut guest = site.start(&device, Firmware::BiosIpxeRom);
    site.server.service().wait_for_log("session begins", STEP_WITHIN).unwrap();
    kill_in_traffic(&mut site, IN_THE_FIRST_STAGE_BYTES);
    guest.wait_for(lab::micro::READY, STEP_WITHIN).unwrap();
    write_proof(&mut guest, "kernel fetched in the end");
}

/// Waits until OVMF says this, or has given PXE up, as it may at the first packet that nobody takes: it tries each of its ways to boot once
/// and then waits in its menu for somebody to press the button, which is done here.
fn gave_up_before(guest: &mut Guest, text: &str) -> bool {
    const GAVE_UP: &str = "BdsDxe: failed to load";
    let gave_up = guest.wait_for_any(&[GAVE_UP, text], STEP_WITHIN).unwrap().text.contains(GAVE_UP);
    if gave_up {
        eprintln!("the firmware gave up, and is reset");
        guest.reset().unwrap();
    }
    gave_up
}

fn kill_in_the_first_stage_at_the_hand_over_and_after_it(site: &mut Site, guest: &mut Guest) {
    site.server.service().wait_for_log("session begins", STEP_WITHIN).unwrap();
    kill_in_traffic(site, IN_THE_FIRST_STAGE_BYTES);
    guest.wait_for("GRUB: loading initrd", STEP_WITHIN).unwrap();
    wait_for_quiet(site);
    assert!(!guest.has_said("iscsistart"), "the operating system has logged in before the kill");
    kill(site, "in the hand-over gap");
    guest.wait_for(lab::micro::READY, STEP_WITHIN).unwrap();
    guest.start_in_shell("dd if=/dev/sda of=/dev/null bs=1M count=30; echo READ-EN''DED $?").unwrap();
    kill(site, "in the second stage");
    guest.wait_for("READ-ENDED 0", MICRO_READY_WITHIN).unwrap();
    write_proof(guest, "up in spite of all");
    kill(site, "ready");
    assert_eq!(read_proof(guest), "up in spite of all");
}

/// Kills the server as soon as its log has this, and starts it again.
fn kill_after(site: &mut Site, line: &str) {
    site.server.service().wait_for_log(line, STEP_WITHIN).unwrap();
    kill(site, &format!("after \"{line}\""));
}

/// Kills the server when so many more bytes have gone over the network, and starts it again.
fn kill_in_traffic(site: &mut Site, bytes: u64) {
    let network = site.network.clone();
    let due = network.traffic_bytes().unwrap() + bytes;
    let reached = |_: &lab::Service| network.traffic_bytes().is_ok_and(|bytes| bytes >= due).then_some(());
    site.server.service().wait_until(&format!("{bytes} bytes more"), STEP_WITHIN, reached).unwrap();
    kill(site, &format!("after {bytes} bytes more"));
}

/// Waits until the network is quiet.
fn wait_for_quiet(site: &mut Site) {
    let network = site.network.clone();
    let last = Cell::new((0, Instant::now()));
    let quiet = |_: &lab::Service| {
        let bytes = network.traffic_bytes().ok()?;
        let (before, since) = last.get();
        if bytes != before {
            last.set((bytes, Instant::now()));
            return None;
        }
        (since.elapsed() >= QUIET).then_some(())
    };
    site.server.service().wait_until("the network is never quiet", STEP_WITHIN, quiet).unwrap();
}

fn kill(site: &mut Site, when: &str) {
    eprintln!("killed {when}");
    site.server.kill().unwrap();
    site.server.restart().unwrap();
}
