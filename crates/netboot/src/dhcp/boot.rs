//! What DHCP tells a client to boot.
//!
//! Firmware gets the iPXE that fits its architecture: by TFTP (PXE), or as a URL (UEFI HTTP Boot). iPXE gets the URL of
//! its script. All that the script needs to know is in that URL already, because DHCP knows it: the MAC address, the
//! platform (from the client's architecture) and the UUID (from option 97). So iPXE fetches the final script with one
//! request, and no script has to chain to another. iPXE does not expand settings in a URL that comes from DHCP.
use std::net::Ipv4Addr;

use super::client::ClientMessage;
use super::options::{self, Options, write_option};
use crate::boot_files::BootFileNames;
use crate::director::ClientKind;
use crate::script_url;

/// Where the boot files and the script are.
#[derive(Clone, Debug)]
pub struct BootServer {
    /// Our address on the client's network.
    pub address: Ipv4Addr,
    /// The port of our HTTP server.
    pub http_port: u16,
    /// The names of the boot files.
    pub names: BootFileNames,
}

/// What to tell a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootInfo {
    /// A file name for TFTP, or a URL.
    pub file: String,
    /// The vendor class to answer with (option 60), where the firmware insists on one.
    pub vendor_class: Option<&'static str>,
}

impl BootServer {
    /// What `message`'s sender is to boot; `None` where we have nothing for it.
    #[must_use]
    pub fn boot_info(&self, message: &ClientMessage) -> Option<BootInfo> {
        let url = |name: &str| {
            format!("http://{}:{}{}{name}", self.address, self.http_port, crate::http::BOOT_PATH)
        };
        let pxe = |name: &str| BootInfo { file: name.to_owned(), vendor_class: None };
        // UEFI 2.10 §24.7.3.1: HTTP Boot takes only answers whose vendor class is HTTPClient.
        let http = |name: &str| BootInfo { file: url(name), vendor_class: Some("HTTPClient") };
        match message.firmware {
            ClientKind::BiosPxe => Some(pxe(&self.names.bios)),
            ClientKind::UefiX64Pxe => Some(pxe(&self.names.uefi_x64)),
            ClientKind::UefiX64Http => Some(http(&self.names.uefi_x64)),
            ClientKind::UefiIa32Pxe => self.names.uefi_ia32.as_deref().map(pxe),
            ClientKind::UefiIa32Http => self.names.uefi_ia32.as_deref().map(http),
            ClientKind::UefiArm64Pxe => self.names.uefi_arm64.as_deref().map(pxe),
            ClientKind::UefiArm64Http => self.names.uefi_arm64.as_deref().map(http),
            ClientKind::Ipxe => Some(BootInfo { file: self.script_url(message), vendor_class: None }),
            ClientKind::Other => None,
        }
    }

    fn script_url(&self, message: &ClientMessage) -> String {
        // IANA architecture 0 is x86 BIOS; iPXE runs on UEFI otherwise. iPXE's own words for the two.
        let platform = message.architecture.map(|number| if number == 0 { "pcbios" } else { "efi" });
        script_url::script_url(self.address, self.http_port, message.mac, platform, message.uuid().as_ref())
    }
}

/// Option 175 for iPXE when we are its DHCP server: no proxyDHCP offer will follow. Saves the two seconds that iPXE
/// waits for one.
#[must_use]
pub fn ipxe_options() -> Vec<u8> {
    encapsulated(&[(options::IPXE_NO_PROXY_DHCP, &[1])])
}

/// Option 43 for PXE clients: boot the file that stands in this very answer (PXE 2.1 §2.2.1).
#[must_use]
pub fn pxe_options(boot_item: Option<&[u8]>) -> Vec<u8> {
    let control: (u8, &[u8]) = (options::PXE_DISCOVERY_CONTROL, &[options::PXE_USE_BOOT_FILE]);
    match boot_item {
        // PXE 2.1 §2.2.1: a boot server answers with the item that it was asked for.
        Some(item) => encapsulated(&[control, (options::PXE_BOOT_ITEM, item)]),
        None => encapsulated(&[control]),
    }
}

fn encapsulated(inner: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (code, value) in inner {
        write_option(*code, value, &mut out);
    }
    out.push(options::END);
    out
}

/// Reads encapsulated options; for tests and tools.
#[must_use]
pub fn read_encapsulated(value: &[u8]) -> Option<Options> {
    let mut inner = Options::new();
    inner.read(value).ok()?;
    Some(inner)
}
