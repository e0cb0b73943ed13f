//! Images opened for writing, driven by bytes: operations against a flat model, and files with a log to replay.
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use block::{
    Access, BlockDevice, ByteLength, ByteOffset, ByteRange, LogicalBlockSize, MemoryDevice, Patience,
};

use super::{READ_BYTES, file_of_parts, unreachable_image};
use crate::format::Format;
use crate::guid::Guid;
use crate::image::{Image, OpenOptions};
use crate::layer::Subtype;
use crate::mutable::MutableImage;
use crate::new_image::{NewImageSpec, ParentLink, create};
use crate::storage::{CrashStorage, MemoryStorage, Survival};

/// How large the disk is on which operations are made: two blocks of 2 MiB and half of one.
const DISK_BYTES: u64 = 5 << 20;
/// A parent ends before its child.
const PARENT_BYTES: u64 = 3 << 20;
const MAX_OPERATIONS: usize = 64;
/// The most that one operation touches: more than a block of 1 MiB.
const MAX_SECTORS: u64 = 2600;
/// What a power cut leaves whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Makes an image as the first byte says, opens it for writing, and makes the operations that the rest describes, eight
/// bytes each, on it and on a flat model. The image must agree with the model at every read, whenever it is opened
/// again, and after its log was replayed. Where power is cut, what was flushed must be there, and every other sector
/// hold what it held or was given since.
pub fn operations(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    let Some(mut disk) = Disk::new(*kind) else { return };
    let mut model = Model::new(disk.contents());
    let mut image = disk.open();
    for operation in rest.as_chunks::<8>().0.iter().take(MAX_OPERATIONS) {
        image = disk.apply(*operation, image, &mut model);
    }
    disk.compare(&image, &model.now);
    assert!(image.close().is_ok(), "a close failed");
    disk.compare(&disk.open(), &model.now);
}

/// Opens a file made as [`open_parts`](super::open_parts) makes it for reading, its log laid over it, and for writing,
/// its log replayed into it: what both take, both must read alike, and again when the file has been closed.
pub fn replay_parts(data: &[u8]) {
    let file = file_of_parts(data);
    let options = || OpenOptions { format: Some(Format::Vhdx), ..OpenOptions::default() };
    let Ok(reader) = Image::from_storage(Box::new(file.clone()), options()) else { return };
    let storage = Arc::new(CrashStorage::new(file));
    let writer = MutableImage::from_storage(Box::new(Arc::clone(&storage)), Some(Format::Vhdx), None);
    // A writer may refuse what a reader takes: it looks at more.
    let Ok(writer) = writer else { return };
    assert!(reader.geometry().size == writer.geometry().size, "the sizes differ");
    compare_ends(&reader, &writer);
    if writer.close().is_ok() {
        let closed = Image::from_storage(Box::new(storage.now()), options());
        let closed = closed.unwrap_or_else(|error| unreachable_image(&error.refusal));
        assert!(!closed.info().log_replayed, "a closed file has a log to replay");
        compare_ends(&reader, &closed);
    }
}

/// Compares what is at the start and at the end of two disks of the same size. Both may answer with an error.
fn compare_ends(one: &dyn BlockDevice, other: &dyn BlockDevice) {
    let geometry = one.geometry();
    let (size, unit) = (geometry.size.get(), geometry.logical_block.bytes());
    let length = READ_BYTES.min(size);
    let last = size.saturating_sub(length);
    let last = last.saturating_sub(last.checked_rem(unit).unwrap_or_default());
    for at in [0, last] {
        let read = |device: &dyn BlockDevice| {
            let mut buffer = vec![0; usize::try_from(length).unwrap_or_default()];
            device.read(ByteOffset::new(at), &mut buffer, Patience::Blocking).ok().map(|()| buffer)
        };
        if let (Some(one), Some(other)) = (read(one), read(other)) {
            assert!(one == other, "the bytes at {at:#x} differ");
        }
    }
}

/// An image to operate on.
struct Disk {
    format: Format,
    storage: Arc<CrashStorage>,
    parent: Option<Arc<dyn BlockDevice>>,
    unit: u64,
    /// How long the file's history was when all of it was known to be lasting.
    sure: usize,
}

/// What the disk holds, and what it may hold after a power cut.
struct Model {
    now: Vec<u8>,
    /// Of each sector, as hashes, the contents that no flush has made history yet.
    before: Vec<Vec<u64>>,
}

impl Model {
    fn new(now: Vec<u8>) -> Self {
        let before = now.chunks(SECTOR_BYTES).map(|_| Vec::new()).collect();
        Self { now, before }
    }

    /// The bytes there, and the sectors in which they lie.
    fn part(&mut self, start: usize, end: usize) -> Option<(&mut [u8], &mut [Vec<u64>])> {
        let (first, last) = (start.checked_div(SECTOR_BYTES)?, end.div_ceil(SECTOR_BYTES));
        Some((self.now.get_mut(start..end)?, self.before.get_mut(first..last)?))
    }

    /// All that the disk holds is lasting.
    fn flushed(&mut self) {
        self.before.iter_mut().for_each(Vec::clear);
    }

    /// Takes what a power cut has left.
    fn cut(&mut self, left: Vec<u8>) {
        let sectors = left.chunks(SECTOR_BYTES).zip(self.now.chunks(SECTOR_BYTES)).zip(&self.before);
        for (sector, ((left, now), before)) in sectors.enumerate() {
            let is_known = left == now || before.contains(&hash(left));
            assert!(
                is_known,
                "after a power cut sector {sector} holds what it never held, or lost what was flushed"
            );
        }
        self.now = left;
        self.flushed();
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Remembers what these sectors hold.
fn remember(bytes: &[u8], before: &mut [Vec<u64>]) {
    for (sector, before) in bytes.chunks(SECTOR_BYTES).zip(before) {
        before.push(hash(sector));
    }
}

impl Disk {
    /// The image that this byte describes, if there can be such a one.
    fn new(kind: u8) -> Option<Self> {
        let format =
            [Format::Vhdx, Format::Vhdx, Format::Vhd, Format::Raw].get(usize::from(kind & 3)).copied()?;
        let subtypes = [Subtype::Differencing, Subtype::Dynamic, Subtype::Differencing, Subtype::Fixed];
        let subtype = subtypes.get(usize::from((kind >> 2) & 3)).copied()?;
        let subtype = if format == Format::Raw { Subtype::Fixed } else { subtype };
        let has_parent = subtype == Subtype::Differencing;
        let is_large = format == Format::Vhdx && kind & 16 != 0;
        let logical_block = if is_large { LogicalBlockSize::B4096 } else { LogicalBlockSize::B512 };
        let block_mib = if kind & 32 == 0 { 1 } else { 2 };
        let spec = NewImageSpec {
            format,
            subtype,
            virtual_size: ByteLength::new(DISK_BYTES),
            logical_block,
            physical_block: 4096,
            payload_block: (subtype != Subtype::Fixed).then(|| ByteLength::new(block_mib << 20)),
            identity: Some([7; 16]),
            linkage: None,
            parent: has_parent.then(|| ParentLink {
                linkage: Guid::from_u128(1),
                relative_path: "parent.vhdx".into(),
                absolute_path: None,
            }),
            carried: Vec::new(),
        };
        let storage = Arc::new(CrashStorage::new(MemoryStorage::default()));
        create(Box::new(Arc::clone(&storage)), &spec).ok()?.finish().ok()?;
        let parent = has_parent.then(|| pattern(PARENT_BYTES));
        let parent = parent.map(|bytes| MemoryDevice::with_contents(bytes, logical_block, Access::ReadOnly));
        let parent = parent.flatten().map(|device| Arc::new(device) as Arc<dyn BlockDevice>);
        let sure = storage.moments();
        Some(Self { format, storage, parent, unit: logical_block.bytes(), sure })
    }

    fn contents(&self) -> Vec<u8> {
        let mut contents = if self.parent.is_some() { pattern(PARENT_BYTES) } else { Vec::new() };
        contents.resize(usize::try_from(DISK_BYTES).unwrap_or_default(), 0);
        contents
    }

    fn open(&self) -> MutableImage {
        let storage = Box::new(Arc::clone(&self.storage));
        match MutableImage::from_storage(storage, Some(self.format), self.parent.clone()) {
            Ok(image) => image,
            Err(error) => unreachable_image(&error.refusal),
        }
    }

    /// Makes the operation that these bytes describe: what, where, how long and with what.
    fn apply(&mut self, operation: [u8; 8], image: MutableImage, model: &mut Model) -> MutableImage {
        let [what, fill, at0, at1, length0, length1, ends, seed] = operation;
        let sectors = DISK_BYTES.checked_div(self.unit).unwrap_or_default();
        let at = u64::from(u16::from_le_bytes([at0, at1])).min(sectors.saturating_sub(1));
        // Half of the places are where blocks begin.
        let at = if ends & 1 == 0 { at } else { at.saturating_sub(at % 2048) };
        let length = u64::from(u16::from_le_bytes([length0, length1])) % MAX_SECTORS;
        let length = if ends & 2 == 0 { length % 16 } else { length };
        let length = length.saturating_add(1).min(sectors.saturating_sub(at));
        let (at, length) = (at.saturating_mul(self.unit), length.saturating_mul(self.unit));
        let Some(range) = ByteRange::new(ByteOffset::new(at), ByteLength::new(length)) else { return image };
        match what % 8 {
            5 => {
                assert!(image.flush(Patience::Blocking).is_ok(), "a flush failed");
                self.is_lasting(model);
            }
            7 if fill & 2 == 0 => return self.reopen(image, fill & 1 == 0, model),
            7 => return self.cut_power(image, [seed, at0, length0], model),
            what => self.touch(&image, range, (what, fill), model),
        }
        image
    }

    /// Writes, zeroes, discards or reads.
    fn touch(&self, image: &MutableImage, range: ByteRange, (what, fill): (u8, u8), model: &mut Model) {
        let index = |place: u64| usize::try_from(place).unwrap_or(usize::MAX);
        let (start, end) = (index(range.start().get()), index(range.end().get()));
        let Some((target, before)) = model.part(start, end) else { return };
        match what {
            0..=2 => {
                remember(target, before);
                target.fill(fill);
                assert!(image.write(range.start(), target, Patience::Blocking).is_ok(), "a write failed");
            }
            3 => {
                remember(target, before);
                target.fill(0);
                assert!(image.write_zeroes(range, Patience::Blocking).is_ok(), "zeroing failed");
            }
            4 => {
                remember(target, before);
                remember(&vec![0; target.len()], before);
                assert!(image.discard(range, Patience::Blocking).is_ok(), "a discard failed");
                let mut now = vec![0; target.len()];
                assert!(image.read(range.start(), &mut now, Patience::Blocking).is_ok(), "a read failed");
                let unit = index(self.unit);
                for (now, old) in now.chunks(unit).zip(target.chunks(unit)) {
                    assert!(now == old || now.iter().all(|&byte| byte == 0), "a discard made something up");
                }
                target.copy_from_slice(&now);
            }
            _ => {
                let mut now = vec![0; target.len()];
                assert!(image.read(range.start(), &mut now, Patience::Blocking).is_ok(), "a read failed");
                assert!(now == target, "{range} differs from the model");
            }
        }
    }

    fn reopen(&mut self, image: MutableImage, is_closed: bool, model: &mut Model) -> MutableImage {
        if is_closed {
            assert!(image.close().is_ok(), "a close failed");
        } else {
            assert!(image.flush(Patience::Blocking).is_ok(), "a flush failed");
            drop(image);
        }
        self.is_lasting(model);
        self.open()
    }

    /// Cuts the power at one of the moments since all was lasting, and opens what is left.
    fn cut_power(&mut self, image: MutableImage, seed: [u8; 3], model: &mut Model) -> MutableImage {
        drop(image);
        let [first, second, third] = seed;
        let mut state = u64::from_le_bytes([first, second, third, 1, 2, 3, 4, 5]);
        // xorshift: the fuzzer chooses where it begins.
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 11).unwrap_or_default().checked_rem(end).unwrap_or_default()
        };
        let since = self.storage.moments().saturating_sub(self.sure);
        let moment = self.sure.saturating_add(below(since.saturating_add(1)));
        let left = self.storage.crashed(moment, |_| match below(4) {
            0 => Survival::Lost,
            1 => Survival::Whole,
            2 => Survival::Head(below(16)),
            _ => Survival::Tail(below(16)),
        });
        self.storage = Arc::new(CrashStorage::new(left));
        let image = self.open();
        let mut now = vec![0; model.now.len()];
        assert!(image.read(ByteOffset::ZERO, &mut now, Patience::Blocking).is_ok(), "a read failed");
        model.cut(now);
        self.sure = self.storage.moments();
        image
    }

    fn is_lasting(&mut self, model: &mut Model) {
        model.flushed();
        self.sure = self.storage.moments();
    }

    fn compare(&self, image: &MutableImage, model: &[u8]) {
        let mut now = vec![0; model.len()];
        assert!(image.read(ByteOffset::ZERO, &mut now, Patience::Blocking).is_ok(), "a read failed");
        assert!(now == model, "the image differs from the model");
    }
}

/// What a parent holds: numbers that differ in every sector.
fn pattern(bytes: u64) -> Vec<u8> {
    (0..bytes / 8).flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect()
}
