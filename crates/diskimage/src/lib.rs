//! Disk image formats: raw, VHD and VHDX, and to read only qcow2 and VMDK, as block devices.
//!
//! # The theory
//! An image file is two things: a few small structures that say where the bytes of the disk lie, and the bytes.
//! A format parses its structures once, when the image is opened, into values that cannot be wrong; from then on
//! it only *resolves*: a range of the disk to an [`Extent`], which says that the run lies at an offset of the file
//! or reads as zeros. It never moves payload. One reader ([`Image`]) asks for extents and moves the bytes, for all
//! formats alike; maps, merges and conversions can ask for the same extents.
//!
//! Files lie behind [`storage::Storage`], which passes the caller's patience down to the page cache: with
//! [`block::Patience::Now`] a read of hot data touches no lock and waits for nothing.
//!
//! # Trust
//! Every byte of an image is a stranger's. Each offset, length and count is checked where it is parsed, with
//! arithmetic that cannot wrap; memory is bounded by the named limits, not by what a file claims. What breaks a
//! rule is refused as [`Damage`], with structure, offset and rule; what is sound but not read here is refused by
//! name.
//!
//! # An image does not change while it is open
//! An [`Image`] is opened for reading only, and the map from disk to file is kept in memory as it was first seen. Who
//! changes a file under a reader gets the mixture; the layers above hold published images immutable. A
//! [`MutableImage`] is its file's only writer and only reader.
//!
//! `docs/design/diskimage.md` lists what is read, which rules are held, and what is refused.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")
)]

mod beside;
mod bitmap;
pub mod chain;
pub mod check;
mod compressed;
mod cursor;
mod error;
mod extent;
mod format;
pub mod fuzz;
mod guid;
mod image;
mod layer;
mod mutable;
mod new_image;
pub mod ops;
mod qcow2;
mod raw;
mod second_level;
pub mod storage;
mod table;
mod vhd;
mod vhdx;
mod vmdk;
mod watch;

pub use check::{Finding, Report, Severity};
pub use error::{Damage, OpenError, Refusal};
pub use extent::{Extent, LayerIndex, Source};
pub use format::{Format, UnknownFormat};
pub use guid::Guid;
pub use image::{Image, Info, LayerInfo, OpenOptions, Subtype};
pub use mutable::{Childless, Children, EditError, MutableImage};
pub use new_image::{
    MetadataItem, NewImage, NewImageError, NewImageSpec, NewPlace, ParentLink, SectorBitmap, create,
};
pub use watch::{Cancelled, Watch};
