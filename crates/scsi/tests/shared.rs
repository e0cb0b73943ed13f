//! What the sessions of one unit do to each other: reservations, mode parameters, the tray, changes that look first.
mod session;

use std::sync::Arc;

use block::{
    Access, Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Fault, FaultDevice,
    Geometry, LogicalBlockSize, MemoryDevice, Operation, Patience,
};
use scsi::{AdditionalSense, CheckCondition, SenseKey, UnitAttention, Units};
use session::*;

const TEST_UNIT_READY: [u8; 6] = [0; 6];

fn attention(code: AdditionalSense) -> CheckCondition {
    CheckCondition { key: SenseKey::UnitAttention, code, information: None, field: None }
}

/// PERSISTENT RESERVE OUT; `None` for a conflict.
fn reserve_out(units: &Units, action: u8, kind: u8, key: u8, new_key: u8) -> Option<()> {
    let mut list = [0; 24];
    list[7] = key;
    list[15] = new_key;
    let done = attempt(units, &[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], &list)?;
    done.unwrap();
    Some(())
}

#[test]
fn reservation_keeps_other_initiators_out_and_outlives_sessions() {
    let unit = unit(patterned(Access::ReadWrite).0);
    let (one, other) = (seen_by(1, &unit), seen_by(2, &unit));
    reserve_out(&one, 6, 0, 0, 10).unwrap();
    reserve_out(&one, 1, 3, 10, 0).unwrap(); // exclusive access
    for cdb in [ten(0x28, 0, 0, 1), ten(0x2A, 0, 0, 1), ten(0x2F, 0, 0, 1)] {
        assert!(attempt(&one, &cdb, &[0; 512]).unwrap().is_ok());
        assert!(attempt(&other, &cdb, &[0; 512]).is_none(), "{cdb:x?}");
    }
    for always in [
        &TEST_UNIT_READY[..],
        &[0x12, 0, 0, 0, 36, 0],
        &ten(0x25, 0, 0, 0),
        &[0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0],
    ] {
        assert!(attempt(&other, always, &[]).unwrap().is_ok(), "{always:x?}");
    }
    drop(one);
    assert!(attempt(&other, &ten(0x28, 0, 0, 1), &[]).is_none(), "the port's, not the session's");
    let again = seen_by(1, &unit);
    assert!(attempt(&again, &ten(0x28, 0, 0, 1), &[]).unwrap().is_ok());
    unit.reset();
    for units in [&again, &other] {
        let reset = attention(AdditionalSense::DEVICE_RESET);
        assert_eq!(attempt(units, &TEST_UNIT_READY, &[]).unwrap().unwrap_err(), reset);
    }
    assert!(attempt(&other, &ten(0x28, 0, 0, 1), &[]).is_none(), "it outlives a reset too");
}

#[test]
fn preempted_initiator_is_told_and_its_tasks_are_named() {
    let unit = unit(patterned(Access::ReadWrite).0);
    let (one, other) = (seen_by(1, &unit), seen_by(2, &unit));
    reserve_out(&one, 0, 0, 0, 10).unwrap();
    reserve_out(&other, 0, 0, 0, 20).unwrap();
    reserve_out(&one, 1, 1, 10, 0).unwrap();
    let preempt = other.task(LUN_0, &[0x5F, 5, 1, 0, 0, 0, 0, 0, 24, 0]).unwrap();
    assert_eq!(preempt.aborts_tasks_of(), []);
    let mut list = [0; 24];
    (list[7], list[15]) = (20, 10);
    preempt.run(&list, Patience::Now).unwrap();
    assert_eq!(preempt.aborts_tasks_of(), [port(1)]);
    let told = attempt(&one, &TEST_UNIT_READY, &[]).unwrap().unwrap_err();
    assert_eq!(told, attention(AdditionalSense::REGISTRATIONS_PREEMPTED));
    assert!(attempt(&one, &ten(0x2A, 0, 0, 1), &[0; 512]).is_none());
    assert!(attempt(&other, &ten(0x2A, 0, 0, 1), &[0; 512]).unwrap().is_ok());
}

#[test]
fn older_reservation_ends_with_its_session_and_with_a_reset() {
    let unit = unit(patterned(Access::ReadWrite).0);
    let other = seen_by(2, &unit);
    for ten_bytes in [false, true] {
        let one = seen_by(1, &unit);
        let reserve: &[u8] = if ten_bytes { &ten(0x56, 0, 0, 0) } else { &[0x16, 0, 0, 0, 0, 0] };
        attempt(&one, reserve, &[]).unwrap().unwrap();
        for cdb in [&TEST_UNIT_READY[..], &ten(0x28, 0, 0, 1), reserve, &[0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0]] {
            assert!(attempt(&other, cdb, &[]).is_none(), "{cdb:x?}");
        }
        attempt(&other, &[0x17, 0, 0, 0, 0, 0], &[]).unwrap().unwrap();
        assert!(attempt(&other, &ten(0x28, 0, 0, 1), &[]).is_none(), "released by a stranger");
        one.detach();
        assert!(attempt(&other, &ten(0x28, 0, 0, 1), &[]).unwrap().is_ok());
    }
    let one = seen_by(1, &unit);
    attempt(&one, &[0x16, 0, 0, 0, 0, 0], &[]).unwrap().unwrap();
    unit.reset();
    assert!(attempt(&other, &ten(0x28, 0, 0, 1), &[]).unwrap().is_err(), "the attention");
    assert!(attempt(&other, &ten(0x28, 0, 0, 1), &[]).unwrap().is_ok());
    for wrong in [[0x16, 0x10, 0, 0, 0, 0], [0x16, 0x01, 0, 0, 0, 0]] {
        assert!(attempt(&other, &wrong, &[]).unwrap().is_err(), "third parties and extents");
    }
}

/// The Control page with SWP, or the Caching page with WCE, and their MODE SELECT (6).
fn select(units: &Units, page: &[u8]) -> Result<Vec<u8>, CheckCondition> {
    let mut list = vec![0; 4];
    list.extend_from_slice(page);
    perform(units, &[0x15, 0x10, 0, 0, list.len() as u8, 0], &list)
}

#[test]
fn software_write_protection_holds_for_all_sessions_until_a_reset() {
    let (device, bytes) = patterned(Access::ReadWrite);
    let unit = unit(Arc::clone(&device) as _);
    let (one, other) = (seen_by(1, &unit), seen_by(2, &unit));
    select(&one, &[0x0A, 0x0A, 2, 0x10, 8, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let changed = attention(AdditionalSense::MODE_PARAMETERS_CHANGED);
    assert_eq!(perform(&other, &TEST_UNIT_READY, &[]).unwrap_err(), changed);
    let list = unmap_list(&[(0, 1)]);
    for (cdb, data) in [
        (&ten(0x2A, 0, 0, 1)[..], &[0; 512][..]),
        (&ten(0x41, 0, 0, 1), &[0; 512]),
        (&ten(0x42, 0, 0, 24), &list),
        (&sixteen(0x8B, 0, 0, 1), &[1; 512]),
        (&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], &[0; 1024]),
    ] {
        let refused = perform(&other, cdb, data).unwrap_err();
        assert_eq!(
            (refused.key, refused.code),
            (SenseKey::DataProtect, AdditionalSense::SOFTWARE_WRITE_PROTECTED)
        );
    }
    assert!(contents(&*device) == bytes);
    assert_eq!(perform(&one, &[0x1A, 8, 0x0A, 0, 255, 0], &[]).unwrap()[2], 0x90, "WP");
    unit.reset();
    perform(&one, &TEST_UNIT_READY, &[]).unwrap_err();
    perform(&one, &ten(0x2A, 0, 0, 1), &[0; 512]).unwrap();
}

#[test]
fn without_write_cache_every_change_is_flushed() {
    let (memory, _) = patterned(Access::ReadWrite);
    let faulty = Arc::new(FaultDevice::new(memory));
    let units = session(Arc::clone(&faulty) as _);
    let list = unmap_list(&[(0, 1)]);
    let everywhere = ByteRange::new(ByteOffset::ZERO, ByteLength::new(512)).unwrap();
    for (write_cache, flushed) in [(4, false), (0, true)] {
        let mut page = vec![8, 0x12, write_cache];
        page.resize(20, 0);
        select(&units, &page).unwrap();
        for (cdb, data) in [
            (&ten(0x2A, 0, 0, 1)[..], &[0; 512][..]),
            (&ten(0x41, 0, 0, 1), &[1; 512]),
            (&ten(0x42, 0, 0, 24), &list),
            (&sixteen(0x8B, 0, 9, 1), &[1; 512]),
        ] {
            faulty.plan(Fault {
                operation: Operation::Flush,
                range: everywhere,
                times: 1,
                kind: std::io::ErrorKind::Other,
            });
            assert_eq!(perform(&units, cdb, data).is_err(), flushed, "{cdb:x?}");
            if !flushed {
                perform(&units, &ten(0x35, 0, 0, 0), &[]).unwrap_err();
            }
        }
    }
}

#[test]
fn removable_medium_is_ejected_unless_prevented() {
    let identity = scsi::UnitIdentity { serial: "stick".into(), uuid: [1; 16] };
    let unit = Arc::new(scsi::LogicalUnit::new(patterned(Access::ReadWrite).0, identity).removable());
    let (one, other) = (seen_by(1, &unit), seen_by(2, &unit));
    let (eject, load) = ([0x1B, 0, 0, 0, 2, 0], [0x1B, 0, 0, 0, 3, 0]);
    assert_eq!(perform(&one, &[0x12, 0, 0, 0, 36, 0], &[]).unwrap()[1], 0x80, "RMB");
    perform(&one, &[0x1E, 0, 0, 0, 1, 0], &[]).unwrap();
    let prevented = CheckCondition {
        key: SenseKey::IllegalRequest,
        ..attention(AdditionalSense::MEDIUM_REMOVAL_PREVENTED)
    };
    assert_eq!(perform(&other, &eject, &[]).unwrap_err(), prevented);
    drop(one);
    perform(&other, &eject, &[]).unwrap();
    let absent = CheckCondition { key: SenseKey::NotReady, ..attention(AdditionalSense::MEDIUM_NOT_PRESENT) };
    let one = seen_by(1, &unit);
    for cdb in [&TEST_UNIT_READY[..], &ten(0x28, 0, 0, 1), &ten(0x25, 0, 0, 0), &sixteen(0x9E, 0x12, 0, 24)] {
        assert_eq!(perform(&one, cdb, &[]).unwrap_err(), absent, "{cdb:x?}");
    }
    perform(&other, &load, &[]).unwrap();
    let back = attention(AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
    assert_eq!(perform(&one, &TEST_UNIT_READY, &[]).unwrap_err(), back);
    perform(&one, &ten(0x28, 0, 0, 1), &[]).unwrap();
    let fixed = session(patterned(Access::ReadWrite).0);
    assert!(perform(&fixed, &eject, &[]).is_err(), "a fixed disk has nothing to eject");
}

fn compare_and_write(lba: u8, blocks: u8) -> [u8; 16] {
    [0x89, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, 0, 0]
}

#[test]
fn compare_and_write_writes_only_over_what_was_expected() {
    let (device, mut bytes) = patterned(Access::ReadWrite);
    let units = session(Arc::clone(&device) as _);
    let new = vec![0xAB; 1024];
    let mut data = [&bytes[5 * 512..7 * 512], &new].concat();
    data[700] ^= 1;
    let differs = perform(&units, &compare_and_write(5, 2), &data).unwrap_err();
    assert_eq!((differs.key, differs.information), (SenseKey::Miscompare, Some(700)));
    assert!(contents(&*device) == bytes);
    data[700] ^= 1;
    perform(&units, &compare_and_write(5, 2), &data).unwrap();
    bytes[5 * 512..7 * 512].copy_from_slice(&new);
    assert!(contents(&*device) == bytes);
    for length in [0, 512, 1024, 1536, 2560] {
        let wrong = perform(&units, &compare_and_write(5, 2), &vec![0; length]).unwrap_err();
        assert_eq!(wrong.code, AdditionalSense::INVALID_FIELD_IN_CDB, "{length}");
    }
    perform(&units, &compare_and_write(5, 0), &[]).unwrap();
}

#[test]
fn or_write_sets_bits() {
    let (device, mut bytes) = patterned(Access::ReadWrite);
    let units = session(Arc::clone(&device) as _);
    perform(&units, &sixteen(0x8B, 0, 3, 2), &[0x11; 1024]).unwrap();
    bytes[3 * 512..5 * 512].iter_mut().for_each(|byte| *byte |= 0x11);
    assert!(contents(&*device) == bytes);
}

#[test]
fn concurrent_compare_and_writes_lose_no_update() {
    const WRITERS: u64 = 4;
    const UPDATES: u64 = 200;
    let device = Arc::new(MemoryDevice::zeroed(ByteLength::new(1 << 20), LogicalBlockSize::B512).unwrap());
    // Slow, so that looking and changing lie apart.
    let slow =
        Arc::new(block::DelayDevice::new(Arc::clone(&device) as _, std::time::Duration::from_micros(20)));
    let unit = unit(slow);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let units = seen_by(writer as u8, &unit);
            scope.spawn(move || {
                let mut done = 0;
                while done < UPDATES {
                    let old = perform(&units, &ten(0x28, 0, 0, 1), &[]).unwrap();
                    let count = u64::from_le_bytes(*old.first_chunk().unwrap());
                    let mut new = old.clone();
                    new[..8].copy_from_slice(&(count + 1).to_le_bytes());
                    done +=
                        u64::from(perform(&units, &compare_and_write(0, 1), &[old, new].concat()).is_ok());
                }
            });
        }
    });
    assert_eq!(contents(&*device)[..8], (WRITERS * UPDATES).to_le_bytes());
}

/// Says of its second MiB that it is a hole.
#[derive(Debug)]
struct Holed(MemoryDevice, Geometry);

impl BlockDevice for Holed {
    fn geometry(&self) -> Geometry {
        self.1
    }
    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.0.read(at, buffer, patience)
    }
    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.0.write(at, data, patience)
    }
    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.0.flush(patience)
    }
    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.0.discard(range, patience)
    }
    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.0.write_zeroes(range, patience)
    }
    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        if patience == Patience::Now {
            return Err(BlockError::WouldBlock);
        }
        let place = range.start().get();
        let kinds = [Allocation::Data, Allocation::Hole, Allocation::Data, Allocation::Zero];
        let index = usize::try_from(place >> 20).unwrap();
        let left = (((place >> 20) + 1) << 20) - place;
        Ok((kinds[index], ByteLength::new(left.min(range.length().get()))))
    }
}

#[test]
fn lba_status_is_what_the_device_says() {
    let memory = MemoryDevice::zeroed(ByteLength::new(4 << 20), LogicalBlockSize::B512).unwrap();
    for (granularity, hole) in [(Some(512), 1), (None, 0)] {
        let geometry = Geometry { discard_granularity: granularity, ..memory.geometry() };
        let memory = MemoryDevice::zeroed(ByteLength::new(4 << 20), LogicalBlockSize::B512).unwrap();
        let units = session(Arc::new(Holed(memory, geometry)));
        let status = |lba| {
            let answer = perform(&units, &sixteen(0x9E, 0x12, lba, 24), &[]).unwrap();
            let number = |at: usize| u32::from_be_bytes(*answer[at..].first_chunk().unwrap());
            (number(12), number(16), answer[20])
        };
        assert_eq!(status(5), (5, 2043, 0));
        assert_eq!(status(2048), (2048, 2048, hole));
        assert_eq!(status(4095), (4095, 1, hole));
        assert_eq!(status(4096), (4096, 4096, 0), "allocated zeros are mapped like data");
        let cut = perform(&units, &sixteen(0x9E, 0x12, 0, 10), &[]).unwrap();
        assert_eq!(cut, [0, 0, 0, 20, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn attention_of_the_unit_is_told_by_every_session() {
    let unit = unit(patterned(Access::ReadWrite).0);
    let sessions = [seen_by(1, &unit), seen_by(2, &unit)];
    unit.raise(UnitAttention::CapacityChanged);
    for units in &sessions {
        let told = perform(units, &TEST_UNIT_READY, &[]).unwrap_err();
        assert_eq!(told, attention(AdditionalSense::CAPACITY_CHANGED));
    }
}

#[test]
fn task_management_functions_and_empty_lists_are_golden() {
    let units = session(patterned(Access::ReadWrite).0);
    let functions =
        |flags, length| perform(&units, &[0xA3, 0x0D, flags, 0, 0, 0, 0, 0, 0, length, 0, 0], &[]);
    assert_eq!(functions(0, 255).unwrap(), [0xD8, 0, 0, 0]);
    assert_eq!(functions(0x80, 255).unwrap(), [0xD8, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    functions(0, 3).unwrap_err();
    assert_eq!(perform(&units, &[0x37, 0, 0x1D, 0, 0, 0, 0, 1, 0, 0], &[]).unwrap(), [0, 0x1D, 0, 0]);
    let twelve = perform(&units, &[0xB7, 0x0D, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], &[]).unwrap();
    assert_eq!(twelve, [0, 0x0D, 0, 0, 0, 0, 0, 0]);
}
