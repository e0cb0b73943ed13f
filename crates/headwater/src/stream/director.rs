//! What the boot services are told: which machines are answered, and what each boots.
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use netboot::director::{
    BootPlan, BootStep, DhcpClient, DhcpDecision, Director, KernelBoot, MacAddress, SanBoot, ScriptRequest,
};

use netboot::limits::LogGate;
use vdisk::BootId;

use super::admission::{Admission, Answer};
use super::boot_disk::BootDisk;
use super::boot_id::BootIds;
use super::device::DeviceSlot;
use super::devices::{Devices, NotServed, Recognised, Served};
use super::kernels::{self, Kernel, Kernels};
use super::known::KnownDevice;
use super::names::{ExportName, TargetName};
use crate::cloud::Seeds;
use crate::config::{BootWords, DirectKernel};
use crate::timeline::Recorder;
use crate::timeline::recorder::NewBoot;

/// The LUN of every device's disk.
pub const LUN: u16 = 0;

/// Where a machine that reached us at `local` finds its disk: there if a listener covers that address, else at the first
/// listener that has an address of its own.
fn portal(listeners: &[SocketAddr], local: IpAddr) -> Option<SocketAddr> {
    let local = local.to_canonical();
    let covers = |portal: &&SocketAddr| {
        let own = portal.ip();
        own == local || (own.is_unspecified() && (own.is_ipv6() || local.is_ipv4()))
    };
    let covering = listeners.iter().find(covers).map(|portal| SocketAddr::new(local, portal.port()));
    covering.or_else(|| listeners.iter().find(|portal| !portal.ip().is_unspecified()).copied())
}

/// Has the state of a device written soon, without a wait.
pub trait StateSaver: std::fmt::Debug + Send + Sync {
    /// Has it written.
    fn save(&self, device: &Arc<DeviceSlot>);
}

/// Decides for the boot services.
#[derive(Debug)]
pub struct BootDirector {
    /// The devices.
    pub devices: Arc<Devices>,
    /// Hears of every step.
    pub recorder: Arc<Recorder>,
    /// The kernels of vDisks that have one.
    pub kernels: Kernels,
    /// Makes boot ids.
    pub ids: Arc<BootIds>,
    /// Where disks are served over iSCSI.
    pub portals: Vec<SocketAddr>,
    /// Where disks are served over NBD.
    pub nbd: Vec<SocketAddr>,
    /// Has the state of devices written.
    pub saver: Box<dyn StateSaver>,
    /// Says where operating systems are told about themselves.
    pub seeds: Arc<Seeds>,
    /// How many devices boot at a time.
    pub admission: Arc<Admission>,
    /// For machines that are not served.
    pub strangers: Mutex<LogGate>,
}

impl Director for BootDirector {
    fn dhcp(&self, client: &DhcpClient) -> DhcpDecision {
        let (address, name) = match self.devices.recognise(client.mac, None) {
            Ok(Recognised::Known(device)) => (device.address, Some(device.name)),
            Ok(Recognised::Stranger(name)) => (None, name),
            Err(why) => {
                self.log_stranger(client.mac, "DHCP", why);
                return DhcpDecision::Ignore;
            }
        };
        DhcpDecision::Serve { address, host_name: name.map(|name| name.to_string()) }
    }

    fn plan(&self, request: &ScriptRequest) -> BootPlan {
        let Served { device, slot } = match self.machine(request) {
            Ok(served) => served,
            Err(why) => {
                self.log_stranger(request.mac, "script request", why.clone());
                return BootPlan::Refuse(match why {
                    NotServed::Unknown => {
                        format!("Headwater does not know a device with MAC address {}.", request.mac)
                    }
                    NotServed::TooManyUnknown => {
                        "Too many machines that no administrator has added.".to_owned()
                    }
                    NotServed::Unreadable => {
                        "Headwater cannot read what it remembers of this machine.".to_owned()
                    }
                    NotServed::NotAdded(why) => format!("Headwater cannot add this machine: {why}."),
                });
            }
        };
        let disk = match self.devices.decide(device.id) {
            Ok(disk) => disk,
            Err(why) => {
                tracing::warn!(device = device.name.as_str(), why, "the device gets nothing to boot");
                return BootPlan::Refuse(format!("Headwater gives {} nothing to boot: {why}.", device.name));
            }
        };
        let kernel = match self.kernel(&slot, &disk) {
            Ok(kernel) => kernel,
            Err(why) => {
                tracing::warn!(device = device.name.as_str(), why, "the device has no kernel to boot");
                return BootPlan::Refuse(format!("Headwater cannot start {}: {why}.", device.name));
            }
        };
        if let Some(wait) = self.wait_of(&device) {
            return wait;
        }
        let boot = match self.ids.mint(self.recorder.clock().now()) {
            Ok(boot) => boot,
            Err(error) => {
                tracing::error!(%error, "no random bytes for a boot id");
                return BootPlan::Refuse("Headwater cannot make a boot id.".to_owned());
            }
        };
        let Some(plan) = self.plan_of(&device, (&disk, kernel), &boot, request) else {
            tracing::error!(device = device.name.as_str(), address = %request.local, "no listener for disks can be reached there");
            return BootPlan::Refuse(format!("Headwater serves no disks on {}.", request.local));
        };
        let prefix = &self.devices.config().iscsi.iqn_prefix;
        let target = TargetName { device: device.name.clone(), boot: Some(boot.clone()) }.format(prefix);
        slot.hand_out(&boot);
        self.admission.queue().began(&device.name, boot.as_str());
        self.saver.save(&slot);
        let (id, vdisk) = (boot.as_str(), disk.name.as_str());
        self.recorder.script(&NewBoot {
            id,
            device: &device.name,
            mac: Some(request.mac),
            vdisk,
            version: Some(disk.number.get().into()),
            target: &target,
        });
        tracing::debug!(device = device.name.as_str(), boot = id, vdisk, version = %disk.number, peer = %request.peer, "boot planned");
        plan
    }

    fn step(&self, mac: MacAddress, step: BootStep) {
        // The script's step is recorded with its plan, which knows the boot.
        if step != BootStep::Script && self.devices.recognise(mac, None).is_ok() {
            self.recorder.step(mac, step);
        }
    }
}

impl BootDirector {
    /// The device that asks, which may have to be made first.
    fn machine(&self, request: &ScriptRequest) -> Result<Served, NotServed> {
        let uuid = request.uuid.as_deref();
        match self.devices.recognise(request.mac, uuid)? {
            Recognised::Known(_) => self.devices.by_machine(request.mac, uuid),
            // That waits for the catalogue, on a thread that others' requests may be on.
            Recognised::Stranger(_) => {
                tokio::task::block_in_place(|| self.devices.by_machine(request.mac, uuid))
            }
        }
    }

    /// What a device is told that has to wait until others have booted.
    fn wait_of(&self, device: &KnownDevice) -> Option<BootPlan> {
        let Answer::Wait { place, about, again_s } = self.admission.queue().ask(&device.name, Instant::now())
        else {
            return None;
        };
        let name = &device.name;
        let text = match place {
            Some(place) => {
                format!("{name} waits: place {place} in the queue, about {} s", about.as_secs().max(1))
            }
            None => format!("{name} waits: too many machines are in the queue"),
        };
        Some(BootPlan::Wait(text, again_s))
    }

    /// The kernel that a device is started with, and what the configuration says of it; `None`: firmware boots from the disk.
    fn kernel(&self, slot: &DeviceSlot, disk: &BootDisk) -> Result<Option<(DirectKernel, Kernel)>, String> {
        let Some(direct) = kernels::configured(&self.devices, disk.vdisk) else { return Ok(None) };
        // The first boot of a version copies its kernel, and waits for storage, on a thread that others' requests may be on.
        let kernel = tokio::task::block_in_place(|| self.kernels.of(&self.devices, &direct, slot, disk))?;
        Ok(Some((direct, kernel)))
    }

    /// What a machine does that boots this boot and reached us at `local`; `None` where it cannot reach its disk.
    fn plan_of(
        &self,
        device: &KnownDevice,
        (boot_disk, kernel): (&BootDisk, Option<(DirectKernel, Kernel)>),
        boot: &BootId,
        request: &ScriptRequest,
    ) -> Option<BootPlan> {
        let local = request.local;
        let config = self.devices.config();
        let name = TargetName { device: device.name.clone(), boot: Some(boot.clone()) };
        let target = name.format(&config.iscsi.iqn_prefix);
        let (portal, nbd) = (portal(&self.portals, local), portal(&self.nbd, local));
        let title = format!("vDisk {} on {}", boot_disk.name, device.name);
        let disk = portal.map(|portal| SanBoot {
            portal,
            target: target.clone(),
            lun: LUN,
            initiator: device.initiator.as_str().to_owned(),
            chap: device.proof.chap().map(|chap| (chap.user.clone(), chap.secret.clone())),
            mutual_chap: device.proof.chap().and_then(|chap| chap.target.clone()),
            title: title.clone(),
        });
        let Some((own, kernel)) = kernel else { return disk.map(BootPlan::San) };
        let command_line = own.command_line.fill(&BootWords {
            options: kernel.options.as_deref(),
            nbd,
            iscsi: portal,
            export: &ExportName::Device(device.name.clone(), Some(boot.clone())).to_string(),
            target: &target,
            initiator: device.initiator.as_str(),
            device: device.name.as_str(),
            mac: &request.mac.to_string(),
            boot: boot.as_str(),
            seed: &self.seeds.url(local.to_canonical(), &device.name, boot),
        })?;
        // A kernel out of the image is told of its root by name, and finds the disk in the iBFT; others are told all.
        let hooked = kernel.options.is_some() && !own.command_line.names_export();
        let disk = if hooked { Some(disk?) } else { None };
        let Kernel { name: kernel, initrd, .. } = kernel;
        Some(BootPlan::Kernel(KernelBoot { kernel, initrd, command_line, disk, title }))
    }

    fn log_stranger(&self, mac: MacAddress, what: &str, why: NotServed) {
        let Some(held_back) =
            self.strangers.lock().unwrap_or_else(PoisonError::into_inner).open(Instant::now())
        else {
            return;
        };
        let why = match why {
            NotServed::Unknown => "no device has this MAC address".to_owned(),
            NotServed::TooManyUnknown => "too many machines that no administrator has added".to_owned(),
            NotServed::Unreadable => "its state cannot be read".to_owned(),
            NotServed::NotAdded(why) => format!("it cannot be added: {why}"),
        };
        tracing::warn!(%mac, held_back, "{what} not answered: {why}");
    }
}
