//! What the tests of several modules share.
use block::{Access, ByteLength, Geometry, LogicalBlockSize};

use crate::UnitIdentity;
use crate::disk::Disk;

/// How many blocks of 512 bytes the disks of these tests have.
const BLOCKS: u64 = 4096;

pub(crate) fn identity() -> UnitIdentity {
    UnitIdentity { serial: "lab-07\u{e9}!".into(), uuid: std::array::from_fn(|i| i as u8) }
}

pub(crate) fn disk() -> Disk {
    Disk::new(Geometry {
        size: ByteLength::new(BLOCKS * 512),
        logical_block: LogicalBlockSize::B512,
        physical_block: 4096,
        discard_granularity: Some(4096),
        access: Access::ReadWrite,
    })
}

pub(crate) fn thick_disk() -> Disk {
    Disk::new(Geometry {
        size: ByteLength::new(BLOCKS * 512),
        logical_block: LogicalBlockSize::B512,
        physical_block: 512,
        discard_granularity: None,
        access: Access::ReadWrite,
    })
}

pub(crate) fn read_only_disk() -> Disk {
    Disk::new(Geometry {
        size: ByteLength::new(BLOCKS * 512),
        logical_block: LogicalBlockSize::B512,
        physical_block: 512,
        discard_granularity: Some(512),
        access: Access::ReadOnly,
    })
}
