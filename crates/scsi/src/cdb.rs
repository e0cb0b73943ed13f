//! The fields of a command descriptor block (SPC-4 §4.3).
use crate::sense::{AdditionalSense, CheckCondition};

/// The longest CDB that any command here has.
const MAX_CDB_BYTES: usize = 16;

/// A CDB that is as long as its opcode says. Reading behind its end gives zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cdb {
    bytes: [u8; MAX_CDB_BYTES],
    length: CdbLength,
}

/// The length of a CDB, which the group in its opcode gives (SPC-4 §4.2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CdbLength {
    Six,
    Ten,
    Twelve,
    Sixteen,
}

/// A run of logical blocks, as a CDB names it: not yet known to lie on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
}

impl Cdb {
    /// Takes the CDB out of the field in which a transport carries it: what lies behind its end is ignored.
    pub(crate) fn new(field: &[u8]) -> Result<Self, CheckCondition> {
        let unknown = CheckCondition::illegal(AdditionalSense::INVALID_OPERATION_CODE);
        let opcode = *field.first().ok_or(unknown)?;
        let length = CdbLength::of_opcode(opcode).ok_or(unknown)?;
        let source = field.get(..length.bytes()).ok_or(CheckCondition::cdb_field(0))?;
        let mut bytes = [0; MAX_CDB_BYTES];
        for (target, byte) in bytes.iter_mut().zip(source) {
            *target = *byte;
        }
        let cdb = Self { bytes, length };
        // SAM-5 §5.2: NORMACA is zero in our INQUIRY data, so NACA must be too. It stands in CONTROL, the last byte.
        let (at, control) = source.iter().enumerate().next_back().map_or((0, 0), |(at, byte)| (at, *byte));
        if control & 0x04 != 0 {
            return Err(CheckCondition::cdb_bit(u16::try_from(at).unwrap_or(0), 2));
        }
        Ok(cdb)
    }

    pub(crate) fn opcode(&self) -> u8 {
        self.byte(0)
    }

    pub(crate) fn length(&self) -> CdbLength {
        self.length
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    pub(crate) fn bit(&self, at: usize, bit: u8) -> bool {
        self.byte(at) & 1_u8.checked_shl(u32::from(bit)).unwrap_or(0) != 0
    }

    pub(crate) fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    pub(crate) fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    pub(crate) fn be64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }

    /// LOGICAL BLOCK ADDRESS and TRANSFER LENGTH (or its like), where every command of this length has them.
    pub(crate) fn extent(&self) -> Extent {
        match self.length {
            CdbLength::Six => Extent {
                lba: u64::from(self.be32(0) & 0x1F_FFFF),
                // SBC-3 §5.10, §5.31: zero means 256.
                blocks: if self.byte(4) == 0 { 256 } else { u64::from(self.byte(4)) },
            },
            CdbLength::Ten => Extent { lba: u64::from(self.be32(2)), blocks: u64::from(self.be16(7)) },
            CdbLength::Twelve => Extent { lba: u64::from(self.be32(2)), blocks: u64::from(self.be32(6)) },
            CdbLength::Sixteen => Extent { lba: self.be64(2), blocks: u64::from(self.be32(10)) },
        }
    }

    /// The same for COMPARE AND WRITE, whose length is one byte (SBC-3 §5.2).
    pub(crate) fn short_extent(&self) -> Extent {
        Extent { lba: self.be64(2), blocks: u64::from(self.byte(13)) }
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }
}

impl CdbLength {
    fn of_opcode(opcode: u8) -> Option<Self> {
        match opcode >> 5 {
            0 => Some(Self::Six),
            1 | 2 => Some(Self::Ten),
            4 => Some(Self::Sixteen),
            5 => Some(Self::Twelve),
            _ => None,
        }
    }

    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Six => 6,
            Self::Ten => 10,
            Self::Twelve => 12,
            Self::Sixteen => 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cdb_shorter_than_its_group_is_refused() {
        assert_eq!(Cdb::new(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap_err(), CheckCondition::cdb_field(0));
        assert!(Cdb::new(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0]).is_ok());
    }

    #[test]
    fn empty_and_variable_length_cdbs_are_unknown_commands() {
        let unknown = CheckCondition::illegal(AdditionalSense::INVALID_OPERATION_CODE);
        assert_eq!(Cdb::new(&[]).unwrap_err(), unknown);
        assert_eq!(Cdb::new(&[0x7F; 32]).unwrap_err(), unknown);
    }

    #[test]
    fn naca_is_refused_and_padding_is_not_control() {
        let mut field = [0; 16];
        field[0] = 0x28;
        field[15] = 0x04;
        assert!(Cdb::new(&field).is_ok());
        field[9] = 0x04;
        assert_eq!(Cdb::new(&field).unwrap_err(), CheckCondition::cdb_bit(9, 2));
    }

    #[test]
    fn extents_stand_where_each_length_has_them() {
        let extent = |field: &[u8]| Cdb::new(field).unwrap().extent();
        assert_eq!(extent(&[0x08, 0xFF, 2, 3, 0, 0]), Extent { lba: 0x1F_0203, blocks: 256 });
        assert_eq!(extent(&[0x28, 0, 1, 2, 3, 4, 0, 5, 6, 0]), Extent { lba: 0x0102_0304, blocks: 0x0506 });
        assert_eq!(
            extent(&[0xA8, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0]),
            Extent { lba: 0x0102_0304, blocks: 0x0506_0708 }
        );
        assert_eq!(
            extent(&[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0]),
            Extent { lba: 0x0102_0304_0506_0708, blocks: 0x090A_0B0C }
        );
    }
}
