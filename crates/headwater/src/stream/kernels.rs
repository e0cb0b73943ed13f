//! The kernels that machines fetch over HTTP: found when the server starts, and served as boot files.
//!
//! A kernel inside an image is copied out, with its initramfs, into a directory of the server's: some ten MiB, read by every
//! boot, served from the page cache like any boot file, in pieces and more than once. The image does not change while it is
//! served, so neither does the copy; each start makes it anew.
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use block::BlockDevice;
use farm::model::{VdiskId, VersionId};
use farm::snapshot::VdiskFacts;
use guest::{BootEntry, FileOnDisk};

use super::boot_disk::BootDisk;
use super::devices::Devices;
use crate::config::{DirectKernel, KernelSource};

/// How much of a file is copied at once.
const PIECE_BYTES: usize = 1 << 20;
/// The largest file that is taken for a kernel or an initramfs; the largest initramfs with all firmware has some 300 MiB.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Linux, "initramfs buffer format": archives one behind the other begin at multiples of this.
const ARCHIVE_ALIGN_BYTES: u64 = 4;

/// The kernel of a vDisk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The boot file that it is served as.
    pub name: String,
    /// The boot file that its initramfs is served as.
    pub initrd: Option<String>,
    /// The options of its boot entry, where it comes from inside the image.
    pub options: Option<String>,
}

/// The kernels of all vDisks that have one.
#[derive(Debug, Default)]
pub struct Kernels {
    by_vdisk: HashMap<VdiskId, Prepared>,
    /// The files behind them, by the names that they are served as.
    placed: Vec<(String, PathBuf)>,
}

#[derive(Debug)]
struct Prepared {
    /// What the configuration says.
    direct: DirectKernel,
    kernel: Kernel,
    /// The version that it was found in; `None`: it lies beside the image, and goes with all of them.
    version: Option<VersionId>,
}

impl Kernels {
    /// Finds the kernel of every vDisk that has one. Those inside images are copied into `directory`, which holds nothing
    /// else.
    ///
    /// # Errors
    /// The first that cannot be had, with vDisk and reason.
    pub fn prepare(devices: &Devices, directory: &Path) -> anyhow::Result<Self> {
        let mut kernels = Self::default();
        if directory.exists() {
            fs::remove_dir_all(directory).with_context(|| {
                format!("what an earlier server left in {} cannot be removed", directory.display())
            })?;
        }
        let snapshot = devices.farm().snapshot();
        for facts in snapshot.vdisks() {
            let Some(own) = devices.local().vdisk(&snapshot, &facts.vdisk) else { continue };
            let Some(direct) = &own.kernel else { continue };
            kernels
                .add(devices, facts, &own.name, direct, directory)
                .with_context(|| format!("vDisk \"{}\": its kernel cannot be had", own.name))?;
        }
        Ok(kernels)
    }

    fn add(
        &mut self,
        devices: &Devices,
        facts: &VdiskFacts,
        vdisk: &str,
        direct: &DirectKernel,
        directory: &Path,
    ) -> anyhow::Result<()> {
        let name = format!("{vdisk}.kernel");
        let initrd_name = format!("{vdisk}.initrd");
        let (own, initrd, options, version) = match &direct.source {
            KernelSource::Files { kernel, initrd } => (kernel.clone(), initrd.clone(), None, None),
            KernelSource::Image { entry } => {
                let (disk, image) =
                    devices.read_vdisk(facts, None).map_err(anyhow::Error::msg)?.context("it is private")?;
                let image = image as Arc<dyn BlockDevice>;
                let entry = choose(&image, entry.as_deref())?;
                netboot::script::check_command_line(&entry.options).map_err(|why| {
                    anyhow::anyhow!(
                        "the options of its boot entry \"{}\" cannot be handed on: {why}",
                        entry.id
                    )
                })?;
                fs::create_dir_all(directory)?;
                let own = directory.join(&name);
                copy_out(&image, std::slice::from_ref(&entry.kernel), &own)?;
                let initrd = (!entry.initrds.is_empty()).then(|| directory.join(&initrd_name));
                if let Some(path) = &initrd {
                    copy_out(&image, &entry.initrds, path)?;
                }
                tracing::info!(
                    vdisk,
                    version = %disk.number,
                    entry = entry.id,
                    source = %entry.source,
                    kernel = entry.kernel.path,
                    "kernel taken out of the image"
                );
                (own, initrd, Some(entry.options), Some(disk.version))
            }
        };
        let kernel =
            Kernel { name: name.clone(), initrd: initrd.as_ref().map(|_| initrd_name.clone()), options };
        self.placed.push((name, own));
        self.placed.extend(initrd.map(|path| (initrd_name, path)));
        self.by_vdisk.insert(facts.vdisk.id, Prepared { direct: direct.clone(), kernel, version });
        Ok(())
    }

    /// The kernel that a disk is started with, and what the configuration says of it; `None`: firmware boots from the disk.
    /// So it does from a version whose own kernel was not taken out when the server started: the kernel of another one may
    /// not fit it.
    #[must_use]
    pub fn of(&self, disk: &BootDisk) -> Option<(&DirectKernel, &Kernel)> {
        let prepared = self.by_vdisk.get(&disk.vdisk)?;
        let fits = prepared.version.is_none_or(|version| version == disk.version);
        fits.then_some((&prepared.direct, &prepared.kernel))
    }

    /// The boot files: the name that each is served as, and where it is.
    #[must_use]
    pub fn placed(&self) -> Vec<(String, PathBuf)> {
        self.placed.clone()
    }
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

/// Copies files of an image into one file, one behind the other.
fn copy_out(device: &Arc<dyn BlockDevice>, files: &[FileOnDisk], to: &Path) -> anyhow::Result<()> {
    let what = || format!("{} cannot be written", to.display());
    let mut out = File::create(to).with_context(what)?;
    let mut piece = Vec::new();
    for file in files {
        let mut source = guest::open(device, file)?;
        let length = source.length();
        anyhow::ensure!(length <= MAX_FILE_BYTES, "{} has {length} bytes: that is no boot file", file.path);
        for at in (0..length).step_by(PIECE_BYTES) {
            let here = usize::try_from(length.saturating_sub(at)).unwrap_or(usize::MAX).min(PIECE_BYTES);
            piece.resize(here, 0);
            source.read_at(at, &mut piece)?;
            out.write_all(&piece).with_context(what)?;
        }
        if files.len() > 1 {
            let padding = length.next_multiple_of(ARCHIVE_ALIGN_BYTES).saturating_sub(length);
            out.write_all(&vec![0; usize::try_from(padding)?]).with_context(what)?;
        }
    }
    Ok(())
}
