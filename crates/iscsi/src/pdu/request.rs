//! What an initiator sends, with a type for each PDU (RFC 7143 §11).
use super::{Bhs, NO_TAG};
use crate::directory::Isid;

/// The opcode of SCSI Data-Out.
pub(crate) const DATA_OUT: u8 = 0x05;

/// A PDU of the initiator. The data segment stands beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// NOP-Out.
    NopOut(NopOut),
    /// SCSI Command.
    Command(ScsiCommand),
    /// Task Management Function Request.
    TaskManagement(TaskManagement),
    /// Login Request.
    Login(LoginRequest),
    /// Text Request.
    Text(TextRequest),
    /// SCSI Data-Out.
    DataOut(DataOut),
    /// Logout Request.
    Logout(LogoutRequest),
    /// SNACK Request: there is none at error recovery level 0.
    Snack,
}

/// The place of a request in the command sequence (RFC 7143 §4.2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// CmdSN.
    pub(crate) cmd_sn: u32,
    /// Whether it is delivered at once and does not advance the sequence.
    pub(crate) immediate: bool,
}

/// RFC 7143 §11.18.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NopOut {
    pub(crate) order: Order,
    pub(crate) lun: [u8; 8],
    /// `NO_TAG`: no answer is wanted.
    pub(crate) itt: u32,
    /// `NO_TAG`, or the answer to our ping.
    pub(crate) ttt: u32,
}

/// RFC 7143 §11.3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScsiCommand {
    pub(crate) order: Order,
    pub(crate) lun: [u8; 8],
    pub(crate) itt: u32,
    /// No unsolicited Data-Out follows.
    pub(crate) last: bool,
    /// The initiator expects Data-In.
    pub(crate) reads: bool,
    /// The initiator has Data-Out.
    pub(crate) writes: bool,
    /// Expected Data Transfer Length.
    pub(crate) expected_bytes: u32,
    pub(crate) cdb: [u8; 16],
}

/// RFC 7143 §11.5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskManagement {
    pub(crate) order: Order,
    pub(crate) function: Function,
    pub(crate) lun: [u8; 8],
    pub(crate) itt: u32,
    pub(crate) referenced_itt: u32,
}

/// Task management functions (RFC 7143 §11.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    AbortTask,
    AbortTaskSet,
    ClearTaskSet,
    LunReset,
    TargetWarmReset,
    TargetColdReset,
    /// CLEAR ACA, TASK REASSIGN and those that do not exist.
    Other(u8),
}

/// RFC 7143 §11.12.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoginRequest {
    /// The initiator is ready to leave the current stage.
    pub(crate) transit: bool,
    /// More text of this negotiation follows.
    pub(crate) more: bool,
    pub(crate) current_stage: u8,
    pub(crate) next_stage: u8,
    pub(crate) version_min: u8,
    pub(crate) isid: Isid,
    pub(crate) tsih: u16,
    pub(crate) itt: u32,
    pub(crate) cid: u16,
    pub(crate) cmd_sn: u32,
}

/// RFC 7143 §11.10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextRequest {
    pub(crate) order: Order,
    pub(crate) last: bool,
    pub(crate) more: bool,
    pub(crate) lun: [u8; 8],
    pub(crate) itt: u32,
    pub(crate) ttt: u32,
}

/// RFC 7143 §11.7.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataOut {
    /// The last PDU of its sequence.
    pub(crate) last: bool,
    pub(crate) itt: u32,
    /// Which R2T this answers; `NO_TAG` for unsolicited data.
    pub(crate) ttt: u32,
    pub(crate) data_sn: u32,
    pub(crate) buffer_offset: u32,
}

/// RFC 7143 §11.14.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogoutRequest {
    pub(crate) order: Order,
    pub(crate) reason: LogoutReason,
    pub(crate) itt: u32,
    pub(crate) cid: u16,
}

/// RFC 7143 §11.14.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogoutReason {
    CloseSession,
    CloseConnection,
    Recovery,
}

/// Why a PDU was refused, as the Reject PDU says it (RFC 7143 §11.17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RejectReason {
    DataDigest = 0x02,
    SnackRejected = 0x03,
    ProtocolError = 0x04,
    CommandNotSupported = 0x05,
    TooManyImmediate = 0x06,
    TaskInProgress = 0x07,
    InvalidField = 0x09,
}

/// A PDU that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Malformed {
    /// For the Reject PDU.
    pub(crate) reason: RejectReason,
    /// The rule that is broken.
    pub(crate) what: &'static str,
}

impl Request {
    /// Gives the PDU with this header its type.
    ///
    /// # Errors
    /// [`Malformed`] where a field contradicts the protocol.
    pub(crate) fn parse(bhs: &Bhs, data_bytes: usize) -> Result<Self, Malformed> {
        let order = Order { cmd_sn: bhs.cmd_sn(), immediate: bhs.immediate() };
        let last = bhs.flags() & 0x80 != 0;
        let request = match bhs.opcode() {
            0x00 => Self::NopOut(NopOut { order, lun: bhs.lun(), itt: bhs.itt(), ttt: bhs.ttt() }.checked()?),
            0x01 => Self::Command(ScsiCommand::parse(bhs, order, data_bytes)?),
            0x02 => Self::TaskManagement(TaskManagement {
                order,
                function: Function::parse(bhs.flags() & 0x7F),
                lun: bhs.lun(),
                itt: bhs.itt(),
                referenced_itt: bhs.ttt(),
            }),
            0x03 => Self::Login(LoginRequest::parse(bhs)?),
            0x04 => Self::Text(TextRequest {
                order,
                last,
                more: bhs.flags() & 0x40 != 0,
                lun: bhs.lun(),
                itt: bhs.itt(),
                ttt: bhs.ttt(),
            }),
            DATA_OUT => Self::DataOut(DataOut {
                last,
                itt: bhs.itt(),
                ttt: bhs.ttt(),
                data_sn: bhs.u32_at(36),
                buffer_offset: bhs.u32_at(40),
            }),
            0x06 => Self::Logout(LogoutRequest {
                order,
                reason: LogoutReason::parse(bhs.flags() & 0x7F)?,
                itt: bhs.itt(),
                cid: bhs.u16_at(20),
            }),
            0x10 => Self::Snack,
            _ => {
                return Err(Malformed {
                    reason: RejectReason::CommandNotSupported,
                    what: "an opcode that no initiator sends",
                });
            }
        };
        Ok(request)
    }
}

impl NopOut {
    fn checked(self) -> Result<Self, Malformed> {
        // RFC 7143 §11.18: with neither tag there is nothing to answer, and it must then be immediate.
        if self.itt == NO_TAG && !self.order.immediate {
            return Err(Malformed {
                reason: RejectReason::InvalidField,
                what: "a NOP-Out without tag in the sequence",
            });
        }
        Ok(self)
    }
}

impl ScsiCommand {
    fn parse(bhs: &Bhs, order: Order, data_bytes: usize) -> Result<Self, Malformed> {
        let flags = bhs.flags();
        let command = Self {
            order,
            lun: bhs.lun(),
            itt: bhs.itt(),
            last: flags & 0x80 != 0,
            reads: flags & 0x40 != 0,
            writes: flags & 0x20 != 0,
            expected_bytes: bhs.u32_at(20),
            cdb: bhs.array(32),
        };
        let refused = |what| Err(Malformed { reason: RejectReason::InvalidField, what });
        if !command.writes && data_bytes > 0 {
            return refused("immediate data in a command that does not write");
        }
        if !command.writes && !command.last {
            return refused("unsolicited data announced by a command that does not write");
        }
        if command.itt == NO_TAG {
            return refused("a command without task tag");
        }
        Ok(command)
    }
}

impl Function {
    const fn parse(code: u8) -> Self {
        match code {
            1 => Self::AbortTask,
            2 => Self::AbortTaskSet,
            4 => Self::ClearTaskSet,
            5 => Self::LunReset,
            6 => Self::TargetWarmReset,
            7 => Self::TargetColdReset,
            other => Self::Other(other),
        }
    }
}

impl LoginRequest {
    fn parse(bhs: &Bhs) -> Result<Self, Malformed> {
        let flags = bhs.flags();
        let [_, _, _, version_min] = bhs.array(0);
        let request = Self {
            transit: flags & 0x80 != 0,
            more: flags & 0x40 != 0,
            current_stage: (flags >> 2) & 3,
            next_stage: flags & 3,
            version_min,
            isid: Isid(bhs.array(8)),
            tsih: bhs.u16_at(14),
            itt: bhs.itt(),
            cid: bhs.u16_at(20),
            cmd_sn: bhs.cmd_sn(),
        };
        let refused = |what| Err(Malformed { reason: RejectReason::InvalidField, what });
        // RFC 7143 §11.12.2: with the C bit set the T bit must be 0.
        if request.transit && request.more {
            return refused("a login that wants to go on and to say more at once");
        }
        // RFC 7143 §11.12.3: stages are 0, 1 and 3; one only goes forward, and never ends in 2.
        let forward = request.next_stage > request.current_stage && request.next_stage != 2;
        if request.current_stage > 1 || (request.transit && !forward) {
            return refused("a login stage that does not exist");
        }
        Ok(request)
    }
}

impl LogoutReason {
    const fn parse(code: u8) -> Result<Self, Malformed> {
        match code {
            0 => Ok(Self::CloseSession),
            1 => Ok(Self::CloseConnection),
            2 => Ok(Self::Recovery),
            _ => Err(Malformed {
                reason: RejectReason::InvalidField,
                what: "a logout reason that does not exist",
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// READ(10) of one block at LBA 0 as libiscsi 1.19 sends it.
    fn read10() -> Bhs {
        let mut bhs = Bhs::new(0x01, 0x80 | 0x40 | 0x01);
        bhs.put(8, [0, 1, 0, 0, 0, 0, 0, 0]);
        bhs.put_u32(16, 7);
        bhs.put_u32(20, 512);
        bhs.put_u32(24, 5);
        bhs.put(32, [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        bhs
    }

    #[test]
    fn read_command_is_parsed_into_its_fields() {
        let Ok(Request::Command(command)) = Request::parse(&read10(), 0) else { panic!("no command") };
        assert_eq!((command.itt, command.order.cmd_sn, command.expected_bytes), (7, 5, 512));
        assert!(command.reads && !command.writes && command.last);
        assert_eq!(command.cdb[0], 0x28);
    }

    #[test]
    fn immediate_data_in_a_read_is_refused() {
        assert!(Request::parse(&read10(), 512).is_err());
    }

    #[test]
    fn login_that_goes_backwards_is_refused() {
        for (flags, legal) in
            [(0x81, true), (0x87, true), (0x83, true), (0x84, false), (0x82, false), (0x8F, false)]
        {
            assert_eq!(Request::parse(&Bhs::new(0x43, flags), 0).is_ok(), legal, "{flags:#x}");
        }
    }

    #[test]
    fn response_opcode_is_not_a_request() {
        let error = Request::parse(&Bhs::new(0x21, 0x80), 0).unwrap_err();
        assert_eq!(error.reason, RejectReason::CommandNotSupported);
    }
}
