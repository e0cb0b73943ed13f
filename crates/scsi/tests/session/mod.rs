//! A session with one disk, for the tests of this folder.
#![allow(dead_code, reason = "each test program uses a part of this")]
use std::sync::Arc;

use block::{Access, BlockDevice, LogicalBlockSize, MemoryDevice, Patience};
use scsi::{
    CheckCondition, Failure, InitiatorPort, LogicalUnit, Rejection, Task, Transfer, UnitIdentity, Units,
};

/// LUN 0 on the wire.
pub(crate) const LUN_0: [u8; 8] = [0; 8];
/// How many blocks of 512 bytes the disks of these tests have.
pub(crate) const BLOCKS: usize = 4096;

pub(crate) fn unit(device: Arc<dyn BlockDevice>) -> Arc<LogicalUnit> {
    let identity = UnitIdentity { serial: "lab-07".into(), uuid: [7; 16] };
    Arc::new(LogicalUnit::new(device, identity))
}

/// A session that sees `device` as LUN 0.
pub(crate) fn session(device: Arc<dyn BlockDevice>) -> Units {
    seen_by(1, &unit(device))
}

/// The initiator that the tests call by this number.
pub(crate) fn port(number: u8) -> InitiatorPort {
    InitiatorPort::iscsi("iqn.2026-01.lab:initiator", [0x80, 0, 0, 0, 0, number])
}

/// The session of initiator `number` with a unit that it sees as LUN 0.
pub(crate) fn seen_by(number: u8, unit: &Arc<LogicalUnit>) -> Units {
    Units::new(&port(number), [(0, Arc::clone(unit))])
}

/// A disk that holds a pattern, and the pattern.
pub(crate) fn patterned(access: Access) -> (Arc<MemoryDevice>, Vec<u8>) {
    let bytes = block::conformance::pattern(BLOCKS * 512);
    let device = MemoryDevice::with_contents(bytes.clone(), LogicalBlockSize::B512, access).unwrap();
    (Arc::new(device), bytes)
}

/// All that `device` holds.
pub(crate) fn contents(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.geometry().size.in_memory().unwrap()];
    device.read(block::ByteOffset::ZERO, &mut bytes, Patience::Blocking).unwrap();
    bytes
}

/// What the initiator is told.
pub(crate) fn told(failure: &Failure) -> CheckCondition {
    match failure {
        Failure::Check(check) | Failure::Device { check, .. } => *check,
        Failure::WouldBlock | Failure::ReservationConflict => panic!("{failure}"),
    }
}

/// Carries out a command as a transport does: all of its Data-In, or nothing.
pub(crate) fn perform(units: &Units, cdb: &[u8], data_out: &[u8]) -> Result<Vec<u8>, CheckCondition> {
    let task = decode(units, cdb)?;
    carry_out(&task, data_out).map_err(|failure| told(&failure))
}

/// Decodes a command to LUN 0 that no reservation keeps out.
pub(crate) fn decode(units: &Units, cdb: &[u8]) -> Result<Task, CheckCondition> {
    decode_for(units, LUN_0, cdb)
}

pub(crate) fn decode_for(units: &Units, lun: [u8; 8], cdb: &[u8]) -> Result<Task, CheckCondition> {
    units.task(lun, cdb).map_err(|rejection| match rejection {
        Rejection::Check(check) => check,
        Rejection::ReservationConflict => panic!("{rejection}"),
    })
}

/// Carries out a command; `None` for a reservation conflict.
pub(crate) fn attempt(units: &Units, cdb: &[u8], data_out: &[u8]) -> Option<Result<Vec<u8>, CheckCondition>> {
    let task = match units.task(LUN_0, cdb) {
        Ok(task) => task,
        Err(Rejection::Check(check)) => return Some(Err(check)),
        Err(Rejection::ReservationConflict) => return None,
    };
    match carry_out(&task, data_out) {
        Err(Failure::ReservationConflict) => None,
        result => Some(result.map_err(|failure| told(&failure))),
    }
}

pub(crate) fn carry_out(task: &Task, data_out: &[u8]) -> Result<Vec<u8>, Failure> {
    match task.transfer() {
        Transfer::In { bytes } => {
            let mut data = vec![0xEE; usize::try_from(bytes).unwrap()];
            task.read_in(0, &mut data, Patience::Blocking)?;
            Ok(data)
        }
        Transfer::None | Transfer::Out { .. } => task.run(data_out, Patience::Blocking).map(|()| Vec::new()),
    }
}

/// A CDB of ten bytes with LBA and length.
pub(crate) fn ten(opcode: u8, flags: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let ([a, b, c, d], [e, f]) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [opcode, flags, a, b, c, d, 0, e, f, 0]
}

/// A CDB of sixteen bytes with LBA and length.
pub(crate) fn sixteen(opcode: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[1] = flags;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// The parameter list of UNMAP for these runs of LBA and length.
pub(crate) fn unmap_list(extents: &[(u64, u32)]) -> Vec<u8> {
    let descriptor_bytes = u16::try_from(extents.len() * 16).unwrap();
    let mut list = (descriptor_bytes + 6).to_be_bytes().to_vec();
    list.extend_from_slice(&descriptor_bytes.to_be_bytes());
    list.extend_from_slice(&[0; 4]);
    for (lba, blocks) in extents {
        list.extend_from_slice(&lba.to_be_bytes());
        list.extend_from_slice(&blocks.to_be_bytes());
        list.extend_from_slice(&[0; 4]);
    }
    list
}
