//! Converting an image to another format or subtype, a chain to one file.
use std::path::Path;

use block::{BlockDevice, ByteLength, LogicalBlockSize};

use super::error::OpError;
use super::job::Job;
use super::partial::{Replace, place_of};
use super::zeros::FindZeros;
use crate::format::Format;
use crate::image::{Image, OpenOptions, Subtype};
use crate::new_image::NewImageSpec;

/// What to convert to, and how.
#[derive(Clone, Debug)]
pub struct ConvertOptions {
    /// The format.
    pub format: Format,
    /// How it keeps its blocks: fixed or dynamic. A raw image is fixed whatever stands here.
    pub subtype: Subtype,
    /// How much of the disk one payload block holds; `None` is the format's default.
    pub payload_block: Option<ByteLength>,
    /// The unit in which the new disk is addressed; `None`: as the source. The bytes are the same in any case, so with
    /// another unit whatever counts in it, partition tables first of all, means other places.
    pub logical_block: Option<LogicalBlockSize>,
    /// The disk's own identifier; `None` makes a new one: what is converted is another disk from then on.
    pub identity: Option<[u8; 16]>,
    /// What to do where there is something with the target's name.
    pub replace: Replace,
    /// Where zeros that are stored are looked for, to leave them out.
    pub zeros: FindZeros,
    /// Whether the new image is read back and compared with the source before it gets its name.
    pub verify: bool,
}

impl ConvertOptions {
    /// To this format, dynamic where it can be.
    #[must_use]
    pub fn to(format: Format) -> Self {
        Self {
            format,
            subtype: if format == Format::Raw { Subtype::Fixed } else { Subtype::Dynamic },
            payload_block: None,
            logical_block: None,
            identity: None,
            replace: Replace::Never,
            zeros: FindZeros::default(),
            verify: false,
        }
    }
}

/// The conversion of all that `image` holds to a new image at `target`.
///
/// # Errors
/// [`OpError::Unfit`]; among others where the format cannot say in which unit the disk is addressed, and it is not 512
/// bytes.
pub fn convert<'a>(image: &'a Image, target: &Path, options: &ConvertOptions) -> Result<Job<'a>, OpError> {
    if options.subtype == Subtype::Differencing {
        return Err(OpError::unfit(
            "a conversion makes an image without a parent; use snapshot to make a child",
        ));
    }
    let geometry = image.geometry();
    let is_vhdx = options.format == Format::Vhdx;
    let logical_block = logical_block(geometry.logical_block, options)?;
    let physical_block = match (is_vhdx, logical_block) {
        (true, LogicalBlockSize::B512) => geometry.physical_block.clamp(512, 4096),
        (true, LogicalBlockSize::B4096) => 4096,
        (false, _) => 512,
    };
    let spec = NewImageSpec {
        format: options.format,
        subtype: if options.format == Format::Raw { Subtype::Fixed } else { options.subtype },
        virtual_size: geometry.size,
        logical_block,
        physical_block,
        payload_block: options.payload_block,
        identity: options.identity,
        linkage: None,
        parent: None,
        carried: if is_vhdx { image.carried()? } else { Vec::new() },
    };
    Ok(Job {
        image,
        floor: None,
        spec,
        target: place_of(target, options.replace)?,
        replace: options.replace,
        in_place: false,
        zeros: options.zeros,
        verify: options.verify,
        reopen: OpenOptions::default(),
    })
}

/// The unit in which the new disk is addressed. Only VHDX can say it; of all other formats everybody takes 512 bytes.
fn logical_block(source: LogicalBlockSize, options: &ConvertOptions) -> Result<LogicalBlockSize, OpError> {
    let title = options.format.title();
    match (options.logical_block, source) {
        (Some(LogicalBlockSize::B4096), _) if options.format != Format::Vhdx => Err(OpError::unfit(format!(
            "nothing in a {title} image says how large its sectors are, so everybody takes 512 bytes for it; convert to \
             VHDX, or to sectors of 512 bytes"
        ))),
        (None, LogicalBlockSize::B4096) if options.format != Format::Vhdx => Err(OpError::unfit(format!(
            "this disk is addressed in sectors of 4096 bytes, and nothing in a {title} image can say so: everybody would \
             take 512 bytes for it, and not find the disk's partitions; convert to VHDX, or, if it is the bytes that are \
             wanted, convert with --sector-size 512"
        ))),
        (wanted, source) => Ok(wanted.unwrap_or(source)),
    }
}
