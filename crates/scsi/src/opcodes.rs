//! The commands that this disk knows, and REPORT SUPPORTED OPERATION CODES, which tells them (SPC-4 §6.30).
use crate::cdb::Cdb;
use crate::disk::Disk;
use crate::sense::CheckCondition;

pub(crate) const TEST_UNIT_READY: u8 = 0x00;
pub(crate) const REQUEST_SENSE: u8 = 0x03;
pub(crate) const READ_6: u8 = 0x08;
pub(crate) const WRITE_6: u8 = 0x0A;
pub(crate) const INQUIRY: u8 = 0x12;
pub(crate) const MODE_SELECT_6: u8 = 0x15;
pub(crate) const RESERVE_6: u8 = 0x16;
pub(crate) const RELEASE_6: u8 = 0x17;
pub(crate) const MODE_SENSE_6: u8 = 0x1A;
pub(crate) const START_STOP_UNIT: u8 = 0x1B;
pub(crate) const SEND_DIAGNOSTIC: u8 = 0x1D;
pub(crate) const PREVENT_ALLOW: u8 = 0x1E;
pub(crate) const READ_CAPACITY_10: u8 = 0x25;
pub(crate) const READ_10: u8 = 0x28;
pub(crate) const WRITE_10: u8 = 0x2A;
pub(crate) const WRITE_AND_VERIFY_10: u8 = 0x2E;
pub(crate) const VERIFY_10: u8 = 0x2F;
pub(crate) const PRE_FETCH_10: u8 = 0x34;
pub(crate) const SYNCHRONIZE_CACHE_10: u8 = 0x35;
pub(crate) const READ_DEFECT_DATA_10: u8 = 0x37;
pub(crate) const WRITE_SAME_10: u8 = 0x41;
pub(crate) const UNMAP: u8 = 0x42;
pub(crate) const LOG_SENSE: u8 = 0x4D;
pub(crate) const MODE_SELECT_10: u8 = 0x55;
pub(crate) const RESERVE_10: u8 = 0x56;
pub(crate) const RELEASE_10: u8 = 0x57;
pub(crate) const MODE_SENSE_10: u8 = 0x5A;
pub(crate) const PERSISTENT_RESERVE_IN: u8 = 0x5E;
pub(crate) const PERSISTENT_RESERVE_OUT: u8 = 0x5F;
pub(crate) const READ_16: u8 = 0x88;
pub(crate) const COMPARE_AND_WRITE: u8 = 0x89;
pub(crate) const WRITE_16: u8 = 0x8A;
pub(crate) const ORWRITE_16: u8 = 0x8B;
pub(crate) const WRITE_AND_VERIFY_16: u8 = 0x8E;
pub(crate) const VERIFY_16: u8 = 0x8F;
pub(crate) const PRE_FETCH_16: u8 = 0x90;
pub(crate) const SYNCHRONIZE_CACHE_16: u8 = 0x91;
pub(crate) const WRITE_SAME_16: u8 = 0x93;
pub(crate) const SERVICE_ACTION_IN_16: u8 = 0x9E;
pub(crate) const REPORT_LUNS: u8 = 0xA0;
pub(crate) const MAINTENANCE_IN: u8 = 0xA3;
pub(crate) const READ_12: u8 = 0xA8;
pub(crate) const WRITE_12: u8 = 0xAA;
pub(crate) const WRITE_AND_VERIFY_12: u8 = 0xAE;
pub(crate) const VERIFY_12: u8 = 0xAF;
pub(crate) const READ_DEFECT_DATA_12: u8 = 0xB7;

/// SERVICE ACTION of READ CAPACITY (16).
pub(crate) const SA_READ_CAPACITY_16: u8 = 0x10;
/// SERVICE ACTION of GET LBA STATUS.
pub(crate) const SA_GET_LBA_STATUS: u8 = 0x12;
/// SERVICE ACTION of REPORT SUPPORTED OPERATION CODES.
pub(crate) const SA_REPORT_OPCODES: u8 = 0x0C;
/// SERVICE ACTION of REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS.
pub(crate) const SA_REPORT_FUNCTIONS: u8 = 0x0D;

/// One command: its CDB USAGE DATA, in which a bit is set where the disk evaluates it. The first byte is the opcode.
struct Known {
    usage: &'static [u8],
    service_action: Option<u8>,
}

const fn plain(usage: &'static [u8]) -> Known {
    Known { usage, service_action: None }
}

const fn with_action(usage: &'static [u8], service_action: u8) -> Known {
    Known { usage, service_action: Some(service_action) }
}

/// The bit of CONTROL that is evaluated: NACA.
const CTL: u8 = 0x04;

/// Every command, in rising order of opcode and service action.
const KNOWN: [Known; 57] = [
    plain(&[TEST_UNIT_READY, 0, 0, 0, 0, CTL]),
    plain(&[REQUEST_SENSE, 0x01, 0, 0, 0xFF, CTL]),
    plain(&[READ_6, 0x1F, 0xFF, 0xFF, 0xFF, CTL]),
    plain(&[WRITE_6, 0x1F, 0xFF, 0xFF, 0xFF, CTL]),
    plain(&[INQUIRY, 0x03, 0xFF, 0xFF, 0xFF, CTL]),
    plain(&[MODE_SELECT_6, 0x11, 0, 0, 0xFF, CTL]),
    plain(&[RESERVE_6, 0x11, 0, 0, 0, CTL]),
    plain(&[RELEASE_6, 0x11, 0, 0, 0, CTL]),
    plain(&[MODE_SENSE_6, 0x08, 0xFF, 0xFF, 0xFF, CTL]),
    plain(&[START_STOP_UNIT, 0x01, 0, 0, 0xF7, CTL]),
    plain(&[SEND_DIAGNOSTIC, 0xF7, 0, 0xFF, 0xFF, CTL]),
    plain(&[PREVENT_ALLOW, 0, 0, 0, 0x03, CTL]),
    plain(&[READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, CTL]),
    plain(&[READ_10, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, CTL]),
    plain(&[WRITE_10, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, CTL]),
    plain(&[WRITE_AND_VERIFY_10, 0xF6, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, CTL]),
    plain(&[VERIFY_10, 0xF6, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, CTL]),
    plain(&[PRE_FETCH_10, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, CTL]),
    plain(&[SYNCHRONIZE_CACHE_10, 0x02, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, CTL]),
    plain(&[READ_DEFECT_DATA_10, 0, 0x1F, 0, 0, 0, 0, 0xFF, 0xFF, CTL]),
    plain(&[WRITE_SAME_10, 0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, CTL]),
    plain(&[UNMAP, 0x01, 0, 0, 0, 0, 0, 0xFF, 0xFF, CTL]),
    plain(&[LOG_SENSE, 0x01, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, CTL]),
    plain(&[MODE_SELECT_10, 0x11, 0, 0, 0, 0, 0, 0xFF, 0xFF, CTL]),
    plain(&[RESERVE_10, 0x13, 0, 0, 0, 0, 0, 0, 0, CTL]),
    plain(&[RELEASE_10, 0x13, 0, 0, 0, 0, 0, 0, 0, CTL]),
    plain(&[MODE_SENSE_10, 0x18, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0xFF, CTL]),
    with_action(&[PERSISTENT_RESERVE_IN, 0x00, 0, 0, 0, 0, 0, 0xFF, 0xFF, CTL], 0x00),
    with_action(&[PERSISTENT_RESERVE_IN, 0x01, 0, 0, 0, 0, 0, 0xFF, 0xFF, CTL], 0x01),
    with_action(&[PERSISTENT_RESERVE_IN, 0x02, 0, 0, 0, 0, 0, 0xFF, 0xFF, CTL], 0x02),
    with_action(&[PERSISTENT_RESERVE_IN, 0x03, 0, 0, 0, 0, 0, 0xFF, 0xFF, CTL], 0x03),
    with_action(&[PERSISTENT_RESERVE_OUT, 0x00, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, CTL], 0x00),
    with_action(&[PERSISTENT_RESERVE_OUT, 0x01, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, CTL], 0x01),
    with_action(&[PERSISTENT_RESERVE_OUT, 0x02, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, CTL], 0x02),
    with_action(&[PERSISTENT_RESERVE_OUT, 0x03, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, CTL], 0x03),
    with_action(&[PERSISTENT_RESERVE_OUT, 0x04, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, CTL], 0x04),
    with_action(&[PERSISTENT_RESERVE_OUT, 0x05, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, CTL], 0x05),
    with_action(&[PERSISTENT_RESERVE_OUT, 0x06, 0xFF, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, CTL], 0x06),
    plain(&[READ_16, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL]),
    plain(&[COMPARE_AND_WRITE, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0xFF, 0, CTL]),
    plain(&[WRITE_16, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL]),
    plain(&[
        ORWRITE_16, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL,
    ]),
    plain(&[
        WRITE_AND_VERIFY_16,
        0xF6,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0,
        CTL,
    ]),
    plain(&[VERIFY_16, 0xF6, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL]),
    plain(&[
        PRE_FETCH_16,
        0x02,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0,
        CTL,
    ]),
    plain(&[
        SYNCHRONIZE_CACHE_16,
        0x02,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0,
        CTL,
    ]),
    plain(&[
        WRITE_SAME_16,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0xFF,
        0,
        CTL,
    ]),
    with_action(
        &[SERVICE_ACTION_IN_16, SA_READ_CAPACITY_16, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL],
        SA_READ_CAPACITY_16,
    ),
    with_action(
        &[
            SERVICE_ACTION_IN_16,
            SA_GET_LBA_STATUS,
            0xFF,
            0xFF,
            0xFF,
            0xFF,
            0xFF,
            0xFF,
            0xFF,
            0xFF,
            0xFF,
            0xFF,
            0xFF,
            0xFF,
            0,
            CTL,
        ],
        SA_GET_LBA_STATUS,
    ),
    plain(&[REPORT_LUNS, 0, 0xFF, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL]),
    with_action(
        &[MAINTENANCE_IN, SA_REPORT_OPCODES, 0x87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL],
        SA_REPORT_OPCODES,
    ),
    with_action(
        &[MAINTENANCE_IN, SA_REPORT_FUNCTIONS, 0x80, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL],
        SA_REPORT_FUNCTIONS,
    ),
    plain(&[READ_12, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL]),
    plain(&[WRITE_12, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL]),
    plain(&[WRITE_AND_VERIFY_12, 0xF6, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL]),
    plain(&[VERIFY_12, 0xF6, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL]),
    plain(&[READ_DEFECT_DATA_12, 0x1F, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, CTL]),
];

impl Known {
    fn opcode(&self) -> u8 {
        self.usage.first().copied().unwrap_or(0)
    }

    /// Whether a disk like this one has the command.
    fn is_on(&self, disk: &Disk) -> bool {
        match self.opcode() {
            UNMAP => disk.knows_unmap(),
            _ => true,
        }
    }

    fn size(&self) -> [u8; 2] {
        u16::try_from(self.usage.len()).unwrap_or(0).to_be_bytes()
    }
}

/// REPORTING OPTIONS: which commands are asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    All,
    /// One that has no service actions, or all the same a service action that may not be there.
    One {
        opcode: u8,
        service_action: Option<u16>,
    },
}

/// REPORT SUPPORTED OPERATION CODES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReportOpcodes {
    wanted: Wanted,
    timeouts: bool,
    pub(crate) allocation_bytes: usize,
}

impl ReportOpcodes {
    pub(crate) fn decode(cdb: &Cdb) -> Result<Self, CheckCondition> {
        let (opcode, action) = (cdb.byte(3), cdb.be16(4));
        let has_actions =
            KNOWN.iter().any(|known| known.opcode() == opcode && known.service_action.is_some());
        let known = KNOWN.iter().any(|known| known.opcode() == opcode);
        // SPC-4 table 286: 001b is for commands without, 010b for those with service actions; 011b for both.
        let wanted = match cdb.byte(2) & 0x07 {
            0 => Wanted::All,
            1 if has_actions => return Err(CheckCondition::cdb_bit(2, 2)),
            2 if known && !has_actions => return Err(CheckCondition::cdb_bit(2, 2)),
            1 => Wanted::One { opcode, service_action: None },
            2 => Wanted::One { opcode, service_action: Some(action) },
            3 if has_actions => Wanted::One { opcode, service_action: Some(action) },
            3 if action != 0 => Wanted::One { opcode, service_action: Some(action) },
            3 => Wanted::One { opcode, service_action: None },
            _ => return Err(CheckCondition::cdb_bit(2, 2)),
        };
        let allocation_bytes = usize::try_from(cdb.be32(6)).unwrap_or(usize::MAX);
        Ok(Self { wanted, timeouts: cdb.bit(2, 7), allocation_bytes })
    }

    pub(crate) fn answer(&self, disk: &Disk) -> Vec<u8> {
        match self.wanted {
            Wanted::All => self.all(disk),
            Wanted::One { opcode, service_action } => self.one(disk, opcode, service_action),
        }
    }

    fn all(&self, disk: &Disk) -> Vec<u8> {
        let mut descriptors = Vec::new();
        for known in KNOWN.iter().filter(|known| known.is_on(disk)) {
            let flags = if self.timeouts { 0x02 } else { 0 } | u8::from(known.service_action.is_some());
            let [high, low] = known.size();
            let action = known.service_action.unwrap_or(0);
            descriptors.extend_from_slice(&[known.opcode(), 0, 0, action, 0, flags, high, low]);
            self.push_timeouts(&mut descriptors);
        }
        let length = u32::try_from(descriptors.len()).unwrap_or(u32::MAX);
        let mut data = length.to_be_bytes().to_vec();
        data.extend_from_slice(&descriptors);
        data
    }

    fn one(&self, disk: &Disk, opcode: u8, service_action: Option<u16>) -> Vec<u8> {
        let matches = |known: &&Known| {
            known.opcode() == opcode && known.service_action.map(u16::from) == service_action
        };
        let Some(known) = KNOWN.iter().filter(|known| known.is_on(disk)).find(matches) else {
            return vec![0, 0x01, 0, 0]; // SUPPORT: no such command
        };
        let [high, low] = known.size();
        let present = if self.timeouts { 0x80 } else { 0 };
        let mut data = vec![0, present | 0x03, high, low]; // SUPPORT: as the standard says
        data.extend_from_slice(known.usage);
        self.push_timeouts(&mut data);
        data
    }

    /// Command timeouts descriptor (SPC-4 §6.30.4): no timeout is told.
    fn push_timeouts(&self, data: &mut Vec<u8>) {
        if self.timeouts {
            data.extend_from_slice(&[0, 0x0A, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
    }
}

/// REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4 §6.31): ABORT TASK, ABORT TASK SET, CLEAR TASK SET and LOGICAL
/// UNIT RESET. With REPD the long form, which adds none.
pub(crate) fn report_functions(cdb: &Cdb) -> Result<(Vec<u8>, usize), CheckCondition> {
    let allocation_bytes = usize::try_from(cdb.be32(6)).unwrap_or(usize::MAX);
    if allocation_bytes < 4 {
        return Err(CheckCondition::cdb_field(6));
    }
    let long = cdb.bit(2, 7);
    let mut data = vec![0xD8, 0, 0, if long { 12 } else { 0 }];
    data.resize(if long { 16 } else { 4 }, 0);
    Ok((data, allocation_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn report(options: u8, opcode: u8, action: u8) -> Result<Vec<u8>, CheckCondition> {
        let field = [MAINTENANCE_IN, SA_REPORT_OPCODES, options, opcode, 0, action, 0, 0, 1, 0, 0, 0];
        Ok(ReportOpcodes::decode(&Cdb::new(&field)?)?.answer(&testing::disk()))
    }

    #[test]
    fn table_is_sorted_and_its_lengths_are_those_of_the_groups() {
        let keys: Vec<_> = KNOWN.iter().map(|known| (known.opcode(), known.service_action)).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        for known in &KNOWN {
            let cdb = Cdb::new(&[known.opcode(), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
            assert_eq!(cdb.length().bytes(), known.usage.len(), "{:#x}", known.opcode());
        }
    }

    #[test]
    fn all_commands_are_listed() {
        let all = report(0, 0, 0).unwrap();
        assert_eq!(all[..4], (57_u32 * 8).to_be_bytes());
        assert_eq!(all[4..12], [0, 0, 0, 0, 0, 0, 0, 6]);
        let capacity = all[4..].chunks(8).find(|d| d[0] == SERVICE_ACTION_IN_16).unwrap();
        assert_eq!(capacity, [0x9E, 0, 0, 0x10, 0, 1, 0, 16]);
        let timed = report(0x80, 0, 0).unwrap();
        assert_eq!(timed[..4], (57_u32 * 20).to_be_bytes());
        assert_eq!(timed[4..24], [0, 0, 0, 0, 0, 2, 0, 6, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn one_command_is_golden() {
        let read = [0, 3, 0, 10, 0x28, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 4];
        assert_eq!(report(1, READ_10, 0).unwrap(), read);
        assert_eq!(report(3, READ_10, 0).unwrap(), read);
        let codes = [0, 3, 0, 12, 0xA3, 0x0C, 0x87, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 4];
        assert_eq!(report(2, MAINTENANCE_IN, SA_REPORT_OPCODES).unwrap(), codes);
        assert_eq!(report(3, MAINTENANCE_IN, SA_REPORT_OPCODES).unwrap(), codes);
        assert_eq!(report(1, 0x48, 0).unwrap(), [0, 1, 0, 0], "SANITIZE");
        assert_eq!(report(2, MAINTENANCE_IN, 0x0A).unwrap(), [0, 1, 0, 0]);
        assert_eq!(report(3, READ_10, 1).unwrap(), [0, 1, 0, 0]);
        assert_eq!(report(0x81, TEST_UNIT_READY, 0).unwrap().len(), 4 + 6 + 12);
    }

    #[test]
    fn reporting_option_that_does_not_fit_the_command_is_refused() {
        for (options, opcode) in [(1, MAINTENANCE_IN), (2, READ_10), (4, READ_10), (7, 0)] {
            assert_eq!(report(options, opcode, 0).unwrap_err(), CheckCondition::cdb_bit(2, 2));
        }
    }

    #[test]
    fn unmap_is_listed_only_where_the_disk_knows_it() {
        let field = [MAINTENANCE_IN, SA_REPORT_OPCODES, 1, UNMAP, 0, 0, 0, 0, 1, 0, 0, 0];
        let report = ReportOpcodes::decode(&Cdb::new(&field).unwrap()).unwrap();
        assert_eq!(report.answer(&testing::thick_disk()), [0, 1, 0, 0]);
        assert_eq!(report.answer(&testing::disk())[1], 3);
        assert_eq!(report.answer(&testing::read_only_disk())[1], 3);
    }
}
