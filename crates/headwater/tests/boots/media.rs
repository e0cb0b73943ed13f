//! Boot media: a CD, a stick and a disk, each on a BIOS and a UEFI machine, in a network whose DHCP server knows nothing of
//! network boot.
use std::path::PathBuf;

use lab::{Firmware, Guest, MICRO_READY_WITHIN, MediaKind, SERVER_ADDRESS};

use crate::figures::tell;
use crate::site::{Device, Dhcp, Site, Storage, read_proof, write_proof};

/// What the networks' DHCP server gives.
const ADDRESSES_ALONE: &str = "dnsmasq, addresses alone";
/// Nobody has this address.
const SILENT: &str = "10.77.0.77";
/// Where the server is, and nobody listens.
const REFUSES: &str = "10.77.0.1:8090";

#[test]
fn cd_boots_bios_and_uefi_machines_by_the_only_server_that_works() {
    let devices = [Device::new("cd-bios", 0x20), Device::new("cd-uefi", 0x21)];
    let mut site = direct_kernel_site("media-cd", &devices);
    // Whichever the first is: the servers that refuse make room for the one that answers.
    let servers = ["--server", REFUSES, "--server", SERVER_ADDRESS, "--server", REFUSES];
    let media = create(&site, "--iso", &[&servers[..], &["--order", "random", "--menu", "1"]].concat());
    let mut guests = start_both(&site, &devices, MediaKind::Cd, [&media, &media]);
    for (device, guest) in devices.iter().zip(&mut guests) {
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        write_proof(guest, device.name);
        assert!(guest.has_said("boot media 1, headwater"), "the media do not say what they are");
    }
    tell(&mut site, &devices[0], "BIOS, CD, kernel by HTTP", ADDRESSES_ALONE);
    tell(&mut site, &devices[1], "UEFI, CD, kernel by HTTP", ADDRESSES_ALONE);
    // The proof is on the device's own disk, and the next boot, from the CD again, begins with a clean one.
    guests[0].reset().unwrap();
    guests[0].wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
    assert_eq!(read_proof(&mut guests[0]), "none");
}

#[test]
fn stick_with_a_static_address_goes_on_to_the_second_server_when_the_first_is_silent() {
    let devices = [Device::new("stick-bios", 0x22), Device::new("stick-uefi", 0x23)];
    let mut site = Site::begin("media-stick", Dhcp::Elsewhere, lab::micro::micro().unwrap(), &devices);
    let servers = ["--server", SILENT, "--server", SERVER_ADDRESS];
    // BIOS by a fixed address, of which the DHCP server knows nothing; UEFI by DHCP.
    let fixed = create(&site, "--usb", &[&servers[..], &["--address", "10.77.0.50/24"]].concat());
    let mut guests =
        start_both(&site, &devices, MediaKind::UsbStick, [&fixed, &create(&site, "--usb", &servers)]);
    for (device, guest) in devices.iter().zip(&mut guests) {
        guest
            .wait_for(&format!("http://{SILENT}:8080 did not boot this machine"), MICRO_READY_WITHIN)
            .unwrap();
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        write_proof(guest, device.name);
    }
    tell(&mut site, &devices[0], "BIOS, stick, static address, second server", ADDRESSES_ALONE);
    tell(&mut site, &devices[1], "UEFI, stick, second server", ADDRESSES_ALONE);
    let [bios, uefi] = &guests;
    assert!(!bios.has_said("Configuring (net0"), "a machine with a fixed address asked DHCP");
    assert!(uefi.has_said("Configuring (net0"), "a machine without one did not");
}

#[test]
fn disk_boots_a_kernel_out_of_the_image_and_asks_again_until_a_server_is_there() {
    let devices = [Device::new("disk-bios", 0x24), Device::new("disk-uefi", 0x25)];
    let mut site = direct_kernel_site("media-disk", &devices);
    let media = create(&site, "--disk", &["--server", SERVER_ADDRESS]);
    site.server.terminate().unwrap();
    let mut guests = start_both(&site, &devices, MediaKind::Disk, [&media, &media]);
    for guest in &mut guests {
        guest.wait_for("none of the servers booted this machine", MICRO_READY_WITHIN).unwrap();
    }
    site.server.restart().unwrap();
    for (device, guest) in devices.iter().zip(&mut guests) {
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        write_proof(guest, device.name);
    }
    tell(&mut site, &devices[0], "BIOS, disk, kernel by HTTP", ADDRESSES_ALONE);
    let record = tell(&mut site, &devices[1], "UEFI, disk, kernel by HTTP", ADDRESSES_ALONE);
    let steps = record["steps"].as_array().unwrap();
    let mut files = steps.iter().filter_map(|step| step["name"].as_str());
    assert!(files.any(|file| file.starts_with("golden.") && file.ends_with(".0.kernel")), "{record:#}");
}

/// A site whose machines fetch their kernel out of the image: emulated BIOS reads slowly.
fn direct_kernel_site(name: &str, devices: &[Device]) -> Site {
    let image = lab::micro::micro().unwrap();
    let more =
        format!("[[vdisk]]\nname = \"golden\"\nfile = \"{}\"\nboot = \"kernel\"\n", image.vhdx.display());
    Site::begin_with(name, Dhcp::Elsewhere, image, devices, |_| Storage { vdisks: Vec::new(), more })
}

/// Makes media with the program.
fn create(site: &Site, kind: &str, arguments: &[&str]) -> PathBuf {
    let number = std::fs::read_dir(site.network.folder()).unwrap().count();
    let file = site.network.folder().join(format!("media-{number}.img"));
    let mut command = site.network.command(env!("CARGO_BIN_EXE_headwater"));
    command.args(["media", "create", kind]).arg(&file).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    file
}

/// Powers a BIOS and a UEFI machine on at once.
fn start_both(site: &Site, devices: &[Device; 2], kind: MediaKind, files: [&PathBuf; 2]) -> [Guest; 2] {
    let firmware = [Firmware::BiosMedia, Firmware::UefiMedia];
    [0, 1].map(|index| {
        let spec = devices[index].spec(firmware[index]).with_media(kind, files[index]);
        Guest::start(&site.network, &spec).unwrap()
    })
}
