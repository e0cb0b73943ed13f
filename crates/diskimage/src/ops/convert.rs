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
/// [`OpError::Unfit`].
pub fn convert<'a>(image: &'a Image, target: &Path, options: &ConvertOptions) -> Result<Job<'a>, OpError> {
    if options.subtype == Subtype::Differencing {
        return Err(OpError::unfit(
            "a conversion makes an image without a parent; use snapshot to make a child",
        ));
    }
    let geometry = image.geometry();
    let is_vhdx = options.format == Format::Vhdx;
    let spec = NewImageSpec {
        format: options.format,
        subtype: if options.format == Format::Raw { Subtype::Fixed } else { options.subtype },
        virtual_size: geometry.size,
        // Only VHDX says how a disk is addressed; elsewhere it is in 512 bytes.
        logical_block: if is_vhdx { geometry.logical_block } else { LogicalBlockSize::B512 },
        physical_block: if is_vhdx { geometry.physical_block.clamp(512, 4096) } else { 512 },
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
