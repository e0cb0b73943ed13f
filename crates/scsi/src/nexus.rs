//! What a logical unit remembers of one initiator while its session lasts (an I_T_L nexus): the unit attentions that
//! it has not told yet.
use std::sync::atomic::{AtomicU16, Ordering};

use crate::port::InitiatorPort;
use crate::sense::{AdditionalSense, CheckCondition, SenseKey};

/// Something that happened to a logical unit and that the initiator must be told with its next command (SAM-5
/// §5.14). Those that stand first are told first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum UnitAttention {
    /// The unit was switched on: what was not flushed is lost.
    PowerOn = 0,
    /// LOGICAL UNIT RESET or a target reset took place.
    Reset = 1,
    /// The session was lost and is back.
    NexusLoss = 2,
    /// The medium was ejected and is back.
    MediumLoaded = 3,
    /// Another initiator's task management cleared this one's tasks.
    CommandsCleared = 4,
    /// Another initiator cleared all reservations and registrations.
    ReservationsPreempted = 5,
    /// A reservation that all registrants took part in was released.
    ReservationsReleased = 6,
    /// Another initiator removed this one's registration.
    RegistrationsPreempted = 7,
    /// Another initiator changed mode parameters.
    ModeParametersChanged = 8,
    /// READ CAPACITY has another answer now.
    CapacityChanged = 9,
}

/// In the order in which they are told.
const ALL: [UnitAttention; 10] = [
    UnitAttention::PowerOn,
    UnitAttention::Reset,
    UnitAttention::NexusLoss,
    UnitAttention::MediumLoaded,
    UnitAttention::CommandsCleared,
    UnitAttention::ReservationsPreempted,
    UnitAttention::ReservationsReleased,
    UnitAttention::RegistrationsPreempted,
    UnitAttention::ModeParametersChanged,
    UnitAttention::CapacityChanged,
];

/// One initiator's view of one logical unit. Begins with nothing to tell: a transport that wants the initiator to
/// hear of a power-on raises it.
#[derive(Debug)]
pub(crate) struct Nexus {
    port: InitiatorPort,
    pending: AtomicU16,
}

impl Nexus {
    /// With nothing to tell.
    #[must_use]
    pub(crate) fn new(port: InitiatorPort) -> Self {
        Self { port, pending: AtomicU16::new(0) }
    }

    /// The initiator's end of it.
    pub(crate) fn port(&self) -> &InitiatorPort {
        &self.port
    }

    /// Has `attention` told with the initiator's next command that reports such things.
    pub(crate) fn raise(&self, attention: UnitAttention) {
        self.pending.fetch_or(attention.mask(), Ordering::AcqRel);
    }

    /// The first pending attention, which is thereby told.
    pub(crate) fn take(&self) -> Option<CheckCondition> {
        if self.pending.load(Ordering::Acquire) == 0 {
            return None;
        }
        let first = |pending| ALL.into_iter().find(|attention| pending & attention.mask() != 0);
        let cleared = |pending| first(pending).map(|attention: UnitAttention| pending & !attention.mask());
        let before = self.pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, cleared).ok()?;
        first(before).map(|attention| CheckCondition::new(SenseKey::UnitAttention, attention.code()))
    }
}

impl UnitAttention {
    const fn mask(self) -> u16 {
        1 << (self as u16)
    }

    fn code(self) -> AdditionalSense {
        match self {
            Self::PowerOn => AdditionalSense::POWER_ON_OR_RESET,
            Self::Reset => AdditionalSense::DEVICE_RESET,
            Self::NexusLoss => AdditionalSense::NEXUS_LOSS,
            Self::MediumLoaded => AdditionalSense::MEDIUM_MAY_HAVE_CHANGED,
            Self::CommandsCleared => AdditionalSense::COMMANDS_CLEARED,
            Self::ReservationsPreempted => AdditionalSense::RESERVATIONS_PREEMPTED,
            Self::ReservationsReleased => AdditionalSense::RESERVATIONS_RELEASED,
            Self::RegistrationsPreempted => AdditionalSense::REGISTRATIONS_PREEMPTED,
            Self::ModeParametersChanged => AdditionalSense::MODE_PARAMETERS_CHANGED,
            Self::CapacityChanged => AdditionalSense::CAPACITY_CHANGED,
        }
    }
}
