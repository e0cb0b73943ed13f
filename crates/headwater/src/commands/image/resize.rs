//! `headwater image resize`: a larger or smaller disk.
use std::sync::Arc;

use anyhow::{Context, bail};
use block::{BlockDevice, ByteLength};
use diskimage::chain::{Store, Vicinity};
use diskimage::{Children, Image, MutableImage};
use serde::Serialize;

use super::{open, print, reading};
use crate::cli::{ImageOptions, NewSize, ResizeArgs};
use crate::columns::name;

/// What became of the disk, as programs read it.
#[derive(Debug, Serialize)]
struct ResizeAnswer {
    file: String,
    virtual_size_bytes_before: u64,
    virtual_size_bytes: u64,
}

pub(super) fn run(args: &ResizeArgs, options: &ImageOptions) -> anyhow::Result<String> {
    let image = open(&args.file, args.format, options)?;
    let old = image.virtual_size();
    let parent = Image::open_parent_of(&args.file, reading(args.format, options))?;
    let parent = parent.map(|parent| Arc::new(parent) as Arc<dyn BlockDevice>);
    let children: Box<dyn Children> = match &options.store {
        Some(store) => Box::new(Store::open(store)?),
        None => Box::new(Vicinity::of(&args.file)?),
    };
    drop(image);
    let new = match args.size {
        NewSize::To(size) => Some(size.0),
        NewSize::By(more) => old.get().checked_add(more.0),
    };
    let Some(new) = new.map(ByteLength::new) else { bail!("a disk of more than 2^64 bytes cannot be") };
    if new < old && !args.shrink {
        bail!(
            "the disk of {:?} has {old}, and would lose what lies behind {new}: say --shrink if that is meant",
            args.file
        );
    }
    let resize = || {
        let image = MutableImage::open(&args.file, args.format, parent, &*children);
        // Which file, and that it cannot be resized, is said below.
        let image = image.map_err(|error| error.refusal)?;
        anyhow::Ok(image.resize(new)?)
    };
    resize().with_context(|| format!("{:?} cannot be resized", args.file))?;
    let answer = ResizeAnswer {
        file: args.file.display().to_string(),
        virtual_size_bytes_before: old.get(),
        virtual_size_bytes: new.get(),
    };
    print(&answer, options, |answer| {
        // Exactly: an approximate size may be the same before and after.
        format!("{}: {old} before, {new} now\n", name(&answer.file))
    })
}
