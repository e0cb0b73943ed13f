//! The transmission phase of a server, without I/O (proto.md, "Transmission").
//!
//! `request` reads headers, `check` says whether a request is legal on this export and on these terms, `reply` writes
//! replies in the three forms there are. What a reply consists of, and when, is the driver's part: it knows the device.
pub(crate) mod check;
pub(crate) mod reply;
pub(crate) mod request;
#[cfg(test)]
mod tests;

use block::{Access, Geometry};

use crate::exports::Export;
use crate::limits::MAX_PAYLOAD_BYTES;
use crate::wire::{ReplyMode, transmission_flags as flags};

/// An export as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) size_bytes: u64,
    pub(crate) minimum_block: u32,
    pub(crate) preferred_block: u32,
    pub(crate) maximum_payload: u32,
    pub(crate) writable: bool,
    pub(crate) multi_conn: bool,
    pub(crate) fast_zero: bool,
    pub(crate) description: String,
}

/// What was negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) mode: ReplyMode,
    /// `base:allocation` was selected for this export.
    pub(crate) allocation: bool,
}

impl Terms {
    /// The id under which `base:allocation` is selected.
    pub(crate) const ALLOCATION_ID: u32 = 1;
}

/// The least preferred block size that we announce: a page, below which nothing becomes cheaper.
const PAGE_BYTES: u32 = 4096;

impl Shape {
    pub(crate) fn new(export: &Export) -> Self {
        let Geometry { size, logical_block, physical_block, access, .. } = export.device.geometry();
        let minimum_block = u32::try_from(logical_block.bytes()).unwrap_or(PAGE_BYTES);
        Self {
            size_bytes: size.get(),
            minimum_block,
            // proto.md, "Size constraints": a power of two, not below the minimum, not above the maximum.
            preferred_block: physical_block.clamp(PAGE_BYTES, MAX_PAYLOAD_BYTES),
            maximum_payload: MAX_PAYLOAD_BYTES,
            writable: access == Access::ReadWrite && !export.read_only,
            multi_conn: export.multi_conn,
            fast_zero: export.fast_zero,
            description: export.description.clone(),
        }
    }

    /// The transmission flags (proto.md, "Transmission flags").
    pub(crate) fn flags(&self, mode: ReplyMode) -> u16 {
        let when = |condition: bool, flag: u16| if condition { flag } else { 0 };
        flags::HAS_FLAGS
            | flags::SEND_CACHE
            | flags::SEND_FLUSH
            | when(!self.writable, flags::READ_ONLY)
            | when(self.writable, flags::SEND_FUA | flags::SEND_TRIM | flags::SEND_WRITE_ZEROES)
            | when(self.writable && self.fast_zero, flags::SEND_FAST_ZERO)
            // "MUST leave this flag clear if structured replies have not been negotiated".
            | when(mode != ReplyMode::Simple, flags::SEND_DF)
            | when(self.multi_conn, flags::CAN_MULTI_CONN)
    }
}
