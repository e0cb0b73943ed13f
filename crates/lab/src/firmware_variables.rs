//! OVMF's store of variables, filled before the machine's first start.
//!
//! A store is a firmware volume (UEFI PI specification, volume 3, §3.2.1) whose header is followed by a *variable store*
//! header and by variables one after another, each on a multiple of four bytes, as EDK II lays them out
//! (`MdeModulePkg/Include/Guid/VariableFormat.h`, authenticated variables). OVMF's empty store holds none; ours are
//! written where they begin.
//!
//! [`iscsi_disk`] gives what a person would enter on the page *iSCSI Configuration*. That takes more than the attempt
//! itself: the driver makes `Attempt 1` to `Attempt 8` anew, empty, unless `InitialAttemptOrder` says that all eight were
//! made; it takes an attempt for its card only if that names the card's address with colons; and the last byte of the
//! attempt must say that it is in use. The layout was read from what OVMF stored for an attempt entered by hand.
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Where a firmware volume's header keeps its length, 16 bits.
const VOLUME_HEADER_LENGTH: Range<usize> = 48..50;
/// The variable store's header behind it: GUID, size, format, state, reserved.
const STORE_HEADER_BYTES: usize = 28;
/// A flash byte that nothing was written to.
const ERASED: u8 = 0xff;

const START: u16 = 0x55aa;
/// Added, and its header is valid (the flash's bits are cleared one by one).
const STATE_ADDED: u8 = 0x3f;
const NON_VOLATILE: u32 = 1;
const BOOT_SERVICES: u32 = 2;
const RUNTIME: u32 = 4;

/// EFI_GLOBAL_VARIABLE (UEFI specification, §3.3), as its bytes lie in memory.
const GLOBAL: [u8; 16] =
    [0x61, 0xdf, 0xe4, 0x8b, 0xca, 0x93, 0xd2, 0x11, 0xaa, 0x0d, 0x00, 0xe0, 0x98, 0x03, 0x2b, 0x8c];
/// EFI_ISCSI_INITIATOR_NAME_PROTOCOL (UEFI specification, §16.2): the initiator's name and the attempts.
const INITIATOR: [u8; 16] =
    [0x45, 0x49, 0x32, 0x59, 0x44, 0xec, 0x0d, 0x4c, 0xb1, 0xcd, 0x9d, 0xb1, 0x39, 0xdf, 0x07, 0x0c];
/// The initiator driver's own settings.
const INITIATOR_SETTINGS: [u8; 16] =
    [0x16, 0xd6, 0x47, 0x4b, 0xd6, 0xa8, 0x52, 0x45, 0x9d, 0x44, 0xcc, 0xad, 0x2e, 0x0f, 0x4c, 0xf9];

/// How many attempts the driver keeps.
const ATTEMPTS: u8 = 8;

/// A variable that outlives a reset.
struct Variable {
    name: &'static str,
    vendor: [u8; 16],
    attributes: u32,
    data: Vec<u8>,
}

impl Variable {
    fn bytes(&self) -> Result<Vec<u8>> {
        let name = utf16(self.name);
        let mut bytes = Vec::new();
        bytes.extend(START.to_le_bytes());
        bytes.extend([STATE_ADDED, 0]);
        bytes.extend(self.attributes.to_le_bytes());
        // No count, no time and no key: it is not an authenticated one.
        bytes.extend([0; 8 + 16 + 4]);
        bytes.extend(u32::try_from(name.len())?.to_le_bytes());
        bytes.extend(u32::try_from(self.data.len())?.to_le_bytes());
        bytes.extend(self.vendor);
        bytes.extend(name);
        bytes.extend(&self.data);
        bytes.resize(bytes.len().next_multiple_of(4), ERASED);
        Ok(bytes)
    }
}

/// A disk that the firmware's own iSCSI initiator reaches.
pub(crate) struct IscsiDisk<'a> {
    /// The initiator's name.
    pub(crate) initiator: &'a str,
    /// The target's name; LUN 0 is the disk.
    pub(crate) target: &'a str,
    /// The server.
    pub(crate) server: std::net::Ipv4Addr,
    /// Its port.
    pub(crate) port: u16,
    /// The address of the network card to use, with colons. It gets its own IPv4 address by DHCP.
    pub(crate) mac: &'a str,
}

/// Copies OVMF's empty store `from` to `to`, with a machine in it that boots from this disk.
///
/// # Errors
/// Where `from` is no empty store, or a name does not fit.
pub(crate) fn iscsi_disk(from: &Path, to: &Path, disk: &IscsiDisk<'_>) -> Result<()> {
    let variables = [
        Variable {
            name: "Boot0000",
            vendor: GLOBAL,
            attributes: NON_VOLATILE | BOOT_SERVICES | RUNTIME,
            data: any_disk_boot_option(),
        },
        Variable {
            name: "BootOrder",
            vendor: GLOBAL,
            attributes: NON_VOLATILE | BOOT_SERVICES | RUNTIME,
            data: vec![0, 0],
        },
        Variable {
            name: "I_NAME",
            vendor: INITIATOR,
            attributes: NON_VOLATILE | BOOT_SERVICES,
            data: [disk.initiator.as_bytes(), &[0]].concat(),
        },
        Variable {
            name: "Attempt 1",
            vendor: INITIATOR,
            attributes: NON_VOLATILE | BOOT_SERVICES,
            data: attempt(disk)?,
        },
        Variable {
            name: "AttemptOrder",
            vendor: INITIATOR_SETTINGS,
            attributes: NON_VOLATILE | BOOT_SERVICES,
            data: vec![1],
        },
        Variable {
            name: "InitialAttemptOrder",
            vendor: INITIATOR_SETTINGS,
            attributes: NON_VOLATILE | BOOT_SERVICES,
            data: (1..=ATTEMPTS).collect(),
        },
    ];
    let empty = std::fs::read(from)
        .with_context(|| format!("cannot read {}: is `ovmf` installed?", from.display()))?;
    let filled = fill(empty, &variables).with_context(|| format!("variable store {}", from.display()))?;
    std::fs::write(to, filled).with_context(|| format!("cannot write {}", to.display()))
}

fn fill(mut store: Vec<u8>, variables: &[Variable]) -> Result<Vec<u8>> {
    let header = store.get(VOLUME_HEADER_LENGTH).context("it is too short")?;
    let header = usize::from(u16::from_le_bytes(header.try_into()?));
    let mut place = header + STORE_HEADER_BYTES;
    for variable in variables {
        let bytes = variable.bytes()?;
        let free = store.get_mut(place..place + bytes.len()).context("it is too short")?;
        ensure!(free.iter().all(|&byte| byte == ERASED), "it is not empty at byte {place}");
        free.copy_from_slice(&bytes);
        place += bytes.len();
    }
    Ok(store)
}

/// `EFI_LOAD_OPTION` (UEFI specification, §3.1.3) with a path that names a file and no device: the first disk that has it.
fn any_disk_boot_option() -> Vec<u8> {
    const ACTIVE: u32 = 1;
    let file = utf16("\\EFI\\BOOT\\BOOTX64.EFI");
    // A media device path of the kind "file path", §10.3.5.4; then the end of the whole path, §10.3.1.
    let node = u16::try_from(4 + file.len()).unwrap_or(u16::MAX);
    let mut path = vec![4, 4];
    path.extend(node.to_le_bytes());
    path.extend(file);
    path.extend([0x7f, 0xff, 4, 0]);
    let mut option = Vec::from(ACTIVE.to_le_bytes());
    option.extend(u16::try_from(path.len()).unwrap_or(u16::MAX).to_le_bytes());
    option.extend(utf16("disk"));
    option.extend(path);
    option
}

/// Places in an attempt as the driver of edk2-stable202211 stores it. What is not named stays zero.
mod place {
    use std::ops::Range;

    pub(super) const BYTES: usize = 1049;
    pub(super) const CARD: usize = 16;
    pub(super) const ATTEMPT: usize = 17;
    pub(super) const ATTEMPT_NAME: Range<usize> = 26..38;
    pub(super) const MAC: Range<usize> = 38..70;
    pub(super) const PORT: Range<usize> = 182..184;
    pub(super) const ENABLED: usize = 184;
    pub(super) const ADDRESS_BY_DHCP: usize = 222;
    pub(super) const TARGET: Range<usize> = 224..448;
    pub(super) const SERVER: Range<usize> = 448..452;
    pub(super) const CONNECT_TIMEOUT_MS: Range<usize> = 473..475;
    pub(super) const ISID: Range<usize> = 476..482;
    pub(super) const IN_USE: usize = 1048;
}

fn attempt(disk: &IscsiDisk<'_>) -> Result<Vec<u8>> {
    /// Generous: the server may be an emulated machine's neighbour.
    const CONNECT_TIMEOUT_MS: u16 = 20_000;
    let mut bytes = vec![0; place::BYTES];
    let mut put = |at: Range<usize>, value: &[u8]| -> Result<()> {
        ensure!(value.len() <= at.len(), "{} bytes do not fit into {}", value.len(), at.len());
        bytes[at.start..][..value.len()].copy_from_slice(value);
        Ok(())
    };
    put(place::ATTEMPT_NAME, b"Attempt 1")?;
    put(place::MAC, disk.mac.to_uppercase().as_bytes())?;
    put(place::PORT, &disk.port.to_le_bytes())?;
    put(place::TARGET, disk.target.as_bytes())?;
    put(place::SERVER, &disk.server.octets())?;
    put(place::CONNECT_TIMEOUT_MS, &CONNECT_TIMEOUT_MS.to_le_bytes())?;
    // RFC 7143 §11.12.5: an ISID of the OUI format begins with two zero bits; the driver makes it of the card's address.
    let mac: Vec<u8> =
        disk.mac.split(':').map(|digits| u8::from_str_radix(digits, 16)).collect::<Result<_, _>>()?;
    let mut isid: [u8; 6] = mac.as_slice().try_into().with_context(|| format!("address {:?}", disk.mac))?;
    isid[0] &= 0x3f;
    put(place::ISID, &isid)?;
    for one in [place::CARD, place::ATTEMPT, place::ENABLED, place::ADDRESS_BY_DHCP, place::IN_USE] {
        put(one..one + 1, &[1])?;
    }
    Ok(bytes)
}

/// With the zero at its end.
fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> IscsiDisk<'static> {
        IscsiDisk {
            initiator: "iqn.2026-11.org.headwater:ovmf:initiator",
            target: "iqn.2026-11.org.headwater:ovmf",
            server: std::net::Ipv4Addr::new(10, 0, 2, 2),
            port: 13260,
            mac: "52:54:00:77:00:10",
        }
    }

    #[test]
    fn attempt_is_the_one_that_ovmf_stores_when_it_is_entered_by_hand() {
        let bytes = attempt(&disk()).unwrap();
        assert_eq!(bytes.len(), 1049);
        assert_eq!(&bytes[176..192], b"\0\0\0\0\0\0\xcc\x33\x01\0\0\0\0\0\0\0");
        assert_eq!(&bytes[216..228], b"\0\0\0\0\0\0\x01\0iqn.");
        assert_eq!(&bytes[38..55], b"52:54:00:77:00:10");
        assert_eq!(&bytes[448..452], [10, 0, 2, 2]);
        assert_eq!(&bytes[475..482], [0, 0x12, 0x54, 0, 0x77, 0, 0x10]);
        let long = "x".repeat(225);
        attempt(&IscsiDisk { target: &long, ..disk() }).unwrap_err();
    }

    #[test]
    fn variables_follow_one_another_on_multiples_of_four() {
        let mut empty = vec![ERASED; 4096];
        empty[48..50].copy_from_slice(&72_u16.to_le_bytes());
        let variable =
            |data: &[u8]| Variable { name: "I_NAME", vendor: INITIATOR, attributes: 3, data: data.to_vec() };
        let store = fill(empty.clone(), &[variable(b"abc"), variable(b"")]).unwrap();
        let second = 100 + (60 + 14 + 3_usize).next_multiple_of(4);
        assert_eq!(store[100..104], [0xaa, 0x55, 0x3f, 0]);
        assert_eq!(store[second..second + 4], [0xaa, 0x55, 0x3f, 0]);
        assert_eq!(store[100 + 36..100 + 44], [14, 0, 0, 0, 3, 0, 0, 0]);
        // One that holds something already is left alone.
        assert!(fill(store, &[variable(b"")]).unwrap_err().to_string().contains("not empty"));
        empty.truncate(110);
        fill(empty, &[variable(b"")]).unwrap_err();
    }
}
