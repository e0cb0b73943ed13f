//! What the boot services are told: which machines are answered, and what each boots.
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use netboot::director::{
    BootPlan, BootStep, DhcpClient, DhcpDecision, Director, KernelBoot, LogIn, LogInPlan, MENU_CHOICE,
    MacAddress, MenuItem, MenuKeyPlan, MenuPlan, SanBoot, ScriptRequest,
};

use farm::model::{BadValue, DeviceId};
use farm::rules::menu::{Asked, BootChoice, LOCAL_DISK_TEXT, MenuEntry};
use netboot::dhcp::lookout::Oddity;
use netboot::limits::LogGate;
use vdisk::BootId;

use super::admission::{Admission, Answer};
use super::boot_disk::BootDisk;
use super::boot_id::BootIds;
use super::device::DeviceSlot;
use super::devices::{Devices, NotServed, Recognised, Served};
use super::kernels::{self, Kernel, Kernels};
use super::known::KnownDevice;
use super::menu::{Picked, Told};
use super::names::{ExportName, TargetName};
use super::oddities::Oddities;
use super::own_disk::{MOMENT_S, OwnDisks};
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

/// What somebody is told who may not boot this: not whether the user is known, and not what is missing.
const REFUSED: &str = "the log-in was refused";

/// Looks at log-ins at boot menus.
pub trait LogIns: std::fmt::Debug + Send + Sync {
    /// Whether this user, with this password, may run the device. Takes its time.
    ///
    /// # Errors
    /// Why not, for the log.
    fn check(&self, device: DeviceId, who: &LogIn, from: IpAddr) -> Result<(), String>;
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
    /// Looks at log-ins at boot menus.
    pub log_ins: Box<dyn LogIns>,
    /// Machines that are on their way to their own disks.
    pub own_disks: OwnDisks,
    /// What is odd about the networks.
    pub oddities: Arc<Oddities>,
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
        let asked = match asked(request) {
            Ok(asked) => asked,
            Err(why) => return BootPlan::Refuse(format!("Headwater cannot read the choice: {why}.")),
        };
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
                    NotServed::Waits(name) => {
                        format!("waiting for approval: name {name}, MAC {}.", request.mac)
                    }
                    NotServed::Refused => format!("the machine with MAC {} was refused.", request.mac),
                });
            }
        };
        if asked == Asked::First && self.own_disks.is_on_the_way(request.mac, Instant::now()) {
            let (title, default) = (LOCAL_DISK_TEXT.to_owned(), BootChoice::LocalDisk.to_string());
            return BootPlan::MenuKey(MenuKeyPlan { title, default, wait_s: MOMENT_S });
        }
        self.own_disks.elsewhere(request.mac);
        let (disk, chosen) = match self.devices.turn(device.id).next(asked) {
            Told::Boot { asks_login: true, text, choice, .. } if !self.may_boot(&device, request, &text) => {
                return BootPlan::LogIn(LogInPlan {
                    title: text,
                    choice: choice.to_string(),
                    refused: request.log_in.as_ref().map(|_| REFUSED.to_owned()),
                });
            }
            Told::Boot { disk, picked, text, default, .. } => (disk, Chosen { picked, text, default }),
            other => return self.no_boot(&device, request, other),
        };
        self.begin(&device, &slot, &disk, &chosen, request)
    }

    fn step(&self, mac: MacAddress, step: BootStep) {
        // The script's step is recorded with its plan, which knows the boot.
        if step != BootStep::Script && self.devices.recognise(mac, None).is_ok() {
            self.recorder.step(mac, step);
        }
    }

    fn oddity(&self, interface: &str, oddity: &Oddity) {
        self.oddities.hear(interface, oddity, Instant::now());
    }
}

/// How a device came to what it boots.
struct Chosen {
    /// What is to be remembered of it.
    picked: Option<Picked>,
    /// What the menu calls it.
    text: String,
    /// Whether it is what boots without a choice.
    default: bool,
}

/// What a request asks.
fn asked(request: &ScriptRequest) -> Result<Asked, BadValue> {
    match request.choice.as_deref() {
        None => Ok(Asked::First),
        Some(MENU_CHOICE) => Ok(Asked::Menu),
        Some(choice) => Ok(Asked::Choice(choice.parse()?)),
    }
}

impl BootDirector {
    /// What a device does that boots no vDisk now.
    fn no_boot(&self, device: &KnownDevice, request: &ScriptRequest, told: Told) -> BootPlan {
        let name = device.name.as_str();
        match told {
            Told::LocalDisk { default } => {
                self.left_menu(device, request, LOCAL_DISK_TEXT, default);
                tracing::info!(device = name, peer = %request.peer, "the device boots its own disk");
                if request.platform.as_deref() == Some("uefi") {
                    self.own_disks.sent(request.mac, Instant::now());
                }
                BootPlan::LocalDisk
            }
            Told::Menu(menu) => {
                let wait_s = menu.wait.seconds();
                self.recorder.menu(request.mac, menu.entries.len(), wait_s);
                let item = |entry: MenuEntry| MenuItem { choice: entry.choice.to_string(), text: entry.text };
                BootPlan::Menu(MenuPlan {
                    title: format!("Headwater boot menu of {name}"),
                    items: menu.entries.into_iter().map(item).collect(),
                    default: menu.default.to_string(),
                    wait_s,
                })
            }
            Told::Key { wait_s, default } => {
                self.recorder.menu(request.mac, 0, wait_s);
                BootPlan::MenuKey(MenuKeyPlan {
                    title: name.to_owned(),
                    default: default.to_string(),
                    wait_s,
                })
            }
            Told::NoSuchChoice(choice) => {
                tracing::warn!(device = name, %choice, peer = %request.peer, "the device asks for what it is not offered");
                BootPlan::Refuse(format!("Headwater does not offer that to {name} (any more)."))
            }
            Told::Nothing(why) => {
                tracing::warn!(device = name, why, "the device gets nothing to boot");
                BootPlan::Refuse(format!("Headwater gives {name} nothing to boot: {why}."))
            }
            // Whoever calls has dealt with it.
            Told::Boot { .. } => BootPlan::Refuse("Headwater cannot boot this.".to_owned()),
        }
    }

    /// Logs what was chosen, where somebody or a menu did.
    fn left_menu(&self, device: &KnownDevice, request: &ScriptRequest, text: &str, default: bool) {
        if request.choice.is_none() {
            return;
        }
        let (device, peer) = (device.name.as_str(), request.peer);
        match self.recorder.menu_choice(request.mac, text, default) {
            Some((how, waited)) => {
                tracing::info!(device, %peer, choice = text, how, waited_ms = %waited, "boot menu left");
            }
            None => tracing::info!(device, %peer, choice = text, "boot menu left"),
        }
    }

    /// Whether somebody who may run the device has logged in with this request.
    fn may_boot(&self, device: &KnownDevice, request: &ScriptRequest, text: &str) -> bool {
        let Some(who) = &request.log_in else { return false };
        let (name, peer) = (device.name.as_str(), request.peer);
        // A password takes its time to be looked at.
        let looked_at = tokio::task::block_in_place(|| self.log_ins.check(device.id, who, peer.ip()));
        let choice = text;
        if let Err(why) = looked_at {
            tracing::warn!(device = name, %peer, user = who.user, choice, why, "log-in at the boot menu refused");
            return false;
        }
        tracing::info!(device = name, %peer, user = who.user, choice, "logged in at the boot menu");
        true
    }

    /// Begins a boot: its script is about to be handed out.
    fn begin(
        &self,
        device: &KnownDevice,
        slot: &Arc<DeviceSlot>,
        disk: &BootDisk,
        chosen: &Chosen,
        request: &ScriptRequest,
    ) -> BootPlan {
        let kernel = match self.kernel(slot, disk) {
            Ok(kernel) => kernel,
            Err(why) => {
                tracing::warn!(device = device.name.as_str(), why, "the device has no kernel to boot");
                return BootPlan::Refuse(format!("Headwater cannot start {}: {why}.", device.name));
            }
        };
        if let Some(wait) = self.wait_of(device, request.mac) {
            return wait;
        }
        self.recorder.let_in(request.mac);
        self.left_menu(device, request, &chosen.text, chosen.default);
        let boot = match self.ids.mint(self.recorder.clock().now()) {
            Ok(boot) => boot,
            Err(error) => {
                tracing::error!(%error, "no random bytes for a boot id");
                return BootPlan::Refuse("Headwater cannot make a boot id.".to_owned());
            }
        };
        let Some(plan) = self.plan_of(device, (disk, kernel), &boot, request) else {
            tracing::error!(device = device.name.as_str(), address = %request.local, "no listener for disks can be reached there");
            return BootPlan::Refuse(format!("Headwater serves no disks on {}.", request.local));
        };
        let prefix = &self.devices.config().iscsi.iqn_prefix;
        let target = TargetName { device: device.name.clone(), boot: Some(boot.clone()) }.format(prefix);
        slot.hand_out(&boot, chosen.picked);
        self.admission.queue().began(&device.name, boot.as_str());
        self.saver.save(slot);
        let (id, vdisk) = (boot.as_str(), disk.name.as_str());
        self.recorder.script(&NewBoot {
            id,
            device: &device.name,
            mac: Some(request.mac),
            vdisk,
            version: Some(disk.number.get().into()),
            target: &target,
            disk_bytes: None,
        });
        tracing::debug!(device = device.name.as_str(), boot = id, vdisk, version = %disk.number, entry = chosen.text, peer = %request.peer, "boot planned");
        plan
    }

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
    fn wait_of(&self, device: &KnownDevice, mac: MacAddress) -> Option<BootPlan> {
        let Answer::Wait { place, about, again_s } = self.admission.queue().ask(&device.name, Instant::now())
        else {
            return None;
        };
        self.recorder.queued(mac, place);
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
            NotServed::Waits(name) => {
                format!("it waits as {name} (headwater device approve {mac}, or refuse)")
            }
            NotServed::Refused => "it was refused".to_owned(),
        };
        tracing::warn!(%mac, held_back, "{what} not answered: {why}");
    }
}
