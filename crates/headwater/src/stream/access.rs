//! Who may use what over NBD: a pure function of what is known of the client.
//!
//! An iSCSI initiator has a name and, by CHAP, a secret. An NBD client has neither; what tells clients apart is, from
//! the strongest to the weakest: a certificate that names the device; a certificate that machines share (one that lies in
//! a golden image, say); the address that the device has by its configuration; and the name of a boot, which its machine
//! has from its boot script. A socket file of this machine is the administrators': its mode says who they are.
use std::net::IpAddr;

use nbd::exports::{Peer, PeerAddress};

use super::known::{KnownDevice, Proof};
use crate::config::{Nbd, Reader};

/// Why a client may not use an export, for the log: nobody else is told.
pub type Denied = String;

/// Whether a client may use a device's disk; `names_boot`: it names one of the device's boots.
///
/// # Errors
/// Why not.
pub fn device(nbd: &Nbd, peer: &Peer, device: &KnownDevice, names_boot: bool) -> Result<(), Denied> {
    let Some(address) = remote(peer) else { return Ok(()) };
    let own = device.certificate.as_deref().unwrap_or(device.name.as_str());
    let names = names(peer);
    if names.iter().any(|name| name.eq_ignore_ascii_case(own)) {
        return Ok(());
    }
    // Who demands a proof over iSCSI must not be had without one by another way.
    if device.proof != Proof::None {
        return Err(format!(
            "the device has a CHAP secret: over NBD it must show a certificate with the name \"{own}\""
        ));
    }
    let shared = names
        .iter()
        .any(|name| nbd.shared_certificates.iter().any(|shared| name.eq_ignore_ascii_case(shared)));
    if has_certificate(peer) && !shared {
        return Err(format!("its certificate has the names {names:?}; that of the device has \"{own}\""));
    }
    match device.address {
        Some(expected) if IpAddr::V4(expected) != address => {
            Err(format!("the device has the address {expected}"))
        }
        Some(_) => Ok(()),
        None if names_boot => Ok(()),
        None => Err("without a certificate or an address of its own, the device's disk goes by the name of its boot, \
                     which its boot script hands out"
            .to_owned()),
    }
}

/// Whether a client may read whole vDisks.
///
/// # Errors
/// Why not.
pub fn vdisks(nbd: &Nbd, peer: &Peer) -> Result<(), Denied> {
    let Some(address) = remote(peer) else { return Ok(()) };
    let names = names(peer);
    let admitted = nbd.vdisk_readers.iter().any(|reader| match reader {
        Reader::Certificate(name) => names.iter().any(|other| other.eq_ignore_ascii_case(name)),
        Reader::Network(network) => network.contains(address),
    });
    if admitted { Ok(()) } else { Err("nbd.vdisk_readers does not name it".to_owned()) }
}

/// Where it connects from; `None`: through a socket file of this machine.
pub fn remote(peer: &Peer) -> Option<IpAddr> {
    match peer.address {
        PeerAddress::Ip(address) => Some(address.ip().to_canonical()),
        PeerAddress::Unix => None,
    }
}

fn names(peer: &Peer) -> &[String] {
    peer.tls.as_ref().map_or(&[], |tls| &tls.names)
}

fn has_certificate(peer: &Peer) -> bool {
    peer.tls.as_ref().is_some_and(|tls| tls.certificate.is_some())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nbd::exports::TlsPeer;

    use super::*;
    use crate::config::parse;

    fn config(device: &str) -> (Nbd, KnownDevice) {
        let text = format!(
            "stores.s = \"/s\"\n[nbd]\nlisten = \"10.0.0.1\"\ntls = \"off\"\nshared_certificates = \"farm\"\n\
             vdisk_readers = [\"10.9.0.0/16\", \"backup\"]\n\
             [[vdisk]]\nname = \"v\"\nfile = \"v\"\n[[device]]\nname = \"lab-01\"\nmac = \"52:54:00:00:00:01\"\n\
             vdisk = \"v\"\n{device}\n"
        );
        let mut config = parse(&text, Path::new("x")).unwrap();
        let nbd = config.nbd.take().unwrap();
        let device = config.devices.remove(0);
        let known = KnownDevice {
            id: farm::model::DeviceId::new(1).unwrap(),
            name: device.name,
            mac: Some(device.mac),
            address: device.address,
            initiator: device.initiator,
            proof: device.chap.map_or(Proof::None, Proof::Chap),
            certificate: device.certificate,
            rates: meter::Rates::UNLIMITED,
            vdisk: Some(device.vdisk),
            is_private: false,
        };
        (nbd, known)
    }

    fn plain(address: &str) -> Peer {
        Peer { address: PeerAddress::Ip(format!("{address}:7").parse().unwrap()), tls: None }
    }

    fn certified(names: &[&str]) -> Peer {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Peer { tls: Some(TlsPeer { certificate: Some(vec![1]), names }), ..plain("10.0.0.9") }
    }

    const UNIX: Peer = Peer { address: PeerAddress::Unix, tls: None };

    #[test]
    fn certificate_of_the_device_opens_its_disk_and_that_of_another_does_not() {
        let (nbd, lab) = config("");
        assert!(device(&nbd, &certified(&["other", "LAB-01"]), &lab, false).is_ok());
        assert!(device(&nbd, &certified(&["lab-02"]), &lab, true).is_err());
        assert!(device(&nbd, &certified(&[]), &lab, true).is_err());
        let (nbd, renamed) = config("certificate = \"pc7.example.org\"");
        assert!(device(&nbd, &certified(&["pc7.example.org"]), &renamed, false).is_ok());
        assert!(device(&nbd, &certified(&["lab-01"]), &renamed, true).is_err());
    }

    #[test]
    fn name_of_a_boot_is_needed_where_nothing_better_tells_the_machine() {
        let (nbd, lab) = config("");
        for peer in [plain("10.0.0.9"), certified(&["farm"])] {
            assert!(device(&nbd, &peer, &lab, true).is_ok());
            assert!(device(&nbd, &peer, &lab, false).is_err());
        }
    }

    #[test]
    fn address_of_the_configuration_binds_all_but_certificates_of_the_device() {
        let (nbd, lab) = config("address = \"10.0.0.9\"");
        assert!(device(&nbd, &plain("10.0.0.9"), &lab, false).is_ok());
        assert!(device(&nbd, &plain("10.0.0.8"), &lab, true).is_err());
        let elsewhere = Peer { address: plain("10.0.0.8").address, ..certified(&["farm"]) };
        assert!(device(&nbd, &elsewhere, &lab, true).is_err());
        let elsewhere = Peer { address: plain("10.0.0.8").address, ..certified(&["lab-01"]) };
        assert!(device(&nbd, &elsewhere, &lab, false).is_ok());
    }

    #[test]
    fn device_with_a_chap_secret_is_had_by_its_certificate_alone() {
        let (nbd, lab) = config("address = \"10.0.0.9\"\nchap_user = \"u\"\nchap_secret = \"a-good-secret\"");
        assert!(device(&nbd, &plain("10.0.0.9"), &lab, true).is_err());
        assert!(device(&nbd, &certified(&["farm"]), &lab, true).is_err());
        assert!(device(&nbd, &certified(&["lab-01"]), &lab, true).is_ok());
        assert!(device(&nbd, &UNIX, &lab, false).is_ok());
    }

    #[test]
    fn vdisks_are_read_by_those_that_are_named() {
        let (nbd, _) = config("");
        for reader in [plain("10.9.3.4"), certified(&["backup"]), UNIX] {
            assert!(vdisks(&nbd, &reader).is_ok());
        }
        for other in [plain("10.0.0.9"), certified(&["lab-01"]), certified(&["farm"])] {
            assert!(vdisks(&nbd, &other).is_err());
        }
    }
}
