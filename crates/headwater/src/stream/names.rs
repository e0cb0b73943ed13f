//! Names of targets, and by what an operating system recognises its disk.
use iscsi::directory::IscsiName;
use scsi::UnitIdentity;
use vdisk::BootId;

use crate::config::DeviceName;

/// A target's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetName {
    /// Whose disk it is.
    pub device: DeviceName,
    /// Which boot of the device; `None`: the one that is current, for initiators configured by hand.
    pub boot: Option<BootId>,
}

impl TargetName {
    /// Takes `<prefix>:<device>` or `<prefix>:<device>:b<boot>` apart.
    #[must_use]
    pub fn parse(prefix: &str, name: &IscsiName) -> Option<Self> {
        let rest = name.as_str().strip_prefix(prefix)?.strip_prefix(':')?;
        let (device, boot) = match rest.split_once(':') {
            Some((device, boot)) => (device, Some(BootId::new(boot.strip_prefix('b')?).ok()?)),
            None => (rest, None),
        };
        Some(Self { device: DeviceName::parse(device).ok()?, boot })
    }

    /// Puts it together.
    #[must_use]
    pub fn format(&self, prefix: &str) -> String {
        match &self.boot {
            Some(boot) => format!("{prefix}:{}:b{boot}", self.device),
            None => format!("{prefix}:{}", self.device),
        }
    }
}

/// The name of an NBD export, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportName {
    /// `device/<device>` or `device/<device>@<boot>`: a device's disk, of its current boot or of this one.
    Device(DeviceName, Option<BootId>),
    /// `vdisk/<name>` or `vdisk/<name>@<version>`: a vDisk as it is.
    Vdisk(String),
}

impl ExportName {
    /// Takes a name apart.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(vdisk) = text.strip_prefix("vdisk/") {
            return Some(Self::Vdisk(vdisk.to_owned()));
        }
        let rest = text.strip_prefix("device/")?;
        let (device, boot) = match rest.split_once('@') {
            Some((device, boot)) => (device, Some(BootId::new(boot).ok()?)),
            None => (rest, None),
        };
        Some(Self::Device(DeviceName::parse(device).ok()?, boot))
    }
}

impl std::fmt::Display for ExportName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(device, Some(boot)) => write!(f, "device/{device}@{boot}"),
            Self::Device(device, None) => write!(f, "device/{device}"),
            Self::Vdisk(vdisk) => write!(f, "vdisk/{vdisk}"),
        }
    }
}

/// A vDisk's name without its version.
#[must_use]
pub fn base_name(vdisk: &str) -> &str {
    vdisk.split_once('@').map_or(vdisk, |(name, _)| name)
}

/// By what a device recognises its disk: the same at every boot, another for another device or vDisk.
#[must_use]
pub fn unit_identity(device: &DeviceName, vdisk: &str) -> UnitIdentity {
    let mut uuid = fnv1a_128(format!("{device}\n{vdisk}").as_bytes()).to_be_bytes();
    // RFC 9562 §5.8: version 8 (made our own way), variant 10b.
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut uuid;
    *version = (*version & 0x0F) | 0x80;
    *variant = (*variant & 0x3F) | 0x80;
    let serial = uuid.iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    UnitIdentity { serial, uuid }
}

/// FNV-1a with 128 bits (draft-eastlake-fnv §5): it must be the same in every version of Headwater.
pub(crate) fn fnv1a_128(bytes: &[u8]) -> u128 {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "iqn.2026-11.org.headwater";

    fn parse(text: &str) -> Option<TargetName> {
        TargetName::parse(PREFIX, &IscsiName::parse(text).unwrap())
    }

    #[test]
    fn target_names_come_apart_and_together() {
        let boot = "iqn.2026-11.org.headwater:lab-01:b0k3v";
        let name = parse(boot).unwrap();
        assert_eq!((name.device.as_str(), name.boot.as_ref().map(BootId::as_str)), ("lab-01", Some("0k3v")));
        assert_eq!(name.format(PREFIX), boot);
        let plain = parse("iqn.2026-11.org.headwater:lab-01").unwrap();
        assert_eq!(plain.boot, None);
        assert_eq!(plain.format(PREFIX), "iqn.2026-11.org.headwater:lab-01");
    }

    #[test]
    fn names_that_are_not_ours_are_refused() {
        for text in [
            "iqn.2026-11.org.headwater",
            "iqn.2026-11.org.headwater:",
            "iqn.2026-11.org.headwater2:lab-01",
            "iqn.2026-11.org.headwater:lab-01:0k3v",
            "iqn.2026-11.org.headwater:lab-01:b",
            "iqn.2026-11.org.headwater:lab-01:b0:c",
            "iqn.2026-11.org.headwater:lab.01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn export_names_come_apart_and_together() {
        for name in ["device/lab-01", "device/lab-01@0k3v", "vdisk/debian", "vdisk/debian@3"] {
            assert_eq!(ExportName::parse(name).unwrap().to_string(), name);
        }
        for bad in
            ["", "lab-01", "device/", "device/lab.01", "device/lab-01@", "device/lab-01@0@1", "device/a/b"]
        {
            assert_eq!(ExportName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn identity_of_a_disk_never_changes_and_differs_between_devices_and_vdisks() {
        let device = |name| DeviceName::parse(name).unwrap();
        let identity = unit_identity(&device("lab-01"), "debian");
        assert_eq!(
            identity.serial,
            identity.uuid.iter().take(10).map(|b| format!("{b:02x}")).collect::<String>()
        );
        assert_eq!((identity.uuid[6] >> 4, identity.uuid[8] >> 6), (8, 2));
        assert_ne!(identity.uuid, unit_identity(&device("lab-02"), "debian").uuid);
        assert_ne!(identity.uuid, unit_identity(&device("lab-01"), "other").uuid);
        assert_eq!(fnv1a_128(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        // From the test vectors of the draft: "foobar".
        assert_eq!(fnv1a_128(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
