//! Every way of firmware to the disk, and two machines at once.
use lab::{Firmware, MICRO_READY_WITHIN};

use crate::figures::tell;
use crate::site::{Device, Dhcp, Site, read_proof, write_proof};

#[test]
fn bios_and_uefi_machines_boot_at_once_each_with_its_own_clean_disk() {
    let devices = [Device::new("bios-1", 0), Device::new("uefi-1", 1)];
    let mut site = Site::micro("two-at-once", &devices);
    let before = site.image_hash();
    let firmware = [Firmware::BiosIpxeRom, Firmware::UefiIpxeRom];
    let mut guests: Vec<_> =
        devices.iter().zip(firmware).map(|(d, firmware)| site.start(d, firmware)).collect();
    for guest in &mut guests {
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
    }
    for (device, guest) in devices.iter().zip(&mut guests) {
        assert_eq!(read_proof(guest), "none");
        write_proof(guest, device.name);
    }
    for (device, guest) in devices.iter().zip(&mut guests) {
        assert_eq!(read_proof(guest), device.name, "the other device's write came through");
    }
    for (device, name) in devices.iter().zip(["BIOS, iPXE in ROM", "UEFI, iPXE in ROM"]) {
        tell(&mut site, device, name, "Headwater");
    }
    // A reboot begins with a clean disk; the other machine keeps what it wrote.
    let [bios, uefi] = &mut guests[..] else { panic!("two guests") };
    bios.reset().unwrap();
    bios.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
    assert_eq!(read_proof(bios), "none");
    assert_eq!(read_proof(uefi), "uefi-1");
    drop(guests);
    assert_eq!(site.image_hash(), before, "the golden image changed");
}

#[test]
fn uefi_machine_without_a_network_rom_boots_by_pxe() {
    let device = Device::new("uefi-pxe", 2);
    let mut site = Site::micro("uefi-pxe", &[Device::new("uefi-pxe", 2)]);
    let _guest = site.boot(&device, Firmware::UefiPxe);
    let record = tell(&mut site, &device, "UEFI PXE", "Headwater");
    let file = step(&record, "boot-file");
    assert_eq!((&file["name"], &file["protocol"]), (&"ipxe.efi".into(), &"tftp".into()));
    assert!(file["size_bytes"].as_u64().unwrap() > 100_000, "{file}");
}

#[test]
fn uefi_machine_boots_by_http() {
    let device = Device::new("uefi-http", 3);
    let mut site = Site::micro("uefi-http", &[Device::new("uefi-http", 3)]);
    let _guest = site.boot(&device, Firmware::UefiHttp);
    let record = tell(&mut site, &device, "UEFI HTTP Boot", "Headwater");
    assert_eq!(step(&record, "boot-file")["protocol"], "http");
}

#[test]
fn kernel_out_of_the_image_finds_its_disk_on_bios_and_uefi_machines() {
    let devices = [Device::new("direct-bios", 4), Device::new("direct-uefi", 5)];
    let vdisk = "boot = \"kernel\"\ncommand_line = \"{options} headwater.device={device}\"\n";
    let mut site = Site::with_vdisk("direct-kernel", vdisk, &devices);
    let firmware = [Firmware::BiosIpxeRom, Firmware::UefiIpxeRom];
    let mut guests: Vec<_> =
        devices.iter().zip(firmware).map(|(device, firmware)| site.start(device, firmware)).collect();
    for (device, guest) in devices.iter().zip(&mut guests) {
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        write_proof(guest, device.name);
        let told = guest.run("cat /proc/cmdline").unwrap();
        assert!(told.contains(&format!("headwater.device={}", device.name)), "{told}");
    }
    for (device, name) in devices.iter().zip(["BIOS, kernel by HTTP", "UEFI, kernel by HTTP"]) {
        let record = tell(&mut site, device, name, "Headwater");
        let steps = record["steps"].as_array().unwrap();
        // The firmware read nothing but what it takes to know the disk.
        assert!(record["first_stage"]["reads"]["bytes"].as_u64().unwrap() < 100_000, "{record}");
        let files: Vec<&str> = steps.iter().filter_map(|step| step["name"].as_str()).collect();
        for wanted in [".0.kernel", ".0.initrd"] {
            assert!(
                files.iter().any(|file| file.starts_with("golden.") && file.ends_with(wanted)),
                "{record}"
            );
        }
    }
}

#[test]
fn uefi_machine_boots_by_its_firmwares_own_iscsi_initiator() {
    let device = Device::new("uefi-iscsi", 7);
    let mut site = Site::micro("uefi-iscsi", std::slice::from_ref(&device));
    let mut guest = site.boot(&device, Firmware::UefiIscsi);
    write_proof(&mut guest, "no iPXE anywhere");
    let record = tell(&mut site, &device, "UEFI's own iSCSI initiator", "Headwater (address alone)");
    let steps = record["steps"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["step"] != "script" && step["step"] != "boot-file"), "{record:#}");
    assert!(record["hand_over"]["at_ms"].is_number(), "the kernel did not take over by the iBFT: {record:#}");
}

#[test]
fn machines_boot_beside_another_dhcp_server() {
    let devices = [Device::new("proxy-bios", 4), Device::new("proxy-uefi", 5)];
    let mut site = Site::begin("proxy", Dhcp::Beside, lab::micro::micro().unwrap(), &devices);
    let ways = [(Firmware::BiosIpxeRom, "BIOS, iPXE in ROM"), (Firmware::UefiPxe, "UEFI PXE")];
    for (device, (firmware, name)) in devices.iter().zip(ways) {
        let mut guest = site.boot(device, firmware);
        write_proof(&mut guest, device.name);
        tell(&mut site, device, name, "dnsmasq; Headwater as proxyDHCP");
    }
}

#[test]
fn machine_with_a_chap_secret_boots() {
    let device = Device::with("chap", 6, "chap_user = \"chap\"\nchap_secret = \"a secret of sixteen\"");
    let site = Site::micro("chap", std::slice::from_ref(&device));
    let mut guest = site.boot(&device, Firmware::BiosIpxeRom);
    write_proof(&mut guest, "with CHAP");
}

fn step<'a>(record: &'a serde_json::Value, kind: &str) -> &'a serde_json::Value {
    let steps = record["steps"].as_array().unwrap();
    steps.iter().find(|step| step["step"] == kind).unwrap_or_else(|| panic!("no step {kind} in {record:#}"))
}
