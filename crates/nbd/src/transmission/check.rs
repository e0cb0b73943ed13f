//! Whether a request is legal, and what it asks for: the one place where a client's numbers become a [`Command`].
use block::{ByteLength, ByteOffset, ByteRange};

use super::request::Header;
use super::{Shape, Terms};
use crate::exports::RequestKind;
use crate::limits::PIECE_BYTES;
use crate::wire::{Errno, ReplyMode, command, command_flags as flags};

/// A request that is legal: aligned, inside the export, within the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) kind: RequestKind,
    pub(crate) range: ByteRange,
    pub(crate) options: CommandOptions,
}

/// The command flags that matter to a command; legal for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CommandOptions {
    /// Lasting before it is answered. Only with commands that change something.
    pub(crate) fua: bool,
    pub(crate) no_hole: bool,
    pub(crate) fast_zero: bool,
    /// In one content chunk.
    pub(crate) unfragmented: bool,
    /// One extent.
    pub(crate) one: bool,
}

/// Why a request is refused: the errno, and a line for humans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Illegal(pub(crate) Errno, pub(crate) &'static str);

/// Checks everything about a request but its payload.
pub(crate) fn check(header: &Header, shape: &Shape, terms: Terms) -> Result<Command, Illegal> {
    let kind = match header.kind {
        command::READ => RequestKind::Read,
        command::WRITE => RequestKind::Write,
        command::FLUSH => RequestKind::Flush,
        command::TRIM => RequestKind::Trim,
        command::CACHE => RequestKind::Cache,
        command::WRITE_ZEROES => RequestKind::WriteZeroes,
        command::BLOCK_STATUS => RequestKind::BlockStatus,
        _ => return Err(Illegal(Errno::Invalid, "unknown command")),
    };
    let options = options(kind, header.flags, shape, terms)?;
    let changes = matches!(kind, RequestKind::Write | RequestKind::Trim | RequestKind::WriteZeroes);
    if changes && !shape.writable {
        return Err(Illegal(Errno::Permission, "the export is read-only"));
    }
    if kind == RequestKind::BlockStatus && !terms.allocation {
        return Err(Illegal(Errno::Invalid, "no metadata context is selected for this export"));
    }
    let range = range(kind, header, shape)?;
    if kind == RequestKind::Read && options.unfragmented && header.length > PIECE_BYTES as u64 {
        // "A server MAY reject a client's request with the error NBD_EOVERFLOW if the length is too large to send
        // without fragmentation"; 64 KiB must pass.
        return Err(Illegal(Errno::Overflow, "too long for a reply in one piece"));
    }
    Ok(Command { kind, range, options })
}

fn options(kind: RequestKind, set: u16, shape: &Shape, terms: Terms) -> Result<CommandOptions, Illegal> {
    let mut legal = match kind {
        RequestKind::Read if terms.mode != ReplyMode::Simple => flags::DF,
        RequestKind::Write if terms.mode == ReplyMode::Extended => flags::PAYLOAD_LEN,
        RequestKind::WriteZeroes if shape.fast_zero => flags::NO_HOLE | flags::FAST_ZERO,
        RequestKind::WriteZeroes => flags::NO_HOLE,
        RequestKind::BlockStatus => flags::REQ_ONE,
        _ => 0,
    };
    if shape.writable {
        // "Existing clients are known to set this bit on other commands."
        legal |= flags::FUA;
    }
    if set & !legal != 0 {
        return Err(Illegal(Errno::Invalid, "a flag that does not go with this command"));
    }
    let has = |flag| set & flag != 0;
    let changes = matches!(kind, RequestKind::Write | RequestKind::Trim | RequestKind::WriteZeroes);
    Ok(CommandOptions {
        fua: has(flags::FUA) && changes,
        no_hole: has(flags::NO_HOLE),
        fast_zero: has(flags::FAST_ZERO),
        unfragmented: has(flags::DF),
        one: has(flags::REQ_ONE),
    })
}

fn range(kind: RequestKind, header: &Header, shape: &Shape) -> Result<ByteRange, Illegal> {
    const REVERSED: Illegal = Illegal(Errno::Invalid, "the end of the range passes 2^64");
    let range = ByteRange::new(ByteOffset::new(header.tag.offset), ByteLength::new(header.length));
    if kind == RequestKind::Flush {
        // "Length and offset are reserved, and MUST be set to all-zero."
        return match range {
            Some(range) if header.tag.offset == 0 && range.is_empty() => Ok(range),
            _ => Err(Illegal(Errno::Invalid, "a flush has neither offset nor length")),
        };
    }
    let past_end = match kind {
        // proto.md, "Error values".
        RequestKind::Write | RequestKind::WriteZeroes => Errno::NoSpace,
        _ => Errno::Invalid,
    };
    let Some(range) = range else { return Err(REVERSED) };
    if range.end().get() > shape.size_bytes {
        return Err(Illegal(past_end, "the range passes the end of the export"));
    }
    if range.is_empty() {
        return Err(Illegal(Errno::Invalid, "an empty range"));
    }
    if !range.is_aligned(u64::from(shape.minimum_block)) {
        return Err(Illegal(Errno::Invalid, "the range is not made of whole blocks"));
    }
    let carries_data = matches!(kind, RequestKind::Read | RequestKind::Write);
    if carries_data && range.length().get() > u64::from(shape.maximum_payload) {
        return Err(Illegal(Errno::Invalid, "longer than the maximum payload"));
    }
    Ok(range)
}
