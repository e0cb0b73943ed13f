//! The images that the bench works on.
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use block::{BlockDevice, ByteOffset, Patience};
use diskimage::{Image, MutableImage, OpenOptions};

use super::volumes::Volume;
use crate::run::run;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// What administrators published of the proprietary system is of a base of this size.
const BASE_BYTES: u64 = 20 * GIB;
/// The payload blocks of the difference.
const BLOCK_BYTES: u64 = 2 * MIB;
/// One block in so many is written in part.
const PARTIAL_EVERY: u64 = 5;
/// What is written of such a block: a few runs, as an operating system leaves them.
const PARTIAL_RUNS: [(u64, u64); 4] =
    [(0, 4096), (65_536, 131_072), (524_288, 16_384), (1_048_576 + 512, 12_800)];

/// The format of the base and the difference.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Vhdx,
    Vhd,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Vhdx => "VHDX",
            Self::Vhd => "VHD",
        }
    }

    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::Vhdx => "vhdx",
            Self::Vhd => "vhd",
        }
    }

    fn child_ending(self) -> &'static str {
        match self {
            Self::Vhdx => "avhdx",
            Self::Vhd => "avhd",
        }
    }
}

/// The files, in one folder.
pub(super) struct Material {
    pub(super) kind: Kind,
    /// The base's contents.
    pub(super) raw: PathBuf,
    /// The base, dynamic.
    pub(super) base: PathBuf,
    /// The difference on it.
    pub(super) leaf: PathBuf,
    pub(super) difference_mib: u64,
}

impl Material {
    /// Makes the images, or takes those of an earlier run of the same size.
    pub(super) fn make(
        program: &Path,
        volume: &Volume,
        kind: Kind,
        filled_gib: u64,
        difference_mib: u64,
    ) -> Result<Self> {
        let name =
            |what: &str, ending: &str| volume.path(&format!("{what}-{filled_gib}-{difference_mib}.{ending}"));
        let material = Self {
            kind,
            raw: name("base", "raw"),
            base: name("base", kind.ending()),
            leaf: name("base.1", kind.child_ending()),
            difference_mib,
        };
        if material.leaf.exists() {
            return Ok(material);
        }
        eprintln!("making the {} images on {}", kind.name(), volume.name);
        let mut noise = Noise::new();
        if !material.raw.exists() {
            let unfinished = material.raw.with_extension("making");
            fill(&unfinished, filled_gib, &mut noise)?;
            std::fs::rename(&unfinished, &material.raw)?;
        }
        for made in [&material.base, &material.leaf] {
            if made.exists() {
                std::fs::remove_file(made)?;
            }
        }
        material.convert_base(program)?;
        let unfinished = material.leaf.with_extension("making");
        run(Command::new(program)
            .args(["image", "snapshot", "--quiet"])
            .arg(&material.base)
            .arg(&unfinished))?;
        material.change(&unfinished, &mut noise).context("cannot fill the difference")?;
        std::fs::rename(&unfinished, &material.leaf)?;
        Ok(material)
    }

    /// Makes the base. Of VHDX through memory, not cloned, so that it does not share blocks with the raw image.
    fn convert_base(&self, program: &Path) -> Result<()> {
        let mut convert = match self.kind {
            Kind::Vhdx => {
                let mut convert = Command::new("qemu-img");
                convert.args([
                    "convert",
                    "-t",
                    "writeback",
                    "-f",
                    "raw",
                    "-O",
                    "vhdx",
                    "-o",
                    "block_size=2M",
                ]);
                convert
            }
            // qemu-img lays the data of a VHD across the blocks of the file system, where nothing can be shared.
            Kind::Vhd => {
                let mut convert = Command::new(program);
                convert.args(["image", "convert", "--quiet"]);
                convert
            }
        };
        run(convert.arg(&self.raw).arg(&self.base))
    }

    /// Removes the base and the difference.
    pub(super) fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.leaf)?;
        Ok(std::fs::remove_file(&self.base)?)
    }

    /// Writes the difference: blocks spread over the disk, each `PARTIAL_EVERY`th in part.
    fn change(&self, leaf: &Path, noise: &mut Noise) -> Result<()> {
        let base: Arc<dyn BlockDevice> = Arc::new(Image::open(&self.base, OpenOptions::default())?);
        let image = MutableImage::open(leaf, None, Some(base), &diskimage::Childless)?;
        let blocks = self.difference_mib * MIB / BLOCK_BYTES;
        let stride = BASE_BYTES / BLOCK_BYTES / blocks;
        let mut data = vec![0; usize::try_from(BLOCK_BYTES)?];
        for block in 0..blocks {
            let start = block * stride * BLOCK_BYTES;
            let whole = [(0, BLOCK_BYTES)];
            let runs = if block % PARTIAL_EVERY == 0 { &PARTIAL_RUNS[..] } else { &whole[..] };
            for &(at, length) in runs {
                let data = &mut data[..usize::try_from(length)?];
                noise.fill(data);
                image.write(ByteOffset::new(start + at), data, Patience::Blocking)?;
            }
        }
        image.close()?;
        Ok(())
    }
}

/// A sparse raw image whose data lie in stretches of 64 MiB over the whole disk.
fn fill(raw: &Path, filled_gib: u64, noise: &mut Noise) -> Result<()> {
    let mut file = std::fs::File::create(raw).with_context(|| format!("cannot write {}", raw.display()))?;
    file.set_len(BASE_BYTES)?;
    let stretches = filled_gib * GIB / (64 * MIB);
    let stride = BASE_BYTES / stretches;
    let mut data = vec![0; usize::try_from(MIB)?];
    for stretch in 0..stretches {
        for piece in 0..64 {
            noise.fill(&mut data);
            file.write_all_at(&data, stretch * stride / MIB * MIB + piece * MIB)?;
        }
    }
    file.flush()?;
    file.sync_all()?;
    Ok(())
}

/// Incompressible bytes (xorshift64*): faster than the kernel's.
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            let value = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes();
            word.copy_from_slice(&value[..word.len()]);
        }
    }
}
