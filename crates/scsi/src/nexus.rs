//! What a logical unit remembers of one initiator (an I_T_L nexus): the unit attentions that it has not told yet.
use std::sync::atomic::{AtomicU8, Ordering};

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
    /// Another initiator's task management cleared this one's tasks.
    CommandsCleared = 3,
    /// READ CAPACITY has another answer now.
    CapacityChanged = 4,
}

/// In the order in which they are told.
const ALL: [UnitAttention; 5] = [
    UnitAttention::PowerOn,
    UnitAttention::Reset,
    UnitAttention::NexusLoss,
    UnitAttention::CommandsCleared,
    UnitAttention::CapacityChanged,
];

/// One initiator's view of one logical unit. Begins with nothing to tell: a transport that wants the initiator to
/// hear of a power-on raises it.
#[derive(Debug, Default)]
pub(crate) struct Nexus {
    pending: AtomicU8,
}

impl Nexus {
    /// With nothing to tell.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Has `attention` told with the initiator's next command that reports such things.
    pub(crate) fn raise(&self, attention: UnitAttention) {
        self.pending.fetch_or(attention.mask(), Ordering::AcqRel);
    }

    /// The first pending attention, which is thereby told.
    pub(crate) fn take(&self) -> Option<CheckCondition> {
        let first = |pending| ALL.into_iter().find(|attention| pending & attention.mask() != 0);
        let cleared = |pending| first(pending).map(|attention: UnitAttention| pending & !attention.mask());
        let before = self.pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, cleared).ok()?;
        first(before).map(|attention| CheckCondition::new(SenseKey::UnitAttention, attention.code()))
    }
}

impl UnitAttention {
    const fn mask(self) -> u8 {
        1 << (self as u8)
    }

    fn code(self) -> AdditionalSense {
        match self {
            Self::PowerOn => AdditionalSense::POWER_ON_OR_RESET,
            Self::Reset => AdditionalSense::DEVICE_RESET,
            Self::NexusLoss => AdditionalSense::NEXUS_LOSS,
            Self::CommandsCleared => AdditionalSense::COMMANDS_CLEARED,
            Self::CapacityChanged => AdditionalSense::CAPACITY_CHANGED,
        }
    }
}
