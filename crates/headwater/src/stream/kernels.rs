//! The kernels that machines fetch over HTTP, out of the version that each of them boots.
//!
//! A kernel inside an image is copied out, with its initramfs, into memory: some ten MiB, read by every boot, served like any
//! boot file, in pieces and more than once. The first boot of a version takes its kernel out, and the others wait for it; a
//! published version does not change, so the copy counts as long as the marks of its files do. A version that its device
//! writes itself changes with every boot, and so does its copy. What no boot asked for lately makes room for others.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::body::Bytes;
use block::BlockDevice;
use farm::model::{FileMark, VdiskId, VersionId};
use farm::snapshot::VdiskFacts;
use guest::{BootEntry, FileOnDisk};
use netboot::boot_files::{MAX_BOOT_FILE_BYTES, Shelf};

use super::boot_disk::BootDisk;
use super::device::DeviceSlot;
use super::devices::Devices;
use crate::config::{DirectKernel, KernelSource};

/// How much of a file is copied at once.
const PIECE_BYTES: usize = 1 << 20;
/// Linux, "initramfs buffer format": archives one behind the other begin at multiples of this.
const ARCHIVE_ALIGN_BYTES: u64 = 4;
/// What all copies may take of the server's memory: a dozen versions of a large distribution. A single one may take more.
const MAX_KEPT_BYTES: u64 = 1 << 30;
/// How long it is remembered that a version's kernel could not be had, so that a room full of machines that try again and
/// again does not keep the storage busy.
const FAILURE_KEPT: Duration = Duration::from_secs(10);

/// The kernel of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The boot file that it is served as.
    pub name: String,
    /// The boot file that its initramfs is served as.
    pub initrd: Option<String>,
    /// The options of its boot entry, where it comes from inside the image.
    pub options: Option<String>,
}

/// The kernels that were taken out of images, on the shelf that boot files are served from.
#[derive(Debug, Default)]
pub struct Kernels {
    shelf: Shelf,
    /// Locked for moments; each entry for as long as its kernel is copied.
    copies: Mutex<HashMap<VersionId, Arc<Mutex<Copied>>>>,
}

/// What is known of a version's kernel.
#[derive(Debug, Default)]
struct Copied {
    /// The marks of the files that it was read from.
    of: Option<Vec<FileMark>>,
    outcome: Option<Result<Kernel, String>>,
    bytes: u64,
    used: Option<Instant>,
}

impl Kernels {
    /// None yet.
    #[must_use]
    pub fn new(shelf: Shelf) -> Self {
        Self { shelf, copies: Mutex::default() }
    }

    /// Takes the kernels out of what production devices boot now, so that the first of them need not wait. One that cannot
    /// be had is told in the log, and to each machine that wants it.
    pub fn warm(&self, devices: &Devices) {
        let snapshot = devices.farm().snapshot();
        for facts in snapshot.vdisks() {
            let Some(direct) = configured(devices, facts.vdisk.id) else { continue };
            // A private vDisk's kernel is its device's business, at its boot.
            let Ok(Some((disk, image))) = devices.read_vdisk(facts, None) else { continue };
            if let KernelSource::Image { entry } = &direct.source {
                let (of, image) = (marks(facts, &disk), || Ok(image as Arc<dyn BlockDevice>));
                if let Err(why) = self.copy(&disk, entry.as_deref(), of, image) {
                    tracing::error!(vdisk = disk.name, version = %disk.number, "{why}");
                }
            }
        }
    }

    /// The kernel that a device is started with on this disk. May wait for storage.
    ///
    /// # Errors
    /// Why it cannot be had, in words.
    pub fn of(
        &self,
        devices: &Devices,
        direct: &DirectKernel,
        slot: &DeviceSlot,
        disk: &BootDisk,
    ) -> Result<Kernel, String> {
        match &direct.source {
            KernelSource::Files { initrd, .. } => Ok(Kernel {
                name: beside_name(&disk.name, "kernel"),
                initrd: initrd.as_ref().map(|_| beside_name(&disk.name, "initrd")),
                options: None,
            }),
            KernelSource::Image { entry } => {
                let snapshot = devices.farm().snapshot();
                let facts = snapshot.vdisk(disk.vdisk).ok_or("its vDisk is gone")?;
                let of = if disk.is_written() { None } else { marks(facts, disk) };
                // The device's own last boot may still have it open, alone.
                let image = || match slot.written_disk(disk.version) {
                    Some(own) => Ok(own),
                    None => devices.open_image(disk).map(|image| image as Arc<dyn BlockDevice>),
                };
                self.copy(disk, entry.as_deref(), of, image)
            }
        }
    }

    /// The kernel of a version, copied unless it is there; `of` are the marks of its files, without which it is copied anew.
    fn copy(
        &self,
        disk: &BootDisk,
        entry: Option<&str>,
        of: Option<Vec<FileMark>>,
        image: impl FnOnce() -> Result<Arc<dyn BlockDevice>, String>,
    ) -> Result<Kernel, String> {
        let place = Arc::clone(self.copies().entry(disk.version).or_default());
        let mut copied = place.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let before = copied.used.replace(now);
        if of.is_some() && of == copied.of {
            match copied.outcome.clone() {
                Some(Ok(kernel)) => return Ok(kernel),
                Some(Err(why)) if before.is_some_and(|at| now.duration_since(at) < FAILURE_KEPT) => {
                    // Whoever asks again does not put the next try off.
                    copied.used = before;
                    return Err(why);
                }
                Some(Err(_)) | None => {}
            }
        }
        let taken = image().and_then(|image| {
            take_out(&image, disk, entry).map_err(|error| {
                format!(
                    "the kernel of version {} of vDisk {} cannot be had: {error:#}",
                    disk.number, disk.name
                )
            })
        });
        let outcome = taken.map(|taken| {
            copied.bytes = taken.bytes();
            self.shelf.put(taken.kernel.name.clone(), taken.image);
            if let Some((name, bytes)) = taken.kernel.initrd.clone().zip(taken.initrd) {
                self.shelf.put(name, bytes);
            }
            taken.kernel
        });
        (copied.of, copied.outcome) = (of, Some(outcome.clone()));
        drop(copied);
        self.make_room(disk.version);
        outcome
    }

    /// Takes what was used the longest ago off the shelf, until the rest is not too much; not the one that was just used.
    fn make_room(&self, keep: VersionId) {
        let mut copies = self.copies();
        // One that somebody else has, as it is being copied say, is in use.
        let idle = copies.iter().filter(|(_, place)| Arc::strong_count(place) == 1);
        let mut idle: Vec<_> = idle
            .map(|(version, place)| {
                let copied = place.lock().unwrap_or_else(PoisonError::into_inner);
                (copied.used, *version, copied.bytes)
            })
            .collect();
        let mut kept: u64 = idle.iter().map(|(_, _, bytes)| bytes).sum();
        idle.sort_unstable_by_key(|(used, ..)| *used);
        for (_, version, bytes) in idle.into_iter().filter(|(_, version, _)| *version != keep) {
            if kept <= MAX_KEPT_BYTES {
                return;
            }
            kept = kept.saturating_sub(bytes);
            let Some(place) = copies.remove(&version) else { continue };
            let copied = place.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Ok(kernel)) = &copied.outcome {
                self.shelf.take(&kernel.name);
                kernel.initrd.iter().for_each(|name| self.shelf.take(name));
            }
        }
    }

    fn copies(&self) -> MutexGuard<'_, HashMap<VersionId, Arc<Mutex<Copied>>>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kernels that lie beside images, by the boot files that they are served as.
#[must_use]
pub fn beside(devices: &Devices) -> Vec<(String, std::path::PathBuf)> {
    let snapshot = devices.farm().snapshot();
    let mut placed = Vec::new();
    for facts in snapshot.vdisks() {
        let Some(own) = devices.local().vdisk(&snapshot, &facts.vdisk) else { continue };
        if let Some(DirectKernel { source: KernelSource::Files { kernel, initrd }, .. }) = &own.kernel {
            let name = facts.vdisk.name.as_str();
            placed.push((beside_name(name, "kernel"), kernel.clone()));
            placed.extend(initrd.clone().map(|path| (beside_name(name, "initrd"), path)));
        }
    }
    placed
}

fn beside_name(vdisk: &str, what: &str) -> String {
    format!("{}.{what}", plain(vdisk))
}

/// Boot files have names of plain characters; a vDisk's name may have others.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '_' };
    name.chars().map(plain).collect()
}

/// What the configuration says of a vDisk's kernel; `None`: firmware boots from the disk.
#[must_use]
pub fn configured(devices: &Devices, vdisk: VdiskId) -> Option<DirectKernel> {
    let snapshot = devices.farm().snapshot();
    let facts = snapshot.vdisk(vdisk)?;
    devices.local().vdisk(&snapshot, &facts.vdisk)?.kernel.clone()
}

/// The marks of the files that a version may stand on; `None`: one of them has none, and may change.
fn marks(facts: &VdiskFacts, disk: &BootDisk) -> Option<Vec<FileMark>> {
    let below = facts.versions.iter().filter(|version| version.number <= disk.number);
    below.map(|version| version.mark).collect()
}

/// What was taken out of an image.
struct TakenOut {
    kernel: Kernel,
    image: Bytes,
    initrd: Option<Bytes>,
}

impl TakenOut {
    fn bytes(&self) -> u64 {
        let initrd = self.initrd.as_ref().map_or(0, Bytes::len);
        self.image.len().saturating_add(initrd) as u64
    }
}

fn take_out(image: &Arc<dyn BlockDevice>, disk: &BootDisk, entry: Option<&str>) -> anyhow::Result<TakenOut> {
    let entry = choose(image, entry)?;
    netboot::script::check_command_line(&entry.options).map_err(|why| {
        anyhow::anyhow!("the options of its boot entry \"{}\" cannot be handed on: {why}", entry.id)
    })?;
    let bytes = copy_out(image, std::slice::from_ref(&entry.kernel))?;
    let initrd = (!entry.initrds.is_empty()).then(|| copy_out(image, &entry.initrds)).transpose()?;
    tracing::info!(
        vdisk = disk.name,
        version = %disk.number,
        entry = entry.id,
        source = %entry.source,
        kernel = entry.kernel.path,
        "kernel taken out of the image"
    );
    // Stores may have vDisks of the same name: ids tell them apart.
    let name = |what: &str| format!("{}.{}.{}.{what}", plain(&disk.name), disk.vdisk, disk.number);
    let kernel = Kernel {
        name: name("kernel"),
        initrd: initrd.is_some().then(|| name("initrd")),
        options: Some(entry.options),
    };
    Ok(TakenOut { kernel, image: bytes, initrd })
}

/// The boot entry of that id, or the default one.
fn choose(device: &Arc<dyn BlockDevice>, id: Option<&str>) -> anyhow::Result<BootEntry> {
    let survey = guest::survey(device)?;
    let notes = || survey.notes.iter().map(|note| format!("; {note}")).collect::<String>();
    let ids =
        || survey.entries.iter().map(|entry| format!("\"{}\"", entry.id)).collect::<Vec<_>>().join(", ");
    anyhow::ensure!(
        !survey.entries.is_empty(),
        "there is no boot entry in the image (`headwater image entries` shows what is found){}",
        notes()
    );
    let wanted = survey.entries.iter().find(|entry| id.map_or(entry.default, |id| entry.id == id));
    wanted.cloned().with_context(|| {
        format!(
            "there is no boot entry \"{}\" in the image, but {}{}",
            id.unwrap_or_default(),
            ids(),
            notes()
        )
    })
}

/// Copies files of an image into memory, one behind the other.
fn copy_out(device: &Arc<dyn BlockDevice>, files: &[FileOnDisk]) -> anyhow::Result<Bytes> {
    let mut copy = Vec::new();
    for file in files {
        let mut source = guest::open(device, file)?;
        let length = source.length();
        let whole = length.saturating_add(copy.len() as u64);
        anyhow::ensure!(
            length > 0 && whole <= MAX_BOOT_FILE_BYTES,
            "{} has {length} bytes: that is no boot file",
            file.path
        );
        for at in (0..length).step_by(PIECE_BYTES) {
            let here = usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let begun = copy.len();
            copy.resize(begun.saturating_add(here), 0);
            source.read_at(at, copy.get_mut(begun..).unwrap_or_default())?;
        }
        if files.len() > 1 {
            let padded = (copy.len() as u64).next_multiple_of(ARCHIVE_ALIGN_BYTES);
            copy.resize(usize::try_from(padded)?, 0);
        }
    }
    Ok(Bytes::from(copy))
}
