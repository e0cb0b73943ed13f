//! Sense data: how a command that failed says why (SPC-4 §4.5).
use std::fmt;

/// The length of fixed format sense data without additional bytes (SPC-4 §4.5.3).
pub(crate) const FIXED_SENSE_BYTES: usize = 18;

/// The broad kind of a failure (SPC-4 §4.5.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SenseKey {
    /// Nothing to report.
    NoSense = 0x0,
    /// The unit cannot be accessed now.
    NotReady = 0x2,
    /// The medium lost or never held what was asked for.
    MediumError = 0x3,
    /// The unit itself failed.
    HardwareError = 0x4,
    /// The command or its parameters are wrong.
    IllegalRequest = 0x5,
    /// Something happened to the unit that the initiator must know first.
    UnitAttention = 0x6,
    /// The medium is protected from this operation.
    DataProtect = 0x7,
    /// The target gave the command up; it may be tried again.
    AbortedCommand = 0xB,
    /// The data that was sent differs from the medium's.
    Miscompare = 0xE,
}

/// Additional sense code and its qualifier (SPC-4 annex D.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdditionalSense(pub u8, pub u8);

/// Which field of the CDB or of the parameter list was wrong (SPC-4 §4.5.2.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldPointer {
    /// In the CDB, or else in the Data-Out.
    pub in_cdb: bool,
    /// The byte, from 0.
    pub byte: u16,
    /// The field's most significant bit in that byte.
    pub bit: Option<u8>,
}

/// CHECK CONDITION status, with the sense data that goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckCondition {
    /// The broad kind.
    pub key: SenseKey,
    /// The precise reason.
    pub code: AdditionalSense,
    /// The LBA or byte offset that the reason is about.
    pub information: Option<u64>,
    /// The field that was wrong.
    pub field: Option<FieldPointer>,
}

impl AdditionalSense {
    /// NO ADDITIONAL SENSE INFORMATION.
    pub const NONE: Self = Self(0x00, 0x00);
    /// LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE.
    pub const NOT_READY: Self = Self(0x04, 0x00);
    /// LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED.
    pub const NOT_READY_MANUAL_INTERVENTION: Self = Self(0x04, 0x03);
    /// WRITE ERROR.
    pub const WRITE_ERROR: Self = Self(0x0C, 0x00);
    /// WRITE ERROR - UNEXPECTED UNSOLICITED DATA.
    pub const UNEXPECTED_UNSOLICITED_DATA: Self = Self(0x0C, 0x0C);
    /// WRITE ERROR - NOT ENOUGH UNSOLICITED DATA.
    pub const NOT_ENOUGH_UNSOLICITED_DATA: Self = Self(0x0C, 0x0D);
    /// INVALID FIELD IN COMMAND INFORMATION UNIT: what the transport says about the command contradicts its CDB.
    pub const INVALID_FIELD_IN_INFORMATION_UNIT: Self = Self(0x0E, 0x03);
    /// UNRECOVERED READ ERROR.
    pub const UNRECOVERED_READ_ERROR: Self = Self(0x11, 0x00);
    /// PARAMETER LIST LENGTH ERROR.
    pub const PARAMETER_LIST_LENGTH_ERROR: Self = Self(0x1A, 0x00);
    /// MISCOMPARE DURING VERIFY OPERATION.
    pub const MISCOMPARE: Self = Self(0x1D, 0x00);
    /// INVALID COMMAND OPERATION CODE.
    pub const INVALID_OPERATION_CODE: Self = Self(0x20, 0x00);
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub const LBA_OUT_OF_RANGE: Self = Self(0x21, 0x00);
    /// INVALID FIELD IN CDB.
    pub const INVALID_FIELD_IN_CDB: Self = Self(0x24, 0x00);
    /// LOGICAL UNIT NOT SUPPORTED.
    pub const UNIT_NOT_SUPPORTED: Self = Self(0x25, 0x00);
    /// INVALID FIELD IN PARAMETER LIST.
    pub const INVALID_FIELD_IN_PARAMETER_LIST: Self = Self(0x26, 0x00);
    /// INVALID RELEASE OF PERSISTENT RESERVATION.
    pub const INVALID_RELEASE: Self = Self(0x26, 0x04);
    /// WRITE PROTECTED.
    pub const WRITE_PROTECTED: Self = Self(0x27, 0x00);
    /// SOFTWARE WRITE PROTECTED.
    pub const SOFTWARE_WRITE_PROTECTED: Self = Self(0x27, 0x02);
    /// SPACE ALLOCATION FAILED WRITE PROTECT.
    pub const SPACE_ALLOCATION_FAILED: Self = Self(0x27, 0x07);
    /// NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED.
    pub const MEDIUM_MAY_HAVE_CHANGED: Self = Self(0x28, 0x00);
    /// POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    pub const POWER_ON_OR_RESET: Self = Self(0x29, 0x00);
    /// BUS DEVICE RESET FUNCTION OCCURRED.
    pub const DEVICE_RESET: Self = Self(0x29, 0x03);
    /// I_T NEXUS LOSS OCCURRED.
    pub const NEXUS_LOSS: Self = Self(0x29, 0x07);
    /// MODE PARAMETERS CHANGED.
    pub const MODE_PARAMETERS_CHANGED: Self = Self(0x2A, 0x01);
    /// RESERVATIONS PREEMPTED.
    pub const RESERVATIONS_PREEMPTED: Self = Self(0x2A, 0x03);
    /// RESERVATIONS RELEASED.
    pub const RESERVATIONS_RELEASED: Self = Self(0x2A, 0x04);
    /// REGISTRATIONS PREEMPTED.
    pub const REGISTRATIONS_PREEMPTED: Self = Self(0x2A, 0x05);
    /// CAPACITY DATA HAS CHANGED.
    pub const CAPACITY_CHANGED: Self = Self(0x2A, 0x09);
    /// COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub const COMMANDS_CLEARED: Self = Self(0x2F, 0x00);
    /// SAVING PARAMETERS NOT SUPPORTED.
    pub const SAVING_NOT_SUPPORTED: Self = Self(0x39, 0x00);
    /// MEDIUM NOT PRESENT.
    pub const MEDIUM_NOT_PRESENT: Self = Self(0x3A, 0x00);
    /// INTERNAL TARGET FAILURE.
    pub const INTERNAL_FAILURE: Self = Self(0x44, 0x00);
    /// PROTOCOL SERVICE CRC ERROR.
    pub const PROTOCOL_CRC_ERROR: Self = Self(0x47, 0x05);
    /// MEDIUM REMOVAL PREVENTED.
    pub const MEDIUM_REMOVAL_PREVENTED: Self = Self(0x53, 0x02);
    /// INSUFFICIENT REGISTRATION RESOURCES.
    pub const INSUFFICIENT_REGISTRATION_RESOURCES: Self = Self(0x55, 0x04);
}

impl CheckCondition {
    /// One that says no more than key and code.
    #[must_use]
    pub const fn new(key: SenseKey, code: AdditionalSense) -> Self {
        Self { key, code, information: None, field: None }
    }

    /// ILLEGAL REQUEST.
    pub(crate) const fn illegal(code: AdditionalSense) -> Self {
        Self::new(SenseKey::IllegalRequest, code)
    }

    /// INVALID FIELD IN CDB, for the field that begins in this byte.
    pub(crate) const fn cdb_field(byte: u16) -> Self {
        Self {
            field: Some(FieldPointer { in_cdb: true, byte, bit: None }),
            ..Self::illegal(AdditionalSense::INVALID_FIELD_IN_CDB)
        }
    }

    /// INVALID FIELD IN CDB, for the field whose most significant bit is `bit` of this byte.
    pub(crate) const fn cdb_bit(byte: u16, bit: u8) -> Self {
        Self {
            field: Some(FieldPointer { in_cdb: true, byte, bit: Some(bit) }),
            ..Self::illegal(AdditionalSense::INVALID_FIELD_IN_CDB)
        }
    }

    /// INVALID FIELD IN PARAMETER LIST, for the field that begins in this byte.
    pub(crate) fn parameter_field(byte: usize) -> Self {
        let byte = u16::try_from(byte).unwrap_or(u16::MAX);
        Self {
            field: Some(FieldPointer { in_cdb: false, byte, bit: None }),
            ..Self::illegal(AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST)
        }
    }

    /// The same, about this LBA or byte offset.
    pub(crate) const fn about(self, information: u64) -> Self {
        Self { information: Some(information), ..self }
    }

    /// The sense data in fixed format (SPC-4 §4.5.3).
    #[must_use]
    pub fn to_bytes(&self) -> [u8; FIXED_SENSE_BYTES] {
        // INFORMATION has 32 bits; VALID says whether it fits and stands there.
        let information = self.information.and_then(|value| u32::try_from(value).ok());
        let [i0, i1, i2, i3] = information.unwrap_or(0).to_be_bytes();
        let valid = if information.is_some() { 0x80 } else { 0 };
        let [s0, s1, s2] = self.field.map_or([0; 3], FieldPointer::sense_key_specific);
        let AdditionalSense(asc, ascq) = self.code;
        let additional_bytes = 10; // ADDITIONAL SENSE LENGTH: what follows byte 7
        [
            valid | 0x70, // RESPONSE CODE: current error, fixed format
            0,
            self.key as u8,
            i0,
            i1,
            i2,
            i3,
            additional_bytes,
            0,
            0,
            0,
            0,
            asc,
            ascq,
            0,
            s0,
            s1,
            s2,
        ]
    }
}

impl FieldPointer {
    fn sense_key_specific(self) -> [u8; 3] {
        let [high, low] = self.byte.to_be_bytes();
        let command = if self.in_cdb { 0x40 } else { 0 };
        let bit = self.bit.map_or(0, |bit| 0x08 | (bit & 0x07));
        [0x80 | command | bit, high, low]
    }
}

impl fmt::Display for CheckCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AdditionalSense(asc, ascq) = self.code;
        write!(f, "{:?} {asc:02X}h/{ascq:02X}h", self.key)?;
        if let Some(information) = self.information {
            write!(f, " at {information:#x}")?;
        }
        if let Some(field) = self.field {
            let place = if field.in_cdb { "CDB" } else { "parameter list" };
            write!(f, " in byte {} of the {place}", field.byte)?;
        }
        Ok(())
    }
}

impl std::error::Error for CheckCondition {}

/// A status that is not GOOD: what a command that is not carried out is answered with (SAM-5 §5.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// CHECK CONDITION.
    #[error("{0}")]
    Check(#[from] CheckCondition),
    /// RESERVATION CONFLICT: another initiator has the unit for itself. No sense data goes with it.
    #[error("reservation conflict")]
    ReservationConflict,
}
