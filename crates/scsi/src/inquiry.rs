//! INQUIRY: what the disk is (SPC-4 §6.6), with its vital product data (SPC-4 §7.8, SBC-3 §6.5).
use crate::cdb::Cdb;
use crate::disk::{
    Disk, MAX_COMPARE_AND_WRITE_BLOCKS, MAX_TRANSFER_BYTES, MAX_UNMAP_BLOCKS, MAX_UNMAP_DESCRIPTORS,
    MAX_WRITE_SAME_BYTES, OPTIMAL_TRANSFER_BYTES,
};
use crate::sense::CheckCondition;
use crate::unit::UnitIdentity;

/// T10 VENDOR IDENTIFICATION, PRODUCT IDENTIFICATION and PRODUCT REVISION LEVEL. Operating systems build disk names
/// out of them: they stay as they are from version to version.
const VENDOR: &[u8; 8] = b"HEADWTR ";
const PRODUCT: &[u8; 16] = b"vDisk           ";
const REVISION: &[u8; 4] = b"0001";
/// The most characters of a serial number that are told.
const MAX_SERIAL_BYTES: usize = 64;

/// PERIPHERAL QUALIFIER and DEVICE TYPE of a disk that is there.
const DISK_PRESENT: u8 = 0x00;
/// The same where the target has no unit and can have none (SPC-4 §6.6.2).
const NO_UNIT: u8 = 0x7F;
/// What follows byte 4 of our standard INQUIRY data, up to the last version descriptor.
const STANDARD_ADDITIONAL_BYTES: u8 = 91;
/// The length of the pages that SBC-3 lays down as 60 bytes.
const LONG_PAGE_BYTES: usize = 60;

/// The command, as far as it tells what to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inquiry {
    page: Option<u8>,
    pub(crate) allocation_bytes: usize,
}

impl Inquiry {
    pub(crate) fn decode(cdb: &Cdb) -> Result<Self, CheckCondition> {
        if cdb.bit(1, 1) {
            return Err(CheckCondition::cdb_bit(1, 1)); // CMDDT, obsolete
        }
        let evpd = cdb.bit(1, 0);
        if !evpd && cdb.byte(2) != 0 {
            return Err(CheckCondition::cdb_field(2)); // SPC-4 §6.6.1: PAGE CODE without EVPD
        }
        Ok(Self { page: evpd.then(|| cdb.byte(2)), allocation_bytes: usize::from(cdb.be16(3)) })
    }

    /// The answer of a disk.
    pub(crate) fn answer(
        &self,
        disk: &Disk,
        identity: &UnitIdentity,
        removable: bool,
    ) -> Result<Vec<u8>, CheckCondition> {
        let Some(code) = self.page else { return Ok(standard(DISK_PRESENT, removable)) };
        let body = match code {
            0x00 => supported_pages(disk),
            0x80 => serial(identity),
            0x83 => identification(identity),
            0x86 => extended(),
            0xB0 => block_limits(disk),
            0xB1 => characteristics(),
            0xB2 if disk.unmap_granularity().is_some() => provisioning(),
            _ => return Err(CheckCondition::cdb_field(2)),
        };
        Ok(page(code, &body))
    }

    /// The answer for a LUN that has no unit.
    pub(crate) fn answer_absent(&self) -> Result<Vec<u8>, CheckCondition> {
        match self.page {
            None => Ok(standard(NO_UNIT, false)),
            Some(_) => Err(CheckCondition::cdb_field(2)),
        }
    }
}

/// Standard INQUIRY data (SPC-4 §6.6.2).
fn standard(peripheral: u8, removable: bool) -> Vec<u8> {
    let mut data = vec![
        peripheral,
        if removable { 0x80 } else { 0 }, // RMB
        0x06,                             // VERSION: SPC-4
        0x12,                             // HISUP: LUNs are assigned hierarchically; RESPONSE DATA FORMAT 2
        STANDARD_ADDITIONAL_BYTES,
        0,
        0,
        0x02, // CMDQUE
    ];
    data.extend_from_slice(VENDOR);
    data.extend_from_slice(PRODUCT);
    data.extend_from_slice(REVISION);
    data.resize(58, 0);
    for descriptor in [0x00A0_u16, 0x0960, 0x0460, 0x04C0] {
        data.extend_from_slice(&descriptor.to_be_bytes()); // SAM-5, iSCSI, SPC-4, SBC-3 (no version claimed)
    }
    data.resize(usize::from(STANDARD_ADDITIONAL_BYTES).saturating_add(5), 0);
    data
}

fn page(code: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
    let mut data = vec![DISK_PRESENT, code];
    data.extend_from_slice(&length.to_be_bytes());
    data.extend_from_slice(body);
    data
}

fn supported_pages(disk: &Disk) -> Vec<u8> {
    let mut pages = vec![0x00, 0x80, 0x83, 0x86, 0xB0, 0xB1];
    if disk.unmap_granularity().is_some() {
        pages.push(0xB2);
    }
    pages
}

/// The serial number, made fit for an ASCII field (SPC-4 §4.3.1).
fn serial(identity: &UnitIdentity) -> Vec<u8> {
    let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c as u8 } else { b'?' };
    identity.serial.chars().take(MAX_SERIAL_BYTES).map(printable).collect()
}

/// Device Identification (SPC-4 §7.8.6): three designators of the logical unit, one of the target port.
fn identification(identity: &UnitIdentity) -> Vec<u8> {
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    const T10_VENDOR_ID: u8 = 1;
    const NAA: u8 = 3;
    const UUID: u8 = 0xA;
    const RELATIVE_PORT: u8 = 4;
    const TARGET_PORT: u8 = 0x10;
    const PIV: u8 = 0x80;
    const PROTOCOL_ISCSI: u8 = 0x50;
    let mut body = Vec::new();
    let mut designator = |code_set: u8, kind: u8, bytes: &[u8]| {
        body.extend_from_slice(&[code_set, kind, 0, u8::try_from(bytes.len()).unwrap_or(u8::MAX)]);
        body.extend_from_slice(bytes);
    };
    // NAA Locally Assigned (SPC-4 §7.8.6.6.3): 60 bits, out of the UUID's random ones, the variant bits left out.
    let [a, b, c, d, e, f, _, _, _, g, h, ..] = identity.uuid;
    designator(BINARY, NAA, &[0x30 | (a & 0x0F), b, c, d, e, f, g, h]);
    let mut vendor = VENDOR.to_vec();
    vendor.extend_from_slice(PRODUCT);
    vendor.extend_from_slice(&serial(identity));
    designator(ASCII, T10_VENDOR_ID, &vendor);
    let mut uuid = vec![0x10, 0x00]; // SPC-5 §7.7.6.12, which initiators that only know SPC-4 step over
    uuid.extend_from_slice(&identity.uuid);
    designator(BINARY, UUID, &uuid);
    // Of the target port, the one that reservations name: RELATIVE TARGET PORT IDENTIFIER 1 (SPC-4 §7.8.6.7).
    body.extend_from_slice(&[PROTOCOL_ISCSI | BINARY, PIV | TARGET_PORT | RELATIVE_PORT, 0, 4, 0, 0, 0, 1]);
    body
}

/// Extended INQUIRY Data (SPC-4 §7.8.7): SIMPLE tasks, a volatile write cache.
fn extended() -> Vec<u8> {
    let mut body = vec![0, 0x01, 0x01];
    body.resize(LONG_PAGE_BYTES, 0);
    body
}

/// Block Limits (SBC-3 §6.5.3).
fn block_limits(disk: &Disk) -> Vec<u8> {
    let physical = 1_u16.checked_shl(u32::from(disk.blocks_per_physical_exponent())).unwrap_or(1);
    let granularity = disk.unmap_granularity();
    let unmap = |value: u32| if granularity.is_some() { value } else { 0 };
    let mut body = vec![0x01, MAX_COMPARE_AND_WRITE_BLOCKS]; // WSNZ: WRITE SAME of zero blocks is refused
    body.extend_from_slice(&physical.to_be_bytes()); // OPTIMAL TRANSFER LENGTH GRANULARITY
    for field in [
        disk.blocks_u32(MAX_TRANSFER_BYTES),
        disk.blocks_u32(OPTIMAL_TRANSFER_BYTES),
        0, // MAXIMUM PREFETCH LENGTH: not told
        unmap(MAX_UNMAP_BLOCKS),
        unmap(MAX_UNMAP_DESCRIPTORS),
        granularity.unwrap_or(0),
        unmap(0x8000_0000), // UGAVALID, alignment 0
    ] {
        body.extend_from_slice(&field.to_be_bytes());
    }
    body.extend_from_slice(&u64::from(disk.blocks_u32(MAX_WRITE_SAME_BYTES)).to_be_bytes());
    body.resize(LONG_PAGE_BYTES, 0);
    body
}

/// Block Device Characteristics (SBC-3 §6.5.2): not rotating.
fn characteristics() -> Vec<u8> {
    let mut body = vec![0x00, 0x01];
    body.resize(LONG_PAGE_BYTES, 0);
    body
}

/// Logical Block Provisioning (SBC-3 §6.5.4): UNMAP and WRITE SAME unmap, unmapped blocks read as zeros, thin.
///
/// LBPRZ agrees with the contract of [`block::BlockDevice::discard`]: a block that does not read as zeros afterwards
/// kept its contents, which in SCSI's terms says that it stayed mapped, as UNMAP may leave it.
fn provisioning() -> Vec<u8> {
    vec![0x00, 0xE4, 0x02, 0x00]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn inquire(page: Option<u8>) -> Result<Vec<u8>, CheckCondition> {
        let identity = testing::identity();
        Inquiry { page, allocation_bytes: 255 }.answer(&testing::disk(), &identity, false)
    }

    #[test]
    fn standard_data_is_golden() {
        let mut golden = vec![0x00, 0x00, 0x06, 0x12, 91, 0, 0, 0x02];
        golden.extend_from_slice(b"HEADWTR vDisk           0001");
        golden.extend_from_slice(&[0; 22]);
        golden.extend_from_slice(&[0x00, 0xA0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xC0]);
        golden.extend_from_slice(&[0; 30]);
        assert_eq!(inquire(None).unwrap(), golden);
    }

    #[test]
    fn pages_are_golden() {
        assert_eq!(inquire(Some(0)).unwrap(), [0, 0, 0, 7, 0, 0x80, 0x83, 0x86, 0xB0, 0xB1, 0xB2]);
        assert_eq!(inquire(Some(0x80)).unwrap(), b"\x00\x80\x00\x08lab-07?!");
        let mut golden = b"\x00\x83\x00\x4E\x01\x03\x00\x08\x30\x01\x02\x03\x04\x05\x09\x0A".to_vec();
        golden.extend_from_slice(b"\x02\x01\x00\x20HEADWTR vDisk           lab-07?!");
        golden.extend_from_slice(b"\x01\x0A\x00\x12\x10\x00");
        golden.extend(0..16);
        golden.extend_from_slice(&[0x51, 0x94, 0, 4, 0, 0, 0, 1]);
        assert_eq!(inquire(Some(0x83)).unwrap(), golden);
        let mut golden = vec![0, 0x86, 0, 60, 0, 1, 1];
        golden.resize(64, 0);
        assert_eq!(inquire(Some(0x86)).unwrap(), golden);
        let mut golden = vec![0, 0xB0, 0, 60, 1, 255, 0, 8];
        golden.extend_from_slice(&[0, 1, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0]); // 65536, 2048, 0 blocks
        golden.extend_from_slice(&[0, 16, 0, 0, 0, 0, 1, 0, 0, 0, 0, 8, 0x80, 0, 0, 0]);
        golden.extend_from_slice(&[0, 0, 0, 0, 0, 8, 0, 0]);
        golden.resize(64, 0);
        assert_eq!(inquire(Some(0xB0)).unwrap(), golden);
        let mut golden = vec![0, 0xB1, 0, 60, 0, 1];
        golden.resize(64, 0);
        assert_eq!(inquire(Some(0xB1)).unwrap(), golden);
        assert_eq!(inquire(Some(0xB2)).unwrap(), [0, 0xB2, 0, 4, 0, 0xE4, 2, 0]);
    }

    #[test]
    fn disk_without_discard_has_no_provisioning() {
        let identity = testing::identity();
        let answer = |page| {
            Inquiry { page: Some(page), allocation_bytes: 255 }.answer(
                &testing::read_only_disk(),
                &identity,
                false,
            )
        };
        assert_eq!(answer(0).unwrap(), [0, 0, 0, 6, 0, 0x80, 0x83, 0x86, 0xB0, 0xB1]);
        assert_eq!(answer(0xB2).unwrap_err(), CheckCondition::cdb_field(2));
        assert_eq!(answer(0xB0).unwrap()[20..36], [0; 16]);
    }

    #[test]
    fn unknown_page_and_page_without_evpd_are_refused() {
        assert_eq!(inquire(Some(0x84)).unwrap_err(), CheckCondition::cdb_field(2));
        let decode = |field: [u8; 6]| Inquiry::decode(&Cdb::new(&field).unwrap());
        assert_eq!(decode([0x12, 0, 0x80, 0, 255, 0]).unwrap_err(), CheckCondition::cdb_field(2));
        assert_eq!(decode([0x12, 2, 0, 0, 255, 0]).unwrap_err(), CheckCondition::cdb_bit(1, 1));
        assert_eq!(
            decode([0x12, 1, 0x83, 1, 2, 0]).unwrap(),
            Inquiry { page: Some(0x83), allocation_bytes: 0x0102 }
        );
    }

    #[test]
    fn long_serial_is_cut() {
        let identity = UnitIdentity { serial: "x".repeat(1000), uuid: [0; 16] };
        assert_eq!(serial(&identity).len(), MAX_SERIAL_BYTES);
    }
}
