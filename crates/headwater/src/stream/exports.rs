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
use super::boot_disk::BootDisk;
use super::boot_id::BootIds;
use super::device::{NotOpened, SessionEnder, Wish};
use super::devices::{Devices, Served};
use super::known::KnownDevice;
use super::names::ExportName;
use crate::config::Nbd;
use crate::path::towards;
use crate::timeline::Recorder;
use crate::timeline::record::Program;
use crate::timeline::recorder::NewBoot;

/// What clients are told that may not use what they ask for, whether it is there or not.
const DENIED: &str = "there is no such export for this client; the server's log says more";

/// How often one address is complained about.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// A disk and who hears of its use.
struct InUse {
    disk: BootDisk,
    contents: Arc<dyn BlockDevice>,
    observer: Arc<dyn ExportObserver>,
}

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
        let own = self.devices.map(|device| {
            access::device(&self.access, peer, &device, false).ok()?;
            let description = device_description(&device);
            Some(Listed { name: ExportName::Device(device.name, None).to_string(), description })
        });
        let vdisks = match access::vdisks(&self.access, peer) {
            Ok(()) => self.devices.vdisk_names(),
            Err(_) => Vec::new(),
        };
        let vdisks = vdisks.into_iter().map(|name| Listed {
            description: format!("vDisk {name}, read-only"),
            name: ExportName::Vdisk(name).to_string(),
        });
        own.into_iter().flatten().chain(vdisks).collect()
    }

    fn open(&self, name: &str, purpose: Purpose, peer: &Peer) -> Result<Export, Refusal> {
        let opened = match ExportName::parse(name) {
            Some(ExportName::Device(device, boot)) => match self.devices.by_name(&device) {
                Some(served) => self.open_device(&served, boot.as_ref(), purpose, peer),
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
        served: &Served,
        boot: Option<&BootId>,
        purpose: Purpose,
        peer: &Peer,
    ) -> Result<Export, Refusal> {
        let device = &served.device;
        access::device(&self.access, peer, device, boot.is_some()).map_err(Refusal::NotAllowed)?;
        let fresh = self.ids.mint(self.recorder.clock().now()).map_err(|error| {
            tracing::error!(%error, "no random bytes for a boot id");
            Refusal::Unavailable("the server cannot make a boot id".to_owned())
        })?;
        let decide = |picked| self.devices.decide(device.id, picked);
        let wish = Wish { boot, target: None, fresh: &fresh, decide: &decide };
        let InUse { disk, contents, observer } = match purpose {
            Purpose::Look => {
                let (geometry, disk) = served.slot.look(&wish).map_err(refusal)?;
                InUse { disk, contents: Arc::new(Preview(geometry)), observer: Arc::new(Unobserved) }
            }
            Purpose::Use => self.begin_use(served, &wish, peer)?,
        };
        Ok(Export {
            device: contents,
            description: device_description(device),
            read_only: false,
            // All connections share the volume, and its flush is that of the whole write cache.
            multi_conn: true,
            // A hole in the write cache; a private image may have to store zeros.
            fast_zero: !disk.is_written(),
            observer,
            account: self.devices.account(device, &disk, Protocol::Nbd),
        })
    }

    fn begin_use(&self, served: &Served, wish: &Wish<'_>, peer: &Peer) -> Result<InUse, Refusal> {
        let ender = self.ender.get().map(AsRef::as_ref);
        let opened = served.slot.open(wish, ender).map_err(refusal)?;
        let device = &served.device;
        let boot = NewBoot {
            id: opened.boot.as_str(),
            device: &device.name,
            mac: device.mac,
            vdisk: &opened.disk.name,
            version: Some(opened.disk.number.get().into()),
            target: &ExportName::Device(device.name.clone(), wish.boot.cloned()).to_string(),
            disk_bytes: Some(opened.device.geometry().size.get()),
        };
        let address = socket_address(peer);
        let observer = self.recorder.login(&boot, Program::NbdClient, address);
        if let Some(path) = address.and_then(|address| towards(address.ip()).ok()) {
            self.recorder.path(&device.name, opened.boot.as_str(), path);
        }
        tracing::info!(
            device = device.name.as_str(),
            boot = opened.boot.as_str(),
            vdisk = opened.disk.name,
            version = %opened.disk.number,
            peer = %peer.address,
            "{}",
            if opened.began { "NBD export in use: boot begins" } else { "NBD export in use: boot goes on" }
        );
        Ok(InUse { disk: opened.disk, contents: opened.device, observer: Arc::new(observer) })
    }

    fn open_vdisk(&self, vdisk: &str, peer: &Peer) -> Result<Export, Refusal> {
        access::vdisks(&self.access, peer).map_err(Refusal::NotAllowed)?;
        let found = self.devices.to_read(vdisk).map_err(Refusal::Unavailable)?;
        let (disk, image) =
            found.ok_or_else(|| Refusal::Unknown(format!("there is no vDisk \"{vdisk}\"")))?;
        Ok(Export {
            device: image,
            description: format!("vDisk {vdisk}, read-only"),
            read_only: true,
            multi_conn: true,
            fast_zero: false,
            observer: Arc::new(Unobserved),
            account: self.devices.accounts().of_vdisk(vdisk, &disk.image.path, Protocol::Nbd),
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

fn device_description(device: &KnownDevice) -> String {
    let (name, vdisk) = (&device.name, device.vdisk_name());
    if device.is_private {
        return format!("vDisk {vdisk}, written by {name} itself");
    }
    format!("vDisk {vdisk} with the write cache of {name}")
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
