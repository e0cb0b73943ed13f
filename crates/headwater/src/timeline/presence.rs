//! Whether a device is there: a rule on what the server sees of its latest boot.
//!
//! The server sees sessions and requests, no power switches. A device that is switched off says no good-bye: its sessions end
//! when their connections are found dead, and it is *lost* until somebody can be sure.
use super::record::{BootRecord, Status, StepKind};
use super::time::{Millis, Moment};

/// Whether a device is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// No boot of it is under way, or its last one has ended.
    Off,
    /// On its way up.
    Booting,
    /// Up, and at work.
    Online,
    /// Up, and has asked for nothing for a while.
    Idle,
    /// It was there, and its connection went without a good-bye.
    Lost,
}

/// How long a device may take from its script to its first login, or between the sessions of firmware and system.
const ON_ITS_WAY_FOR: Millis = Millis::from_us(3 * 60 * 1_000_000);
/// From when on a system without a ready beacon is taken to be up.
const UP_AFTER: Millis = Millis::from_us(10 * 60 * 1_000_000);
/// How long a device that is up may ask for nothing and is not idle.
const IDLE_AFTER: Millis = Millis::from_us(5 * 60 * 1_000_000);
/// A system that shuts down and has asked for nothing for so long is off.
const OFF_AFTER: Millis = Millis::from_us(10 * 1_000_000);
/// How long a device that is up may be without a connection and is not missed: systems take their sessions over from their own
/// initramfs, and come back after a restart of the server, within seconds.
const BACK_WITHIN: Millis = Millis::from_us(10 * 1_000_000);
/// How long a lost device is looked for.
const LOST_FOR: Millis = Millis::from_us(30 * 60 * 1_000_000);

impl Presence {
    /// As it is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Booting => "booting",
            Self::Online => "online",
            Self::Idle => "idle",
            Self::Lost => "lost",
        }
    }

    /// The one that is shown so.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Off, Self::Booting, Self::Online, Self::Idle, Self::Lost];
        all.into_iter().find(|presence| presence.as_str() == word)
    }
}

/// Whether the device of this boot, its latest, is there.
#[must_use]
pub fn presence(boot: Option<&BootRecord>, now: Moment) -> Presence {
    let Some(boot) = boot.filter(|boot| boot.end.is_none()) else { return Presence::Off };
    let totals = [&boot.first_stage, &boot.second_stage];
    let last_request = totals.into_iter().flatten().filter_map(|stage| stage.last_request_at_ms).max();
    of_running(boot, last_request, now)
}

/// The same of a boot whose requests are counted elsewhere: this is when the last one was answered.
pub(super) fn of_running(boot: &BootRecord, last_request: Option<Millis>, now: Moment) -> Presence {
    let now = boot.relative(now);
    let age = |at: Millis| Millis::from_us(now.us().saturating_sub(at.us()));
    let last_step = boot.steps.last().map_or_else(Millis::default, |step| step.at_ms);
    let quiet = age(last_request.unwrap_or_default().max(last_step));
    if let Some(leaving) = boot.leaving {
        match leaving.comes_back {
            // From here to its next script; then that boot tells.
            true if age(leaving.at_ms) < ON_ITS_WAY_FOR => return Presence::Booting,
            true => {}
            false if boot.status == Status::Disconnected => return Presence::Off,
            false if quiet.min(age(leaving.at_ms)) >= OFF_AFTER => return Presence::Off,
            // It still writes what it has to.
            false => return Presence::Online,
        }
    }
    match boot.status {
        Status::Ended => Presence::Off,
        Status::Waiting if quiet < ON_ITS_WAY_FOR => Presence::Booting,
        Status::Waiting => Presence::Off,
        Status::Disconnected => match (boot.ready_at_ms, quiet) {
            (None, quiet) if quiet < ON_ITS_WAY_FOR => Presence::Booting,
            (Some(_), _) if said_good_bye(boot) => Presence::Off,
            (Some(_), quiet) if quiet < BACK_WITHIN => Presence::Online,
            (_, quiet) if quiet < LOST_FOR => Presence::Lost,
            _ => Presence::Off,
        },
        // A loader that waits for somebody is on its way, however long.
        Status::FirstStage => Presence::Booting,
        Status::SecondStage if boot.hand_over.is_some_and(|hand_over| age(hand_over.at_ms) < UP_AFTER) => {
            Presence::Booting
        }
        Status::SecondStage | Status::Ready if quiet < IDLE_AFTER => Presence::Online,
        Status::SecondStage | Status::Ready => Presence::Idle,
    }
}

/// Whether the last session was ended by the device.
fn said_good_bye(boot: &BootRecord) -> bool {
    let last = boot.steps.iter().rev().find_map(|step| match &step.kind {
        StepKind::SessionEnd { how } => Some(how.as_str()),
        _ => None,
    });
    matches!(last, Some("logout" | "disconnected"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::record::{Leaving, Login, Program};

    const IPXE: [u8; 6] = [0x40, 0x00, 0x27, 0x23, 0x12, 0x34];
    const LINUX: [u8; 6] = [0x00, 0x02, 0x3d, 0x00, 0x00, 0x01];

    fn at(seconds: u64) -> Moment {
        Moment::from_unix_us(1_000_000_000).after(Millis::from_us(seconds * 1_000_000))
    }

    fn login(isid: [u8; 6]) -> Login {
        Login { program: Program::Initiator(isid), peer: None, first_stage_last: None }
    }

    fn is(boot: &BootRecord, seconds: u64) -> Presence {
        presence(Some(boot), at(seconds))
    }

    #[test]
    fn device_comes_up_works_and_rests() {
        let mut boot = BootRecord::begin("b1", "lab-01", "debian", "t", at(0));
        boot.step(at(1), StepKind::Script);
        assert_eq!((is(&boot, 2), is(&boot, 600)), (Presence::Booting, Presence::Off));
        boot.login(at(3), login(IPXE));
        assert_eq!(is(&boot, 1000), Presence::Booting, "its loader shows a menu");
        boot.login(at(20), login(LINUX));
        boot.session_end(at(20), "replaced by another session");
        assert_eq!(is(&boot, 30), Presence::Booting);
        boot.ready(at(40));
        assert_eq!((is(&boot, 41), is(&boot, 40 + 301)), (Presence::Online, Presence::Idle));
        assert_eq!(presence(None, at(0)), Presence::Off);
        boot.finish(at(50), "reset by the administrator".to_owned());
        assert_eq!(is(&boot, 51), Presence::Off);
    }

    #[test]
    fn device_that_was_told_to_go_is_booting_or_off() {
        let up = |comes_back| {
            let mut boot = BootRecord::begin("b1", "lab-01", "debian", "t", at(0));
            boot.login(at(3), login(LINUX));
            boot.ready(at(40));
            boot.leaving = Some(Leaving { at_ms: boot.relative(at(100)), comes_back });
            boot
        };
        let mut restarts = up(true);
        assert_eq!(is(&restarts, 101), Presence::Booting);
        restarts.session_end(at(110), "connection lost");
        assert_eq!((is(&restarts, 111), is(&restarts, 300)), (Presence::Booting, Presence::Lost));
        let mut stops = up(false);
        assert_eq!((is(&stops, 105), is(&stops, 110)), (Presence::Online, Presence::Off));
        stops.session_end(at(102), "connection lost");
        assert_eq!(is(&stops, 103), Presence::Off, "nobody is lost who was sent away");
    }

    #[test]
    fn device_without_a_beacon_counts_as_up_after_a_while() {
        let mut boot = BootRecord::begin("b1", "lab-01", "debian", "t", at(0));
        boot.login(at(3), login(IPXE));
        boot.login(at(20), login(LINUX));
        assert_eq!((is(&boot, 100), is(&boot, 20 + 601)), (Presence::Booting, Presence::Idle));
    }

    #[test]
    fn device_that_says_good_bye_is_off_and_one_that_does_not_is_lost() {
        let up = || {
            let mut boot = BootRecord::begin("b1", "lab-01", "debian", "t", at(0));
            boot.login(at(3), login(LINUX));
            boot.ready(at(40));
            boot
        };
        let (mut polite, mut gone) = (up(), up());
        polite.session_end(at(100), "logout");
        gone.session_end(at(100), "connection lost");
        assert_eq!(is(&polite, 101), Presence::Off);
        assert_eq!((is(&gone, 101), is(&gone, 111)), (Presence::Online, Presence::Lost), "it may come back");
        assert_eq!(is(&gone, 100 + 1801), Presence::Off);
        gone.login(at(200), login(LINUX));
        assert_eq!(is(&gone, 201), Presence::Online, "it is back");
        let mut early = BootRecord::begin("b1", "lab-01", "debian", "t", at(0));
        early.login(at(3), login(IPXE));
        early.session_end(at(4), "connection lost");
        assert_eq!((is(&early, 5), is(&early, 300)), (Presence::Booting, Presence::Lost));
    }
}
