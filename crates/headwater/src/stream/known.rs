//! A device as it is known now: what the catalogue says, with what this server knows of it besides.
use std::net::Ipv4Addr;

use farm::model::{self, DeviceId, Stored};
use farm::snapshot::Snapshot;
use iscsi::directory::IscsiName;
use meter::Rates;
use netboot::director::MacAddress;

use crate::catalogue::local::Local;
use crate::config::{Chap, DeviceName, derived_initiator};
use crate::secrets::Secrets;

/// A device.
#[derive(Clone, Debug)]
pub struct KnownDevice {
    /// Names it in the catalogue.
    pub id: DeviceId,
    /// Its name.
    pub name: DeviceName,
    /// The address of its first network card.
    pub mac: Option<MacAddress>,
    /// The address that DHCP gives it; `None`: one of the pool.
    pub address: Option<Ipv4Addr>,
    /// The name that its initiator must use.
    pub initiator: IscsiName,
    /// What its initiator must prove.
    pub proof: Proof,
    /// The name in the certificate that it shows over NBD; `None`: its own name.
    pub certificate: Option<String>,
    /// How fast it may read and write.
    pub rates: Rates,
    /// The vDisk that it boots without a choice.
    pub vdisk: Option<String>,
    /// Whether it writes that itself.
    pub is_private: bool,
}

/// What an initiator must prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Nothing.
    None,
    /// That it knows this secret.
    Chap(Chap),
    /// That it knows a secret of this name, which this server does not have: nobody can.
    Unknown(String),
}

impl Proof {
    /// The secret that is proved, where it is known.
    #[must_use]
    pub fn chap(&self) -> Option<&Chap> {
        match self {
            Self::Chap(chap) => Some(chap),
            Self::None | Self::Unknown(_) => None,
        }
    }
}

impl KnownDevice {
    /// Puts together what is known. `None` where the device's name gives no initiator name with this prefix.
    #[must_use]
    pub fn of(
        device: &Stored<model::Device>,
        snapshot: &Snapshot,
        local: &Local,
        secrets: &Secrets,
        prefix: &str,
        usual: Rates,
    ) -> Option<Self> {
        let name = DeviceName::parse(device.name.as_str()).ok()?;
        let initiator = match &device.initiator {
            Some(initiator) => IscsiName::parse(initiator.as_str()),
            None => derived_initiator(prefix, &name),
        };
        let own = local.device(name.as_str());
        let proof = match (&device.chap, own.and_then(|own| own.chap.clone())) {
            (None, _) => Proof::None,
            (Some(_), Some(chap)) => Proof::Chap(chap),
            (Some(chap), None) => match secrets.get(chap.secret.as_str()) {
                Some(secret) => Proof::Chap(Chap { user: chap.user.to_string(), secret, target: None }),
                None => Proof::Unknown(chap.secret.to_string()),
            },
        };
        let limits = device.profile.limits;
        let rates = own.and_then(|own| own.rates).unwrap_or(Rates {
            bytes_per_second: limits
                .bytes_per_second
                .map(farm::model::ByteSize::bytes)
                .or(usual.bytes_per_second),
            requests_per_second: limits.requests_per_second.map(u64::from).or(usual.requests_per_second),
            burst: usual.burst,
        });
        let first = device.profile.disks.as_slice().iter().find(|disk| !disk.disabled);
        let vdisk = first.and_then(|disk| snapshot.vdisk(disk.vdisk));
        let pinned = own.and_then(|own| own.pinned);
        Some(Self {
            id: device.id,
            mac: device.macs.as_slice().first().map(|mac| MacAddress(mac.bytes())),
            address: device.address,
            initiator: initiator?,
            proof,
            certificate: own.and_then(|own| own.certificate.clone()),
            rates,
            vdisk: vdisk.map(|facts| match pinned {
                Some(number) => format!("{}@{number}", facts.vdisk.name),
                None => facts.vdisk.name.as_str().to_owned(),
            }),
            is_private: vdisk.is_some_and(|facts| facts.vdisk.mode == model::AccessMode::Private),
            name,
        })
    }

    /// What it boots, for people.
    #[must_use]
    pub fn vdisk_name(&self) -> &str {
        self.vdisk.as_deref().unwrap_or("none")
    }
}
