//! What an initiator is told when the device fails.
mod session;

use std::io::ErrorKind;
use std::sync::Arc;

use block::{
    Access, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Fault, FaultDevice, Geometry,
    LogicalBlockSize, Operation, Patience,
};
use scsi::{AdditionalSense, CheckCondition, Failure, SenseKey};
use session::*;

fn fault(operation: Operation, lba: u64) -> Fault {
    let range = ByteRange::new(ByteOffset::new(lba * 512), ByteLength::new(512)).unwrap();
    Fault { operation, range, times: 1, kind: ErrorKind::Other }
}

/// Whether it has this key and code, in the structure and in the bytes.
fn assert_told(check: CheckCondition, key: SenseKey, code: AdditionalSense, information: Option<u32>) {
    assert_eq!((check.key, check.code), (key, code));
    let sense = check.to_bytes();
    assert_eq!((sense[2], sense[12], sense[13]), (key as u8, code.0, code.1));
    assert_eq!(sense[0], if information.is_some() { 0xF0 } else { 0x70 });
    assert_eq!(sense[3..7], information.unwrap_or(0).to_be_bytes());
}

#[test]
fn storage_error_is_a_medium_error_at_the_lba_of_the_request() {
    let faulty = Arc::new(FaultDevice::new(patterned(Access::ReadWrite).0));
    let units = session(Arc::clone(&faulty) as _);
    let (read, write) = (AdditionalSense::UNRECOVERED_READ_ERROR, AdditionalSense::WRITE_ERROR);
    for (operation, cdb, code, lba) in [
        (Operation::Read, ten(0x28, 0, 100, 8), read, 100),
        (Operation::Read, ten(0x2F, 0, 100, 8), read, 100),
        (Operation::Read, ten(0x2F, 2, 100, 8), read, 100),
        (Operation::Read, ten(0x2E, 0, 100, 8), read, 100),
        (Operation::Write, ten(0x2A, 0, 100, 8), write, 100),
        (Operation::Flush, ten(0x2A, 8, 100, 8), write, 103),
        (Operation::Flush, ten(0x2E, 0, 100, 8), write, 103),
        (Operation::Flush, ten(0x35, 0, 0, 0), write, 103),
        (Operation::WriteZeroes, ten(0x41, 0, 100, 8), write, 100),
    ] {
        faulty.plan(fault(operation, 103));
        let data = if cdb[0] == 0x41 { vec![0; 512] } else { vec![0; 8 * 512] };
        let check = perform(&units, &cdb, &data).unwrap_err();
        assert_told(check, SenseKey::MediumError, code, Some(lba));
        if cdb[0] != 0x2F {
            perform(&units, &cdb, &data).unwrap();
        }
    }
    faulty.plan(fault(Operation::Discard, 103));
    let list = unmap_list(&[(1, 1), (103, 1)]);
    let check = perform(&units, &ten(0x42, 0, 0, 40), &list).unwrap_err();
    assert_told(check, SenseKey::MediumError, write, Some(103));
}

/// Fails every operation in one way, and has no discard.
#[derive(Debug)]
struct Broken(fn() -> BlockError);

impl BlockDevice for Broken {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: ByteLength::new(1 << 20),
            logical_block: LogicalBlockSize::B512,
            physical_block: 512,
            discard_granularity: None,
            access: Access::ReadWrite,
        }
    }

    fn read(&self, _: ByteOffset, _: &mut [u8], _: Patience) -> Result<(), BlockError> {
        Err(self.0())
    }

    fn write(&self, _: ByteOffset, _: &[u8], _: Patience) -> Result<(), BlockError> {
        Err(self.0())
    }

    fn flush(&self, _: Patience) -> Result<(), BlockError> {
        Err(self.0())
    }

    fn discard(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(self.0())
    }

    fn write_zeroes(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(self.0())
    }
}

fn block_7() -> ByteRange {
    ByteRange::new(ByteOffset::new(7 * 512), ByteLength::new(512)).unwrap()
}

#[test]
fn every_device_error_has_its_sense() {
    type Row = (fn() -> BlockError, SenseKey, AdditionalSense, Option<u32>);
    let rows: [Row; 6] = [
        (
            || BlockError::NoSpace { what: "write cache of 1 GiB".into() },
            SenseKey::DataProtect,
            AdditionalSense(0x27, 0x07),
            None,
        ),
        (|| BlockError::ReadOnly, SenseKey::DataProtect, AdditionalSense(0x27, 0x00), None),
        (
            || BlockError::Corrupt { what: "BAT entry 9".into() },
            SenseKey::MediumError,
            AdditionalSense(0x0C, 0x00),
            None,
        ),
        (|| BlockError::Closed, SenseKey::NotReady, AdditionalSense(0x04, 0x03), None),
        (
            || BlockError::OutOfRange { range: block_7(), size: ByteLength::new(512) },
            SenseKey::IllegalRequest,
            AdditionalSense(0x21, 0x00),
            Some(7),
        ),
        (
            || BlockError::Unaligned { range: block_7(), block_size: LogicalBlockSize::B4096 },
            SenseKey::HardwareError,
            AdditionalSense(0x44, 0x00),
            Some(7),
        ),
    ];
    for (error, key, code, information) in rows {
        let units = session(Arc::new(Broken(error)));
        let task = decode(&units, &ten(0x2A, 0, 7, 1)).unwrap();
        let failure = task.run(&[0; 512], Patience::Now).unwrap_err();
        let Failure::Device { check, cause } = failure else { panic!("{failure:?}") };
        assert_eq!(cause.to_string(), error().to_string());
        assert_told(check, key, code, information);
    }
    let units = session(Arc::new(Broken(|| BlockError::Corrupt { what: String::new() })));
    let check = perform(&units, &ten(0x28, 0, 7, 1), &[]).unwrap_err();
    assert_told(check, SenseKey::MediumError, AdditionalSense(0x11, 0x00), None);
}

#[test]
fn disk_without_discard_refuses_to_unmap() {
    let units = session(Arc::new(Broken(|| BlockError::Closed)));
    let refused = |cdb: [u8; 10]| decode(&units, &cdb).unwrap_err().code;
    assert_eq!(refused(ten(0x42, 0, 0, 24)), AdditionalSense::INVALID_OPERATION_CODE);
    assert_eq!(refused(ten(0x41, 8, 0, 1)), AdditionalSense::INVALID_FIELD_IN_CDB);
    assert!(decode(&units, &ten(0x41, 0, 0, 1)).is_ok());
}

#[test]
fn information_that_needs_more_than_32_bits_is_left_out_of_fixed_sense() {
    let mut check = CheckCondition::new(SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
    check.information = Some(1 << 32);
    assert_told(check, SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE, None);
}
