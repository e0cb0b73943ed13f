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
/// When nothing has gone over the network for so long, the kernel unpacks its initramfs, which takes it two seconds and more.
const QUIET: Duration = Duration::from_millis(700);
/// What OVMF and SeaBIOS say when they have tried each of their ways to boot.
const GAVE_UP: [&str; 2] = ["BdsDxe: failed to load", "No bootable device"];
/// What OVMF says of its boot file, iPXE's 850 KB.
const FETCHING: &str = "Downloading NBP file";
/// In the middle of loader, kernel and initramfs, 18 MB.
const IN_THE_FIRST_STAGE_BYTES: u64 = 3 << 20;

#[test]
fn uefi_machine_gets_there_though_its_server_is_killed_at_every_step() {
    let device = Device::new("every-step", 0);
    let mut site = Site::micro("every-step", std::slice::from_ref(&device));
    let mut machine = Machine::start(&site, &device, Firmware::UefiPxe);
    kill_after(&mut site, &mut machine, "address given");
    said_or_reset(&mut site, &mut machine, FETCHING);
    kill(&mut site, "in the boot file");
    kill_after(&mut site, &mut machine, "boot planned");
    kill_in_the_first_stage_at_the_hand_over_and_after_it(&mut site, &mut machine);
}

#[test]
fn bios_machine_gets_there_though_its_server_is_killed_at_every_step() {
    let device = Device::new("every-step-bios", 1);
    let mut site = Site::micro("every-step-bios", std::slice::from_ref(&device));
    let mut machine = Machine::start(&site, &device, Firmware::BiosIpxeRom);
    kill_after(&mut site, &mut machine, "address given");
    kill_after(&mut site, &mut machine, "boot planned");
    kill_in_the_first_stage_at_the_hand_over_and_after_it(&mut site, &mut machine);
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

fn kill_in_the_first_stage_at_the_hand_over_and_after_it(site: &mut Site, machine: &mut Machine) {
    log_or_reset(site, machine, "session begins");
    kill_in_traffic(site, IN_THE_FIRST_STAGE_BYTES);
    said_or_reset(site, machine, "GRUB: loading initrd");
    wait_for_quiet(site);
    if machine.has_said(&["iscsistart"]) {
        eprintln!("the gap was too short to be seen: from here to the start of iscsid nothing would help");
    } else {
        kill(site, "in the hand-over gap");
    }
    let guest = &mut machine.guest;
    guest.wait_for(lab::micro::READY, STEP_WITHIN).unwrap();
    guest.start_in_shell("dd if=/dev/sda of=/dev/null bs=1M count=30; echo READ-EN''DED $?").unwrap();
    kill(site, "in the second stage");
    guest.wait_for("READ-ENDED 0", MICRO_READY_WITHIN).unwrap();
    write_proof(guest, "up in spite of all");
    kill(site, "ready");
    assert_eq!(read_proof(guest), "up in spite of all");
}

/// Kills the server as soon as its log has this, and starts it again.
fn kill_after(site: &mut Site, machine: &mut Machine, line: &str) {
    log_or_reset(site, machine, line);
    kill(site, &format!("after \"{line}\""));
}

/// Waits until the server, or one that was killed, has logged this.
fn log_or_reset(site: &mut Site, machine: &mut Machine, line: &str) {
    wait_or_reset(site, machine, &format!("no line with {line:?}"), |site, _| {
        std::fs::read_to_string(site.log_path()).is_ok_and(|log| log.contains(line))
    });
}

/// Waits until the machine has said this since it was last reset.
fn said_or_reset(site: &mut Site, machine: &mut Machine, text: &str) {
    wait_or_reset(site, machine, &format!("the machine has not said {text:?}"), |_, machine| {
        machine.has_said(&[text])
    });
}

/// Waits for something. Firmware may give up at the first packet that nobody takes, and then waits for somebody to press the button,
/// which is done here.
fn wait_or_reset(
    site: &mut Site,
    machine: &mut Machine,
    what: &str,
    is_there: impl Fn(&lab::Service, &Machine) -> bool,
) {
    loop {
        let there = site.server.service().wait_until(what, STEP_WITHIN, |service| {
            let there = is_there(service, machine);
            (there || machine.has_said(&GAVE_UP)).then_some(there)
        });
        if there.unwrap() {
            return;
        }
        eprintln!("the firmware gave up, and is reset");
        machine.lines_before = machine.guest.transcript().len();
        machine.guest.reset().unwrap();
    }
}

/// A machine whose reset button is pressed when its firmware gives up.
struct Machine {
    guest: Guest,
    /// What it had said when it was last reset.
    lines_before: usize,
}

impl Machine {
    fn start(site: &Site, device: &Device, firmware: Firmware) -> Self {
        Self { guest: site.start(device, firmware), lines_before: 0 }
    }

    fn has_said(&self, texts: &[&str]) -> bool {
        let lines = self.guest.transcript();
        lines.iter().skip(self.lines_before).any(|line| texts.iter().any(|text| line.text.contains(text)))
    }
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
