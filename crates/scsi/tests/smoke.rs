//! A fuzz smoke: any CDB with any Data-Out is answered, and nothing outside of what it names changes.
mod session;

use std::sync::{Arc, Mutex};

use block::{Access, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, Patience};
use mutate::Mutator;
use scsi::{TaskKind, Transfer, Units};
use session::*;

const ROUNDS: u64 = 60_000;
/// More than the longest Data-In that may come out of a disk of this size.
const MAX_IN_BYTES: u64 = (BLOCKS * 512) as u64;

/// One valid CDB of every kind, each in a field of 16 bytes and followed by its Data-Out.
fn seeds() -> Vec<Vec<u8>> {
    let mut list = vec![20, 0, 0x10, 0, 0, 0, 0x10, 0, 0, 0, 2, 0];
    list.extend_from_slice(&[0x0A, 0x0A, 2, 0x10, 0, 0, 0, 0, 0, 0, 0, 0]);
    let extents = unmap_list(&[(4000, 90), (1, 1)]);
    let blocks = vec![0xA5; 4 * 512];
    let none = Vec::new();
    let seed = |cdb: &[u8], data: &[u8]| {
        let mut seed = cdb.to_vec();
        seed.resize(16, 0);
        seed.extend_from_slice(data);
        seed
    };
    let mut seeds = vec![
        seed(&[0x12, 1, 0x83, 0, 255, 0], &none),
        seed(&[0x03, 0, 0, 0, 252, 0], &none),
        seed(&[0x1A, 0, 0x3F, 0, 255, 0], &none),
        seed(&[0x5A, 0x10, 0x3F, 0, 0, 0, 0, 2, 0, 0], &none),
        seed(&[0x15, 0x10, 0, 0, 24, 0], &list),
        seed(&[0xA3, 0x0C, 0x80, 0, 0, 0, 0, 0, 16, 0, 0, 0], &none),
        seed(&[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0], &none),
        seed(&ten(0x42, 0, 0, extents.len() as u16), &extents),
        seed(&[0x08, 0, 15, 250, 6, 0], &none),
        seed(&[0x0A, 0, 15, 250, 4, 0], &blocks),
        seed(&sixteen(0x9E, 0x10, 0, 32), &none),
        seed(&sixteen(0x9E, 0x12, 5, 32), &none),
        seed(&[0x1B, 0, 0, 0, 1, 0], &none),
        seed(&[0x16, 0, 0, 0, 0, 0], &none),
        seed(&[0x17, 0, 0, 0, 0, 0], &none),
        seed(&[0x4D, 0, 0x6F, 0, 0, 0, 0, 0, 64, 0], &none),
        seed(&[0x5E, 3, 0, 0, 0, 0, 0, 1, 0, 0], &none),
        seed(&[0x5F, 6, 5, 0, 0, 0, 0, 0, 24, 0], &[0; 24]),
        seed(&[0x5F, 1, 5, 0, 0, 0, 0, 0, 24, 0], &[0; 24]),
        seed(&[0x89, 0, 0, 0, 0, 0, 0, 0, 15, 252, 0, 0, 0, 2, 0, 0], &blocks),
        seed(&sixteen(0x8B, 0, 4092, 4), &blocks),
    ];
    seeds.extend([0x28, 0x2A, 0x2E, 0x2F, 0x35, 0x34, 0x41].map(|op| seed(&ten(op, 0, 4092, 4), &blocks)));
    seeds.extend([0x88, 0x8A, 0x8E, 0x8F, 0x91, 0x93].map(|op| seed(&sixteen(op, 0, 4092, 4), &blocks)));
    seeds
}

/// Panics where its caller breaks the contract, and notes what was changed.
#[derive(Debug)]
struct Strict {
    inner: Arc<dyn BlockDevice>,
    changed: Mutex<Vec<ByteRange>>,
}

impl Strict {
    fn new(inner: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self { inner, changed: Mutex::default() })
    }

    fn check(&self, at: ByteOffset, length: ByteLength) -> ByteRange {
        assert!(length.get() > 0, "an empty operation reached the device");
        self.geometry().check(at, length).unwrap()
    }

    fn change(&self, at: ByteOffset, length: ByteLength) {
        assert_eq!(self.geometry().access, Access::ReadWrite);
        let range = self.check(at, length);
        self.changed.lock().unwrap().push(range);
    }
}

impl BlockDevice for Strict {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        self.check(at, ByteLength::of(buffer));
        self.inner.read(at, buffer, patience)
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.change(at, ByteLength::of(data));
        self.inner.write(at, data, patience)
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.inner.flush(patience)
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.change(range.start(), range.length());
        self.inner.discard(range, patience)
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.change(range.start(), range.length());
        self.inner.write_zeroes(range, patience)
    }
}

/// Performs one input, and holds it to the range that its task names.
fn drive(device: &Strict, units: &Units, input: &[u8]) {
    let (cdb, data_out) = input.split_at(input.len().min(16));
    let Ok(task) = units.task(LUN_0, cdb) else { return };
    match task.transfer() {
        Transfer::In { bytes } => {
            assert!(bytes <= MAX_IN_BYTES, "{bytes} bytes of Data-In");
            let mut data = vec![0; bytes as usize];
            let _ = task.read_in(0, &mut data, Patience::Now);
            let (offset, length) = (bytes / 3 + 1, bytes as usize / 2);
            let mut part = vec![0; length];
            if task.read_in(offset, &mut part, Patience::Blocking).is_ok() {
                let expected = data.iter().skip(offset as usize).copied().chain(std::iter::repeat(0));
                assert!(expected.zip(&part).all(|(a, b)| a == *b), "a part differs from the whole");
            }
        }
        Transfer::Out { .. } | Transfer::None => {
            let _ = task.run(data_out, Patience::Now);
            let _ = task.run(data_out, Patience::Blocking);
        }
    }
    let changed = std::mem::take(&mut *device.changed.lock().unwrap());
    match task.kind() {
        Some((TaskKind::Discard, range)) if range.is_empty() => {} // UNMAP names its ranges in its Data-Out
        Some((TaskKind::Write | TaskKind::Discard, range)) => {
            let inside = |c: &ByteRange| c.start() >= range.start() && c.end() <= range.end();
            assert!(changed.iter().all(inside), "{changed:?} of {range}");
        }
        _ => assert_eq!(changed, []),
    }
}

#[test]
fn mutated_commands_never_panic_nor_leave_the_disk() {
    let (memory, _) = patterned(Access::ReadWrite);
    let device = Strict::new(memory);
    let units = session(Arc::clone(&device) as _);
    Mutator::new(seeds(), 3000).run(ROUNDS, |input| drive(&device, &units, input));
}

#[test]
fn mutated_commands_never_change_a_read_only_disk() {
    let (memory, bytes) = patterned(Access::ReadOnly);
    let device = Strict::new(Arc::clone(&memory) as _);
    let units = session(Arc::clone(&device) as _);
    Mutator::new(seeds(), 3000).run(ROUNDS / 4, |input| drive(&device, &units, input));
    assert!(contents(&*memory) == bytes);
}
