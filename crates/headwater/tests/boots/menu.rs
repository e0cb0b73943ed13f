//! The boot menu on the serial line: chosen by key, by nobody, for the machine's own disk, and behind a log-in.
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use lab::{Firmware, Guest, MICRO_READY_WITHIN, MediaKind};
use serde_json::Value;

use crate::site::{Device, Dhcp, Site, Storage};

/// How long a machine may take from power-on to its menu.
const MENU_WITHIN: Duration = Duration::from_secs(90);
/// How long a local disk's loader may take to say that it is there.
const LOADER_WITHIN: Duration = Duration::from_secs(180);
/// The last entry of the menu.
const OWN_DISK: &str = "3. this machine's own disk";
const PASSWORD: &str = "walnut & 100%";

/// A site with two vDisks, `golden` and `other`, both the micro guest.
fn site(name: &str, devices: &[Device]) -> Site {
    let image = lab::micro::micro().unwrap();
    let golden = image.vhdx.clone();
    Site::begin_with(name, Dhcp::Ours, image, devices, |network| {
        let other = network.folder().join("other.vhdx");
        std::fs::copy(&golden, &other).unwrap();
        Storage { vdisks: vec![("golden", golden), ("other", other)], more: String::new() }
    })
}

/// The machine's own disk: the same image, which says what it is when its loader starts.
fn own_disk(site: &Site) -> std::path::PathBuf {
    let raw = site.network.folder().join("own.raw");
    let status =
        Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(&site.image.vhdx).arg(&raw).status();
    assert!(status.unwrap().success());
    raw
}

fn start(site: &Site, device: &Device, firmware: Firmware) -> Guest {
    let spec = device.spec(firmware).with_media(MediaKind::OwnDisk, own_disk(site));
    Guest::start(&site.network, &spec).unwrap()
}

/// The step of the device's last boot with this name.
fn step(record: &Value, name: &str) -> Value {
    let steps = record["steps"].as_array().unwrap();
    steps
        .iter()
        .find(|step| step["step"] == name)
        .unwrap_or_else(|| panic!("no step {name}: {record}"))
        .clone()
}

fn booted(site: &Site, device: &Device) -> String {
    site.boot_record(device)["vdisk"].as_str().unwrap().to_owned()
}

/// Opens the menu of a machine that was switched on or reset.
fn menu(guest: &mut Guest) {
    guest.wait_for_screen(OWN_DISK, MENU_WITHIN).unwrap();
}

fn ready(guest: &mut Guest) {
    guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
}

/// Waits until the loader of a disk is at work.
fn loads(guest: &mut Guest) {
    guest.wait_for("GRUB: loading kernel", LOADER_WITHIN).unwrap();
}

fn own_disk_starts(guest: &mut Guest) {
    guest.wait_for("this machine boots its own disk", MENU_WITHIN).unwrap();
    loads(guest);
}

#[test]
fn bios_machine_gets_what_its_menu_was_told() {
    let device = Device::new("lab-01", 0x28);
    let devices = [device];
    let site = site("menu-bios", &devices);
    let device = &devices[0];
    let set = |values: &[&str]| site.headwater(&[&["device", "set", device.name], values].concat());
    set(&["disks=golden,other", "local_disk=offered", "menu.wait_s=5"]);

    // Nobody is there: the first vDisk.
    let mut guest = start(&site, device, Firmware::BiosIpxeRom);
    menu(&mut guest);
    loads(&mut guest);
    assert_eq!(booted(&site, device), "golden");
    let choice = step(&site.boot_record(device), "menu-choice");
    assert_eq!(
        (choice["how"].as_str(), choice["choice"].as_str()),
        (Some("time-out"), Some("golden")),
        "{choice}"
    );
    assert!(choice["waited_ms"].as_f64().unwrap() >= 5000.0, "{choice}");

    // Somebody presses the key of the second.
    set(&["menu.wait_s=0"]);
    guest.reset().unwrap();
    menu(&mut guest);
    guest.press("2").unwrap();
    loads(&mut guest);
    assert_eq!(booted(&site, device), "other");
    assert_eq!(step(&site.boot_record(device), "menu-choice")["how"], "by hand");

    // The key that calls for the menu is not pressed; then the menu is not shown at all.
    set(&["menu.show=on-key", "menu.wait_s=2"]);
    guest.reset().unwrap();
    guest.wait_for_screen("for the boot menu.", MENU_WITHIN).unwrap();
    loads(&mut guest);
    assert_eq!(booted(&site, device), "golden");
    set(&["menu.wait_s=60"]);
    guest.reset().unwrap();
    guest.wait_for_screen("for the boot menu.", MENU_WITHIN).unwrap();
    guest.press("m").unwrap();
    menu(&mut guest);
    guest.press("3").unwrap();
    own_disk_starts(&mut guest);
}

#[test]
fn uefi_machine_boots_its_own_disk_and_needs_a_log_in_where_one_is_asked_for() {
    let device = Device::new("lab-02", 0x29);
    let devices = [device];
    let site = site("menu-uefi", &devices);
    let device = &devices[0];
    site.headwater(&[
        "device",
        "set",
        device.name,
        "disks=golden,other",
        "local_disk=offered",
        "menu.wait_s=0",
    ]);
    site.headwater(&["vdisk", "set", "other", "asks_login=true"]);
    site.headwater(&["user", "create", "ann"]);
    set_password(&site, "ann");
    site.headwater(&["user", "grant", "ann", "operator"]);

    let mut guest = start(&site, device, Firmware::UefiIpxeRom);
    menu(&mut guest);
    guest.press("2").unwrap();
    log_in(&mut guest, "another one");
    guest.wait_for_screen("the log-in was refused", MENU_WITHIN).unwrap();
    log_in(&mut guest, PASSWORD);
    ready(&mut guest);
    assert_eq!(booted(&site, device), "other");

    guest.reset().unwrap();
    menu(&mut guest);
    guest.press("3").unwrap();
    own_disk_starts(&mut guest);
}

fn log_in(guest: &mut Guest, password: &str) {
    guest.wait_for_screen("Password:", MENU_WITHIN).unwrap();
    type_slowly(guest, "ann", "ann");
    type_slowly(guest, password, &"*".repeat(password.len()));
}

/// Types into a field of 20 places, of which the emulated serial line loses what comes too fast: each key when the one before
/// it is on the screen.
fn type_slowly(guest: &mut Guest, text: &str, shown: &str) {
    for (place, key) in text.chars().enumerate() {
        guest.press(&key.to_string()).unwrap();
        guest.wait_for_screen(&format!("{}_", &shown[..=place]), MENU_WITHIN).unwrap();
    }
    guest.press("\r").unwrap();
}

fn set_password(site: &Site, user: &str) {
    let mut command = site.network.command(env!("CARGO_BIN_EXE_headwater"));
    command.args(["user", "password", user, "--socket"]).arg(site.network.socket("headwater"));
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{PASSWORD}").unwrap();
    assert!(child.wait().unwrap().success());
}
