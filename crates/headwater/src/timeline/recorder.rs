//! The boots that are under way: what the boot services, the target and the beacon report is put together here.
//!
//! One mutex guards the table; nobody holds it over I/O. The data path does not know it: a session counts into
//! [`StageCounters`]. Files are written by [`Recorder::save_changed`], which its owner calls again and again.
mod menus;
mod news;
mod queue;
mod steps;
mod tap;

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::api::guest_commands::CommandKind;
use netboot::director::{BootStep, ClientKind, MacAddress};
use tokio::sync::watch;
use vdisk::BootId;

use self::news::Journal;
pub use self::news::{Done, News, Place};
use self::steps::{is_past_firmware, translate};
use self::tap::SessionTap;
use super::counters::StageCounters;
use super::presence::{self, Presence};
use super::record::{BootRecord, Leaving, Login, Program, Stage, Status, StepKind, WriteCacheFill};
use super::store::BootStore;
use super::time::{Clock, Millis, Moment};
use super::tracer::{Began, Subject, Tracer};
use crate::config::DeviceName;
use crate::path::PathMtu;

/// How long steps wait for the script that begins their boot.
const PENDING_FOR: Millis = Millis::from_us(5 * 60 * 1_000_000);

/// How long into a boot an operating system's own DHCP is part of it.
const OS_DHCP_WITHIN: Millis = Millis::from_us(10 * 60 * 1_000_000);

/// The most machines whose steps wait: anybody can send a DHCPDISCOVER.
const MAX_PENDING_MACHINES: usize = 4096;

/// The most steps of one machine that wait.
const MAX_PENDING_STEPS: usize = 32;

/// The most boots of one device that are under way at once: the one that runs, and scripts handed out since.
const MAX_LIVE_BOOTS: usize = 4;

/// The most ended boots that are kept beside the files, of which the latest may not be written yet.
const MAX_RECENT: usize = 64;

/// The timeline's keeper.
#[derive(Debug)]
pub struct Recorder {
    clock: Clock,
    store: BootStore,
    tracer: Tracer,
    table: Mutex<Table>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Table {
    pending: HashMap<MacAddress, VecDeque<(Moment, StepKind)>>,
    /// Oldest first.
    live: HashMap<DeviceName, Vec<LiveBoot>>,
    /// Ended boots that are not on disk yet.
    ended: Vec<BootRecord>,
    /// The boots that ended last.
    recent: VecDeque<BootRecord>,
    /// For followers.
    journal: Journal,
}

#[derive(Debug)]
struct LiveBoot {
    device: DeviceName,
    record: BootRecord,
    mac: Option<MacAddress>,
    peer: Option<SocketAddr>,
    first: Arc<StageCounters>,
    second: Arc<StageCounters>,
    /// Grows with every event.
    events: u64,
    /// What `revision` was when the file was written, and when that was.
    saved: Option<(u64, Moment)>,
}

/// What a new boot is.
#[derive(Clone, Debug)]
pub struct NewBoot<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its device.
    pub device: &'a DeviceName,
    /// The device's MAC address.
    pub mac: Option<MacAddress>,
    /// What it boots.
    pub vdisk: &'a str,
    /// Its version; 0: the base.
    pub version: Option<u64>,
    /// The target's name.
    pub target: &'a str,
    /// The size of its disk, once it is open.
    pub disk_bytes: Option<u64>,
}

impl NewBoot<'_> {
    /// What a trace of it is called.
    fn title(&self) -> String {
        let version = self.version.map_or_else(String::new, |version| format!(" version {version}"));
        format!("device {}, vDisk {}{version}, boot {}", self.device.as_str(), self.vdisk, self.id)
    }
}

/// A boot under way at a glance: what is asked of all of them every second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Its device.
    pub device: DeviceName,
    /// Its id.
    pub id: String,
    /// Differs whenever something happened or was read or written.
    pub revision: u64,
    /// How many sessions it has.
    pub sessions: u32,
    /// Whether the device said that it is ready.
    pub ready: bool,
}

/// What a device with a boot under way is doing.
#[derive(Clone, Debug, PartialEq)]
pub struct Doing {
    /// The boot that says it.
    pub boot: String,
    /// How far that is.
    pub status: Status,
    /// Whether the device is there.
    pub presence: Presence,
    /// How many sessions all its boots have.
    pub sessions: u32,
    /// What the path to it carries.
    pub path: Option<PathMtu>,
}

impl LiveBoot {
    fn new(boot: &NewBoot<'_>, started: Moment) -> Self {
        let mut record = BootRecord::begin(boot.id, boot.device.as_str(), boot.vdisk, boot.target, started);
        record.mac = boot.mac.map(|mac| mac.to_string());
        record.version = boot.version;
        Self {
            device: boot.device.clone(),
            record,
            mac: boot.mac,
            peer: None,
            first: Arc::default(),
            second: Arc::default(),
            events: 1,
            saved: None,
        }
    }

    /// Goes on with a stored boot.
    fn restored(device: &DeviceName, mut record: BootRecord, now: Moment) -> Self {
        let start = record.started_unix_us;
        let restore = |totals: &Option<_>| {
            Arc::new(
                totals
                    .as_ref()
                    .map_or_else(StageCounters::default, |totals| StageCounters::restored(totals, start)),
            )
        };
        let (first, second) = (restore(&record.first_stage), restore(&record.second_stage));
        record.restarted(now);
        let mac = record.mac.as_deref().and_then(MacAddress::parse);
        Self { device: device.clone(), record, mac, peer: None, first, second, events: 1, saved: None }
    }

    /// Grows with every request.
    fn activity(&self) -> u64 {
        self.first.activity().wrapping_add(self.second.activity())
    }

    fn revision(&self) -> u64 {
        self.events.wrapping_add(self.activity())
    }

    /// What it is found by.
    fn name(&self) -> (DeviceName, String) {
        (self.device.clone(), self.record.id.clone())
    }

    fn presence(&self, now: Moment) -> Presence {
        let last = self.first.last().max(self.second.last());
        presence::of_running(&self.record, last.map(|last| self.record.relative(last)), now)
    }

    fn touch(&mut self) -> &mut BootRecord {
        self.events = self.events.wrapping_add(1);
        &mut self.record
    }

    fn snapshot(&self) -> BootRecord {
        let mut record = self.record.clone();
        record.first_stage = self.first.totals(record.started_unix_us);
        record.second_stage = self.second.totals(record.started_unix_us);
        record
    }
}

impl Recorder {
    /// A keeper that goes on with the stored boots of these devices that have not ended.
    #[must_use]
    pub fn new(clock: Clock, store: BootStore, devices: &[DeviceName]) -> Arc<Self> {
        let mut table = Table::default();
        for device in devices {
            let boots = store.boots(device.as_str()).unwrap_or_default();
            let open = boots.into_iter().take(MAX_LIVE_BOOTS).filter(|record| record.end.is_none());
            let mut open: Vec<LiveBoot> =
                open.map(|record| LiveBoot::restored(device, record, clock.now())).collect();
            open.reverse();
            if !open.is_empty() {
                table.live.insert(device.clone(), open);
            }
        }
        let tracer = Tracer::new(&store.traces());
        Arc::new(Self { clock, store, tracer, table: Mutex::new(table), changed: watch::Sender::new(0) })
    }

    /// The clock that all moments come from.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The stored boots.
    #[must_use]
    pub fn store(&self) -> &BootStore {
        &self.store
    }

    /// What is recorded of which device.
    #[must_use]
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Wakes up whenever something happened; requests alone do not count.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A machine took a step. What firmware and iPXE do waits for the script that begins their boot; what an operating
    /// system does belongs to the boot that runs.
    pub fn step(&self, mac: MacAddress, step: BootStep) {
        self.step_at(self.clock.now(), mac, step);
    }

    fn step_at(&self, now: Moment, mac: MacAddress, step: BootStep) {
        let (at, kind, client) = translate(now, step);
        let mut table = self.lock();
        table.forget_stale(mac, now);
        if client == Some(ClientKind::Other)
            || matches!(
                kind,
                StepKind::DhcpOffer { .. }
                    | StepKind::DhcpAck { .. }
                    | StepKind::DhcpElsewhere { .. }
                    | StepKind::BootFile { .. }
                    | StepKind::BootFileLost { .. }
            )
        {
            // An answer goes where its question went; a file that is fetched after the script is the kernel or its initramfs.
            if !table.pending.contains_key(&mac)
                && let Some(boot) = table.by_mac(mac)
            {
                // Later ones are renewals of a lease: no part of a boot.
                if boot.record.ready_at_ms.is_none() && boot.record.relative(now) <= OS_DHCP_WITHIN {
                    boot.touch().step(at, kind);
                    let (device, id) = boot.name();
                    self.happened(table, &device, &id);
                }
                return;
            }
        }
        let firmware = matches!(kind, StepKind::DhcpDiscover { .. }) && client != Some(ClientKind::Ipxe);
        table.make_room(mac, now);
        let steps = table.pending.entry(mac).or_default();
        if firmware && steps.iter().any(|(_, step)| is_past_firmware(step)) {
            // The machine was switched off and on on its way: this is another boot.
            steps.clear();
        }
        if steps.len() >= MAX_PENDING_STEPS {
            steps.pop_front();
        }
        steps.push_back((at, kind));
    }

    /// A script was handed out: a boot is about to begin, with the steps that led to it.
    pub fn script(&self, boot: &NewBoot<'_>) {
        self.script_at(self.clock.now(), boot);
    }

    fn script_at(&self, now: Moment, boot: &NewBoot<'_>) {
        let mut table = self.lock();
        let pending = boot.mac.and_then(|mac| table.pending.remove(&mac)).unwrap_or_default();
        // Somebody who thinks before a menu is no reason to forget what led to it.
        let patience = PENDING_FOR.plus(menus::waited(&pending));
        let mut steps: Vec<_> = pending.into_iter().filter(|(at, _)| now.since(*at) <= patience).collect();
        steps.push((now, StepKind::Script));
        let started = steps.iter().map(|(at, _)| *at).min().unwrap_or(now);
        let mut live = LiveBoot::new(boot, started);
        for (at, kind) in steps {
            live.record.step(at, kind);
        }
        table.insert(boot.device, live, now);
        self.happened(table, boot.device, boot.id);
    }

    /// A boot begins or goes on: somebody has logged in to it. The boots before it end. A boot that is not known (its
    /// initiator is configured by hand, or its record is lost) is known from now on.
    #[must_use]
    pub fn login(
        self: &Arc<Self>,
        boot: &NewBoot<'_>,
        program: Program,
        peer: Option<SocketAddr>,
    ) -> SessionTap {
        self.login_at(self.clock.now(), boot, program, peer)
    }

    fn login_at(
        self: &Arc<Self>,
        now: Moment,
        boot: &NewBoot<'_>,
        program: Program,
        peer: Option<SocketAddr>,
    ) -> SessionTap {
        let mut table = self.lock();
        table.end_before(boot.device, boot.id, now);
        if table.by_id(boot.device, boot.id).is_none() {
            table.insert(boot.device, LiveBoot::new(boot, now), now);
        }
        let (counters, stage) = match table.by_id(boot.device, boot.id) {
            Some(live) => {
                live.peer = peer;
                let first_stage_last = live.first.last();
                let login = Login { program, peer, first_stage_last };
                live.record.version = boot.version.or(live.record.version);
                match live.touch().login(now, login) {
                    Stage::First => (Arc::clone(&live.first), trace::Stage::First),
                    Stage::Second => (Arc::clone(&live.second), trace::Stage::Second),
                }
            }
            None => (Arc::default(), trace::Stage::Second),
        };
        self.happened(table, boot.device, boot.id);
        let title = boot.title();
        let subject = Subject { title: &title, disk_bytes: boot.disk_bytes.unwrap_or(0) };
        let switch = self.tracer.login(boot.device, Began { boot: boot.id, subject, now });
        SessionTap {
            counters,
            switch,
            stage,
            clock: self.clock,
            recorder: Arc::clone(self),
            device: boot.device.clone(),
            id: boot.id.to_owned(),
        }
    }

    /// A device says that it is ready: the one with this MAC address, or else the one with a session from this address.
    /// The device and boot that were meant, and whether it is the first time that it says so.
    pub fn ready(&self, mac: Option<MacAddress>, address: IpAddr) -> Option<(String, String, bool)> {
        let now = self.clock.now();
        let mut table = self.lock();
        let boot = match mac {
            Some(mac) => table.by_mac(mac),
            None => table.by_address(address),
        }?;
        let first = boot.touch().ready(now);
        if first {
            // What the system does from now on is its work, and no part of its start.
            let stage = if boot.record.hand_over.is_some() { &boot.second } else { &boot.first };
            boot.record.until_ready = stage.totals(boot.record.started_unix_us);
        }
        let (device, id) = boot.name();
        self.happened(table, &device, &id);
        if first {
            self.tracer.ready(&device);
        }
        Some((device.as_str().to_owned(), id, first))
    }

    /// What the path to a device carries.
    pub fn path(&self, device: &DeviceName, id: &str, path: PathMtu) {
        let mut table = self.lock();
        if let Some(boot) = table.by_id(device, id) {
            boot.touch().path = Some(path);
            self.happened(table, device, id);
        }
    }

    fn segments(&self, device: &DeviceName, id: &str, bytes: u32) {
        if let Some(boot) = self.lock().by_id(device, id)
            && let Some(path) = &mut boot.touch().path
        {
            path.take_segment(bytes);
        }
    }

    /// The system of this boot has taken a command, which may be one to go.
    pub fn leaves(&self, device: &str, id: &str, command: CommandKind) {
        let comes_back = match command {
            CommandKind::Message => return,
            CommandKind::Reboot => true,
            CommandKind::Shutdown => false,
        };
        let now = self.clock.now();
        self.leaving(device, id, |boot| Some(Leaving { at_ms: boot.relative(now), comes_back }));
    }

    /// The system of this boot could not do what it was told.
    pub fn stays(&self, device: &str, id: &str) {
        self.leaving(device, id, |_| None);
    }

    fn leaving(&self, device: &str, id: &str, found: impl FnOnce(&BootRecord) -> Option<Leaving>) {
        let Ok(device) = DeviceName::parse(device) else { return };
        let mut table = self.lock();
        if let Some(boot) = table.by_id(&device, id) {
            let leaving = found(&boot.record);
            boot.touch().leaving = leaving;
            self.happened(table, &device, id);
        }
    }

    /// How full the write cache of a device's running boot is now.
    pub fn write_cache(&self, device: &DeviceName, id: &str, fill: WriteCacheFill) {
        let mut table = self.lock();
        if let Some(boot) = table.by_id(device, id)
            && boot.record.write_cache != Some(fill)
        {
            boot.touch().write_cache = Some(fill);
        }
    }

    /// The device that uses its disk from this address, with its boot, if it is exactly one.
    #[must_use]
    pub fn boot_from(&self, address: IpAddr) -> Option<(DeviceName, BootId)> {
        let mut table = self.lock();
        let record = &table.by_address(address)?.record;
        Some((DeviceName::parse(&record.device).ok()?, BootId::new(record.id.clone()).ok()?))
    }

    /// A boot is over for a reason of the administrator's.
    pub fn end(&self, device: &DeviceName, why: &str) {
        let now = self.clock.now();
        let mut table = self.lock();
        for mut boot in table.live.remove(device).unwrap_or_default() {
            boot.record.finish(now, why.to_owned());
            table.retire(&boot);
        }
        drop(table);
        self.wake();
    }

    /// The boots under way, latest last for each device.
    #[must_use]
    pub fn live(&self) -> Vec<BootRecord> {
        let mut boots: Vec<BootRecord> =
            self.lock().live.values().flatten().map(LiveBoot::snapshot).collect();
        boots.sort_by(|a, b| (&a.device, &a.id).cmp(&(&b.device, &b.id)));
        boots
    }

    /// The boot under way with this id.
    #[must_use]
    pub fn live_by_id(&self, id: &str) -> Option<BootRecord> {
        self.lock().live.values().flatten().find(|boot| boot.record.id == id).map(LiveBoot::snapshot)
    }

    /// The boots under way at a glance.
    #[must_use]
    pub fn glances(&self) -> Vec<Glance> {
        let glance = |boot: &LiveBoot| {
            let (device, id) = boot.name();
            let ready = boot.record.ready_at_ms.is_some();
            Glance { device, id, revision: boot.revision(), sessions: boot.record.sessions, ready }
        };
        self.lock().live.values().flatten().map(glance).collect()
    }

    /// How many sessions all devices have.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        self.lock().live.values().flatten().map(|boot| u64::from(boot.record.sessions)).sum()
    }

    /// The boots that ended last.
    #[must_use]
    pub fn recently_ended(&self) -> Vec<BootRecord> {
        self.lock().recent.iter().cloned().collect()
    }

    /// A device's boots under way, latest first.
    #[must_use]
    pub fn live_of(&self, device: &str) -> Vec<BootRecord> {
        let table = self.lock();
        let boots = table.live.get(device).into_iter().flatten();
        boots.rev().map(LiveBoot::snapshot).collect()
    }

    /// What a device is doing; `None`: it has no boot under way. No record is copied for it.
    #[must_use]
    pub fn doing(&self, device: &str) -> Option<Doing> {
        let now = self.clock.now();
        let table = self.lock();
        let boots = table.live.get(device)?;
        let boot = telling(boots)?;
        Some(Doing {
            boot: boot.record.id.clone(),
            status: boot.record.status,
            presence: boot.presence(now),
            sessions: boots.iter().map(|boot| boot.record.sessions).sum(),
            path: boot.record.path.clone(),
        })
    }

    /// Whether each device with a boot under way is there. No record is copied for it, so that it can be asked for again and again.
    #[must_use]
    pub fn presences(&self) -> HashMap<DeviceName, Presence> {
        self.presences_at(self.clock.now())
    }

    pub(super) fn presences_at(&self, now: Moment) -> HashMap<DeviceName, Presence> {
        let table = self.lock();
        let of = |boots: &Vec<LiveBoot>| Some(telling(boots)?.presence(now));
        table.live.iter().filter_map(|(device, boots)| Some((device.clone(), of(boots)?))).collect()
    }

    /// Writes the files of the boots that changed since they were written, each at most once in `every`.
    pub fn save_changed(&self, every: Duration) {
        let (now, every) = (self.clock.now(), Millis::from(every));
        self.tracer.write(now);
        let mut records = Vec::new();
        {
            let mut table = self.lock();
            records.append(&mut table.ended);
            for boot in table.live.values_mut().flatten() {
                let revision = boot.revision();
                let due = boot.saved.is_none_or(|(saved, at)| saved != revision && now.since(at) >= every);
                if due {
                    boot.saved = Some((revision, now));
                    records.push(boot.snapshot());
                }
            }
        }
        for record in records {
            if let Err(error) = self.store.save(&record) {
                tracing::error!(device = record.device, boot = record.id, %error, "cannot store the boot's timeline");
            }
        }
    }

    fn session_ended(&self, device: &DeviceName, id: &str, how: &str) {
        let now = self.clock.now();
        let mut table = self.lock();
        if let Some(boot) = table.by_id(device, id) {
            boot.touch().session_end(now, how);
            self.happened(table, device, id);
        }
    }

    /// Something happened to a boot: followers are to know.
    fn happened(&self, mut table: MutexGuard<'_, Table>, device: &DeviceName, id: &str) {
        table.journal.happened(device, id);
        drop(table);
        self.wake();
    }

    fn wake(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // The table is valid between any two statements: a panic elsewhere does not spoil it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of a device's boots says what it is doing: a script that nobody has used yet says less than the boot that still runs.
fn telling(boots: &[LiveBoot]) -> Option<&LiveBoot> {
    boots.iter().rev().find(|boot| boot.record.used()).or_else(|| boots.last())
}

impl Table {
    fn by_id(&mut self, device: &DeviceName, id: &str) -> Option<&mut LiveBoot> {
        self.live.get_mut(device)?.iter_mut().find(|boot| boot.record.id == id)
    }

    /// The latest boot with this MAC address that somebody has logged in to.
    fn by_mac(&mut self, mac: MacAddress) -> Option<&mut LiveBoot> {
        let boots = self.live.values_mut().flatten();
        boots
            .filter(|boot| boot.mac == Some(mac) && boot.record.used())
            .max_by(|a, b| a.record.id.cmp(&b.record.id))
    }

    /// The boot with a session from this address, if there is exactly one.
    fn by_address(&mut self, address: IpAddr) -> Option<&mut LiveBoot> {
        let from_there = |boot: &&mut LiveBoot| boot.peer.is_some_and(|peer| peer.ip() == address);
        let mut boots =
            self.live.values_mut().flatten().filter(|boot| boot.record.sessions > 0).filter(from_there);
        boots.next().filter(|_| boots.next().is_none())
    }

    fn insert(&mut self, device: &DeviceName, boot: LiveBoot, now: Moment) {
        let boots = self.live.entry(device.clone()).or_default();
        let oldest_unused = boots.iter().position(|boot| !boot.record.used());
        let surplus =
            oldest_unused.filter(|_| boots.len() >= MAX_LIVE_BOOTS).map(|index| boots.remove(index));
        boots.push(boot);
        if let Some(mut unused) = surplus {
            unused.record.finish(now, "never used".to_owned());
            self.retire(&unused);
        }
    }

    /// Ends the device's boots that came before this one.
    fn end_before(&mut self, device: &DeviceName, id: &str, now: Moment) {
        let Some(boots) = self.live.get_mut(device) else { return };
        let (before, rest) = std::mem::take(boots).into_iter().partition(|boot| boot.record.id.as_str() < id);
        *boots = rest;
        for mut boot in before {
            let why =
                if boot.record.used() { format!("replaced by boot {id}") } else { "never used".to_owned() };
            boot.record.finish(now, why);
            self.retire(&boot);
        }
    }

    /// Takes an ended boot out of the live ones.
    fn retire(&mut self, boot: &LiveBoot) {
        let record = boot.snapshot();
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(record.clone());
        self.journal.ended(record.clone());
        self.ended.push(record);
    }

    /// Forgets a machine's steps if they have waited too long.
    fn forget_stale(&mut self, mac: MacAddress, now: Moment) {
        let last = self.pending.get(&mac).and_then(VecDeque::back).map(queue::heard);
        if last.is_some_and(|at| now.since(at) > PENDING_FOR) {
            self.pending.remove(&mac);
        }
    }

    /// Where there is none for one more machine, forgets the steps of those that have been silent for long, or of the most silent one.
    fn make_room(&mut self, mac: MacAddress, now: Moment) {
        if self.pending.len() < MAX_PENDING_MACHINES || self.pending.contains_key(&mac) {
            return;
        }
        let last = |steps: &VecDeque<(Moment, StepKind)>| steps.back().map(queue::heard);
        self.pending.retain(|_, steps| last(steps).is_some_and(|at| now.since(at) <= PENDING_FOR));
        if self.pending.len() >= MAX_PENDING_MACHINES
            && let Some(mac) = self.pending.iter().min_by_key(|(_, steps)| last(steps)).map(|(mac, _)| *mac)
        {
            self.pending.remove(&mac);
        }
    }
}

#[cfg(test)]
mod tests;
