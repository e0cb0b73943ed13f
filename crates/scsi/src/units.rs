//! What one session sees: its logical units by LUN, and what is answered for a LUN that it does not have.
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cdb::Cdb;
use crate::inquiry::Inquiry;
use crate::nexus::{Nexus, UnitAttention};
use crate::opcodes;
use crate::port::InitiatorPort;
use crate::sense::{AdditionalSense, CheckCondition, Rejection};
use crate::task::Task;
use crate::unit::{self, LogicalUnit};

/// The shortest ALLOCATION LENGTH of REPORT LUNS that is legal (SPC-4 §6.33).
const MIN_REPORT_LUNS_BYTES: usize = 16;
/// The largest LUN that flat space addressing can name.
const MAX_LUN: u16 = 0x3FFF;

/// The logical units of one session.
#[derive(Debug)]
pub struct Units {
    by_lun: BTreeMap<u16, (Arc<LogicalUnit>, Arc<Nexus>)>,
}

impl Units {
    /// These units, as the initiator behind `port` sees them. A LUN has at most 14 bits: a unit with a larger one cannot be addressed and is left out. Of two
    /// units with one LUN the later counts. No unit has anything to tell yet: a transport that wants the initiator to
    /// hear of a power-on raises it.
    #[must_use]
    pub fn new(port: &InitiatorPort, units: impl IntoIterator<Item = (u16, Arc<LogicalUnit>)>) -> Self {
        let mut by_lun = BTreeMap::new();
        for (lun, unit) in units.into_iter().filter(|(lun, _)| *lun <= MAX_LUN) {
            by_lun.insert(lun, (unit, Arc::new(Nexus::new(port.clone()))));
        }
        for (unit, nexus) in by_lun.values() {
            unit.shared().attach(nexus);
        }
        Self { by_lun }
    }

    /// The session is over: what belongs to it alone (RESERVE, PREVENT) ends. Called by `Drop` at the latest; a
    /// transport that answers a logout calls it before.
    pub fn detach(&self) {
        for (unit, nexus) in self.by_lun.values() {
            unit.shared().detach(nexus);
        }
    }

    /// Decodes the command in `cdb` for the unit that `lun`, an eight-byte LUN as on the wire (SAM-5 §4.7), names,
    /// and judges all that can be judged before data moves. An absent LUN is answered too (SPC-4 §6.4.1, §6.27).
    ///
    /// # Errors
    /// The status to answer with: the command is not legal, another initiator has reserved the unit, or a unit
    /// attention comes first.
    pub fn task(&self, lun: [u8; 8], cdb: &[u8]) -> Result<Task, Rejection> {
        if cdb.first() == Some(&opcodes::REPORT_LUNS) {
            return Ok(self.report_luns(&Cdb::new(cdb)?)?);
        }
        match self.find(lun) {
            Some((unit, nexus)) => unit.task(nexus, cdb),
            None => Ok(absent(&Cdb::new(cdb)?)?),
        }
    }

    /// REPORT LUNS, which any LUN answers (SPC-4 §6.33).
    fn report_luns(&self, cdb: &Cdb) -> Result<Task, CheckCondition> {
        let luns: Vec<u8> = match cdb.byte(2) {
            0x00 | 0x02 => self.by_lun.keys().flat_map(|lun| encode_lun(*lun)).collect(),
            0x01 => Vec::new(), // well known logical units only
            _ => return Err(CheckCondition::cdb_field(2)),
        };
        let allocation_bytes = usize::try_from(cdb.be32(6)).unwrap_or(usize::MAX);
        if allocation_bytes < MIN_REPORT_LUNS_BYTES {
            return Err(CheckCondition::cdb_field(6));
        }
        let mut data = u32::try_from(luns.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
        data.extend_from_slice(&[0; 4]);
        data.extend_from_slice(&luns);
        Ok(Task::new(unit::reply(data, allocation_bytes)))
    }

    /// The unit that `lun` names, if the session has it.
    #[must_use]
    pub fn unit(&self, lun: [u8; 8]) -> Option<&Arc<LogicalUnit>> {
        self.find(lun).map(|(unit, _)| unit)
    }

    /// Has `attention` told with the next command to the unit that `lun` names; `false` where there is none.
    pub fn raise(&self, lun: [u8; 8], attention: UnitAttention) -> bool {
        self.find(lun).inspect(|(_, nexus)| nexus.raise(attention)).is_some()
    }

    /// The LUNs that name `unit`, as on the wire.
    pub fn luns_of(&self, unit: &Arc<LogicalUnit>) -> impl Iterator<Item = [u8; 8]> {
        let same = |(_, (other, _)): &(&u16, &(Arc<LogicalUnit>, Arc<Nexus>))| Arc::ptr_eq(other, unit);
        self.by_lun.iter().filter(same).map(|(lun, _)| encode_lun(*lun))
    }

    /// All units.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<LogicalUnit>> {
        self.by_lun.values().map(|(unit, _)| unit)
    }

    fn find(&self, lun: [u8; 8]) -> Option<&(Arc<LogicalUnit>, Arc<Nexus>)> {
        self.by_lun.get(&decode_lun(lun)?)
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        self.detach();
    }
}

/// What a LUN without a unit answers (SAM-5 §5.11, SPC-4 §6.6.1, §6.39).
fn absent(cdb: &Cdb) -> Result<Task, CheckCondition> {
    let unsupported = CheckCondition::illegal(AdditionalSense::UNIT_NOT_SUPPORTED);
    match cdb.opcode() {
        opcodes::INQUIRY => {
            let inquiry = Inquiry::decode(cdb)?;
            Ok(Task::new(unit::reply(inquiry.answer_absent()?, inquiry.allocation_bytes)))
        }
        opcodes::REQUEST_SENSE => unit::sense_reply(cdb, unsupported).map(Task::new),
        _ => Err(unsupported),
    }
}

/// The number in a single-level LUN: peripheral device addressing with bus 0, or flat space addressing (SAM-5
/// §4.7.7.2, §4.7.7.3). Others name nothing here.
fn decode_lun(lun: [u8; 8]) -> Option<u16> {
    let [high, low, 0, 0, 0, 0, 0, 0] = lun else { return None };
    match high {
        0x00 => Some(u16::from(low)),
        0x40..=0x7F => Some(u16::from_be_bytes([high & 0x3F, low])),
        _ => None,
    }
}

/// Peripheral device addressing where the number fits, else flat space addressing.
fn encode_lun(lun: u16) -> [u8; 8] {
    let [high, low] = lun.to_be_bytes();
    let method = if high == 0 { 0x00 } else { 0x40 };
    [method | high, low, 0, 0, 0, 0, 0, 0]
}
