//! Entry points for fuzzing: what a hostile image file can reach.
use std::path::Path;
use std::sync::Arc;

use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, Patience};

use crate::chain::{ChainError, FoundParent, ParentReference, ParentResolver, Parents};
use crate::check;
use crate::error::Refusal;
use crate::extent::{Held, Source};
use crate::format::Format;
use crate::image::{Image, OpenOptions};
use crate::mutable::MutableImage;
use crate::storage::{CrashStorage, MemoryStorage, Storage};
use crate::vmdk::Vmdk;

mod operations;
mod versions;

pub use operations::{operations, replay_parts};
pub use versions::versions;

/// How many extents of an image are looked at from its start and before its end.
const MAX_EXTENTS: usize = 64;
/// How much is read in one go.
const READ_BYTES: u64 = 64 << 10;

/// Opens these bytes as an image of each format, and reads some ranges of it. Returns, whatever the bytes are.
pub fn open_bytes(data: &[u8]) {
    open_storage(&MemoryStorage::new(data));
}

/// As [`open_bytes`], of a file made from `data` as a list of parts: a place (64 bits, little-endian), a length (16
/// bits) and that many bytes. A few hundred bytes so make an image of many megabytes, whose structures lie where
/// their format wants them. The checksums of what lies there are made right, so that they do not keep every change
/// from reaching what is behind them.
pub fn open_parts(data: &[u8]) {
    open_storage(&file_of_parts(data));
}

/// The file that `data` lists, with its checksums made right.
fn file_of_parts(data: &[u8]) -> MemoryStorage {
    let [mut file, ..] = files_of(data, u64::MAX);
    seal(&mut file);
    file
}

/// As [`open_parts`], as a qcow2 image.
pub fn open_qcow2_parts(data: &[u8]) {
    let [file, ..] = files_of(data, u64::MAX);
    let options = OpenOptions { format: Some(Format::Qcow2), ..OpenOptions::default() };
    if let Ok(image) = Image::from_storage(Box::new(file), options) {
        read_some(&image);
    }
}

/// Opens a leaf over a parent, and reads some ranges of it: the length of the parent's parts (32 bits, little-endian),
/// these, and those of the leaf, as in [`open_parts`].
pub fn open_chain(data: &[u8]) {
    let Some((length, rest)) = data.split_first_chunk() else { return };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX).min(rest.len());
    let (parent, leaf) = rest.split_at(length);
    let [mut parent, ..] = files_of(parent, u64::MAX);
    let [mut leaf, ..] = files_of(leaf, u64::MAX);
    seal(&mut parent);
    seal(&mut leaf);
    let parents = Parents::By(Arc::new(OneParent(parent)));
    let options = OpenOptions { parents, ..OpenOptions::default() };
    if let Ok(image) = Image::from_storage(Box::new(leaf), options) {
        read_some(&image);
    }
}

/// Finds the same file for every child.
#[derive(Debug)]
struct OneParent(MemoryStorage);

impl ParentResolver for OneParent {
    fn resolve(&self, _: Option<&Path>, _: &ParentReference) -> Result<FoundParent, ChainError> {
        Ok(FoundParent { path: "parent".into(), storage: Box::new(self.0.clone()) })
    }
}

/// As [`open_parts`], as a VMDK image of up to four files: the two highest bits of a part's place say in which file it
/// lies. The first is the image; it may name the others as `1`, `2` and `3`.
pub fn open_vmdk_parts(data: &[u8]) {
    let [image, beside @ ..] = files_of(data, u64::MAX >> 2);
    let open_beside = |name: &str| -> Result<Box<dyn Storage>, Refusal> {
        let index = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        match index.and_then(|index| beside.get(index)) {
            Some(file) => Ok(Box::new(file.clone())),
            None => Err(Refusal::Beside { name: name.into(), problem: "there is no such file" }),
        }
    };
    let Ok((vmdk, storage)) = Vmdk::open(Box::new(image), &open_beside) else { return };
    let mut buffer = [0; 4096];
    let mut place = ByteOffset::ZERO;
    for _ in 0..MAX_EXTENTS {
        let left = ByteLength::new(vmdk.virtual_bytes().saturating_sub(place.get()));
        let Some(range) = ByteRange::new(place, left).filter(|range| !range.is_empty()) else { break };
        let Ok(extent) = vmdk.extent(&*storage, range, Patience::Blocking) else { break };
        assert!(!extent.range.is_empty() && extent.range.start() == place, "an extent that is no head");
        let length = extent.range.length().in_memory().unwrap_or(usize::MAX).min(buffer.len());
        let piece = buffer.get_mut(..length).unwrap_or_default();
        let _ = match extent.held {
            Held::Encoded => vmdk.decode(&*storage, place.get(), piece, Patience::Blocking),
            Held::File { at } => {
                storage.read_at(ByteOffset::new(at), piece, Patience::Blocking).map_err(Into::into)
            }
            Held::Zero | Held::Replayed { .. } | Held::Parent => Ok(()),
        };
        place = extent.range.end();
    }
}

/// Four files made from `data` as a list of parts. The bits of a part's place above `place_mask` say which.
fn files_of(data: &[u8], place_mask: u64) -> [MemoryStorage; 4] {
    let mut files: [MemoryStorage; 4] = Default::default();
    let mut rest = data;
    while let Some((place, behind)) = rest.split_first_chunk() {
        let Some((length, behind)) = behind.split_first_chunk() else { break };
        let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
        let (bytes, behind) = behind.split_at(length);
        let place = u64::from_le_bytes(*place);
        let index = place.checked_shr(place_mask.count_ones()).unwrap_or_default();
        if let Some(file) = usize::try_from(index).ok().and_then(|index| files.get_mut(index)) {
            file.put(ByteOffset::new(place & place_mask), bytes);
        }
        rest = behind;
    }
    files
}

/// Makes the checksums right of the structures that stand where a format wants them.
fn seal(file: &mut MemoryStorage) {
    for (at, length) in [(0x10000, 4096), (0x20000, 4096), (0x30000, 64 << 10), (0x40000, 64 << 10)] {
        put_vhdx_checksum(file, at, length);
    }
    // The log, where known writers put it.
    for at in (1 << 20..2 << 20).step_by(4096) {
        let header = bytes_at(file, at, 12);
        if let Some((b"loge", rest)) = header.split_first_chunk()
            && let Some(length) = rest.last_chunk()
        {
            put_vhdx_checksum(file, at, u64::from(u32::from_le_bytes(*length)));
        }
    }
    let end = file.len().get().saturating_sub(512);
    for (at, length, field) in [(0, 512, 64), (512, 1024, 36), (end, 512, 64)] {
        let structure = bytes_at(file, at, length);
        if structure.starts_with(b"conectix") || structure.starts_with(b"cxsparse") {
            let sum = crate::vhd::checksum(&structure, field).to_be_bytes();
            file.put(ByteOffset::new(at.saturating_add(field as u64)), &sum);
        }
    }
}

fn put_vhdx_checksum(file: &mut MemoryStorage, at: u64, length: u64) {
    let structure = bytes_at(file, at, length);
    if [b"head", b"regi", b"loge"].iter().any(|signature| structure.starts_with(*signature)) {
        file.put(ByteOffset::new(at.saturating_add(4)), &crate::vhdx::checksum(&structure).to_le_bytes());
    }
}

/// The bytes there, or none where the file does not have them or they are more than a structure has.
fn bytes_at(file: &MemoryStorage, at: u64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(length.min(1 << 20)).unwrap_or_default()];
    match file.read_at(ByteOffset::new(at), &mut bytes, Patience::Now) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

fn open_storage(file: &MemoryStorage) {
    mend_and_write(file);
    for format in [
        None,
        Some(Format::Vhd),
        Some(Format::Vhdx),
        Some(Format::Raw),
        Some(Format::Qcow2),
        Some(Format::Vmdk),
    ] {
        let options = OpenOptions { format, ..OpenOptions::default() };
        if let Ok(image) = Image::from_storage(Box::new(file.clone()), options) {
            read_some(&image);
        }
    }
}

/// Checks and repairs the file as a VHD, and writes into what is left.
fn mend_and_write(file: &MemoryStorage) {
    let storage = Arc::new(CrashStorage::new(file.clone()));
    // Whatever is wrong is an answer; that there is one is all that is wanted.
    let _ = check::check(&*storage, Format::Vhd);
    for repair in [false, true] {
        if repair {
            let _ = check::repair(&*storage, Format::Vhd);
        }
        if let Ok(image) = MutableImage::from_storage(Box::new(Arc::clone(&storage)), Some(Format::Vhd), None)
        {
            let _ = image.write(ByteOffset::ZERO, &[1; 512], Patience::Blocking);
            let _ = image.close();
        }
    }
}

fn read_some(image: &Image) {
    let size = image.virtual_size().get();
    let unit = image.geometry().logical_block.bytes();
    let mut buffer = vec![0; usize::try_from(READ_BYTES.min(size)).unwrap_or_default()];
    let last = size.saturating_sub(READ_BYTES.min(size));
    let last = last.saturating_sub(last.checked_rem(unit).unwrap_or_default());
    for at in [0, last] {
        // A damaged image may answer with any error; that it answers is all that is wanted.
        let _ = image.read(ByteOffset::new(at), &mut buffer, Patience::Blocking);
        let mut place = ByteOffset::new(at);
        for _ in 0..MAX_EXTENTS {
            let left = ByteLength::new(size.saturating_sub(place.get()));
            let Some(range) = ByteRange::new(place, left) else { break };
            let Ok(extent) = image.extent(range, Patience::Blocking) else { break };
            assert!(!extent.range.is_empty() && extent.range.start() == place, "an extent that is no head");
            if matches!(extent.source, Source::Encoded { .. }) {
                // Pieces of an image can begin inside a block.
                let within = place.get().checked_rem(unit).unwrap_or_default();
                let at = ByteOffset::new(place.get().saturating_sub(within));
                let block = buffer.get_mut(..usize::try_from(unit).unwrap_or_default()).unwrap_or_default();
                let _ = image.read(at, block, Patience::Blocking);
            }
            place = extent.range.end();
        }
    }
    let _ = image.info();
}

#[allow(clippy::panic, reason = "a finding of the fuzzer is a panic")]
fn unreachable_image<T>(refusal: &Refusal) -> T {
    panic!("an image that we wrote cannot be opened: {refusal}")
}
