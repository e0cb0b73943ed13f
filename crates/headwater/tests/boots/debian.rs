//! The full golden image, one telling boot for each firmware.
use lab::{Firmware, GOLDEN_READY_WITHIN, Guest};
use serde_json::Value;

use crate::site::{Device, Dhcp, Site};

#[test]
fn debian_boots_by_bios_and_its_timeline_tells_every_step() {
    debian_boots(Firmware::BiosIpxeRom);
}

#[test]
fn debian_boots_by_uefi_and_its_timeline_tells_every_step() {
    debian_boots(Firmware::UefiPxe);
}

fn debian_boots(firmware: Firmware) {
    let device = Device::new("debian", 0);
    let image = lab::golden::golden().unwrap();
    let mut site = Site::begin("debian", Dhcp::Ours, image, std::slice::from_ref(&device));
    let before = site.image_hash();
    let mut guest = Guest::start(&site.network, &device.spec(firmware)).unwrap();
    guest.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN).unwrap();
    site.server.service().wait_for_log("ready", std::time::Duration::from_secs(60)).unwrap();
    guest.run("echo debian >/root/proof && sync && grep -q debian /root/proof").unwrap();
    let record = site.boot_record(&device);
    timeline_is_whole(&record);
    // The table that administrators read has the same steps.
    let table = site.headwater(&["boots", "show", "debian"]);
    for word in ["script", "first stage", "hand-over", "second stage", "ready"] {
        assert!(table.to_lowercase().contains(word), "no {word:?} in\n{table}");
    }
    // Timelines outlive the server.
    site.server.restart().unwrap();
    let again = site.boot_record(&device);
    assert_eq!(again["ready_at_ms"], record["ready_at_ms"]);
    drop(guest);
    assert_eq!(site.image_hash(), before, "the golden image changed");
}

fn timeline_is_whole(record: &Value) {
    let steps = record["steps"].as_array().unwrap();
    let at = |kind: &str| {
        let step = steps.iter().find(|step| step["step"] == kind);
        step.and_then(|step| step["at_ms"].as_f64()).unwrap_or_else(|| panic!("no step {kind} in {record:#}"))
    };
    let order =
        ["dhcp-discover", "dhcp-offer", "dhcp-request", "dhcp-ack", "script", "login", "ready"].map(at);
    assert!(order.is_sorted(), "steps out of order: {record:#}");
    let hand_over = record["hand_over"]["at_ms"].as_f64().unwrap();
    let ready = record["ready_at_ms"].as_f64().unwrap();
    assert!(at("login") < hand_over && hand_over < ready, "{record:#}");
    for (stage, least_bytes) in [("first_stage", 10 << 20), ("second_stage", 10 << 20)] {
        let bytes =
            record[stage]["reads"]["bytes"].as_u64().unwrap_or_else(|| panic!("no reads in {record:#}"));
        assert!(bytes > least_bytes, "{stage} read {bytes} bytes");
    }
    assert!(record["second_stage"]["writes"]["bytes"].as_u64().unwrap() > 0, "{record:#}");
}
