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
use guest::{BootEntry, FileOnDisk};

use super::images::Images;
use crate::config::{DirectKernel, KernelSource, Vdisk};

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
    by_vdisk: HashMap<String, Kernel>,
    /// The files behind them, by the names that they are served as.
    placed: Vec<(String, PathBuf)>,
}

impl Kernels {
    /// Finds the kernel of every vDisk that has one. Those inside images are copied into `directory`, which holds nothing
    /// else.
    ///
    /// # Errors
    /// The first that cannot be had, with vDisk and reason.
    pub fn prepare(vdisks: &[Vdisk], images: &Images, directory: &Path) -> anyhow::Result<Self> {
        let mut kernels = Self::default();
        if directory.exists() {
            fs::remove_dir_all(directory).with_context(|| {
                format!("what an earlier server left in {} cannot be removed", directory.display())
            })?;
        }
        for vdisk in vdisks {
            let Some(kernel) = &vdisk.kernel else { continue };
            kernels
                .add(vdisk, kernel, images, directory)
                .with_context(|| format!("vDisk \"{}\": its kernel cannot be had", vdisk.name))?;
        }
        Ok(kernels)
    }

    fn add(
        &mut self,
        vdisk: &Vdisk,
        kernel: &DirectKernel,
        images: &Images,
        directory: &Path,
    ) -> anyhow::Result<()> {
        let name = format!("{}.kernel", vdisk.name);
        let initrd_name = format!("{}.initrd", vdisk.name);
        let (own, initrd, options) = match &kernel.source {
            KernelSource::Files { kernel, initrd } => (kernel.clone(), initrd.clone(), None),
            KernelSource::Image { entry } => {
                let image = images.get(&vdisk.name).context("its image is not open")?;
                let entry = choose(&image.device, entry.as_deref())?;
                netboot::script::check_command_line(&entry.options).map_err(|why| {
                    anyhow::anyhow!(
                        "the options of its boot entry \"{}\" cannot be handed on: {why}",
                        entry.id
                    )
                })?;
                fs::create_dir_all(directory)?;
                let own = directory.join(&name);
                copy_out(&image.device, std::slice::from_ref(&entry.kernel), &own)?;
                let initrd = (!entry.initrds.is_empty()).then(|| directory.join(&initrd_name));
                if let Some(path) = &initrd {
                    copy_out(&image.device, &entry.initrds, path)?;
                }
                tracing::info!(
                    vdisk = vdisk.name,
                    entry = entry.id,
                    source = %entry.source,
                    kernel = entry.kernel.path,
                    "kernel taken out of the image"
                );
                (own, initrd, Some(entry.options))
            }
        };
        let served =
            Kernel { name: name.clone(), initrd: initrd.as_ref().map(|_| initrd_name.clone()), options };
        self.placed.push((name, own));
        self.placed.extend(initrd.map(|path| (initrd_name, path)));
        self.by_vdisk.insert(vdisk.name.clone(), served);
        Ok(())
    }

    /// The kernel of a vDisk.
    #[must_use]
    pub fn get(&self, vdisk: &str) -> Option<&Kernel> {
        self.by_vdisk.get(vdisk)
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
