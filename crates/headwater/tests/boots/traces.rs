//! The block requests of real boots, recorded. The files that ship as benchmark inputs (`bench/traces`) were made by this test:
//! with `HEADWATER_TRACES=FOLDER` it leaves them there.
use std::path::Path;
use std::process::Stdio;

use lab::{Firmware, GOLDEN_READY_WITHIN, Guest, Image, Network};
use serde_json::Value;

use crate::site::{Device, Dhcp, Site, Storage};

#[test]
fn boots_by_bios_uefi_and_direct_kernel_are_recorded_from_login_to_ready() {
    let bios = Device::new("bios", 0);
    let uefi = Device::new("uefi", 1);
    let kernel = Device { vdisk: "direct", ..Device::new("kernel", 2) };
    let image = lab::golden::golden().unwrap();
    let image_bytes = disk_bytes(&image);
    let devices = [bios, uefi, kernel];
    let site =
        Site::begin_with("traces", Dhcp::Ours, image.clone(), &devices, |network| vdisks(network, &image));
    for (device, firmware, least_first_bytes) in [
        (&devices[0], Firmware::BiosIpxeRom, 10 << 20),
        (&devices[1], Firmware::UefiPxe, 10 << 20),
        (&devices[2], Firmware::BiosIpxeRom, 0),
    ] {
        let summary = record(&site, device, firmware);
        let read = |stage: &str| {
            let groups = summary["groups"].as_array().unwrap().iter();
            let own = groups.filter(|group| group["stage"] == stage && group["kind"] == "read");
            own.filter_map(|group| group["bytes"].as_u64()).sum::<u64>()
        };
        assert!(read("first") >= least_first_bytes, "{}: {summary:#}", device.name);
        assert!(read("second") > 10 << 20, "{}: {summary:#}", device.name);
        // What was counted of the boot is what was recorded of it.
        assert_eq!(summary["disk_bytes"].as_u64(), Some(image_bytes), "{}", device.name);
        let record = site.boot_record(device);
        let counted = record["first_stage"]["reads"]["bytes"].as_u64().unwrap_or(0);
        assert_eq!(read("first"), counted, "{}", device.name);
        assert!(record["findings"].is_array());
    }
    let compared = site.headwater(&["boots", "compare", "bios", "kernel"]);
    assert!(compared.contains("kernel over HTTP"), "{compared}");
}

/// Boots a device to the end while it is recorded; what the trace shows.
fn record(site: &Site, device: &Device, firmware: Firmware) -> Value {
    let file = site.network.folder().join(format!("{}.csv.gz", device.name));
    let path = file.to_str().unwrap();
    let mut command = site.network.command(crate::site::PROGRAM);
    command.args(["trace", "record", device.name, "--next-boot", "--until-ready", "--to", path]);
    command.arg("--socket").arg(site.network.socket("headwater")).stdout(Stdio::piped());
    let recorder = command.spawn().unwrap();
    let status = || site.network.command(crate::site::PROGRAM);
    // The guest needs seconds to its first login; the recording must wait for it by then.
    let mut guest = Guest::start(&site.network, &device.spec(firmware)).unwrap();
    guest.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN).unwrap();
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    drop(guest);
    if let Some(folder) = std::env::var_os("HEADWATER_TRACES") {
        std::fs::copy(&file, Path::new(&folder).join(format!("{}.csv.gz", device.name))).unwrap();
    }
    let shown = status().args(["trace", "show", path, "--output", "json"]).output().unwrap();
    serde_json::from_slice(&shown.stdout).unwrap_or_else(|error| panic!("{error}: {shown:?}"))
}

/// The size of the disk in an image.
fn disk_bytes(image: &Image) -> u64 {
    let mut command = std::process::Command::new("qemu-img");
    let told = command.args(["info", "--output=json"]).arg(&image.vhdx).output().unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    told["virtual-size"].as_u64().unwrap()
}

fn vdisks(_: &Network, image: &Image) -> Storage {
    let file = image.vhdx.display();
    let more = format!("[[vdisk]]\nname = \"direct\"\nfile = \"{file}\"\nboot = \"kernel\"\n");
    Storage { vdisks: vec![("golden", image.vhdx.clone())], more }
}
