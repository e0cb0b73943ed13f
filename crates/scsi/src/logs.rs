//! LOG SENSE (SPC-4 §6.11, §7.3): the pages that say that there is nothing to worry about.
use crate::cdb::Cdb;
use crate::sense::{AdditionalSense, CheckCondition};

/// Supported Log Pages.
const SUPPORTED: u8 = 0x00;
/// Informational Exceptions.
const EXCEPTIONS: u8 = 0x2F;

/// LOG SENSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSense {
    page: u8,
    pub(crate) allocation_bytes: usize,
}

impl LogSense {
    pub(crate) fn decode(cdb: &Cdb) -> Result<Self, CheckCondition> {
        if cdb.bit(1, 0) {
            return Err(CheckCondition::cdb_bit(1, 0)); // SP: nothing can be saved
        }
        let page = cdb.byte(2) & 0x3F;
        if cdb.byte(2) >> 6 == 3 {
            return Err(CheckCondition::illegal(AdditionalSense::SAVING_NOT_SUPPORTED));
        }
        if !matches!(page, SUPPORTED | EXCEPTIONS) {
            return Err(CheckCondition::cdb_bit(2, 5));
        }
        if cdb.byte(3) != 0 {
            return Err(CheckCondition::cdb_field(3));
        }
        Ok(Self { page, allocation_bytes: usize::from(cdb.be16(7)) })
    }

    pub(crate) fn answer(&self) -> Vec<u8> {
        match self.page {
            SUPPORTED => vec![SUPPORTED, 0, 0, 2, SUPPORTED, EXCEPTIONS],
            // One parameter (SPC-4 §7.3.8): no exception, and no thermometer.
            _ => vec![EXCEPTIONS, 0, 0, 8, 0, 0, 0x03, 4, 0, 0, 0xFF, 0],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sense(field: [u8; 10]) -> Result<Vec<u8>, CheckCondition> {
        Ok(LogSense::decode(&Cdb::new(&field)?)?.answer())
    }

    #[test]
    fn pages_are_golden_and_others_refused() {
        assert_eq!(sense([0x4D, 0, 0x40, 0, 0, 0, 0, 0, 255, 0]).unwrap(), [0, 0, 0, 2, 0, 0x2F]);
        let exceptions = [0x2F, 0, 0, 8, 0, 0, 3, 4, 0, 0, 0xFF, 0];
        assert_eq!(sense([0x4D, 0, 0x6F, 0, 0, 0, 0, 0, 255, 0]).unwrap(), exceptions);
        let refused = |field| sense(field).unwrap_err();
        assert_eq!(refused([0x4D, 1, 0x40, 0, 0, 0, 0, 0, 255, 0]), CheckCondition::cdb_bit(1, 0));
        assert_eq!(refused([0x4D, 0, 0x4D, 0, 0, 0, 0, 0, 255, 0]), CheckCondition::cdb_bit(2, 5));
        assert_eq!(refused([0x4D, 0, 0x40, 0xFF, 0, 0, 0, 0, 255, 0]), CheckCondition::cdb_field(3));
    }
}
