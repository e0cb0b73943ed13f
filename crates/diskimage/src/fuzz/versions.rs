//! Versions of a disk, driven by bytes: snapshots, merges, compactions, conversions and other sizes, with writes in
//! between, against a flat model of the disk.
//!
//! All of it goes through real files, as it is used: the store that knows whose parent an image is, the file under
//! another name until it is whole, locks, and holes.
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, LogicalBlockSize, Patience};

use super::unreachable_image;
use crate::chain::Store;
use crate::check::{self, Severity};
use crate::error::OpenError;
use crate::extent::LayerIndex;
use crate::format::Format;
use crate::image::{Image, OpenOptions};
use crate::layer::Subtype;
use crate::mutable::{EditError, MutableImage};
use crate::new_image::{NewImageSpec, create};
use crate::ops::{
    CompactOptions, ConvertOptions, Job, MergeOptions, SnapshotOptions, compact, convert, merge_base,
    merge_updates, snapshot,
};
use crate::storage::{EditLock, FileStorage};
use crate::watch::Watch;

/// How large the disk is at first, and at most.
const FIRST_BYTES: u64 = 3 << 20;
const MAX_BYTES: u64 = 6 << 20;
const MAX_OPERATIONS: usize = 48;
const MAX_FILES: usize = 5;
/// The most that one operation touches.
const MAX_TOUCHED_BYTES: u64 = 3 << 19;

/// Makes an image as the first byte says, in a folder of its own in `folder`, and then what the rest describes, eight
/// bytes each. The disk must agree with the model whatever became of its files, and the files be sound.
pub fn versions(data: &[u8], folder: &Path) {
    let Some((kind, rest)) = data.split_first() else { return };
    let folder = folder.join("versions");
    // What a run that found something has left.
    let _ = fs::remove_dir_all(&folder);
    must("the folder", fs::create_dir(&folder));
    let mut disk = Disk::new(*kind, folder.clone());
    for operation in rest.as_chunks::<8>().0.iter().take(MAX_OPERATIONS) {
        disk.apply(*operation);
    }
    disk.compare();
    drop(disk);
    must("the folder", fs::remove_dir_all(&folder));
}

/// A disk and its files.
struct Disk {
    folder: PathBuf,
    /// The base first.
    files: Vec<PathBuf>,
    made: usize,
    format: Format,
    sectors: LogicalBlockSize,
    /// The leaf, where it is open for writing.
    image: Option<MutableImage>,
    model: Vec<u8>,
}

impl Disk {
    fn new(kind: u8, folder: PathBuf) -> Self {
        let format = match kind & 3 {
            0 | 1 => Format::Vhdx,
            2 => Format::Vhd,
            _ => Format::Raw,
        };
        let is_fixed = format == Format::Raw || kind & 4 != 0;
        let sectors = match format == Format::Vhdx && kind & 8 != 0 {
            true => LogicalBlockSize::B4096,
            false => LogicalBlockSize::B512,
        };
        let spec = NewImageSpec {
            format,
            subtype: if is_fixed { Subtype::Fixed } else { Subtype::Dynamic },
            virtual_size: ByteLength::new(FIRST_BYTES),
            logical_block: sectors,
            physical_block: 4096,
            payload_block: (!is_fixed)
                .then(|| ByteLength::new(if kind & 16 == 0 { 1 << 20 } else { 2 << 20 })),
            identity: None,
            linkage: None,
            parent: None,
            carried: Vec::new(),
        };
        let model = vec![0; length(FIRST_BYTES)];
        let mut disk = Self { folder, files: Vec::new(), made: 0, format, sectors, image: None, model };
        let path = disk.new_path(format);
        let storage = must("the first file", FileStorage::create_new(&path).map_err(|_| "it is there"));
        must("the first image", create(Box::new(storage), &spec).and_then(crate::NewImage::finish));
        disk.files.push(path);
        disk
    }

    fn new_path(&mut self, format: Format) -> PathBuf {
        self.made = self.made.saturating_add(1);
        self.folder.join(format!("{}.{format}", self.made))
    }

    fn leaf(&self) -> PathBuf {
        self.files.last().cloned().unwrap_or_default()
    }

    /// The chain, for reading. The leaf is closed.
    fn open(&mut self) -> Image {
        self.close();
        must_open(Image::open(&self.leaf(), self.options()))
    }

    fn options(&self) -> OpenOptions {
        OpenOptions { format: Some(self.format), ..OpenOptions::default() }
    }

    fn close(&mut self) {
        if let Some(image) = self.image.take() {
            must("a close", image.close());
        }
    }

    fn writer(&mut self) -> &MutableImage {
        let (leaf, options, format) = (self.leaf(), self.options(), self.format);
        self.image.get_or_insert_with(|| {
            let parent = must_open(Image::open_parent_of(&leaf, options));
            let parent = parent.map(|parent| Arc::new(parent) as Arc<dyn BlockDevice>);
            let store = must("the store", Store::around(&leaf));
            must_open(MutableImage::open(&leaf, Some(format), parent, &store))
        })
    }

    /// Makes what these bytes describe: what, with what, where and how much.
    fn apply(&mut self, operation: [u8; 8]) {
        let [what, fill, at0, at1, length0, length1, ends, _] = operation;
        let unit = self.sectors.bytes();
        let place = |number: [u8; 2], end: u64| {
            let units = end.checked_div(unit).unwrap_or_default().max(1);
            let number = u64::from(u16::from_le_bytes(number)).checked_rem(units).unwrap_or_default();
            number.saturating_mul(unit)
        };
        let size = u64::try_from(self.model.len()).unwrap_or_default();
        let at = place([at0, at1], size);
        let at = if ends & 1 == 0 { at } else { at.saturating_sub(at % (1 << 20)) };
        let most = if ends & 2 == 0 { 64 << 10 } else { MAX_TOUCHED_BYTES };
        let touched = place([length0, length1], most).saturating_add(unit).min(size.saturating_sub(at));
        let option = fill & 1 == 0;
        match what % 16 {
            0..=6 => {
                let range = ByteRange::new(ByteOffset::new(at), ByteLength::new(touched));
                if let Some(range) = range.filter(|range| !range.is_empty()) {
                    self.touch(what % 16, range, fill);
                }
            }
            7 | 8 => self.snapshot(1 << (20 + u64::from(fill & 1))),
            9 => self.merge_base(option),
            10 | 11 => self.merge_updates(usize::from(fill), option),
            12 => self.compact(option),
            13 => self.resize(place([at0, at1], MAX_BYTES).saturating_add(unit)),
            14 => self.convert(fill),
            _ => self.compare(),
        }
    }

    fn touch(&mut self, what: u8, range: ByteRange, fill: u8) {
        let (start, end) = (length(range.start().get()), length(range.end().get()));
        let unit = length(self.sectors.bytes());
        let Some(mut target) = self.model.get(start..end).map(<[u8]>::to_vec) else { return };
        let image = self.writer();
        match what {
            0..=3 => {
                target.fill(fill);
                must("a write", image.write(range.start(), &target, Patience::Blocking));
            }
            4 => {
                target.fill(0);
                must("zeroing", image.write_zeroes(range, Patience::Blocking));
            }
            5 => {
                must("a discard", image.discard(range, Patience::Blocking));
                let mut now = vec![0; target.len()];
                must("a read", image.read(range.start(), &mut now, Patience::Blocking));
                for (now, old) in now.chunks(unit).zip(target.chunks(unit)) {
                    assert!(now == old || now.iter().all(|&byte| byte == 0), "a discard made something up");
                }
                target = now;
            }
            _ => must("a flush", image.flush(Patience::Blocking)),
        }
        if let Some(model) = self.model.get_mut(start..end) {
            model.copy_from_slice(&target);
        }
    }

    fn snapshot(&mut self, block_bytes: u64) {
        if self.format == Format::Raw || self.files.len() >= MAX_FILES {
            return;
        }
        self.close();
        let child = self.new_path(self.format);
        let options = SnapshotOptions {
            payload_block: Some(ByteLength::new(block_bytes)),
            open: self.options(),
            ..SnapshotOptions::default()
        };
        must("a snapshot", snapshot(&self.leaf(), &child, &options));
        self.files.push(child);
    }

    fn merge_base(&mut self, verify: bool) {
        if self.files.len() < 2 {
            return;
        }
        let (target, options) = (self.new_path(self.format), self.merging(verify));
        let image = self.open();
        run(must("a merge", merge_base(&image, &target, &options)));
        self.replace_from(0, target);
    }

    /// Makes one difference of those from some file above the base on.
    fn merge_updates(&mut self, first: usize, verify: bool) {
        let Some(choices) = self.files.len().checked_sub(2).filter(|&choices| choices > 0) else { return };
        let first = first.checked_rem(choices).unwrap_or_default().saturating_add(1);
        let (target, options) = (self.new_path(self.format), self.merging(verify));
        let image = self.open();
        let layer = LayerIndex::new(u16::try_from(first).unwrap_or_default());
        run(must("a merge of updates", merge_updates(&image, layer, &target, &options)));
        self.replace_from(first, target);
    }

    fn merging(&self, verify: bool) -> MergeOptions {
        MergeOptions { verify, reopen: self.options(), ..MergeOptions::default() }
    }

    fn compact(&mut self, trimmed_only: bool) {
        let image = self.open();
        if image.info().subtype == Subtype::Fixed && self.format != Format::Raw {
            return;
        }
        let lock = must("the lock", EditLock::take(&self.leaf()).map_err(|_| "somebody has it"));
        let options = CompactOptions { trimmed_only, verify: true, reopen: self.options() };
        run(must("a compaction", compact(&image, &lock, &options)));
        self.compare();
    }

    fn resize(&mut self, size: u64) {
        self.writer();
        let Some(image) = self.image.take() else { return };
        let is_free = self.model.get(length(size)..).is_none_or(|tail| tail.iter().all(|&byte| byte == 0));
        match image.resize(ByteLength::new(size)) {
            Ok(()) => {
                assert!(is_free, "a disk lost its end");
                self.model.resize(length(size), 0);
            }
            Err(EditError::TailInUse { .. }) if !is_free => {}
            Err(error) => must("another size", Err(error)),
        }
        self.compare();
    }

    /// Makes one image of all, in a format that may be another one.
    fn convert(&mut self, kind: u8) {
        let format = match kind & 3 {
            0 | 1 => Format::Vhdx,
            2 => Format::Vhd,
            _ => Format::Raw,
        };
        let sectors = if format == Format::Vhdx { self.sectors } else { LogicalBlockSize::B512 };
        let options = ConvertOptions {
            logical_block: Some(sectors),
            verify: kind & 4 != 0,
            ..ConvertOptions::to(format)
        };
        let target = self.new_path(format);
        let image = self.open();
        run(must("a conversion", convert(&image, &target, &options)));
        (self.format, self.sectors) = (format, sectors);
        self.replace_from(0, target);
    }

    /// Puts a new file in the place of those from `first` on.
    fn replace_from(&mut self, first: usize, new: PathBuf) {
        for old in self.files.split_off(first) {
            must("an old file", fs::remove_file(old));
        }
        self.files.push(new);
        self.compare();
    }

    fn compare(&mut self) {
        let image = self.open();
        let mut now = vec![0; self.model.len()];
        assert!(
            image.virtual_size() == ByteLength::of(&self.model),
            "the disk has another size than the model"
        );
        must("a read", image.read(ByteOffset::ZERO, &mut now, Patience::Blocking));
        assert!(now == self.model, "the disk differs from the model");
        for file in &self.files {
            let storage = must("a file", FileStorage::open(file).map_err(|_| "it cannot be opened"));
            let report = must("a check", check::check(&storage, self.format));
            assert!(report.count(Severity::Error) == 0, "{file:?} is not sound: {:?}", report.findings());
        }
    }
}

fn run(job: Job<'_>) {
    must("a job", job.run(&Watch::default()));
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn must_open<T>(result: Result<T, OpenError>) -> T {
    result.unwrap_or_else(|error| unreachable_image(&error.refusal))
}

#[allow(clippy::panic, reason = "a finding of the fuzzer is a panic")]
fn must<T, E: Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{what} failed: {error}"))
}
