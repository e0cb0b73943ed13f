//! Requests, read (proto.md, "Request message"; extension-ext-header, "Extended request").
use crate::wire::{EXTENDED_REQUEST_MAGIC, REQUEST_MAGIC, Reader, ReplyMode, command, command_flags};

/// The bytes of a compact header.
const COMPACT_BYTES: usize = 28;
/// The bytes of an extended header.
const EXTENDED_BYTES: usize = 32;

/// The header of a request, of either form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) flags: u16,
    pub(crate) kind: u16,
    pub(crate) tag: Tag,
    pub(crate) length: u64,
}

/// What a reply repeats of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
}

/// The input is no request: where the next one begins cannot be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadMagic(pub(crate) u32);

impl Header {
    /// The bytes of a header in this mode.
    pub(crate) fn wire_bytes(mode: ReplyMode) -> usize {
        if mode == ReplyMode::Extended { EXTENDED_BYTES } else { COMPACT_BYTES }
    }

    /// The header at the front of `input`; `None` where not all of it is there.
    pub(crate) fn parse(mode: ReplyMode, input: &[u8]) -> Result<Option<Self>, BadMagic> {
        let mut reader = Reader(input);
        let Some(magic) = reader.u32() else { return Ok(None) };
        let expected = if mode == ReplyMode::Extended { EXTENDED_REQUEST_MAGIC } else { REQUEST_MAGIC };
        if magic != expected {
            return Err(BadMagic(magic));
        }
        Ok(Self::fields(mode, reader))
    }

    fn fields(mode: ReplyMode, mut reader: Reader<'_>) -> Option<Self> {
        let (flags, kind) = (reader.u16()?, reader.u16()?);
        let tag = Tag { cookie: reader.u64()?, offset: reader.u64()? };
        let length = match mode {
            ReplyMode::Extended => reader.u64()?,
            ReplyMode::Simple | ReplyMode::Structured => u64::from(reader.u32()?),
        };
        Some(Self { flags, kind, tag, length })
    }

    /// How many bytes of payload follow the header.
    pub(crate) fn payload_bytes(&self, mode: ReplyMode) -> u64 {
        // extension-ext-header: the flag says it, and must be set for WRITE. A client that forgets it there sends its
        // data all the same.
        let announced = mode == ReplyMode::Extended && self.flags & command_flags::PAYLOAD_LEN != 0;
        if announced || self.kind == command::WRITE { self.length } else { 0 }
    }
}
