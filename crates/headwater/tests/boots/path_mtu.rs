//! What the path to a device carries: found, shown, tested, and used. No machine boots: a neighbour reads the device's disk through a
//! bridge whose port takes smaller packets than both ends, and says nothing of it, as switches do.
use std::process::Command;

use serde_json::Value;

use crate::site::{Device, Dhcp, Site, Storage};

const ADDRESS: &str = "10.77.0.9";
/// What both ends send at most.
const JUMBO: u32 = 9000;
/// From the agreed segment up to the packet: IPv4, TCP, its timestamps.
const HEADERS_BYTES: u64 = 52;

/// How long one MiB may take on a machine with much else to do, in seconds.
const HANGS_AFTER_S: &str = "300";

/// A bridge's port leaves room for the tag of a VLAN.
const TAG_BYTES: u32 = 4;

#[test]
fn path_is_found_shown_and_used_though_a_switch_drops_what_both_ends_send() {
    let device = Device::new("far", 0x61);
    let image = lab::micro::micro().unwrap();
    let vdisks = vec![("golden", image.vhdx.clone())];
    let storage = |_: &_| Storage { vdisks, more: String::new() };
    let site = Site::begin_with("path-mtu", Dhcp::Ours, image, std::slice::from_ref(&device), storage);
    let far = site.network.neighbour("far", ADDRESS).unwrap();
    let ip = |command: &mut Command, words: &str| {
        assert!(command.args(words.split(' ')).status().unwrap().success(), "ip {words}");
    };
    let switch = |words: &str| ip(&mut site.network.command("ip"), &format!("link set dev {words}"));
    // Packets as they go over a cable: the kernel does not take them together, which no port would find too large.
    switch("br0 mtu 9000 gso_max_segs 1");
    ip(&mut site.network.command_at(&far, "ip"), "link set dev eth0 mtu 9000 gso_max_segs 1");

    switch("far0 mtu 9000");
    assert_eq!(pinged(&site, ADDRESS), JUMBO);
    read_disk(&site, &far);
    let path = path(&site);
    assert_eq!(path["segment_bytes"].as_u64().unwrap() + HEADERS_BYTES, u64::from(JUMBO), "{path}");
    assert_eq!((&path["jumbo"], &path["limited_by"]), (&true.into(), &"link".into()), "{path}");

    for middle in [1400, 1500] {
        switch(&format!("far0 mtu {middle}"));
        let found = pinged(&site, ADDRESS);
        assert!((middle..=middle + TAG_BYTES).contains(&found), "{found}, not {middle}");
    }
    // The packets of this read are lost at first; then the server's kernel sends smaller ones.
    read_disk(&site, &far);
    let path = self::path(&site);
    let (now, agreed) = (path["segment_bytes"].as_u64().unwrap(), JUMBO);
    assert!(now < 1500 && u64::from(agreed) > now, "{path}");
    assert_eq!((&path["jumbo"], &path["limited_by"]), (&false.into(), &"network".into()), "{path}");
    assert!(path["text"].as_str().unwrap().contains("did not arrive"), "{path}");
    // By its name: it is asked where the device logged in from.
    assert!((1500..=1500 + TAG_BYTES).contains(&pinged(&site, "far")));
    let shown = site.headwater(&["boots", "show", "far"]);
    assert!(shown.contains("did not arrive") && shown.contains("doctor network"), "{shown}");
}

/// The largest ping that is answered, as the doctor says.
fn pinged(site: &Site, whom: &str) -> u32 {
    let told = site.headwater(&["doctor", "network", whom, "--output", "json"]);
    let told: Value = serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}: {told}"));
    u32::try_from(told["pinged_bytes"].as_u64().unwrap_or_else(|| panic!("{told}"))).unwrap()
}

/// What the device's status says of its path.
fn path(site: &Site) -> Value {
    let told = site.headwater(&["device", "status", "far", "--output", "json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    told["path"].clone()
}

/// Reads the first MiB of the device's disk, whole.
fn read_disk(site: &Site, far: &str) {
    let copy = site.network.folder().join("far.raw");
    let disk = "driver=iscsi,transport=tcp,portal=10.77.0.1:3260,target=iqn.2026-11.org.headwater:far,lun=0,\
                initiator-name=iqn.2026-11.org.headwater:far:initiator";
    // Where the path is not found, the read hangs for ever.
    let mut read = site.network.command_at(far, "timeout");
    read.args([
        HANGS_AFTER_S,
        "qemu-img",
        "dd",
        "--image-opts",
        "-O",
        "raw",
        "bs=1M",
        "count=1",
        &format!("if={disk}"),
    ]);
    read.arg(format!("of={}", copy.display()));
    let output = read.output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::metadata(&copy).unwrap().len(), 1 << 20);
    std::fs::remove_file(&copy).unwrap();
}
