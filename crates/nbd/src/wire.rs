//! The numbers of the protocol (proto.md, "Values").

/// `NBDMAGIC`, the first words of a server.
pub(crate) const SERVER_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, before every option, and in the greeting.
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before every reply to an option.
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_REQUEST_MAGIC`.
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// `NBD_SIMPLE_REPLY_MAGIC`.
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`.
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// `NBD_EXTENDED_REQUEST_MAGIC` (extension-ext-header).
pub(crate) const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// `NBD_EXTENDED_REPLY_MAGIC` (extension-ext-header).
pub(crate) const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flags of the server, and with the same values the client flags (proto.md, "Handshake phase").
pub(crate) mod handshake_flags {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1;
    pub(crate) const NO_ZEROES: u16 = 2;
}

/// Option types, `NBD_OPT_*`.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Option reply types, `NBD_REP_*`.
pub(crate) mod reply {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    /// Set in every error.
    pub(crate) const ERROR: u32 = 1 << 31;
    pub(crate) const ERR_UNSUP: u32 = ERROR | 1;
    pub(crate) const ERR_POLICY: u32 = ERROR | 2;
    pub(crate) const ERR_INVALID: u32 = ERROR | 3;
    pub(crate) const ERR_TLS_REQD: u32 = ERROR | 5;
    pub(crate) const ERR_UNKNOWN: u32 = ERROR | 6;
    pub(crate) const ERR_SHUTDOWN: u32 = ERROR | 7;
    pub(crate) const ERR_TOO_BIG: u32 = ERROR | 9;
    pub(crate) const ERR_EXT_HEADER_REQD: u32 = ERROR | 10;
}

/// Information types, `NBD_INFO_*`.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const DESCRIPTION: u16 = 2;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags, `NBD_FLAG_*`.
pub(crate) mod transmission_flags {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const SEND_FLUSH: u16 = 1 << 2;
    pub(crate) const SEND_FUA: u16 = 1 << 3;
    pub(crate) const SEND_TRIM: u16 = 1 << 5;
    pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const SEND_DF: u16 = 1 << 7;
    pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(crate) const SEND_CACHE: u16 = 1 << 10;
    pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Request types, `NBD_CMD_*`.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISC: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Command flags, `NBD_CMD_FLAG_*`.
pub(crate) mod command_flags {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DF: u16 = 1 << 2;
    pub(crate) const REQ_ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
    pub(crate) const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Structured reply types, `NBD_REPLY_TYPE_*`, and the one reply flag.
pub(crate) mod chunk {
    pub(crate) const FLAG_DONE: u16 = 1;
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const OFFSET_HOLE: u16 = 2;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const BLOCK_STATUS_EXT: u16 = 6;
    /// Set in every error.
    pub(crate) const ERROR_BIT: u16 = 1 << 15;
    pub(crate) const ERROR: u16 = ERROR_BIT | 1;
    pub(crate) const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

/// Status flags of `base:allocation`.
pub(crate) mod state {
    pub(crate) const HOLE: u32 = 1;
    pub(crate) const ZERO: u32 = 2;
}

/// The one metadata context that we know.
pub(crate) const BASE_ALLOCATION: &str = "base:allocation";

/// Which headers the transmission phase uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    /// Compact requests, simple replies.
    #[default]
    Simple,
    /// Compact requests, structured replies.
    Structured,
    /// Extended requests and replies.
    Extended,
}

/// The error values that a reply may carry (proto.md, "Error values").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Errno {
    /// `NBD_EPERM`: the export is read-only.
    #[error("not permitted")]
    Permission,
    /// `NBD_EIO`: storage failed.
    #[error("input/output error")]
    Io,
    /// `NBD_ENOMEM`.
    #[error("out of memory")]
    OutOfMemory,
    /// `NBD_EINVAL`: the request is not legal. Clients take every value that they do not know for this one.
    #[error("invalid request")]
    Invalid,
    /// `NBD_ENOSPC`: no space left, or a write past the end.
    #[error("no space left")]
    NoSpace,
    /// `NBD_EOVERFLOW`: too large to be answered in one piece.
    #[error("too large")]
    Overflow,
    /// `NBD_ENOTSUP`: not to be had fast.
    #[error("not supported")]
    NotSupported,
    /// `NBD_ESHUTDOWN`: the server is about to end.
    #[error("the server is shutting down")]
    Shutdown,
}

impl Errno {
    pub(crate) fn to_wire(self) -> u32 {
        match self {
            Self::Permission => 1,
            Self::Io => 5,
            Self::OutOfMemory => 12,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::Overflow => 75,
            Self::NotSupported => 95,
            Self::Shutdown => 108,
        }
    }

    /// proto.md, "Error values": a client treats an unexpected value as `NBD_EINVAL`.
    pub(crate) fn from_wire(value: u32) -> Self {
        match value {
            1 => Self::Permission,
            5 => Self::Io,
            12 => Self::OutOfMemory,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::Shutdown,
            _ => Self::Invalid,
        }
    }
}

/// A run of an export that is stored in one way (`base:allocation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// In bytes, not 0.
    pub length: u64,
    /// No space is taken for it.
    pub hole: bool,
    /// It reads as zeros.
    pub zero: bool,
}

impl Extent {
    pub(crate) fn status(self) -> u32 {
        let hole = if self.hole { state::HOLE } else { 0 };
        hole | if self.zero { state::ZERO } else { 0 }
    }

    pub(crate) fn from_status(length: u64, status: u64) -> Self {
        let has = |flag: u32| status & u64::from(flag) != 0;
        Self { length, hole: has(state::HOLE), zero: has(state::ZERO) }
    }
}

/// Reads big-endian numbers and runs of bytes off the front of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with its length before it in 32 bits, at most `max` bytes long.
    pub(crate) fn string(&mut self, max: usize) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok().filter(|length| *length <= max)?;
        self.take(length)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_survives_the_wire_and_strange_ones_are_invalid() {
        for value in [1, 5, 12, 22, 28, 75, 95, 108] {
            assert_eq!(Errno::from_wire(value).to_wire(), value);
        }
        assert_eq!(Errno::from_wire(4711), Errno::Invalid);
    }

    #[test]
    fn string_longer_than_its_limit_or_the_rest_is_none() {
        let bytes = [0, 0, 0, 3, b'a', b'b', b'c'];
        assert_eq!(Reader(&bytes).string(3), Some(&b"abc"[..]));
        assert_eq!(Reader(&bytes).string(2), None);
        assert_eq!(Reader(&bytes[..6]).string(3), None);
    }
}
