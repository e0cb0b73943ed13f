//! What one session sees: its logical units by LUN, and what is answered for a LUN that it does not have.
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::nexus::{Nexus, UnitAttention};
use crate::sense::{AdditionalSense, CheckCondition, SenseKey};
use crate::task::Task;
use crate::unit::LogicalUnit;

/// The logical units of one session.
#[derive(Debug)]
pub struct Units {
    by_lun: BTreeMap<u16, (Arc<LogicalUnit>, Nexus)>,
}

impl Units {
    /// These units. A LUN has at most 14 bits; of two units with one LUN the later counts.
    #[must_use]
    pub fn new(units: impl IntoIterator<Item = (u16, Arc<LogicalUnit>)>) -> Self {
        let with_nexus = |(lun, unit)| (lun, (unit, Nexus::new()));
        Self { by_lun: units.into_iter().map(with_nexus).collect() }
    }

    /// Decodes the command in `cdb` for the unit that `lun`, an eight-byte LUN as on the wire (SAM-5 §4.7), names,
    /// and judges all that can be judged before data moves. An absent LUN is answered too (SPC-4 §6.4.1, §6.27).
    ///
    /// # Errors
    /// The CHECK CONDITION to answer with: the command is not legal, or a unit attention comes first.
    pub fn task(&self, lun: [u8; 8], cdb: &[u8]) -> Result<Task, CheckCondition> {
        match self.find(lun) {
            Some((unit, nexus)) => unit.task(nexus, cdb),
            None => Err(CheckCondition::new(SenseKey::IllegalRequest, AdditionalSense::UNIT_NOT_SUPPORTED)),
        }
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

    /// Has `attention` told by every unit.
    pub fn raise_all(&self, attention: UnitAttention) {
        for (_, nexus) in self.by_lun.values() {
            nexus.raise(attention);
        }
    }

    fn find(&self, lun: [u8; 8]) -> Option<&(Arc<LogicalUnit>, Nexus)> {
        self.by_lun.get(&decode_lun(lun)?)
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
