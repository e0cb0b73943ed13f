//! The commands of a disk, from CDB to bytes on the device.
mod session;

use std::sync::Arc;

use block::{Access, ByteLength, DelayDevice, LogicalBlockSize, MemoryDevice, Patience};
use scsi::{AdditionalSense, CheckCondition, Failure, SenseKey, TaskKind, Transfer, UnitAttention, Units};
use session::*;

fn code(result: Result<Vec<u8>, CheckCondition>) -> (SenseKey, AdditionalSense) {
    let check = result.unwrap_err();
    (check.key, check.code)
}

const ILLEGAL: SenseKey = SenseKey::IllegalRequest;

#[test]
fn every_read_gives_the_blocks_of_its_range() {
    let (device, bytes) = patterned(Access::ReadWrite);
    let units = session(device);
    let expected = &bytes[5 * 512..8 * 512];
    for cdb in [
        &[0x08, 0, 0, 5, 3, 0][..],
        &ten(0x28, 0x18, 5, 3), // DPO, FUA
        &[0xA8, 0, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0],
        &sixteen(0x88, 0, 5, 3),
    ] {
        assert_eq!(decode(&units, cdb).unwrap().transfer(), Transfer::In { bytes: 3 * 512 });
        assert!(perform(&units, cdb, &[]).unwrap() == expected, "{cdb:x?}");
    }
    assert_eq!(perform(&units, &[0x08, 0, 0, 0, 0, 0], &[]).unwrap().len(), 256 * 512);
    assert_eq!(decode(&units, &ten(0x28, 0, 4096, 0)).unwrap().transfer(), Transfer::None);
}

#[test]
fn any_part_of_a_read_can_be_had() {
    let (device, bytes) = patterned(Access::ReadWrite);
    let units = session(device);
    let task = decode(&units, &ten(0x28, 0, 7, 20)).unwrap();
    let expected = &bytes[7 * 512..27 * 512];
    for offset in [0, 1, 511, 512, 513, 1024, 5000, 10239, 10240, 20000] {
        for length in [0, 1, 2, 511, 512, 513, 1023, 1024, 3000, 10240] {
            let mut part = vec![0xEE; length];
            task.read_in(offset as u64, &mut part, Patience::Now).unwrap();
            let mut wanted = expected.get(offset..).unwrap_or_default().to_vec();
            wanted.resize(wanted.len().max(length), 0);
            assert!(part == wanted[..length], "{length} bytes at {offset}");
        }
    }
    let task = decode(&units, &[0x12, 0, 0, 0, 96, 0]).unwrap();
    let mut part = [0xEE; 10];
    task.read_in(90, &mut part, Patience::Now).unwrap();
    assert_eq!(part, [0; 10]);
    task.read_in(8, &mut part, Patience::Now).unwrap();
    assert_eq!(&part, b"HEADWTR vD");
    task.read_in(u64::MAX, &mut part, Patience::Now).unwrap();
    assert_eq!(part, [0; 10]);
}

#[test]
fn every_write_lands_on_its_range_and_nowhere_else() {
    let data = block::conformance::pattern(3 * 512 + 4)[4..].to_vec();
    for cdb in [
        &[0x0A, 0, 0, 5, 3, 0][..],
        &ten(0x2A, 0x18, 5, 3),
        &ten(0x2E, 0, 5, 3),
        &ten(0x2E, 2, 5, 3),
        &[0xAA, 8, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0],
        &[0xAE, 2, 0, 0, 0, 5, 0, 0, 0, 3, 0, 0],
        &sixteen(0x8A, 0, 5, 3),
        &sixteen(0x8E, 2, 5, 3),
    ] {
        let (device, mut bytes) = patterned(Access::ReadWrite);
        let units = session(Arc::clone(&device) as _);
        let task = decode(&units, cdb).unwrap();
        assert_eq!(task.transfer(), Transfer::Out { bytes: 3 * 512 });
        assert!(matches!(task.kind(), Some((TaskKind::Write, range)) if range.start().get() == 5 * 512));
        perform(&units, cdb, &data).unwrap();
        bytes[5 * 512..8 * 512].copy_from_slice(&data);
        assert!(contents(&*device) == bytes, "{cdb:x?}");
    }
}

#[test]
fn write_of_another_length_than_announced_keeps_to_whole_blocks() {
    let (device, mut bytes) = patterned(Access::ReadWrite);
    let units = session(Arc::clone(&device) as _);
    perform(&units, &ten(0x2A, 0, 5, 3), &[0xA6; 512]).unwrap();
    bytes[5 * 512..6 * 512].fill(0xA6);
    assert!(contents(&*device) == bytes, "too little");
    perform(&units, &ten(0x2A, 0, 9, 1), &[0xA7; 1500]).unwrap();
    bytes[9 * 512..10 * 512].fill(0xA7);
    assert!(contents(&*device) == bytes, "too much");
    perform(&units, &ten(0x2A, 0, 5, 3), &[]).unwrap();
    let cut = perform(&units, &ten(0x2A, 0, 5, 3), &[1; 700]);
    assert_eq!(code(cut), (ILLEGAL, AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT));
    assert!(contents(&*device) == bytes, "half a block");
}

#[test]
fn announced_length_is_judged_before_data_moves() {
    let units = session(patterned(Access::ReadWrite).0);
    let announced =
        |cdb: &[u8], bytes| decode(&units, cdb).unwrap().check_announced(bytes).map_err(|c| c.code);
    let wrong = Err(AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT);
    let cut = Err(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    for (cdb, bytes, verdict) in [
        (ten(0x2A, 0, 5, 3), 1536, Ok(())),
        (ten(0x2A, 0, 5, 3), 10_000, Ok(())),
        (ten(0x2A, 0, 5, 3), 512, Ok(())),
        (ten(0x2A, 0, 5, 3), 0, Ok(())),
        (ten(0x2A, 0, 5, 3), 1535, wrong),
        (ten(0x2F, 2, 5, 3), 1, wrong),
        (ten(0x2F, 0, 5, 3), 1, Ok(())),
        (ten(0x41, 0, 5, 3), 512, Ok(())),
        (ten(0x41, 0, 5, 3), 1024, wrong),
        (ten(0x41, 0, 5, 3), 0, wrong),
        (ten(0x42, 0, 0, 24), 23, cut),
        (ten(0x42, 0, 0, 24), 24, Ok(())),
        (ten(0x55, 0x10, 0, 8), 7, cut),
        (ten(0x28, 0, 0, 8), 7, Ok(())),
    ] {
        assert_eq!(announced(&cdb, bytes), verdict, "{cdb:x?}, {bytes} bytes");
    }
}

#[test]
fn range_past_the_end_is_refused_before_data_moves() {
    let units = session(patterned(Access::ReadWrite).0);
    let out_of_range = (ILLEGAL, AdditionalSense::LBA_OUT_OF_RANGE);
    for opcode in [0x28, 0x2A, 0x2E, 0x2F, 0x34, 0x35, 0x41] {
        for (lba, blocks) in [(4096, 1), (4095, 2), (u32::MAX, 1), (1 << 31, 8), (4097, 0)] {
            let check = decode(&units, &ten(opcode, 0, lba, blocks)).unwrap_err();
            assert_eq!((check.key, check.code), out_of_range, "{opcode:x}");
            assert_eq!(check.information, Some(u64::from(lba)));
        }
    }
    for opcode in [0x88, 0x8A, 0x8E, 0x8F, 0x90, 0x91, 0x93] {
        for (lba, blocks) in [(u64::MAX, 1), (u64::MAX, u32::MAX), (1 << 55, 1), (4000, 97)] {
            let check = decode(&units, &sixteen(opcode, 0, lba, blocks)).unwrap_err();
            assert_eq!((check.key, check.code), out_of_range, "{opcode:x}");
        }
    }
    assert_eq!(code(perform(&units, &[0x08, 0x1F, 0xFF, 0xFF, 1, 0], &[])), out_of_range);
    assert_eq!(code(perform(&units, &sixteen(0x9E, 0x12, 4096, 24), &[])), out_of_range);
}

#[test]
fn length_above_the_limit_is_refused_without_allocating() {
    let size = ByteLength::new(300 << 20);
    let device = MemoryDevice::zeroed(size, LogicalBlockSize::B4096).unwrap();
    let units = session(Arc::new(device));
    let task = |opcode, blocks| decode(&units, &sixteen(opcode, 0, 0, blocks));
    let limit = (32 << 20) / 4096;
    for opcode in [0x88, 0x8A, 0x8E] {
        assert!(task(opcode, limit).is_ok());
        assert_eq!(task(opcode, limit + 1).unwrap_err().code, AdditionalSense::INVALID_FIELD_IN_CDB);
    }
    assert!(task(0x93, (256 << 20) / 4096).is_ok());
    assert_eq!(task(0x93, (256 << 20) / 4096 + 1).unwrap_err().code, AdditionalSense::INVALID_FIELD_IN_CDB);
    assert_eq!(task(0x88, u32::MAX).unwrap_err().code, AdditionalSense::LBA_OUT_OF_RANGE);
}

#[test]
fn verify_compares_and_names_the_first_differing_byte() {
    let (device, bytes) = patterned(Access::ReadOnly);
    let units = session(device);
    let mut data = bytes[..1024 * 512].to_vec();
    for opcode in [0x2F, 0x8F] {
        let cdb = |flags| match opcode {
            0x2F => ten(0x2F, flags, 0, 1024).to_vec(),
            _ => sixteen(0x8F, flags, 0, 1024).to_vec(),
        };
        assert_eq!(decode(&units, &cdb(0)).unwrap().transfer(), Transfer::None);
        assert_eq!(decode(&units, &cdb(2)).unwrap().transfer(), Transfer::Out { bytes: 1024 * 512 });
        perform(&units, &cdb(0), &[]).unwrap();
        perform(&units, &cdb(2), &data).unwrap();
        data[400_001] ^= 1;
        let check = perform(&units, &cdb(2), &data).unwrap_err();
        assert_eq!((check.key, check.code), (SenseKey::Miscompare, AdditionalSense::MISCOMPARE));
        assert_eq!(check.information, Some(400_001));
        data[400_001] ^= 1;
        assert_eq!(decode(&units, &cdb(4)).unwrap_err(), decode(&units, &cdb(6)).unwrap_err());
    }
}

#[test]
fn write_same_repeats_its_block_and_zeros_without_one() {
    let (device, mut bytes) = patterned(Access::ReadWrite);
    let units = session(Arc::clone(&device) as _);
    let block = block::conformance::pattern(512);
    perform(&units, &ten(0x41, 0, 100, 1000), &block).unwrap();
    bytes[100 * 512..1100 * 512].copy_from_slice(&block.repeat(1000));
    assert!(contents(&*device) == bytes, "repeated");
    perform(&units, &sixteen(0x93, 0x08, 200, 7), &block).unwrap();
    assert!(contents(&*device) == bytes, "UNMAP of what is no zeros writes it");
    perform(&units, &sixteen(0x93, 0x08, 300, 10), &[0; 512]).unwrap();
    perform(&units, &sixteen(0x93, 0x09, 400, 10), &[]).unwrap();
    perform(&units, &sixteen(0x93, 0x01, 500, 10), &[]).unwrap();
    for lba in [300, 400, 500] {
        bytes[lba * 512..(lba + 10) * 512].fill(0);
    }
    assert!(contents(&*device) == bytes, "zeroed");
    assert_eq!(decode(&units, &sixteen(0x93, 0x09, 1, 1)).unwrap().transfer(), Transfer::None);
    for data in [&[0; 256][..], &[0; 1024], &[]] {
        let wrong = perform(&units, &ten(0x41, 0, 0, 1), data);
        assert_eq!(code(wrong), (ILLEGAL, AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT));
    }
    for (flags, blocks) in [(0x10, 1), (0x18, 1), (0x02, 1), (0x04, 1), (0x20, 1), (0, 0)] {
        let refused = perform(&units, &ten(0x41, flags, 0, blocks), &[0; 512]);
        assert_eq!(code(refused), (ILLEGAL, AdditionalSense::INVALID_FIELD_IN_CDB), "{flags:x}");
    }
}

#[test]
fn unmap_zeroes_its_ranges_or_none() {
    let (device, mut bytes) = patterned(Access::ReadWrite);
    let units = session(Arc::clone(&device) as _);
    let list = unmap_list(&[(3, 2), (4095, 1), (9, 0)]);
    let cdb = ten(0x42, 0, 0, list.len() as u16);
    assert_eq!(decode(&units, &cdb).unwrap().transfer(), Transfer::Out { bytes: 8 + 3 * 16 });
    perform(&units, &cdb, &list).unwrap();
    bytes[3 * 512..5 * 512].fill(0);
    bytes[4095 * 512..].fill(0);
    assert!(contents(&*device) == bytes);
    let list = unmap_list(&[(20, 2), (4095, 2)]);
    let cdb = ten(0x42, 0, 0, list.len() as u16);
    assert_eq!(code(perform(&units, &cdb, &list)), (ILLEGAL, AdditionalSense::LBA_OUT_OF_RANGE));
    assert!(contents(&*device) == bytes, "one bad descriptor spoils the list");
    assert_eq!(
        code(perform(&units, &cdb, &list[..30])),
        (ILLEGAL, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)
    );
    perform(&units, &ten(0x42, 0, 0, 0), &[]).unwrap();
}

#[test]
fn read_only_disk_refuses_what_would_change_it() {
    let (device, bytes) = patterned(Access::ReadOnly);
    let units = session(Arc::clone(&device) as _);
    let protected = (SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);
    for cdb in [ten(0x2A, 0, 0, 1), ten(0x2E, 0, 0, 1), ten(0x41, 0, 0, 1), ten(0x41, 8, 0, 1)] {
        assert_eq!(code(perform(&units, &cdb, &[1; 512])), protected);
    }
    let list = unmap_list(&[(0, 1)]);
    let unmap = perform(&units, &ten(0x42, 0, 0, 24), &list);
    assert_eq!(code(unmap), (SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
    assert_eq!(perform(&units, &[0x1A, 0, 0x3F, 0, 4, 0], &[]).unwrap()[2], 0x90);
    perform(&units, &ten(0x35, 0, 0, 0), &[]).unwrap();
    assert!(contents(&*device) == bytes);
}

#[test]
fn protection_information_is_refused() {
    let units = session(patterned(Access::ReadWrite).0);
    for opcode in [0x28, 0x2A, 0x2E, 0x2F, 0x41] {
        for protect in 1..8 {
            let check = decode(&units, &ten(opcode, protect << 5, 0, 1)).unwrap_err();
            assert_eq!(check.code, AdditionalSense::INVALID_FIELD_IN_CDB);
            assert_eq!(check.to_bytes()[15..], [0xCF, 0, 1], "bit 7 of byte 1 of the CDB");
        }
    }
}

#[test]
fn commands_without_effect_succeed() {
    let units = session(patterned(Access::ReadWrite).0);
    for cdb in [
        &[0x00, 0, 0, 0, 0, 0][..],
        &[0x1B, 1, 0, 0, 0, 0], // STOP
        &[0x1B, 0, 0, 0, 1, 0], // START
        &[0x1B, 0, 0, 0, 0x30, 0],
        &[0x1D, 4, 0, 0, 0, 0],
        &[0x1E, 0, 0, 0, 1, 0],
        &ten(0x34, 0, 0, 0),
        &sixteen(0x90, 2, 9, 100),
        &ten(0x35, 2, 9, 0),
        &sixteen(0x91, 0, 0, 0),
    ] {
        assert_eq!(decode(&units, cdb).unwrap().transfer(), Transfer::None);
        perform(&units, cdb, &[]).unwrap();
    }
    assert!(matches!(
        decode(&units, &ten(0x35, 0, 9, 0)).unwrap().kind(),
        Some((TaskKind::Flush, range)) if range.length().get() == 4087 * 512
    ));
    for cdb in [[0x1B, 0, 0, 0, 2, 0], [0x1B, 0, 0, 0, 0x50, 0], [0x1D, 0x24, 0, 0, 0, 0]] {
        assert_eq!(code(perform(&units, &cdb, &[])), (ILLEGAL, AdditionalSense::INVALID_FIELD_IN_CDB));
    }
}

#[test]
fn unknown_commands_and_service_actions_are_told_apart() {
    let units = session(patterned(Access::ReadWrite).0);
    // SANITIZE, EXTENDED COPY, RECEIVE COPY RESULTS, WRITE ATOMIC, vendor specific.
    for opcode in [0x48, 0x83, 0x84, 0x9C, 0xC0, 0xFF] {
        let refused = perform(&units, &sixteen(opcode, 0, 0, 0), &[]);
        assert_eq!(code(refused), (ILLEGAL, AdditionalSense::INVALID_OPERATION_CODE), "{opcode:x}");
    }
    for opcode in [0x5E, 0x5F, 0x9E, 0xA3] {
        let refused = perform(&units, &sixteen(opcode, 0x1F, 0, 0), &[]);
        assert_eq!(code(refused), (ILLEGAL, AdditionalSense::INVALID_FIELD_IN_CDB));
    }
}

#[test]
fn answers_are_cut_to_the_allocation_length() {
    let units = session(patterned(Access::ReadWrite).0);
    let full = perform(&units, &[0x12, 0, 0, 0, 255, 0], &[]).unwrap();
    for length in [0, 1, 5, 36, 95, 96, 97, 200] {
        let cut = perform(&units, &[0x12, 0, 0, 0, length, 0], &[]).unwrap();
        assert_eq!(cut, full[..full.len().min(usize::from(length))]);
    }
    assert_eq!(perform(&units, &sixteen(0x9E, 0x10, 0, 12), &[]).unwrap().len(), 12);
    assert_eq!(
        perform(&units, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).unwrap(),
        [0, 0, 15, 255, 0, 0, 2, 0]
    );
}

#[test]
fn absent_lun_is_answered_as_the_standard_says() {
    let units = session(patterned(Access::ReadWrite).0);
    let other = [0, 1, 0, 0, 0, 0, 0, 0];
    let inquiry = carry_out(&decode_for(&units, other, &[0x12, 0, 0, 0, 96, 0]).unwrap(), &[]).unwrap();
    assert_eq!((inquiry[0], inquiry.len()), (0x7F, 96));
    assert!(decode_for(&units, other, &[0x12, 1, 0x83, 0, 96, 0]).is_err());
    let sense = carry_out(&decode_for(&units, other, &[0x03, 0, 0, 0, 18, 0]).unwrap(), &[]).unwrap();
    assert_eq!(sense, [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x25, 0, 0, 0, 0, 0]);
    for cdb in [&[0x00, 0, 0, 0, 0, 0][..], &ten(0x28, 0, 0, 1), &ten(0x2A, 0, 0, 1)] {
        assert_eq!(decode_for(&units, other, cdb).unwrap_err().code, AdditionalSense::UNIT_NOT_SUPPORTED);
    }
    assert!(!units.raise(other, UnitAttention::Reset));
    assert!(units.unit(other).is_none());
}

#[test]
fn report_luns_lists_the_session_s_units_whatever_the_lun() {
    let device = patterned(Access::ReadOnly).0;
    let units = Units::new(&port(1), [1, 0, 300, 0x4000].map(|lun| (lun, unit(Arc::clone(&device) as _))));
    let report = |lun, select, bytes| {
        let cdb = [0xA0, 0, select, 0, 0, 0, 0, 0, 1, bytes, 0, 0];
        carry_out(&decode_for(&units, lun, &cdb).unwrap(), &[]).unwrap()
    };
    let mut golden = vec![0, 0, 0, 24, 0, 0, 0, 0];
    golden.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x41, 0x2C, 0, 0, 0, 0, 0, 0]);
    assert_eq!(report(LUN_0, 0, 0), golden);
    assert_eq!(report([0, 9, 0, 0, 0, 0, 0, 0], 2, 0), golden);
    assert_eq!(report(LUN_0, 1, 0), [0; 8]);
    let short = [0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 15, 0, 0];
    assert_eq!(decode(&units, &short).unwrap_err().code, AdditionalSense::INVALID_FIELD_IN_CDB);
    for lun in [[0x41, 0x2C, 0, 0, 0, 0, 0, 0], [0x40, 1, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]] {
        assert!(units.unit(lun).is_some(), "{lun:x?}");
    }
    for lun in [[0, 1, 0, 1, 0, 0, 0, 0], [0x81, 0, 0, 0, 0, 0, 0, 0], [0xC1, 1, 0, 0, 0, 0, 0, 0]] {
        assert!(units.unit(lun).is_none(), "{lun:x?}");
    }
}

#[test]
fn unit_attentions_are_told_once_and_in_order() {
    let units = session(patterned(Access::ReadWrite).0);
    let ready = || decode(&units, &[0; 6]).map(|_| ());
    ready().unwrap();
    units.iter().for_each(|unit| unit.raise(UnitAttention::CapacityChanged));
    assert!(units.raise(LUN_0, UnitAttention::PowerOn));
    units.raise(LUN_0, UnitAttention::PowerOn);
    perform(&units, &[0x12, 0, 0, 0, 36, 0], &[]).unwrap();
    perform(&units, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[]).unwrap();
    let check = ready().unwrap_err();
    assert_eq!((check.key, check.code), (SenseKey::UnitAttention, AdditionalSense::POWER_ON_OR_RESET));
    let sense = perform(&units, &[0x03, 0, 0, 0, 252, 0], &[]).unwrap();
    assert_eq!(sense, [0x70, 0, 6, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x2A, 9, 0, 0, 0, 0]);
    ready().unwrap();
    let sense = perform(&units, &[0x03, 0, 0, 0, 252, 0], &[]).unwrap();
    assert_eq!(sense, [0x70, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn impatient_task_on_a_slow_device_would_block_and_can_be_done_elsewhere() {
    let (memory, bytes) = patterned(Access::ReadWrite);
    let units = session(Arc::new(DelayDevice::new(memory, std::time::Duration::ZERO)));
    let task = decode(&units, &ten(0x28, 0, 1, 2)).unwrap();
    let mut data = vec![0; 1024];
    assert!(matches!(task.read_in(0, &mut data, Patience::Now), Err(Failure::WouldBlock)));
    let data = std::thread::spawn(move || {
        task.read_in(0, &mut data, Patience::Blocking).unwrap();
        data
    });
    assert!(data.join().unwrap() == bytes[512..1536]);
    for cdb in [ten(0x2A, 8, 1, 1), ten(0x35, 0, 0, 0), ten(0x2F, 2, 1, 1), ten(0x41, 0, 1, 1)] {
        let task = decode(&units, &cdb).unwrap();
        assert!(matches!(task.run(&[1; 512], Patience::Now), Err(Failure::WouldBlock)));
    }
}

#[test]
fn work_that_takes_long_even_in_memory_is_not_done_on_the_spot() {
    let (device, bytes) = patterned(Access::ReadWrite);
    let units = session(Arc::clone(&device) as _);
    for cdb in [ten(0x41, 0, 0, 4096), ten(0x2F, 0, 0, 4096)] {
        let task = decode(&units, &cdb).unwrap();
        assert!(matches!(task.run(&[1; 512], Patience::Now), Err(Failure::WouldBlock)));
    }
    assert!(contents(&*device) == bytes);
}

#[test]
fn disk_of_large_blocks_is_addressed_in_them() {
    let bytes = block::conformance::pattern(64 * 4096);
    let device =
        MemoryDevice::with_contents(bytes.clone(), LogicalBlockSize::B4096, Access::ReadWrite).unwrap();
    let units = session(Arc::new(device));
    assert!(perform(&units, &ten(0x28, 0, 62, 2), &[]).unwrap() == bytes[62 * 4096..]);
    assert!(perform(&units, &ten(0x28, 0, 63, 2), &[]).is_err());
    assert_eq!(perform(&units, &ten(0x25, 0, 0, 0), &[]).unwrap(), [0, 0, 0, 63, 0, 0, 16, 0]);
    let task = decode(&units, &ten(0x28, 0, 1, 2)).unwrap();
    let mut part = vec![0; 5000];
    task.read_in(3000, &mut part, Patience::Now).unwrap();
    assert!(part == bytes[7096..12096]);
    assert_eq!(decode(&units, &ten(0x41, 0, 1, 2)).unwrap().transfer(), Transfer::Out { bytes: 4096 });
}
