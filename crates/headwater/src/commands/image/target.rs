//! What a new image is to be, as the command line says it; and what became of it.
use std::path::Path;

use anyhow::{anyhow, bail};
use block::ByteLength;
use diskimage::ops::{OpError, Replace, Summary};
use diskimage::{Format, Subtype};
use serde::Serialize;

use crate::cli::{Subformat, Target, WritableFormat};
use crate::columns::{bytes, name};

/// How a new image was made, as programs read it.
#[derive(Debug, Serialize)]
pub(super) struct MadeAnswer {
    file: String,
    cloned_bytes: u64,
    copied_bytes: u64,
    zeros_left_out_bytes: u64,
    blocks_whole: u64,
    blocks_partial: u64,
    blocks_zero: u64,
    seconds: f64,
    verified: bool,
    /// Whether what an earlier attempt, which was killed, had left was removed.
    removed_leftover: bool,
}

impl MadeAnswer {
    pub(super) fn of(file: &Path, summary: &Summary, elapsed: std::time::Duration, verified: bool) -> Self {
        Self {
            file: file.display().to_string(),
            cloned_bytes: summary.moved.cloned_bytes,
            copied_bytes: summary.moved.copied_bytes,
            zeros_left_out_bytes: summary.moved.skipped_bytes,
            blocks_whole: summary.blocks.whole,
            blocks_partial: summary.blocks.partly,
            blocks_zero: summary.blocks.zero,
            seconds: elapsed.as_secs_f64(),
            verified,
            removed_leftover: summary.removed_leftover,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut parts = Vec::new();
        for (what, amount) in [("cloned", self.cloned_bytes), ("copied", self.copied_bytes)] {
            if amount > 0 {
                parts.push(format!("{} {what}", bytes(amount)));
            }
        }
        if self.zeros_left_out_bytes > 0 {
            parts.push(format!("{} of zeros left out", bytes(self.zeros_left_out_bytes)));
        }
        if parts.is_empty() {
            parts.push("nothing to move".to_owned());
        }
        let verified = if self.verified { ", verified" } else { "" };
        let leftover = if self.removed_leftover {
            format!(
                "{}: what an attempt that was killed had left was removed; all was done anew\n",
                name(&self.file)
            )
        } else {
            String::new()
        };
        format!("{leftover}{}: {} in {:.2} s{verified}\n", name(&self.file), parts.join(", "), self.seconds)
    }
}

/// The format of a new file: what the command line says, else its ending.
pub(super) fn format(target: &Target, file: &Path) -> anyhow::Result<Format> {
    match (target.format, Format::of_ending(file)) {
        (Some(WritableFormat::Raw), _) => Ok(Format::Raw),
        (Some(WritableFormat::Vhd), _) => Ok(Format::Vhd),
        (Some(WritableFormat::Vhdx), _) => Ok(Format::Vhdx),
        (None, Some(format)) => Ok(format),
        (None, None) => bail!(
            "the ending of {file:?} does not say which format it shall have: give --format raw, vhd or vhdx"
        ),
    }
}

/// How a new file of `format` keeps its blocks: what the command line says, else dynamic where it can be.
pub(super) fn subtype(target: &Target, format: Format) -> anyhow::Result<Subtype> {
    match (format, target.subformat) {
        (Format::Raw, Some(Subformat::Dynamic)) => bail!(
            "a raw image is always fixed (what is never written takes no room all the same): leave --subformat out, or \
             make a VHDX"
        ),
        (Format::Raw, None) | (_, Some(Subformat::Fixed)) => Ok(Subtype::Fixed),
        (_, Some(Subformat::Dynamic) | None) => Ok(Subtype::Dynamic),
    }
}

/// What a subtype is called.
pub(super) fn subformat(subtype: Subtype) -> &'static str {
    match subtype {
        Subtype::Fixed => "fixed",
        Subtype::Dynamic => "dynamic",
        Subtype::Differencing => "differencing",
    }
}

/// How much of the disk one block of a new file holds, if the command line says so.
pub(super) fn payload_block(
    target: &Target,
    format: Format,
    subtype: Subtype,
) -> anyhow::Result<Option<ByteLength>> {
    match (target.block_size, format, subtype) {
        (Some(_), Format::Raw, _) => bail!("a raw image has no blocks: leave --block-size out"),
        (Some(_), Format::Vhd, Subtype::Fixed) => {
            bail!("a fixed VHD image has no blocks: leave --block-size out")
        }
        (size, ..) => Ok(size.map(|size| ByteLength::new(size.0))),
    }
}

/// Refuses a name whose ending says another format than the file will have: a difference has that of its parent.
pub(super) fn check_ending(file: &Path, format: Format) -> anyhow::Result<()> {
    match Format::of_ending(file) {
        Some(said) if said != format => bail!(
            "{file:?} would be {}, as its parent is, and its ending says {}: choose another ending",
            format.title(),
            said.title()
        ),
        _ => Ok(()),
    }
}

/// The error of a command that can replace what has its target's name.
pub(super) fn replacing(error: OpError) -> anyhow::Error {
    match error {
        OpError::Exists { path } => {
            anyhow!("{path:?} is there already; choose another name, or say --force to have it replaced")
        }
        error => error.into(),
    }
}

pub(super) fn replace(force: bool) -> Replace {
    if force { Replace::Swap } else { Replace::Never }
}
