//! What the NBD server is told: which exports there are, for whom, and what they hold.
//!
//! - `device/NAME@BOOT` is the disk of one boot of a device, as an iSCSI target `<prefix>:NAME:bBOOT` is, under the same
//!   rules; `device/NAME` is that of the current boot. Several connections of one machine share it.
//! - `vdisk/NAME` is a vDisk as it is, to be read.
//!
//! To *look* at an export begins no boot.
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use block::{Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, Patience};
use connections::Quiet;
use nbd::exports::{
    ConnectionEnd, Export, ExportObserver, Exports, Listed, Peer, PeerAddress, Purpose, Refusal, RequestDone,
};
use vdisk::BootId;

use super::access;
use super::accounts::Protocol;
use super::boot_id::BootIds;
use super::device::{DeviceSlot, NotOpened, SessionEnder};
use super::devices::Devices;
use super::names::ExportName;
use crate::config::Nbd;
use crate::timeline::Recorder;
use crate::timeline::record::Program;
use crate::timeline::recorder::NewBoot;

/// What clients are told that may not use what they ask for, whether it is there or not.
const DENIED: &str = "there is no such export for this client; the server's log says more";

/// How often one address is complained about.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// A disk and who hears of its use.
type InUse = (Arc<dyn BlockDevice>, Arc<dyn ExportObserver>);

/// Decides for the NBD server.
pub struct BootExports {
    /// Who may what.
    pub access: Nbd,
    /// The devices.
    pub devices: Arc<Devices>,
    /// Hears of every use.
    pub recorder: Arc<Recorder>,
    /// Makes boot ids.
    pub ids: Arc<BootIds>,
    /// Ends iSCSI sessions; there once the target runs.
    pub ender: Arc<OnceLock<Box<dyn SessionEnder>>>,
    complaints: Quiet,
}

impl Exports for BootExports {
    fn list(&self, peer: &Peer) -> Vec<Listed> {
        let devices = self.devices.all();
        let own =
            devices.iter().filter(|slot| access::device(&self.access, peer, &slot.device, false).is_ok());
        let own = own.map(|slot| Listed {
            name: ExportName::Device(slot.device.name.clone(), None).to_string(),
            description: device_description(slot),
        });
        let vdisks = match access::vdisks(&self.access, peer) {
            Ok(()) => self.devices.images().names(),
            Err(_) => Vec::new(),
        };
        let vdisks = vdisks.into_iter().map(|name| Listed {
            description: format!("vDisk {name}, read-only"),
            name: ExportName::Vdisk(name).to_string(),
        });
        own.chain(vdisks).collect()
    }

    fn open(&self, name: &str, purpose: Purpose, peer: &Peer) -> Result<Export, Refusal> {
        let opened = match ExportName::parse(name) {
            Some(ExportName::Device(device, boot)) => match self.devices.by_name(&device) {
                Some(slot) => self.open_device(&slot, boot.as_ref(), purpose, peer),
                None => Err(Refusal::Unknown(format!("there is no device \"{device}\""))),
            },
            Some(ExportName::Vdisk(vdisk)) => self.open_vdisk(&vdisk, peer),
            None => Err(Refusal::Unknown(
                "exports have names such as \"device/NAME\" and \"vdisk/NAME\"".to_owned(),
            )),
        };
        opened.map_err(|refusal| self.refuse(name, peer, refusal))
    }
}

impl BootExports {
    /// Decides by these rules.
    #[must_use]
    pub fn new(
        access: Nbd,
        devices: Arc<Devices>,
        recorder: Arc<Recorder>,
        ids: Arc<BootIds>,
        ender: Arc<OnceLock<Box<dyn SessionEnder>>>,
    ) -> Self {
        Self { access, devices, recorder, ids, ender, complaints: Quiet::new(COMPLAIN_EVERY) }
    }

    fn open_device(
        &self,
        slot: &Arc<DeviceSlot>,
        boot: Option<&BootId>,
        purpose: Purpose,
        peer: &Peer,
    ) -> Result<Export, Refusal> {
        access::device(&self.access, peer, &slot.device, boot.is_some()).map_err(Refusal::NotAllowed)?;
        let fresh = self.ids.mint(self.recorder.clock().now()).map_err(|error| {
            tracing::error!(%error, "no random bytes for a boot id");
            Refusal::Unavailable("the server cannot make a boot id".to_owned())
        })?;
        let (device, observer): InUse = match purpose {
            Purpose::Look => {
                let geometry = slot.look(boot, &fresh).map_err(refusal)?;
                (Arc::new(Preview(geometry)), Arc::new(Unobserved))
            }
            Purpose::Use => self.begin_use(slot, boot, &fresh, peer)?,
        };
        Ok(Export {
            device,
            description: device_description(slot),
            read_only: false,
            // All connections share the volume, and its flush is that of the whole write cache.
            multi_conn: true,
            // A hole in the write cache; a private image may have to store zeros.
            fast_zero: !slot.device.is_private(),
            observer,
            account: self.devices.account(&slot.device, Protocol::Nbd),
        })
    }

    fn begin_use(
        &self,
        slot: &Arc<DeviceSlot>,
        boot: Option<&BootId>,
        fresh: &BootId,
        peer: &Peer,
    ) -> Result<InUse, Refusal> {
        let ender = self.ender.get().map(AsRef::as_ref);
        let opened = slot.open(boot, None, fresh, ender).map_err(refusal)?;
        let device = &slot.device;
        let boot = NewBoot {
            id: opened.boot.as_str(),
            device: &device.name,
            mac: Some(device.mac),
            vdisk: &device.vdisk,
            target: &ExportName::Device(device.name.clone(), boot.cloned()).to_string(),
        };
        let observer = self.recorder.login(&boot, Program::NbdClient, socket_address(peer));
        tracing::info!(
            device = device.name.as_str(),
            boot = opened.boot.as_str(),
            vdisk = device.vdisk,
            peer = %peer.address,
            "{}",
            if opened.began { "NBD export in use: boot begins" } else { "NBD export in use: boot goes on" }
        );
        Ok((opened.device, Arc::new(observer)))
    }

    fn open_vdisk(&self, vdisk: &str, peer: &Peer) -> Result<Export, Refusal> {
        access::vdisks(&self.access, peer).map_err(Refusal::NotAllowed)?;
        let image = self.devices.images().get(vdisk);
        let image = image.ok_or_else(|| Refusal::Unknown(format!("there is no vDisk \"{vdisk}\"")))?;
        Ok(Export {
            device: Arc::clone(&image.device),
            description: format!("vDisk {vdisk}, read-only"),
            read_only: true,
            multi_conn: true,
            fast_zero: false,
            observer: Arc::new(Unobserved),
            account: self.devices.accounts().of_vdisk(vdisk, Protocol::Nbd),
        })
    }

    /// Says in the log why, and to a stranger that there is nothing.
    fn refuse(&self, name: &str, peer: &Peer, refusal: Refusal) -> Refusal {
        let (Refusal::NotAllowed(why) | Refusal::Unknown(why)) = &refusal else { return refusal };
        let Some(address) = access::remote(peer) else { return refusal };
        if let Some(held_back) = self.complaints.due(address, Instant::now()) {
            let name: String = name.chars().take(128).map(|c| if c.is_control() { '?' } else { c }).collect();
            tracing::warn!(peer = %peer.address, export = name, held_back, "NBD export refused: {why}");
        }
        Refusal::NotAllowed(DENIED.to_owned())
    }
}

impl std::fmt::Debug for BootExports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BootExports").finish_non_exhaustive()
    }
}

fn device_description(slot: &DeviceSlot) -> String {
    let device = &slot.device;
    if device.is_private() {
        return format!("vDisk {}, written by {} itself", device.vdisk, device.name);
    }
    format!("vDisk {} with the write cache of {}", device.vdisk, device.name)
}

fn socket_address(peer: &Peer) -> Option<SocketAddr> {
    match peer.address {
        PeerAddress::Ip(address) => {
            let canonical: IpAddr = address.ip().to_canonical();
            Some(SocketAddr::new(canonical, address.port()))
        }
        PeerAddress::Unix => None,
    }
}

fn refusal(why: NotOpened) -> Refusal {
    match why {
        // A machine that is told so must boot anew; no name would help it.
        NotOpened::Removed(text) | NotOpened::Unavailable(text) => Refusal::Unavailable(text),
        NotOpened::Unknown(text) => Refusal::Unknown(text),
    }
}

/// Is told nothing: a use that belongs to no boot.
#[derive(Debug)]
struct Unobserved;

impl ExportObserver for Unobserved {
    fn request_done(&self, _: &RequestDone) {}

    fn ended(&self, _: ConnectionEnd) {}
}

/// A disk that is only looked at.
#[derive(Debug)]
struct Preview(Geometry);

impl BlockDevice for Preview {
    fn geometry(&self) -> Geometry {
        self.0
    }

    fn read(&self, _: ByteOffset, _: &mut [u8], _: Patience) -> Result<(), BlockError> {
        Err(BlockError::Closed)
    }

    fn write(&self, _: ByteOffset, _: &[u8], _: Patience) -> Result<(), BlockError> {
        Err(BlockError::Closed)
    }

    fn flush(&self, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::Closed)
    }

    fn discard(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::Closed)
    }

    fn write_zeroes(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::Closed)
    }

    fn allocation(&self, _: ByteRange, _: Patience) -> Result<(Allocation, ByteLength), BlockError> {
        Err(BlockError::Closed)
    }
}
