//! `headwater image create`: an empty image.
use anyhow::Context;
use block::{ByteLength, LogicalBlockSize};
use diskimage::storage::FileStorage;
use diskimage::{NewImage, NewImageSpec};

use super::print_done;
use super::target::{format, payload_block, subtype};
use crate::cli::{CreateArgs, ImageOptions, SectorSize};

pub(super) fn run(args: &CreateArgs, options: &ImageOptions) -> anyhow::Result<String> {
    let spec = NewImageSpec {
        format: format(&args.target, &args.file)?,
        subtype: subtype(&args.target),
        virtual_size: ByteLength::new(args.size.0),
        logical_block: match args.sector_size {
            SectorSize::B512 => LogicalBlockSize::B512,
            SectorSize::B4096 => LogicalBlockSize::B4096,
        },
        physical_block: match args.physical_sector_size {
            SectorSize::B512 => 512,
            SectorSize::B4096 => 4096,
        },
        payload_block: payload_block(&args.target),
        identity: None,
        linkage: None,
        parent: None,
        carried: Vec::new(),
    };
    let storage =
        FileStorage::create_new(&args.file).with_context(|| format!("{:?} cannot be made", args.file))?;
    let made = diskimage::create(Box::new(storage), &spec).and_then(NewImage::finish);
    if made.is_err() {
        // It is no image, and its error is the one to tell.
        let _ = std::fs::remove_file(&args.file);
    }
    made.with_context(|| format!("{:?} cannot be made", args.file))?;
    print_done(&args.file, options)
}
