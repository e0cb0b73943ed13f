//! Which commands a reservation keeps out (SPC-4 §5.13.1 table 67, SBC-3 §4.17 table 17, SPC-2 §5.5.1 table 10).
use super::Kind;
use crate::cdb::Cdb;
use crate::opcodes;

/// What a command does to the unit, as far as reservations go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touches {
    /// Nothing that any reservation forbids.
    Nothing,
    /// Nothing that a persistent reservation forbids; the older kind does.
    Readiness,
    /// It looks at the medium or at what belongs to it.
    Reads,
    /// It changes the medium or what belongs to it.
    Changes,
    /// RESERVE: judged by itself.
    Reserves,
    /// PERSISTENT RESERVE IN or OUT: judged by itself.
    Persistent,
}

impl Touches {
    pub(super) fn conflicts_with(self, kind: Kind) -> bool {
        match self {
            Self::Nothing | Self::Readiness | Self::Reserves | Self::Persistent => false,
            Self::Reads => kind.is_exclusive_access(),
            Self::Changes => true,
        }
    }

    pub(super) fn conflicts_with_classic(self) -> bool {
        match self {
            Self::Nothing | Self::Reserves => false,
            Self::Readiness | Self::Reads | Self::Changes | Self::Persistent => true,
        }
    }
}

/// What the command in `cdb` does.
pub(crate) fn touches(cdb: &Cdb) -> Touches {
    match cdb.opcode() {
        opcodes::INQUIRY
        | opcodes::REPORT_LUNS
        | opcodes::REQUEST_SENSE
        | opcodes::READ_CAPACITY_10
        | opcodes::RELEASE_6
        | opcodes::RELEASE_10 => Touches::Nothing,
        opcodes::TEST_UNIT_READY | opcodes::LOG_SENSE => Touches::Readiness,
        opcodes::RESERVE_6 | opcodes::RESERVE_10 => Touches::Reserves,
        opcodes::PERSISTENT_RESERVE_IN | opcodes::PERSISTENT_RESERVE_OUT => Touches::Persistent,
        // PREVENT 0 only allows again; START without a power condition only starts.
        opcodes::PREVENT_ALLOW if cdb.byte(4) & 0x03 == 0 => Touches::Nothing,
        opcodes::START_STOP_UNIT if cdb.byte(4) & 0xF1 == 0x01 => Touches::Nothing,
        opcodes::SERVICE_ACTION_IN_16 if cdb.byte(1) & 0x1F == opcodes::SA_READ_CAPACITY_16 => {
            Touches::Nothing
        }
        opcodes::SERVICE_ACTION_IN_16
        | opcodes::MODE_SENSE_6
        | opcodes::MODE_SENSE_10
        | opcodes::MAINTENANCE_IN
        | opcodes::READ_DEFECT_DATA_10
        | opcodes::READ_DEFECT_DATA_12
        | opcodes::PRE_FETCH_10
        | opcodes::PRE_FETCH_16
        | opcodes::READ_6
        | opcodes::READ_10
        | opcodes::READ_12
        | opcodes::READ_16
        | opcodes::VERIFY_10
        | opcodes::VERIFY_12
        | opcodes::VERIFY_16 => Touches::Reads,
        _ => Touches::Changes,
    }
}
