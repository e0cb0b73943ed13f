//! One boot, as a pure model: events with their moments go in, a record that can be stored and shown comes out.
use std::net::SocketAddr;

use netboot::director::TftpFigures;
use serde::{Deserialize, Serialize};

use crate::path::PathMtu;

use super::counters::StageTotals;
use super::time::{Millis, Moment};

/// The most steps that are kept of one boot: some DHCP exchanges, some files, and the logins of a flapping
/// connection. Hand-over, ready and end stand apart and are never lost.
pub const MAX_STEPS: usize = 64;

/// Everything known of one boot of one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootRecord {
    /// The boot's id; later boots have higher ones.
    pub id: String,
    /// The device's name.
    pub device: String,
    /// Its MAC address, where it is known.
    pub mac: Option<String>,
    /// What it boots.
    pub vdisk: String,
    /// Its version; 0: the base.
    #[serde(default)]
    pub version: Option<u64>,
    /// The iSCSI target's name that was handed out, or that a configured initiator used.
    pub target: String,
    /// The moment of its first step, to which all others are relative.
    pub started_unix_us: Moment,
    /// How far it is.
    pub status: Status,
    /// What happened, in order.
    pub steps: Vec<Step>,
    /// Steps that there was no room for.
    pub steps_dropped: u64,
    /// What the firmware read and wrote.
    pub first_stage: Option<StageTotals>,
    /// When the operating system took over.
    pub hand_over: Option<HandOver>,
    /// What the operating system read and wrote.
    pub second_stage: Option<StageTotals>,
    /// What the stage that runs had read and written when the device said that it was ready.
    #[serde(default)]
    pub until_ready: Option<StageTotals>,
    /// What the path to the device carries, as it was known at its last login.
    #[serde(default)]
    pub path: Option<PathMtu>,
    /// How full the write cache is, or was at the end.
    #[serde(default)]
    pub write_cache: Option<WriteCacheFill>,
    /// When the device said that it was ready; absent: it has not said so.
    pub ready_at_ms: Option<Millis>,
    /// That its system was told to go, and goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Leaving>,
    /// Sessions that are open.
    pub sessions: u32,
    /// That it is over.
    pub end: Option<End>,
}

/// How far a boot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Its script was handed out; nobody has logged in.
    Waiting,
    /// The firmware's session is open.
    FirstStage,
    /// The operating system's session is open.
    SecondStage,
    /// The device has said that it is ready, and its session is open.
    Ready,
    /// There was a session, and there is none now.
    Disconnected,
    /// It is over.
    Ended,
}

impl Status {
    /// As it is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::FirstStage => "first stage",
            Self::SecondStage => "second stage",
            Self::Ready => "ready",
            Self::Disconnected => "disconnected",
            Self::Ended => "ended",
        }
    }
}

/// That a device's system was told to go, and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// When it said that it does.
    pub at_ms: Millis,
    /// Whether it comes back.
    pub comes_back: bool,
}

/// One step and when it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// From the boot's first step.
    pub at_ms: Millis,
    /// What it was.
    #[serde(flatten)]
    pub kind: StepKind,
}

/// A kind of step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum StepKind {
    /// DHCPDISCOVER came in.
    DhcpDiscover {
        /// Who asked: `BIOS PXE`, `iPXE`.
        client: String,
    },
    /// It was answered.
    DhcpOffer {
        /// The address, as DHCP server; as proxy there is none.
        address: Option<String>,
    },
    /// DHCPREQUEST came in.
    DhcpRequest {
        /// Who asked.
        client: String,
    },
    /// It was acknowledged.
    DhcpAck {
        /// The address.
        address: Option<String>,
    },
    /// The client took another DHCP server's offer, as it told everybody.
    DhcpElsewhere {
        /// That server.
        server: String,
    },
    /// The device had to wait for its turn to boot; the step is when it asked first.
    Queue {
        /// Its place when it asked first; none: so many waited that it had none.
        place: Option<usize>,
        /// How long it waited.
        waited_ms: Millis,
    },
    /// A boot file went out; the step is when it was asked for.
    BootFile {
        /// Its name.
        name: String,
        /// `tftp` or `http`.
        protocol: String,
        /// Its size.
        size_bytes: u64,
        /// Until its last byte was there.
        took_ms: Millis,
        /// How TFTP went about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tftp: Option<Tftp>,
    },
    /// A boot file was asked for by TFTP and did not get there whole.
    BootFileLost {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// How much of it was acknowledged.
        acknowledged_bytes: u64,
        /// Until it was given up.
        took_ms: Millis,
        /// How TFTP went about it.
        tftp: Tftp,
    },
    /// A boot menu was shown, or a key that calls for it was waited for.
    Menu {
        /// Its entries; 0: the key.
        entries: usize,
        /// After how many seconds it takes the default; 0: never.
        wait_s: u16,
    },
    /// It was left.
    MenuChoice {
        /// What was chosen.
        choice: String,
        /// How: `by hand`, or `time-out`.
        how: String,
        /// How long it had been there.
        waited_ms: Millis,
    },
    /// The iPXE script was handed out.
    Script,
    /// A login succeeded.
    Login {
        /// Of which stage.
        stage: Stage,
        /// From where.
        peer: String,
        /// Over what.
        #[serde(default)]
        protocol: Protocol,
        /// iSCSI: the initiator session id, in hexadecimal.
        isid: String,
    },
    /// A session ended.
    SessionEnd {
        /// How.
        how: String,
    },
    /// The device said that it is ready.
    Ready,
    /// The server was restarted.
    ServerRestart,
}

/// How a file went by TFTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tftp {
    /// The bytes of a block, as negotiated; 512 without negotiation.
    pub block_bytes: u16,
    /// How many blocks were sent before an answer was waited for.
    pub window_blocks: u16,
    /// Packets that were sent again.
    pub resent: u64,
}

impl From<TftpFigures> for Tftp {
    fn from(figures: TftpFigures) -> Self {
        let TftpFigures { block_bytes, window_blocks, resent } = figures;
        Self { block_bytes, window_blocks, resent }
    }
}

/// What a disk is used over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// iSCSI.
    #[default]
    Iscsi,
    /// NBD.
    Nbd,
}

/// Who is reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The firmware.
    First,
    /// The operating system.
    Second,
}

/// The change from firmware to operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// When the second login was.
    pub at_ms: Millis,
    /// For how long nothing had been asked for before it.
    pub gap_ms: Millis,
}

/// How full a write cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCacheFill {
    /// What it holds, in bytes.
    pub used_bytes: u64,
    /// What it may hold.
    pub limit_bytes: u64,
    /// From where on it counts as nearly full.
    pub warn_at_bytes: u64,
}

/// The end of a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at_ms: Millis,
    /// Why: `replaced by boot ...`.
    pub why: String,
}

/// Who logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// An iSCSI initiator, told from others by its session id.
    Initiator([u8; 6]),
    /// An NBD client. No firmware is one: it is the operating system.
    NbdClient,
}

/// A login, as the model needs it.
#[derive(Clone, Copy, Debug)]
pub struct Login {
    /// Who.
    pub program: Program,
    /// From where; `None`: from the server's own machine, through a socket file.
    pub peer: Option<SocketAddr>,
    /// When the first stage's last request was answered, if there was one.
    pub first_stage_last: Option<Moment>,
}

impl BootRecord {
    /// A boot whose first step is at `started`.
    #[must_use]
    pub fn begin(id: &str, device: &str, vdisk: &str, target: &str, started: Moment) -> Self {
        Self {
            id: id.to_owned(),
            device: device.to_owned(),
            mac: None,
            vdisk: vdisk.to_owned(),
            version: None,
            target: target.to_owned(),
            started_unix_us: started,
            status: Status::Waiting,
            steps: Vec::new(),
            steps_dropped: 0,
            first_stage: None,
            hand_over: None,
            second_stage: None,
            until_ready: None,
            path: None,
            write_cache: None,
            leaving: None,
            ready_at_ms: None,
            sessions: 0,
            end: None,
        }
    }

    /// When `at` was, from the first step.
    #[must_use]
    pub fn relative(&self, at: Moment) -> Millis {
        at.since(self.started_unix_us)
    }

    /// Adds a step, in the order of their times: a boot file's is reported when it is over.
    pub fn step(&mut self, at: Moment, kind: StepKind) {
        if self.steps.len() >= MAX_STEPS {
            self.steps_dropped = self.steps_dropped.saturating_add(1);
            return;
        }
        let at_ms = self.relative(at);
        let place = self.steps.partition_point(|step| step.at_ms <= at_ms);
        self.steps.insert(place, Step { at_ms, kind });
    }

    /// A login succeeded: of which stage?
    ///
    /// The hand-over is the first login whose session id was made by another program than the one of the first
    /// login; an NBD client is always another one. Programs change the qualifier of their ids when they reconnect (iPXE does), and keep the naming authority
    /// (RFC 7143 §11.12.5), so that is what tells them apart.
    pub fn login(&mut self, at: Moment, login: Login) -> Stage {
        let first = match login.program {
            Program::NbdClient => false,
            Program::Initiator(isid) => {
                let authority = naming_authority(isid);
                self.first_isid().is_none_or(|isid| naming_authority(isid) == authority)
            }
        };
        let stage = if first && self.hand_over.is_none() { Stage::First } else { Stage::Second };
        if stage == Stage::Second && self.hand_over.is_none() {
            let gap_ms = login.first_stage_last.map_or(Millis::default(), |last| at.since(last));
            self.hand_over = Some(HandOver { at_ms: self.relative(at), gap_ms });
        }
        self.sessions = self.sessions.saturating_add(1);
        self.end = None;
        let peer = login.peer.map_or_else(|| "this machine".to_owned(), |peer| peer.to_string());
        let (protocol, isid) = match login.program {
            Program::Initiator(isid) => (Protocol::Iscsi, isid_text(isid)),
            Program::NbdClient => (Protocol::Nbd, String::new()),
        };
        self.step(at, StepKind::Login { stage, peer, protocol, isid });
        self.update_status();
        stage
    }

    /// A session is over.
    pub fn session_end(&mut self, at: Moment, how: &str) {
        self.sessions = self.sessions.saturating_sub(1);
        self.step(at, StepKind::SessionEnd { how: how.to_owned() });
        self.update_status();
    }

    /// The device says that it is ready. Only the first time counts.
    pub fn ready(&mut self, at: Moment) -> bool {
        if self.ready_at_ms.is_some() || self.end.is_some() {
            return false;
        }
        self.ready_at_ms = Some(self.relative(at));
        self.step(at, StepKind::Ready);
        self.update_status();
        true
    }

    /// The boot is over.
    pub fn finish(&mut self, at: Moment, why: String) {
        if self.end.is_none() {
            self.end = Some(End { at_ms: self.relative(at), why });
            self.sessions = 0;
            self.update_status();
        }
    }

    /// The server was restarted: it has no sessions yet.
    pub fn restarted(&mut self, at: Moment) {
        self.sessions = 0;
        self.step(at, StepKind::ServerRestart);
        self.update_status();
    }

    /// Whether somebody has logged in.
    #[must_use]
    pub fn used(&self) -> bool {
        self.status != Status::Waiting && self.first_login_at().is_some()
    }

    /// When the first login was.
    #[must_use]
    pub fn first_login_at(&self) -> Option<Millis> {
        self.steps.iter().find(|step| matches!(step.kind, StepKind::Login { .. })).map(|step| step.at_ms)
    }

    fn first_isid(&self) -> Option<[u8; 6]> {
        self.steps.iter().find_map(|step| match &step.kind {
            StepKind::Login { isid, .. } => parse_isid(isid),
            _ => None,
        })
    }

    fn update_status(&mut self) {
        self.status = if self.end.is_some() {
            Status::Ended
        } else if self.first_login_at().is_none() {
            Status::Waiting
        } else if self.sessions == 0 {
            Status::Disconnected
        } else if self.ready_at_ms.is_some() {
            Status::Ready
        } else if self.hand_over.is_some() {
            Status::SecondStage
        } else {
            Status::FirstStage
        };
    }
}

/// The part of a session id that names the program's maker (RFC 7143 §11.12.5): an OUI (type 00b) or an enterprise
/// number (01b); a random id (10b) has none and stands for itself.
fn naming_authority(isid: [u8; 6]) -> [u8; 6] {
    let [a, b, c, d, e, f] = isid;
    match a >> 6 {
        0 => [a, b, c, 0, 0, 0],
        1 => [a, b, c, d, 0, 0],
        _ => [a, b, c, d, e, f],
    }
}

fn isid_text(isid: [u8; 6]) -> String {
    isid.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse_isid(text: &str) -> Option<[u8; 6]> {
    let number = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 12)?;
    let [_, _, isid @ ..] = number.to_be_bytes();
    Some(isid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPXE: [u8; 6] = [0x40, 0x00, 0x27, 0x23, 0x12, 0x34];
    const OPEN_ISCSI: [u8; 6] = [0x00, 0x02, 0x3d, 0x00, 0x00, 0x01];

    fn at(ms: u64) -> Moment {
        Moment::from_unix_us(1_000_000_000).after(Millis::from_us(ms * 1000))
    }

    fn boot() -> BootRecord {
        BootRecord::begin("b1", "lab-01", "debian", "iqn.2026-11.org.headwater:lab-01:bb1", at(0))
    }

    fn login(isid: [u8; 6]) -> Login {
        Login {
            program: Program::Initiator(isid),
            peer: "10.0.0.9:3000".parse().ok(),
            first_stage_last: Some(at(900)),
        }
    }

    #[test]
    fn whole_boot_gives_the_times_of_its_steps() {
        let mut boot = boot();
        boot.step(at(0), StepKind::DhcpDiscover { client: "BIOS PXE".into() });
        boot.step(at(700), StepKind::Script);
        let file = StepKind::BootFile {
            name: "undionly.kpxe".into(),
            protocol: "tftp".into(),
            size_bytes: 70_000,
            took_ms: Millis::from_us(90_000),
            tftp: None,
        };
        boot.step(at(500), file);
        assert_eq!(boot.status, Status::Waiting);
        assert_eq!(boot.login(at(800), login(IPXE)), Stage::First);
        assert_eq!(boot.status, Status::FirstStage);
        assert_eq!(boot.login(at(1000), login(OPEN_ISCSI)), Stage::Second);
        boot.session_end(at(1000), "replaced");
        assert_eq!(
            boot.hand_over,
            Some(HandOver { at_ms: Millis::from_us(1_000_000), gap_ms: Millis::from_us(100_000) })
        );
        assert_eq!(boot.status, Status::SecondStage);
        assert!(boot.ready(at(3000)));
        assert!(!boot.ready(at(4000)), "only the first beacon counts");
        assert_eq!(boot.status, Status::Ready);
        let times: Vec<u64> = boot.steps.iter().map(|step| step.at_ms.us() / 1000).collect();
        assert_eq!(times, [0, 500, 700, 800, 1000, 1000, 3000]);
        boot.finish(at(9000), "replaced by boot b2".into());
        assert_eq!((boot.status, boot.sessions), (Status::Ended, 0));
    }

    #[test]
    fn firmware_that_reconnects_with_another_qualifier_is_still_the_first_stage() {
        let mut boot = boot();
        let again = [0x40, 0x00, 0x27, 0x23, 0x99, 0x99];
        assert_eq!(boot.login(at(1), login(IPXE)), Stage::First);
        boot.session_end(at(2), "connection lost");
        assert_eq!(boot.status, Status::Disconnected);
        assert_eq!(boot.login(at(3), login(again)), Stage::First);
        assert_eq!(boot.hand_over, None);
    }

    #[test]
    fn logins_after_the_hand_over_belong_to_the_second_stage() {
        let mut boot = boot();
        boot.login(at(1), login(IPXE));
        boot.login(at(2), login(OPEN_ISCSI));
        let hand_over = boot.hand_over;
        assert_eq!(boot.login(at(3), login(OPEN_ISCSI)), Stage::Second);
        assert_eq!(boot.hand_over, hand_over);
    }

    #[test]
    fn random_session_ids_are_told_apart_whole() {
        let mut boot = boot();
        assert_eq!(boot.login(at(1), login([0x80, 1, 2, 3, 4, 5])), Stage::First);
        assert_eq!(boot.login(at(2), login([0x80, 1, 2, 3, 4, 6])), Stage::Second);
    }

    #[test]
    fn nbd_client_is_the_operating_system_with_or_without_firmware_before_it() {
        let nbd = Login { program: Program::NbdClient, peer: None, first_stage_last: None };
        let mut boot = boot();
        assert_eq!(boot.login(at(5), nbd), Stage::Second);
        let hand_over = HandOver { at_ms: Millis::from_us(5000), gap_ms: Millis::default() };
        assert_eq!((boot.hand_over, boot.status, boot.used()), (Some(hand_over), Status::SecondStage, true));
        assert_eq!(boot.login(at(6), nbd), Stage::Second);
        assert_eq!(boot.sessions, 2);
        let mut boot = super::tests::boot();
        assert_eq!(boot.login(at(1), login(IPXE)), Stage::First);
        assert_eq!(boot.login(at(1000), Login { first_stage_last: Some(at(900)), ..nbd }), Stage::Second);
        assert_eq!(boot.hand_over.unwrap().gap_ms, Millis::from_us(100_000));
    }

    #[test]
    fn steps_beyond_the_limit_are_counted_and_dropped() {
        let mut boot = boot();
        for ms in 0..MAX_STEPS as u64 + 5 {
            boot.step(at(ms), StepKind::Script);
        }
        assert_eq!((boot.steps.len(), boot.steps_dropped), (MAX_STEPS, 5));
    }

    #[test]
    fn record_survives_the_way_through_its_file() {
        let mut boot = boot();
        boot.step(at(0), StepKind::DhcpOffer { address: None });
        boot.login(at(1), login(IPXE));
        let text = serde_json::to_string(&boot).unwrap();
        let mut read: BootRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read, boot);
        assert_eq!(read.login(at(5), login(OPEN_ISCSI)), Stage::Second);
    }
}
