//! A logical unit: one disk, and the decoding of its commands.
use std::sync::{Arc, OnceLock};

use block::BlockDevice;

use crate::capacity;
use crate::cdb::{Cdb, CdbLength, Extent};
use crate::disk::{Disk, MAX_TRANSFER_BYTES, MAX_VERIFY_BYTES, MAX_WRITE_SAME_BYTES};
use crate::inquiry::Inquiry;
use crate::logs::LogSense;
use crate::medium::{Medium, Operation};
use crate::mode::{ModeSelect, ModeSense};
use crate::nexus::{Nexus, UnitAttention};
use crate::opcodes::{self, ReportOpcodes};
use crate::reservation::{self, PersistentIn, PersistentOut};
use crate::sense::{AdditionalSense, CheckCondition, Rejection, SenseKey};
use crate::shared::Shared;
use crate::task::{Change, Task, What, Work};

/// By what an initiator recognises a disk again. Must not change while the disk's contents are the same to its
/// owner: operating systems find their root by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitIdentity {
    /// The unit serial number (VPD page 80h): printable ASCII; the first 64 characters count, others become `?`.
    pub serial: String,
    /// Unique in the world (VPD page 83h).
    pub uuid: [u8; 16],
}

/// One disk, shared by all sessions that see it.
#[derive(Debug)]
pub struct LogicalUnit {
    device: Arc<dyn BlockDevice>,
    disk: Disk,
    identity: UnitIdentity,
    removable: bool,
    shared: Arc<Shared>,
}

/// A command that moves data to or from the medium.
struct OnMedium {
    operation: Operation,
    /// FUA.
    lasting: bool,
}

impl LogicalUnit {
    /// A disk with the contents of `device`.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>, identity: UnitIdentity) -> Self {
        let disk = Disk::new(device.geometry());
        Self { device, disk, identity, removable: false, shared: Arc::default() }
    }

    /// The same disk as a removable medium, which initiators can eject and load again: for installation media.
    #[must_use]
    pub fn removable(self) -> Self {
        Self { removable: true, ..self }
    }

    /// LOGICAL UNIT RESET, as far as the unit itself goes: classic reservations end, mode parameters are the default
    /// ones again, and every session is told. Tasks are the transport's.
    pub fn reset(&self) {
        self.shared.reset();
    }

    /// Has `attention` told by every session that sees the unit.
    pub fn raise(&self, attention: UnitAttention) {
        self.shared.raise(attention, None);
    }

    /// From now on no task tells a [`file_span`](crate::Task::file_span) of the unit: for a transport to which a file
    /// gave less than it had promised. Reading then finds out what is wrong, and the initiator hears of it.
    pub fn forgo_spans(&self) {
        self.shared.forgo_spans();
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The device under it.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Decodes the CDB in `field` and judges all that can be judged before data moves.
    pub(crate) fn task(&self, nexus: &Arc<Nexus>, field: &[u8]) -> Result<Task, Rejection> {
        // SAM-5 §5.14.1: these are answered while a unit attention waits.
        let first = field.first().copied().unwrap_or(0);
        let exempt = matches!(first, opcodes::INQUIRY | opcodes::REPORT_LUNS | opcodes::REQUEST_SENSE);
        if !exempt && let Some(attention) = nexus.take() {
            return Err(attention.into());
        }
        let cdb = Cdb::new(field)?;
        self.shared.check_reservation(nexus, reservation::touches(&cdb))?;
        let work = match self.medium_command(&cdb)? {
            Some(OnMedium { operation, lasting }) => {
                self.shared.check_medium()?;
                Work::Medium(self.medium(operation, lasting))
            }
            None => self.other_command(&cdb, nexus)?,
        };
        Ok(Task::new(work))
    }

    fn medium(&self, operation: Operation, lasting: bool) -> Medium {
        Medium {
            device: Arc::clone(&self.device),
            disk: self.disk,
            shared: Arc::clone(&self.shared),
            operation,
            lasting: lasting || self.shared.writes_through(),
        }
    }

    /// The commands that move data to or from the medium, the frequent ones first.
    fn medium_command(&self, cdb: &Cdb) -> Result<Option<OnMedium>, CheckCondition> {
        let mut lasting = false;
        let operation = match cdb.opcode() {
            opcodes::READ_6 => self.read(cdb)?,
            opcodes::READ_10 | opcodes::READ_12 | opcodes::READ_16 => {
                check_no_protection(cdb)?;
                self.read(cdb)?
            }
            opcodes::WRITE_6 => self.write(cdb, false)?,
            opcodes::WRITE_10 | opcodes::WRITE_12 | opcodes::WRITE_16 => {
                check_no_protection(cdb)?;
                lasting = is_forced(cdb);
                self.write(cdb, false)?
            }
            opcodes::WRITE_AND_VERIFY_10 | opcodes::WRITE_AND_VERIFY_12 | opcodes::WRITE_AND_VERIFY_16 => {
                check_no_protection(cdb)?;
                // Whether BYTCHK asks for a comparison or only for a look at the medium: we compare.
                compares_bytes(cdb)?;
                self.write(cdb, true)?
            }
            opcodes::VERIFY_10 | opcodes::VERIFY_12 | opcodes::VERIFY_16 => self.verify(cdb)?,
            opcodes::SYNCHRONIZE_CACHE_10 | opcodes::SYNCHRONIZE_CACHE_16 => self.synchronize(cdb)?,
            // A write-protected disk knows it as it knows WRITE: to refuse it.
            opcodes::UNMAP if self.disk.knows_unmap() => {
                self.check_writable()?;
                unmap(cdb)?
            }
            opcodes::WRITE_SAME_10 | opcodes::WRITE_SAME_16 => self.write_same(cdb)?,
            opcodes::COMPARE_AND_WRITE => {
                check_no_protection(cdb)?;
                lasting = is_forced(cdb);
                let range = self.disk.limited(cdb.short_extent(), MAX_TRANSFER_BYTES, 13)?;
                self.check_writable()?;
                Operation::CompareAndWrite(range)
            }
            opcodes::ORWRITE_16 => {
                check_no_protection(cdb)?;
                lasting = is_forced(cdb);
                let range = self.disk.limited(cdb.extent(), MAX_TRANSFER_BYTES, length_field(cdb))?;
                self.check_writable()?;
                Operation::Or(range)
            }
            _ => return Ok(None),
        };
        Ok(Some(OnMedium { operation, lasting }))
    }

    fn check_writable(&self) -> Result<(), CheckCondition> {
        self.disk.check_writable()?;
        self.shared.check_writable()
    }

    fn read(&self, cdb: &Cdb) -> Result<Operation, CheckCondition> {
        self.disk.limited(cdb.extent(), MAX_TRANSFER_BYTES, length_field(cdb)).map(Operation::Read)
    }

    fn write(&self, cdb: &Cdb, verify: bool) -> Result<Operation, CheckCondition> {
        let range = self.disk.limited(cdb.extent(), MAX_TRANSFER_BYTES, length_field(cdb))?;
        self.check_writable()?;
        Ok(Operation::Write { range, verify })
    }

    fn verify(&self, cdb: &Cdb) -> Result<Operation, CheckCondition> {
        check_no_protection(cdb)?;
        let field = length_field(cdb);
        if compares_bytes(cdb)? {
            self.disk.limited(cdb.extent(), MAX_TRANSFER_BYTES, field).map(Operation::VerifyData)
        } else {
            self.disk.limited(cdb.extent(), MAX_VERIFY_BYTES, field).map(Operation::VerifyMedium)
        }
    }

    fn synchronize(&self, cdb: &Cdb) -> Result<Operation, CheckCondition> {
        let mut extent = cdb.extent();
        // SBC-3 §5.24: no blocks stands for all from the LBA on. IMMED only allows an early answer.
        let all = self.disk.blocks().saturating_sub(extent.lba);
        extent.blocks = if extent.blocks == 0 { all } else { extent.blocks };
        self.disk.range(extent).map(Operation::Flush)
    }

    fn write_same(&self, cdb: &Cdb) -> Result<Operation, CheckCondition> {
        check_no_protection(cdb)?;
        let unmap = cdb.bit(1, 3);
        if cdb.bit(1, 4) {
            return Err(CheckCondition::cdb_bit(1, 4)); // ANCHOR: we do not claim ANC_SUP
        }
        if cdb.byte(1) & 0x06 != 0 {
            return Err(CheckCondition::cdb_bit(1, 2)); // PBDATA, LBDATA: obsolete
        }
        if unmap && self.disk.unmap_granularity().is_none() && !self.disk.read_only() {
            return Err(CheckCondition::cdb_bit(1, 3)); // SBC-3 §5.40: LBPWS and LBPWS10 are not claimed
        }
        let no_data = cdb.opcode() == opcodes::WRITE_SAME_16 && cdb.bit(1, 0);
        let field = length_field(cdb);
        let range = self.disk.limited(cdb.extent(), MAX_WRITE_SAME_BYTES, field)?;
        if range.is_empty() {
            return Err(CheckCondition::cdb_field(field)); // SBC-3 §6.5.3: WSNZ is set
        }
        self.check_writable()?;
        Ok(Operation::WriteSame { range, unmap, data: !no_data })
    }

    /// The commands that only need what the unit knows itself.
    fn other_command(&self, cdb: &Cdb, nexus: &Arc<Nexus>) -> Result<Work, Rejection> {
        let disk = &self.disk;
        let work = match cdb.opcode() {
            opcodes::TEST_UNIT_READY => self.shared.check_medium().map(|()| Work::Nothing)?,
            opcodes::REQUEST_SENSE => request_sense(cdb, nexus)?,
            opcodes::INQUIRY => {
                let inquiry = Inquiry::decode(cdb)?;
                reply(inquiry.answer(disk, &self.identity, self.removable)?, inquiry.allocation_bytes)
            }
            opcodes::MODE_SENSE_6 | opcodes::MODE_SENSE_10 => {
                let sense = ModeSense::decode(cdb)?;
                reply(sense.answer(disk, self.shared.mode()), sense.allocation_bytes)
            }
            opcodes::MODE_SELECT_6 | opcodes::MODE_SELECT_10 => {
                self.change(nexus, What::ModeSelect(ModeSelect::decode(cdb)?, *disk))
            }
            opcodes::LOG_SENSE => {
                let sense = LogSense::decode(cdb)?;
                reply(sense.answer(), sense.allocation_bytes)
            }
            opcodes::READ_CAPACITY_10 => {
                self.shared.check_medium()?;
                reply(capacity::ten(disk), usize::MAX)
            }
            opcodes::SERVICE_ACTION_IN_16 => self.service_action_in(cdb)?,
            opcodes::MAINTENANCE_IN => self.maintenance_in(cdb)?,
            opcodes::PRE_FETCH_10 | opcodes::PRE_FETCH_16 => {
                self.shared.check_medium()?;
                disk.range(cdb.extent()).map(|_| Work::Nothing)?
            }
            opcodes::READ_DEFECT_DATA_10 => {
                // SBC-3 §5.17: of all the lists that may be asked for, each is empty.
                reply(vec![0, cdb.byte(2) & 0x1F, 0, 0], usize::from(cdb.be16(7)))
            }
            opcodes::READ_DEFECT_DATA_12 => {
                let allocation_bytes = usize::try_from(cdb.be32(6)).unwrap_or(usize::MAX);
                reply(vec![0, cdb.byte(1) & 0x1F, 0, 0, 0, 0, 0, 0], allocation_bytes)
            }
            opcodes::START_STOP_UNIT => self.start_stop(cdb, nexus)?,
            opcodes::SEND_DIAGNOSTIC => send_diagnostic(cdb)?,
            opcodes::PREVENT_ALLOW => {
                self.shared.prevent_removal(nexus, cdb.byte(4) & 0x03 != 0);
                Work::Nothing
            }
            _ => self.reservation_command(cdb, nexus)?,
        };
        Ok(work)
    }

    fn reservation_command(&self, cdb: &Cdb, nexus: &Arc<Nexus>) -> Result<Work, Rejection> {
        match cdb.opcode() {
            opcodes::RESERVE_6 | opcodes::RESERVE_10 => {
                reservation::decode_classic(cdb)?;
                self.shared.reserve_classic(nexus)?;
                Ok(Work::Nothing)
            }
            opcodes::RELEASE_6 | opcodes::RELEASE_10 => {
                reservation::decode_classic(cdb)?;
                self.shared.release_classic(nexus);
                Ok(Work::Nothing)
            }
            opcodes::PERSISTENT_RESERVE_IN => {
                let asked = PersistentIn::decode(cdb)?;
                let data = self.shared.with_reservations(|state| asked.answer(state));
                Ok(reply(data, asked.allocation_bytes))
            }
            opcodes::PERSISTENT_RESERVE_OUT => {
                Ok(self.change(nexus, What::Reserve(PersistentOut::decode(cdb)?, OnceLock::new())))
            }
            _ => Err(CheckCondition::illegal(AdditionalSense::INVALID_OPERATION_CODE).into()),
        }
    }

    fn change(&self, nexus: &Arc<Nexus>, what: What) -> Work {
        Work::Change(Change { shared: Arc::clone(&self.shared), nexus: Arc::clone(nexus), what })
    }

    fn maintenance_in(&self, cdb: &Cdb) -> Result<Work, CheckCondition> {
        match cdb.byte(1) & 0x1F {
            opcodes::SA_REPORT_OPCODES => {
                let report = ReportOpcodes::decode(cdb)?;
                Ok(reply(report.answer(&self.disk), report.allocation_bytes))
            }
            opcodes::SA_REPORT_FUNCTIONS => {
                let (data, allocation_bytes) = opcodes::report_functions(cdb)?;
                Ok(reply(data, allocation_bytes))
            }
            // SPC-4 §6.30: a known opcode with an unknown service action is an invalid field.
            _ => Err(CheckCondition::cdb_bit(1, 4)),
        }
    }

    fn service_action_in(&self, cdb: &Cdb) -> Result<Work, CheckCondition> {
        self.shared.check_medium()?;
        let allocation_bytes = usize::try_from(cdb.be32(10)).unwrap_or(usize::MAX);
        match cdb.byte(1) & 0x1F {
            opcodes::SA_READ_CAPACITY_16 => Ok(reply(capacity::sixteen(&self.disk), allocation_bytes)),
            opcodes::SA_GET_LBA_STATUS => {
                let lba = cdb.be64(2);
                self.disk.range(Extent { lba, blocks: 1 })?;
                let blocks = self.disk.blocks().saturating_sub(lba).min(u64::from(u32::MAX));
                let range = self.disk.range(Extent { lba, blocks })?;
                let reply_bytes = allocation_bytes.min(capacity::LBA_STATUS_BYTES);
                Ok(Work::Medium(self.medium(Operation::LbaStatus { range, reply_bytes }, false)))
            }
            _ => Err(CheckCondition::cdb_bit(1, 4)),
        }
    }

    /// A disk without a motor takes every state and stays ready. To stop it is to make its contents last first
    /// (SBC-3 §5.25), unless NO_FLUSH.
    fn start_stop(&self, cdb: &Cdb, nexus: &Nexus) -> Result<Work, CheckCondition> {
        let (start, load_eject, no_flush) = (cdb.bit(4, 0), cdb.bit(4, 1), cdb.bit(4, 2));
        let power_condition = cdb.byte(4) >> 4;
        if !matches!(power_condition, 0x0..=0x3 | 0x7 | 0xA | 0xB) {
            return Err(CheckCondition::cdb_bit(4, 7));
        }
        if power_condition == 0 && load_eject {
            if self.removable {
                self.shared.move_medium(nexus, start)?;
            } else if !start {
                return Err(CheckCondition::cdb_bit(4, 1)); // there is nothing to eject
            }
        }
        if power_condition != 0 || start || no_flush {
            return Ok(Work::Nothing);
        }
        let everything = self.disk.range(Extent { lba: 0, blocks: self.disk.blocks() })?;
        Ok(Work::Medium(self.medium(Operation::Flush(everything), false)))
    }
}

/// Data-In, as much of it as the initiator has room for (SPC-4 §4.2.5.6).
pub(crate) fn reply(mut data: Vec<u8>, allocation_bytes: usize) -> Work {
    data.truncate(allocation_bytes);
    Work::Reply(data)
}

/// REQUEST SENSE with this sense data, in fixed format only (SPC-4 §6.39).
pub(crate) fn sense_reply(cdb: &Cdb, check: CheckCondition) -> Result<Work, CheckCondition> {
    if cdb.bit(1, 0) {
        return Err(CheckCondition::cdb_bit(1, 0)); // DESC
    }
    Ok(reply(check.to_bytes().to_vec(), usize::from(cdb.byte(4))))
}

fn request_sense(cdb: &Cdb, nexus: &Nexus) -> Result<Work, CheckCondition> {
    let nothing = CheckCondition::new(SenseKey::NoSense, AdditionalSense::NONE);
    sense_reply(cdb, nexus.take().unwrap_or(nothing))
}

fn unmap(cdb: &Cdb) -> Result<Operation, CheckCondition> {
    if cdb.bit(1, 0) {
        return Err(CheckCondition::cdb_bit(1, 0)); // ANCHOR
    }
    Ok(Operation::Unmap { list_bytes: usize::from(cdb.be16(7)) })
}

/// The default self-test passes; there are no others, and no pages.
fn send_diagnostic(cdb: &Cdb) -> Result<Work, CheckCondition> {
    if cdb.byte(1) & 0xF0 != 0 {
        return Err(CheckCondition::cdb_bit(1, 7)); // SELF-TEST CODE, PF
    }
    if cdb.be16(3) != 0 {
        return Err(CheckCondition::cdb_field(3));
    }
    Ok(Work::Nothing)
}

/// FUA: what is written must last before it is answered. DPO says nothing that concerns us.
fn is_forced(cdb: &Cdb) -> bool {
    cdb.bit(1, 3)
}

/// RDPROTECT, WRPROTECT and VRPROTECT ask for protection information, which we do not have (SBC-3 §4.22).
fn check_no_protection(cdb: &Cdb) -> Result<(), CheckCondition> {
    if cdb.byte(1) & 0xE0 != 0 {
        return Err(CheckCondition::cdb_bit(1, 7));
    }
    Ok(())
}

/// BYTCHK: 00b looks at the medium, 01b compares it with the Data-Out.
fn compares_bytes(cdb: &Cdb) -> Result<bool, CheckCondition> {
    match (cdb.byte(1) >> 1) & 0x03 {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(CheckCondition::cdb_bit(1, 2)),
    }
}

/// Where TRANSFER LENGTH (or its like) stands.
fn length_field(cdb: &Cdb) -> u16 {
    match cdb.length() {
        CdbLength::Six => 4,
        CdbLength::Ten => 7,
        CdbLength::Twelve => 6,
        CdbLength::Sixteen => 10,
    }
}
