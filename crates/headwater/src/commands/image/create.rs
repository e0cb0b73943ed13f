//! `headwater image create`: an empty image.
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use block::{ByteLength, LogicalBlockSize};
use diskimage::storage::{FileStorage, FileStorageError};
use diskimage::{Format, NewImage, NewImageSpec};

use super::print_done;
use super::target::{format, payload_block, subtype};
use crate::cli::{CreateArgs, ImageOptions, SectorSize};

pub(super) fn run(args: &CreateArgs, options: &ImageOptions) -> anyhow::Result<String> {
    let format = format(&args.target, &args.file)?;
    let subtype = subtype(&args.target, format)?;
    let has_sectors = format == Format::Vhdx;
    if !has_sectors && (args.sector_size == Some(SectorSize::B4096) || args.physical_sector_size.is_some()) {
        bail!(
            "{:?} cannot be made: nothing in a {} image says how large its sectors are, so everybody takes 512 bytes for \
             it; make a VHDX, or leave the sector size out",
            args.file,
            format.title()
        );
    }
    let spec = NewImageSpec {
        format,
        subtype,
        virtual_size: ByteLength::new(args.size.0),
        logical_block: args.sector_size.map_or(LogicalBlockSize::B512, SectorSize::logical_block),
        physical_block: match args.physical_sector_size {
            Some(SectorSize::B512) => 512,
            Some(SectorSize::B4096) | None => 4096,
        },
        payload_block: payload_block(&args.target, format, subtype)?,
        identity: None,
        linkage: None,
        parent: None,
        carried: Vec::new(),
    };
    let storage = FileStorage::create_new(&args.file).map_err(|error| match error {
        FileStorageError::Access(source) if source.kind() == ErrorKind::AlreadyExists => {
            anyhow!("{:?} is there already; choose another name", args.file)
        }
        FileStorageError::Access(source) => refused(source.into(), &args.file),
        error @ FileStorageError::NotAFile { .. } => refused(error.into(), &args.file),
    })?;
    let made = diskimage::create(Box::new(storage), &spec).and_then(NewImage::finish);
    if made.is_err() {
        // It is no image, and its error is the one to tell.
        let _ = std::fs::remove_file(&args.file);
    }
    made.with_context(|| format!("{:?} cannot be made", args.file))?;
    print_done(&args.file, options)
}

fn refused(error: anyhow::Error, file: &Path) -> anyhow::Error {
    error.context(format!("{file:?} cannot be made"))
}
