//! The conformance suite: what every [`BlockDevice`] must do, as checks that any test can call.
//!
//! A device's own tests call [`writable`] (with a maker of fresh devices of zeros) or [`read_only`] (with a device
//! and the bytes that it must hold). The checks compare against a plain `Vec<u8>`, use a fixed seed, and panic with
//! a message that says which promise was broken.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "the suite is test code: it fails by panicking"
)]
use std::os::unix::fs::FileExt;

use crate::device::{Access, Allocation, BlockDevice, Patience};
use crate::error::BlockError;
use crate::units::{ByteLength, ByteOffset, ByteRange};

/// Makes a fresh device that reads as zeros everywhere.
pub type Maker<'a> = &'a dyn Fn() -> Box<dyn BlockDevice>;

/// How many random operations the comparison with the model makes.
const RANDOM_OPERATIONS: usize = 600;
/// The largest device that the suite copies into its model.
const MAX_MODEL_BYTES: u64 = 64 << 20;

/// Runs every check on a writable device.
///
/// # Panics
/// Where the device breaks its side of the contract.
pub fn writable(make: Maker<'_>) {
    let device = make();
    geometry_is_sound(&*device);
    refuses_bad_ranges(&*device);
    refuses_bad_changes(&*device);
    reads_back_what_was_written(&*device);
    would_block_changes_nothing(&*make());
    let device = make();
    agrees_with_a_flat_model(&*device);
    tells_how_it_is_stored(&*device);
    concurrent_writers_do_not_disturb_each_other(&*make());
}

/// Runs every check on a read-only device that must hold `expected`.
///
/// # Panics
/// Where the device breaks its side of the contract.
pub fn read_only(device: &dyn BlockDevice, expected: &[u8]) {
    let geometry = device.geometry();
    assert_eq!(geometry.access, Access::ReadOnly, "the device says that it takes writes");
    assert_eq!(geometry.size, ByteLength::of(expected), "size");
    geometry_is_sound(device);
    refuses_bad_ranges(device);
    let unit = geometry.logical_block.bytes() as usize;
    let mut rng = Rng(11);
    let mut buffer = vec![0; expected.len()];
    patient_read(device, 0, &mut buffer).unwrap();
    assert!(buffer == expected, "a read of everything differs");
    for _ in 0..RANDOM_OPERATIONS {
        let (at, length) = rng.blocks(expected.len() / unit, 64);
        let (at, length) = (at * unit, length * unit);
        patient_read(device, at as u64, &mut buffer[..length]).unwrap();
        assert!(buffer[..length] == expected[at..at + length], "{length} bytes at {at:#x} differ");
    }
    for patience in [Patience::Now, Patience::Blocking] {
        let range = ByteRange::new(ByteOffset::ZERO, ByteLength::new(unit as u64)).unwrap();
        let zeros = vec![0; unit];
        assert!(matches!(device.write(ByteOffset::ZERO, &zeros, patience), Err(BlockError::ReadOnly)));
        assert!(matches!(device.discard(range, patience), Err(BlockError::ReadOnly)));
        assert!(matches!(device.write_zeroes(range, patience), Err(BlockError::ReadOnly)));
    }
    device.flush(Patience::Blocking).unwrap();
    tells_how_it_is_stored(device);
}

/// What [`BlockDevice::allocation`] and [`BlockDevice::file_span`] say, against what a read gives.
fn tells_how_it_is_stored(device: &dyn BlockDevice) {
    let geometry = device.geometry();
    let unit = geometry.logical_block.bytes();
    let end = geometry.size.get().min(MAX_MODEL_BYTES);
    let range = |at, length| ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap();
    let mut at = 0;
    while at < end {
        let asked = (end - at).min(8 << 20);
        let (allocation, length) = device.allocation(range(at, asked), Patience::Blocking).unwrap();
        let length = length.get();
        assert!(
            length >= unit && length <= asked && length.is_multiple_of(unit),
            "{length} bytes at {at:#x}"
        );
        let mut read = vec![1; length as usize];
        patient_read(device, at, &mut read).unwrap();
        if allocation != Allocation::Data {
            assert!(read.iter().all(|&byte| byte == 0), "{allocation:?} at {at:#x} does not read as zeros");
        }
        if let Some(span) = device.file_span(range(at, length), Patience::Blocking) {
            assert!((1..=length).contains(&span.length.get()), "a span of {} at {at:#x}", span.length);
            let mut bytes = vec![0; span.length.get() as usize];
            span.file.read_exact_at(&mut bytes, span.at.get()).unwrap();
            assert!(bytes == read[..bytes.len()], "the span at {at:#x} differs from a read");
        }
        at += length;
    }
    let behind = ByteRange::new(ByteOffset::new(geometry.size.get()), ByteLength::new(unit)).unwrap();
    let refused = device.allocation(behind, Patience::Blocking);
    assert!(matches!(refused, Err(BlockError::OutOfRange { .. })), "{refused:?}");
}

/// Bytes in which every 512-byte block is different: what tests fill images with.
#[must_use]
pub fn pattern(length: usize) -> Vec<u8> {
    let mut rng = Rng(length as u64 | 1);
    let mut bytes = vec![0; length];
    for block in bytes.chunks_mut(512) {
        let word = rng.next().to_le_bytes();
        for (i, byte) in block.iter_mut().enumerate() {
            *byte = word[i % 8] ^ (i / 8) as u8;
        }
    }
    bytes
}

fn geometry_is_sound(device: &dyn BlockDevice) {
    let geometry = device.geometry();
    let unit = geometry.logical_block.bytes();
    assert!(geometry.size.get().is_multiple_of(unit), "the size is not made of whole blocks");
    assert!(geometry.physical_block.is_power_of_two());
    assert!(u64::from(geometry.physical_block) >= unit, "a physical block below the logical block");
    if let Some(granularity) = geometry.discard_granularity {
        assert!(granularity.is_power_of_two() && u64::from(granularity) >= unit, "discard granularity");
    }
    assert_eq!(geometry, device.geometry(), "the geometry changed");
}

fn refuses_bad_ranges(device: &dyn BlockDevice) {
    let geometry = device.geometry();
    let (size, unit) = (geometry.size.get(), geometry.logical_block.bytes());
    let mut block = vec![0; unit as usize];
    for at in [size, size + unit, u64::MAX - unit + 1, (u64::MAX / unit) * unit] {
        let result = patient_read(device, at, &mut block);
        assert!(matches!(result, Err(BlockError::OutOfRange { .. })), "read at {at:#x}: {result:?}");
        if geometry.access == Access::ReadWrite {
            let result = patient_write(device, at, &block);
            assert!(matches!(result, Err(BlockError::OutOfRange { .. })), "write at {at:#x}: {result:?}");
        }
    }
    let half = unit as usize / 2;
    let result = patient_read(device, 0, &mut block[..half]);
    assert!(matches!(result, Err(BlockError::Unaligned { .. })), "half a block: {result:?}");
    if size > unit {
        let result = patient_read(device, unit / 2, &mut block);
        assert!(matches!(result, Err(BlockError::Unaligned { .. })), "at half a block: {result:?}");
    }
    patient_read(device, size, &mut []).expect("an empty read at the end is legal");
}

fn refuses_bad_changes(device: &dyn BlockDevice) {
    let geometry = device.geometry();
    let (size, unit) = (geometry.size.get(), geometry.logical_block.bytes());
    let range = |at, length| ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap();
    type Change<'a> = &'a dyn Fn(ByteRange) -> Result<(), BlockError>;
    let write: Change<'_> =
        &|range| patient_write(device, range.start().get(), &vec![0; range.length().in_memory().unwrap()]);
    let discard: Change<'_> = &|range| patiently(|patience| device.discard(range, patience));
    let zero: Change<'_> = &|range| patiently(|patience| device.write_zeroes(range, patience));
    for (name, change) in [("write", write), ("discard", discard), ("write_zeroes", zero)] {
        for bad in [range(size, unit), range(size - unit, 2 * unit)] {
            let result = change(bad);
            assert!(matches!(result, Err(BlockError::OutOfRange { .. })), "{name} of {bad}: {result:?}");
        }
        for bad in [range(0, unit / 2), range(unit / 2, unit / 2)] {
            let result = change(bad);
            assert!(matches!(result, Err(BlockError::Unaligned { .. })), "{name} of {bad}: {result:?}");
        }
        for empty in [range(0, 0), range(size, 0)] {
            change(empty)
                .unwrap_or_else(|error| panic!("an empty {name} at {} is legal: {error}", empty.start()));
        }
    }
}

fn would_block_changes_nothing(device: &dyn BlockDevice) {
    let unit = device.geometry().logical_block.bytes();
    let data = pattern(unit as usize);
    patient_write(device, unit, &data).unwrap();
    let range = ByteRange::new(ByteOffset::new(unit), ByteLength::new(unit)).unwrap();
    let attempts = [
        device.write(range.start(), &vec![0x5A; unit as usize], Patience::Now),
        device.discard(range, Patience::Now),
        device.write_zeroes(range, Patience::Now),
    ];
    if attempts.iter().all(|attempt| matches!(attempt, Err(BlockError::WouldBlock))) {
        let mut buffer = vec![0; unit as usize];
        patient_read(device, unit, &mut buffer).unwrap();
        assert!(buffer == data, "an operation that would have to wait changed something");
    }
}

fn reads_back_what_was_written(device: &dyn BlockDevice) {
    let (size, unit) = (device.geometry().size.get(), device.geometry().logical_block.bytes());
    let data = pattern(unit as usize);
    let mut buffer = vec![0xAA; unit as usize];
    for at in [0, size - unit] {
        patient_read(device, at, &mut buffer).unwrap();
        assert!(
            buffer.iter().all(|&byte| byte == 0),
            "a fresh device reads {at:#x} as something else than zeros"
        );
        patient_write(device, at, &data).unwrap();
        patient_read(device, at, &mut buffer).unwrap();
        assert!(buffer == data, "the block at {at:#x} reads back differently");
    }
    device.flush(Patience::Blocking).unwrap();
}

fn agrees_with_a_flat_model(device: &dyn BlockDevice) {
    let geometry = device.geometry();
    let unit = geometry.logical_block.bytes() as usize;
    let modelled = geometry.size.get().min(MAX_MODEL_BYTES) as usize;
    let mut model = vec![0; modelled];
    let mut rng = Rng(7);
    for step in 0..RANDOM_OPERATIONS {
        let (at, length) = rng.blocks(modelled / unit, 40);
        let (at, length) = (at * unit, length * unit);
        let range = ByteRange::new(ByteOffset::new(at as u64), ByteLength::new(length as u64)).unwrap();
        match rng.next() % 8 {
            0..=3 => {
                let data = pattern(length + step * 512)[step * 512..].to_vec();
                patient_write(device, at as u64, &data).unwrap();
                model[at..at + length].copy_from_slice(&data);
            }
            4 => {
                patiently(|patience| device.write_zeroes(range, patience)).unwrap();
                model[at..at + length].fill(0);
            }
            5 => {
                patiently(|patience| device.discard(range, patience)).unwrap();
                let mut now = vec![0; length];
                patient_read(device, at as u64, &mut now).unwrap();
                for (i, block) in now.chunks(unit).enumerate() {
                    let old = &model[at + i * unit..at + (i + 1) * unit];
                    let zero = block.iter().all(|&byte| byte == 0);
                    assert!(zero || block == old, "step {step}: a discarded block holds something new");
                }
                model[at..at + length].copy_from_slice(&now);
            }
            6 => patiently(|patience| device.flush(patience)).unwrap(),
            _ => {
                let mut buffer = vec![0xAA; length];
                patient_read(device, at as u64, &mut buffer).unwrap();
                assert!(buffer == model[at..at + length], "step {step}: {length} bytes at {at:#x} differ");
            }
        }
    }
    let mut all = vec![0; modelled];
    patient_read(device, 0, &mut all).unwrap();
    assert!(all == model, "the device differs from the model at the end");
}

fn concurrent_writers_do_not_disturb_each_other(device: &dyn BlockDevice) {
    const WRITERS: usize = 4;
    let unit = device.geometry().logical_block.bytes() as usize;
    let blocks = (device.geometry().size.get().min(MAX_MODEL_BYTES) as usize / unit).min(1024);
    // Each writer owns every fourth block, so that neighbours share whatever larger unit the device keeps.
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                for index in (writer..blocks).step_by(WRITERS) {
                    let data = vec![(index % 251) as u8 + 1; unit];
                    patient_write(device, (index * unit) as u64, &data).unwrap();
                }
            });
        }
    });
    let mut buffer = vec![0; unit];
    for index in 0..blocks {
        patient_read(device, (index * unit) as u64, &mut buffer).unwrap();
        let expected = (index % 251) as u8 + 1;
        assert!(buffer.iter().all(|&byte| byte == expected), "block {index} lost a concurrent write");
    }
}

fn patient_read(device: &dyn BlockDevice, at: u64, buffer: &mut [u8]) -> Result<(), BlockError> {
    patiently(|patience| device.read(ByteOffset::new(at), buffer, patience))
}

fn patient_write(device: &dyn BlockDevice, at: u64, data: &[u8]) -> Result<(), BlockError> {
    patiently(|patience| device.write(ByteOffset::new(at), data, patience))
}

/// As a front end does it: at once if that goes, else with all the time in the world.
fn patiently(mut operation: impl FnMut(Patience) -> Result<(), BlockError>) -> Result<(), BlockError> {
    match operation(Patience::Now) {
        Err(BlockError::WouldBlock) => {
            let result = operation(Patience::Blocking);
            assert!(!matches!(result, Err(BlockError::WouldBlock)), "WouldBlock to a caller who waits");
            result
        }
        done => done,
    }
}

/// A small generator of repeatable numbers (xorshift64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A random run of at most `most` blocks inside `blocks`.
    fn blocks(&mut self, blocks: usize, most: usize) -> (usize, usize) {
        let length = 1 + self.next() as usize % most.min(blocks);
        (self.next() as usize % (blocks - length + 1), length)
    }
}
