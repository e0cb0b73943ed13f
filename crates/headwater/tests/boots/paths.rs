//! Ways from power-on to the disk, beside those in `firmware`: boot files that are loaded by TFTP on BIOS, other files for UEFI, and
//! networks with DHCP servers of all kinds, relay agents and several segments.
use lab::{Firmware, Guest, MICRO_READY_WITHIN, RELAY_ADDRESS};
use serde_json::Value;

use crate::figures::tell;
use crate::site::{Device, Dhcp, Site, Storage, write_proof};

const BRIDGE: &str = "br1";

#[test]
fn bios_pxe_rom_loads_undionly_and_uefi_pxe_the_file_that_is_configured() {
    let devices = [Device::new("undionly", 0), Device::new("snponly", 1)];
    let mut site = micro("files", Dhcp::Ours, &devices, "[netboot]\nuefi_x64 = \"snponly.efi\"\n");
    let [bios, uefi] = boot(
        &mut site,
        &devices,
        [Firmware::BiosPxe, Firmware::UefiPxe],
        ["BIOS PXE", "UEFI PXE, snponly.efi"],
        "Headwater",
    );
    assert_eq!(file(&bios), ("undionly.kpxe", "tftp"), "{bios:#}");
    assert_eq!(file(&uefi), ("snponly.efi", "tftp"), "{uefi:#}");
}

#[test]
fn machines_boot_by_the_boot_files_that_another_dhcp_server_names() {
    let devices = [Device::new("named-bios", 2), Device::new("named-uefi", 3)];
    let mut site = micro("named", Dhcp::Names, &devices, "");
    let [bios, uefi] = boot(
        &mut site,
        &devices,
        [Firmware::BiosPxe, Firmware::UefiPxe],
        ["BIOS PXE", "UEFI PXE"],
        "dnsmasq, options 66 and 67",
    );
    assert!(steps(&bios).all(|step| step != "dhcp-offer"), "Headwater answered DHCP: {bios:#}");
    assert_eq!((file(&bios).0, file(&uefi).0), ("undionly.kpxe", "ipxe.efi"));
}

#[test]
fn ipxe_and_http_boot_go_by_what_another_dhcp_server_names() {
    let devices = [Device::new("named-ipxe", 4), Device::new("named-http", 5)];
    let mut site = micro("named-more", Dhcp::Names, &devices, "");
    let [_, http] = boot(
        &mut site,
        &devices,
        [Firmware::BiosIpxeRom, Firmware::UefiHttp],
        ["BIOS, iPXE in ROM", "UEFI HTTP Boot"],
        "dnsmasq, options 66 and 67",
    );
    assert_eq!(file(&http), ("ipxe.efi", "http"));
}

#[test]
fn pxe_rom_and_http_boot_get_their_files_beside_another_dhcp_server() {
    let devices = [Device::new("beside-bios", 6), Device::new("beside-http", 7)];
    let mut site = micro("beside", Dhcp::Beside, &devices, "");
    let [bios, http] = boot(
        &mut site,
        &devices,
        [Firmware::BiosPxe, Firmware::UefiHttp],
        ["BIOS PXE", "UEFI HTTP Boot"],
        "dnsmasq; Headwater as proxyDHCP",
    );
    assert_eq!(file(&bios), ("undionly.kpxe", "tftp"));
    assert_eq!(file(&http), ("ipxe.efi", "http"));
}

#[test]
fn machines_behind_a_relay_agent_boot_from_another_network() {
    let devices = [Device::new("relayed-bios", 8), Device::new("relayed-uefi", 9)];
    let image = lab::micro::micro().unwrap();
    let vdisks = vec![("golden", image.vhdx.clone())];
    let more = format!(
        "[[relay]]\ninterface = \"br0\"\nrange = \"10.78.0.100-10.78.0.199\"\nnetmask = \"255.255.255.0\"\n\
         router = \"{RELAY_ADDRESS}\"\n"
    );
    let mut relay = None;
    let mut site = Site::begin_with("relay", Dhcp::Ours, image, &devices, |network| {
        network.segment(BRIDGE, None).unwrap();
        relay = Some(network.relay(BRIDGE).unwrap());
        Storage { vdisks, more }
    });
    let firmware = [Firmware::BiosPxe, Firmware::UefiPxe];
    let mut guests = [0, 1].map(|index| {
        Guest::start(&site.network, &devices[index].spec(firmware[index]).on_bridge(BRIDGE)).unwrap()
    });
    for ((guest, device), name) in guests.iter_mut().zip(&devices).zip(["BIOS PXE", "UEFI PXE"]) {
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        write_proof(guest, device.name);
        let record = tell(&mut site, device, name, "Headwater, through a relay agent (dnsmasq) and router");
        let address = record["steps"].as_array().unwrap().iter().find_map(|step| step["address"].as_str());
        assert!(address.unwrap().starts_with("10.78.0.1"), "{record:#}");
    }
}

#[test]
fn each_interface_has_its_network_and_one_that_is_not_configured_is_silent() {
    let devices = [Device::new("first-net", 10), Device::new("second-net", 11)];
    let image = lab::micro::micro().unwrap();
    let vdisks = vec![("golden", image.vhdx.clone())];
    let more =
        format!("[[interface]]\nname = \"{BRIDGE}\"\nmode = \"dhcp\"\nrange = \"10.78.0.100-10.78.0.199\"\n");
    let mut site = Site::begin_with("segments", Dhcp::Ours, image, &devices, |network| {
        network.segment(BRIDGE, Some("10.78.0.1")).unwrap();
        network.segment("br2", Some("10.79.0.1")).unwrap();
        Storage { vdisks, more }
    });
    // A third machine, on the interface that is not configured: its firmware gets no answer.
    let stranger = devices[0].spec(Firmware::BiosPxe).on_bridge("br2");
    let mut unheard =
        Guest::start(&site.network, &lab::GuestSpec { name: "unheard".to_owned(), ..stranger }).unwrap();
    unheard.wait_for_any(&["No configuration methods", "No bootable device"], MICRO_READY_WITHIN).unwrap();
    drop(unheard);
    assert!(
        !site.server.service().log().contains("address given"),
        "an interface that is not configured was answered"
    );
    let mut guests = [(&devices[0], lab::INTERFACE), (&devices[1], BRIDGE)].map(|(device, bridge)| {
        Guest::start(&site.network, &device.spec(Firmware::BiosIpxeRom).on_bridge(bridge)).unwrap()
    });
    for ((guest, device), (name, network)) in
        guests.iter_mut().zip(&devices).zip([("br0", "10.77.0."), (BRIDGE, "10.78.0.")])
    {
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        let told = guest.run("ip -4 -o addr show dev eth0").unwrap();
        assert!(told.contains(network), "{name}: {told}");
        tell(&mut site, device, "BIOS, iPXE in ROM", "Headwater on two interfaces");
    }
}

#[test]
fn another_dhcp_server_that_a_machine_takes_the_offer_of_is_told_in_the_log() {
    let mut site = Site::micro("rogue", &[Device::new("known", 12)]);
    let _rogue = site.network.site_dhcp().unwrap();
    // Nobody but the other server answers a machine that is not known.
    let _misled = site.start(&Device::new("misled", 13), Firmware::BiosIpxeRom);
    let told = site.server.service().wait_for_log("another DHCP server", MICRO_READY_WITHIN).unwrap();
    assert!(told.contains(lab::SITE_DHCP_ADDRESS), "{told}");
    let status = site.headwater(&["status"]);
    let odd = format!("br0: another DHCP server is on this network: {}", lab::SITE_DHCP_ADDRESS);
    assert!(status.contains(&odd), "{status}");
}

/// A site of devices with the micro guest, and more of the configuration.
fn micro(name: &str, dhcp: Dhcp, devices: &[Device], more: &str) -> Site {
    let image = lab::micro::micro().unwrap();
    let storage = Storage { vdisks: vec![("golden", image.vhdx.clone())], more: more.to_owned() };
    Site::begin_with(name, dhcp, image, devices, |_| storage)
}

/// Boots two machines at once, has them write, and gives their records.
fn boot(
    site: &mut Site,
    devices: &[Device; 2],
    firmware: [Firmware; 2],
    names: [&str; 2],
    dhcp: &str,
) -> [Value; 2] {
    let mut guests = [0, 1].map(|index| site.start(&devices[index], firmware[index]));
    for (guest, device) in guests.iter_mut().zip(devices) {
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        write_proof(guest, device.name);
    }
    [0, 1].map(|index| tell(site, &devices[index], names[index], dhcp))
}

/// Name and protocol of the boot file.
fn file(record: &Value) -> (&str, &str) {
    let steps = record["steps"].as_array().unwrap();
    let file = steps.iter().find(|step| step["step"] == "boot-file");
    let file = file.unwrap_or_else(|| panic!("no boot file in {record:#}"));
    (file["name"].as_str().unwrap(), file["protocol"].as_str().unwrap())
}

fn steps(record: &Value) -> impl Iterator<Item = &str> {
    record["steps"].as_array().unwrap().iter().filter_map(|step| step["step"].as_str())
}
