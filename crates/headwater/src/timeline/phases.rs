//! Where the time of a boot went: its phases, one after another, from the first step until the device was ready.
use serde::{Deserialize, Serialize};

use super::record::{BootRecord, Stage, Step, StepKind};
use super::time::Millis;

/// A part of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseName {
    /// From the first step until the iPXE script, or until the boot menu was shown.
    Firmware,
    /// Until the boot menu was left.
    Menu,
    /// From the script until the firmware's login.
    ToLogin,
    /// From the firmware's login until its last request.
    FirstStage,
    /// Until kernel and initramfs were there, which iPXE fetched over HTTP.
    Kernel,
    /// Until the operating system's login: nothing was asked for.
    HandOver,
    /// From the operating system's login on.
    SecondStage,
}

impl PhaseName {
    /// All of them, in their usual order.
    pub const ALL: [Self; 7] = [
        Self::Firmware,
        Self::Menu,
        Self::ToLogin,
        Self::FirstStage,
        Self::Kernel,
        Self::HandOver,
        Self::SecondStage,
    ];

    /// As it is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Firmware => "firmware, DHCP, boot file",
            Self::Menu => "boot menu",
            Self::ToLogin => "script to first login",
            Self::FirstStage => "first stage",
            Self::Kernel => "kernel and initramfs",
            Self::HandOver => "hand-over gap",
            Self::SecondStage => "second stage",
        }
    }
}

/// How long a part of a boot was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// Which.
    pub name: PhaseName,
    /// When it began, from the boot's first step.
    pub at_ms: Millis,
    /// How long it was.
    pub took_ms: Millis,
}

/// The phases of a boot; none before somebody has logged in. The last one ends when the device was ready or, without a beacon, with
/// the last request so far.
#[must_use]
pub fn phases(record: &BootRecord) -> Vec<Phase> {
    if record.first_login_at().is_none() {
        return Vec::new();
    }
    let second = record.hand_over.map(|hand_over| hand_over.at_ms);
    let last_request = [&record.second_stage, &record.first_stage];
    let last_request = last_request.into_iter().flatten().filter_map(|stage| stage.last_request_at_ms).max();
    let end = record.ready_at_ms.or(last_request);
    let script = record.steps.iter().find(|step| step.kind == StepKind::Script).map(|step| step.at_ms);
    let is_menu = |step: &&Step| matches!(step.kind, StepKind::Menu { .. });
    let menu = record.steps.iter().find(is_menu).map(|step| step.at_ms);
    let first_login = record.steps.iter().find(|step| is_login(step, Stage::First)).map(|step| step.at_ms);
    let first_stage_end = first_login.and(match record.hand_over {
        Some(hand_over) => Some(Millis::from_us(hand_over.at_ms.us().saturating_sub(hand_over.gap_ms.us()))),
        None => end,
    });
    let mut marks = vec![
        (PhaseName::Firmware, menu.or(script)),
        (PhaseName::Menu, menu.and(script)),
        (PhaseName::ToLogin, first_login),
        (PhaseName::FirstStage, first_stage_end),
        (PhaseName::Kernel, kernel_end(record)),
        (PhaseName::HandOver, second),
        (PhaseName::SecondStage, second.and(end)),
    ];
    // What iPXE does first, logging in or fetching the kernel, is its script's choice.
    marks.sort_by_key(|(_, at)| *at);
    let mut phases = Vec::new();
    let mut start = Millis::default();
    for (name, at) in marks {
        let Some(at) = at else { continue };
        phases.push(Phase {
            name,
            at_ms: start,
            took_ms: Millis::from_us(at.us().saturating_sub(start.us())),
        });
        start = start.max(at);
    }
    phases
}

/// How long all phases are together.
#[must_use]
pub fn total(phases: &[Phase]) -> Millis {
    let end = |phase: &Phase| phase.at_ms.us().saturating_add(phase.took_ms.us());
    Millis::from_us(phases.iter().map(end).max().unwrap_or(0))
}

/// The files that were fetched after the script and before the operating system's login: kernel and initramfs.
pub(super) fn kernel_files(record: &BootRecord) -> impl Iterator<Item = &Step> {
    let script = record.steps.iter().find(|step| step.kind == StepKind::Script).map(|step| step.at_ms);
    let until = record.hand_over.map_or(Millis::from_us(u64::MAX), |hand_over| hand_over.at_ms);
    record.steps.iter().filter(move |step| {
        matches!(step.kind, StepKind::BootFile { .. })
            && script.is_some_and(|script| step.at_ms >= script)
            && step.at_ms < until
    })
}

fn kernel_end(record: &BootRecord) -> Option<Millis> {
    let end = |step: &Step| match step.kind {
        StepKind::BootFile { took_ms, .. } => {
            Some(Millis::from_us(step.at_ms.us().saturating_add(took_ms.us())))
        }
        _ => None,
    };
    kernel_files(record).filter_map(end).max()
}

fn is_login(step: &Step, wanted: Stage) -> bool {
    matches!(step.kind, StepKind::Login { stage, .. } if stage == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Moment;
    use crate::timeline::record::{Login, Program};

    fn at(ms: u64) -> Moment {
        Moment::from_unix_us(1_000_000 + ms * 1000)
    }

    fn file(boot: &mut BootRecord, ms: u64, took_ms: u64) {
        let kind = StepKind::BootFile {
            name: "vmlinuz".into(),
            protocol: "http".into(),
            size_bytes: 9,
            took_ms: Millis::from_us(took_ms * 1000),
            tftp: None,
        };
        boot.step(at(ms), kind);
    }

    fn of(boot: &BootRecord) -> Vec<(PhaseName, u64)> {
        phases(boot).iter().map(|phase| (phase.name, phase.took_ms.us() / 1000)).collect()
    }

    #[test]
    fn kernel_boot_over_nbd_has_no_first_stage() {
        let mut boot = BootRecord::begin("1", "a", "d", "t", at(0));
        file(&mut boot, 100, 50); // iPXE itself
        boot.step(at(1000), StepKind::Script);
        file(&mut boot, 1100, 300);
        file(&mut boot, 1500, 500);
        boot.login(at(5000), Login { program: Program::NbdClient, peer: None, first_stage_last: None });
        boot.ready(at(9000));
        let expected = [
            (PhaseName::Firmware, 1000),
            (PhaseName::Kernel, 1000),
            (PhaseName::HandOver, 3000),
            (PhaseName::SecondStage, 4000),
        ];
        assert_eq!(of(&boot), expected);
        assert_eq!(total(&phases(&boot)), Millis::from_us(9_000_000));
    }

    #[test]
    fn hook_before_the_kernel_puts_the_first_stage_before_it() {
        let mut boot = BootRecord::begin("1", "a", "d", "t", at(0));
        boot.step(at(1000), StepKind::Script);
        let firmware = Login {
            program: Program::Initiator([0x40, 0, 0x27, 0x23, 0, 1]),
            peer: None,
            first_stage_last: None,
        };
        boot.login(at(1100), firmware);
        file(&mut boot, 1300, 700);
        let system = Login {
            program: Program::Initiator([0, 2, 0x3d, 0, 0, 1]),
            peer: None,
            first_stage_last: Some(at(1200)),
        };
        boot.login(at(6000), system);
        boot.ready(at(7000));
        let expected = [
            (PhaseName::Firmware, 1000),
            (PhaseName::ToLogin, 100),
            (PhaseName::FirstStage, 100),
            (PhaseName::Kernel, 800),
            (PhaseName::HandOver, 4000),
            (PhaseName::SecondStage, 1000),
        ];
        assert_eq!(of(&boot), expected);
    }

    #[test]
    fn boot_that_nobody_logged_in_to_has_no_phases() {
        let mut boot = BootRecord::begin("1", "a", "d", "t", at(0));
        boot.step(at(1000), StepKind::Script);
        assert_eq!(phases(&boot), []);
    }
}
