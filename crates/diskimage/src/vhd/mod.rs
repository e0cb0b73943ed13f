//! VHD, the format of Virtual PC and early Hyper-V ("Virtual Hard Disk Image Format Specification", version 1.0,
//! cited here as `[VHD]` with the title of its section).
//!
//! Everything is big-endian. A fixed image is the disk followed by a [`Footer`]. A dynamic image begins with a copy of
//! the footer and a [`DynamicHeader`], keeps a block allocation table of 32-bit sector numbers, and stores each block
//! that was ever written as a bitmap (one bit for each sector, most significant first) followed by the data. A bit
//! that is not set says that the sector was never written: it reads as zeros.
use block::{ByteRange, Patience};

use crate::bitmap::Scratch;
use crate::error::{Damage, Refusal, ResolveError};
use crate::extent::{Held, LayerExtent};
use crate::storage::Storage;

mod block_table;
mod blocks;
mod check;
mod create;
mod dynamic;
mod file_map;
mod footer;
mod geometry;
mod locator;
mod shape;
mod write;

use block_table::BlockTable;
use blocks::Blocks;
pub(crate) use check::{check, repair};
pub(crate) use create::create;
use dynamic::DynamicHeader;
pub(crate) use footer::Footer;
use footer::{DiskType, FooterPlace};
pub(crate) use locator::ParentReference;
pub(crate) use write::open_writer;

pub(crate) const SECTOR_BYTES: u64 = 512;

/// An open VHD image.
#[derive(Debug)]
pub(crate) struct Vhd {
    footer: Footer,
    virtual_bytes: u64,
    layout: Layout,
    parent: Option<ParentReference>,
}

#[derive(Debug)]
enum Layout {
    Fixed,
    Dynamic(Blocks),
}

impl Vhd {
    pub(crate) fn open(storage: &dyn Storage) -> Result<Self, Refusal> {
        let (footer, place) = Footer::read(storage)?;
        let virtual_bytes = footer.virtual_bytes(place)?;
        let mut parent = None;
        let layout = match footer.disk_type {
            DiskType::Fixed => {
                // [VHD] "Fixed Hard Disk Image": the data, then the footer.
                if virtual_bytes > place.at() {
                    let problem = format!(
                        "the disk has {virtual_bytes} bytes, but only {} lie before the footer",
                        place.at()
                    );
                    return Err(
                        Damage::new("footer", place.at(), "[VHD] Fixed Hard Disk Image", problem).into()
                    );
                }
                Layout::Fixed
            }
            DiskType::Dynamic | DiskType::Differencing => {
                let mut header = DynamicHeader::read(storage, &footer)?;
                parent = header.parent.take();
                // [VHD] "Differencing Hard Disk Image": what is not here is the parent's.
                let missing = if parent.is_some() { Held::Parent } else { Held::Zero };
                let end = match place {
                    FooterPlace::End(at) => at,
                    FooterPlace::Start => storage.len().get(),
                };
                Layout::Dynamic(Blocks::open(
                    storage,
                    &header,
                    footer.data_offset,
                    virtual_bytes,
                    end,
                    missing,
                )?)
            }
        };
        Ok(Self { footer, virtual_bytes, layout, parent })
    }

    pub(crate) fn virtual_bytes(&self) -> u64 {
        self.virtual_bytes
    }

    pub(crate) fn footer(&self) -> &Footer {
        &self.footer
    }

    /// What a differencing image says of its parent.
    pub(crate) fn parent(&self) -> Option<&ParentReference> {
        self.parent.as_ref()
    }

    /// The size of a block, of an image that has blocks.
    pub(crate) fn block_bytes(&self) -> Option<u64> {
        match &self.layout {
            Layout::Fixed => None,
            Layout::Dynamic(blocks) => Some(blocks.block_bytes()),
        }
    }

    /// See [`Table::share`](crate::table::Table::share).
    pub(crate) fn share_table(&mut self, tables: usize) {
        if let Layout::Dynamic(blocks) = &mut self.layout {
            blocks.share_table(tables);
        }
    }

    /// The extent with which `range` begins.
    pub(crate) fn extent(
        &self,
        storage: &dyn Storage,
        range: ByteRange,
        patience: Patience,
        scratch: &mut Scratch,
    ) -> Result<LayerExtent, ResolveError> {
        match &self.layout {
            Layout::Fixed => {
                Ok(LayerExtent::head_of(range, u64::MAX, Held::File { at: range.start().get() }))
            }
            Layout::Dynamic(blocks) => blocks.extent(storage, range, patience, scratch),
        }
    }
}

/// What children recognise the image by, and what it says of its own parent: without looking at its table.
pub(crate) fn relations(
    storage: &dyn Storage,
) -> Result<(crate::guid::Guid, Option<ParentReference>), Refusal> {
    let (footer, _) = Footer::read(storage)?;
    let parent = match footer.disk_type {
        DiskType::Fixed | DiskType::Dynamic => None,
        DiskType::Differencing => DynamicHeader::read(storage, &footer)?.parent,
    };
    Ok((footer.unique_id, parent))
}

/// The checksum of `structure`, whose own field of four bytes at `field` counts as zero: the one's complement of the
/// sum of all bytes ([VHD] "Checksum").
pub(crate) fn checksum(structure: &[u8], field: usize) -> u32 {
    let outside = |place: usize| place < field || place >= field.saturating_add(4);
    let bytes = structure.iter().enumerate().filter(|(place, _)| outside(*place));
    !bytes.fold(0_u32, |sum, (_, &byte)| sum.wrapping_add(u32::from(byte)))
}

/// Puts `fields` one behind the other at the start of `structure`.
fn put_fields(structure: &mut [u8], fields: &[&[u8]]) {
    let bytes = fields.iter().flat_map(|field| field.iter());
    for (target, byte) in structure.iter_mut().zip(bytes) {
        *target = *byte;
    }
}

/// Stores the checksum of `structure` in its field at `field`.
fn seal(structure: &mut [u8], field: usize) {
    let sum = checksum(structure, field);
    if let Some(target) = structure.get_mut(field..).and_then(<[u8]>::first_chunk_mut) {
        *target = sum.to_be_bytes();
    }
}
