//! The handshake of a client (proto.md, "Fixed newstyle negotiation"), over anything that can be read and written.
//!
//! Everything that the server sends is bounded before it is kept: the length of a reply, the number of replies to one
//! option, the length of a list.
use std::io::{Read, Write};

use super::error::{ConnectError, RefusalKind};
use super::{ConnectOptions, ExportInfo};
use crate::exports::Listed;
use crate::limits::{MAX_LISTED, MAX_STRING_BYTES};
use crate::transmission::Terms;
use crate::wire::{
    BASE_ALLOCATION, OPTION_MAGIC, OPTION_REPLY_MAGIC, Reader, ReplyMode, SERVER_MAGIC, handshake_flags,
    info, option, reply, transmission_flags,
};

/// The longest reply to an option that is read: a name, a description and their frame.
const MAX_REPLY_BYTES: usize = 2 * MAX_STRING_BYTES + 64;

/// The most replies to one option, but for a list.
const MAX_REPLIES: usize = 64;

type Result<T> = std::result::Result<T, ConnectError>;

/// A reply to an option.
enum Reply {
    Ack,
    Data(u32, Vec<u8>),
    Refused(RefusalKind, String),
}

/// Reads the greeting and answers it.
pub(super) fn greet(stream: &mut (impl Read + Write)) -> Result<()> {
    let (magic, options) = (u64::from_be_bytes(read(stream)?), u64::from_be_bytes(read(stream)?));
    if magic != SERVER_MAGIC {
        return Err(ConnectError::Protocol("this is no NBD server"));
    }
    if options != OPTION_MAGIC {
        return Err(ConnectError::TooOld);
    }
    let flags = u16::from_be_bytes(read(stream)?);
    if flags & handshake_flags::FIXED_NEWSTYLE == 0 {
        return Err(ConnectError::TooOld);
    }
    let ours = flags & (handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES);
    stream.write_all(&u32::from(ours).to_be_bytes())?;
    Ok(())
}

/// `NBD_OPT_STARTTLS`.
pub(super) fn start_tls(stream: &mut (impl Read + Write)) -> Result<()> {
    ask(stream, option::STARTTLS, &[])?;
    match answer(stream, option::STARTTLS)? {
        Reply::Ack => Ok(()),
        Reply::Refused(reason, message) => Err(ConnectError::Refused { wish: "TLS", reason, message }),
        Reply::Data(..) => Err(ConnectError::Protocol("data in answer to NBD_OPT_STARTTLS")),
    }
}

/// `NBD_OPT_LIST`, and `NBD_OPT_ABORT`.
pub(super) fn list(stream: &mut (impl Read + Write)) -> Result<Vec<Listed>> {
    ask(stream, option::LIST, &[])?;
    let mut exports = Vec::new();
    loop {
        match answer(stream, option::LIST)? {
            Reply::Ack => break,
            Reply::Refused(reason, message) => {
                return Err(ConnectError::Refused { wish: "a list of its exports", reason, message });
            }
            Reply::Data(reply::SERVER, data) if exports.len() < MAX_LISTED => exports.push(listed(&data)?),
            Reply::Data(reply::SERVER, _) => {
                return Err(ConnectError::Protocol("an endless list of exports"));
            }
            Reply::Data(..) => return Err(ConnectError::Protocol("a strange answer to NBD_OPT_LIST")),
        }
    }
    ask(stream, option::ABORT, &[])?;
    Ok(exports)
}

/// Negotiates what `options` wish for, as far as the server has it, and begins the transmission phase.
pub(super) fn go(stream: &mut (impl Read + Write), options: &ConnectOptions) -> Result<(ExportInfo, Terms)> {
    if options.export.len() > MAX_STRING_BYTES {
        return Err(ConnectError::Protocol("an export name has 4096 bytes at most"));
    }
    let mode = if options.extended_headers && switch_on(stream, option::EXTENDED_HEADERS)? {
        ReplyMode::Extended
    } else if options.structured_replies && switch_on(stream, option::STRUCTURED_REPLY)? {
        ReplyMode::Structured
    } else {
        ReplyMode::Simple
    };
    let allocation =
        options.allocation && mode != ReplyMode::Simple && select_allocation(stream, &options.export)?;
    let info = describe(stream, &options.export, allocation)?;
    Ok((info, Terms { mode, allocation }))
}

/// An option without data that is either granted or not.
fn switch_on(stream: &mut (impl Read + Write), kind: u32) -> Result<bool> {
    ask(stream, kind, &[])?;
    match answer(stream, kind)? {
        Reply::Ack => Ok(true),
        Reply::Refused(RefusalKind::TlsRequired, message) => {
            Err(ConnectError::Refused { wish: "to negotiate", reason: RefusalKind::TlsRequired, message })
        }
        Reply::Refused(..) => Ok(false),
        Reply::Data(..) => Err(ConnectError::Protocol("data in answer to an option that has none")),
    }
}

fn select_allocation(stream: &mut (impl Read + Write), export: &str) -> Result<bool> {
    let mut data = string(export);
    data.extend_from_slice(&1_u32.to_be_bytes());
    data.extend_from_slice(&string(BASE_ALLOCATION));
    ask(stream, option::SET_META_CONTEXT, &data)?;
    let mut selected = false;
    for _ in 0..MAX_REPLIES {
        match answer(stream, option::SET_META_CONTEXT)? {
            Reply::Ack => return Ok(selected),
            Reply::Refused(..) => return Ok(false),
            Reply::Data(reply::META_CONTEXT, data) => {
                let mut reader = Reader(&data);
                // Whatever number it has: there is only one context that was asked for.
                let _id = reader.u32().ok_or(ConnectError::Protocol("a context without a number"))?;
                if reader.0 != BASE_ALLOCATION.as_bytes() || selected {
                    return Err(ConnectError::Protocol("a context that was not asked for"));
                }
                selected = true;
            }
            Reply::Data(..) => break,
        }
    }
    Err(ConnectError::Protocol("a strange answer to NBD_OPT_SET_META_CONTEXT"))
}

/// `NBD_OPT_GO`.
fn describe(stream: &mut (impl Read + Write), export: &str, allocation: bool) -> Result<ExportInfo> {
    let mut data = string(export);
    data.extend_from_slice(&2_u16.to_be_bytes());
    data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    data.extend_from_slice(&info::DESCRIPTION.to_be_bytes());
    ask(stream, option::GO, &data)?;
    let mut found = ExportInfo { can_block_status: allocation, ..ExportInfo::default() };
    let mut has_size = false;
    for _ in 0..MAX_REPLIES {
        match answer(stream, option::GO)? {
            Reply::Ack if has_size => return Ok(found),
            Reply::Ack => break,
            Reply::Refused(reason, message) => {
                return Err(ConnectError::Refused { wish: "the export", reason, message });
            }
            Reply::Data(reply::INFO, data) => has_size |= take_info(&data, &mut found)?,
            Reply::Data(..) => break,
        }
    }
    Err(ConnectError::Protocol("a strange answer to NBD_OPT_GO"))
}

/// Takes one piece of information; whether it was the size.
fn take_info(data: &[u8], found: &mut ExportInfo) -> Result<bool> {
    const CUT: ConnectError = ConnectError::Protocol("information about the export that is cut short");
    let mut reader = Reader(data);
    match reader.u16().ok_or(CUT)? {
        info::EXPORT => {
            found.size_bytes = reader.u64().ok_or(CUT)?;
            let flags = reader.u16().ok_or(CUT)?;
            let has = |flag| flags & flag != 0;
            found.read_only = has(transmission_flags::READ_ONLY);
            found.can_flush = has(transmission_flags::SEND_FLUSH);
            found.can_fua = has(transmission_flags::SEND_FUA);
            found.can_trim = has(transmission_flags::SEND_TRIM);
            found.can_write_zeroes = has(transmission_flags::SEND_WRITE_ZEROES);
            found.can_fast_zero = has(transmission_flags::SEND_FAST_ZERO);
            found.can_cache = has(transmission_flags::SEND_CACHE);
            found.can_multi_conn = has(transmission_flags::CAN_MULTI_CONN);
            return Ok(true);
        }
        info::BLOCK_SIZE => {
            found.minimum_block = reader.u32().ok_or(CUT)?;
            found.preferred_block = reader.u32().ok_or(CUT)?;
            found.maximum_payload = reader.u32().ok_or(CUT)?;
            if !found.minimum_block.is_power_of_two() || found.maximum_payload < found.minimum_block {
                return Err(ConnectError::Protocol("block sizes that cannot be"));
            }
        }
        info::DESCRIPTION => found.description = String::from_utf8_lossy(reader.0).into_owned(),
        // "The client MUST ignore information replies it does not understand."
        _ => {}
    }
    Ok(false)
}

fn listed(data: &[u8]) -> Result<Listed> {
    let mut reader = Reader(data);
    let name = reader.string(MAX_STRING_BYTES).ok_or(ConnectError::Protocol("an export without a name"))?;
    let name = std::str::from_utf8(name).map_err(|_| ConnectError::Protocol("a name that is not UTF-8"))?;
    Ok(Listed { name: name.to_owned(), description: String::from_utf8_lossy(reader.0).into_owned() })
}

fn ask(stream: &mut impl Write, kind: u32, data: &[u8]) -> Result<()> {
    let mut message = OPTION_MAGIC.to_be_bytes().to_vec();
    message.extend_from_slice(&kind.to_be_bytes());
    message.extend_from_slice(&u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    message.extend_from_slice(data);
    stream.write_all(&message)?;
    Ok(())
}

fn answer(stream: &mut impl Read, asked: u32) -> Result<Reply> {
    if u64::from_be_bytes(read(stream)?) != OPTION_REPLY_MAGIC {
        return Err(ConnectError::Protocol("an answer without its magic number"));
    }
    let (about, kind, length) = (
        u32::from_be_bytes(read(stream)?),
        u32::from_be_bytes(read(stream)?),
        u32::from_be_bytes(read(stream)?),
    );
    if about != asked {
        return Err(ConnectError::Protocol("an answer to an option that was not asked"));
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_REPLY_BYTES {
        return Err(ConnectError::Protocol("an answer that is too long"));
    }
    let mut data = vec![0; length];
    stream.read_exact(&mut data)?;
    Ok(match kind {
        reply::ACK => Reply::Ack,
        kind if kind & reply::ERROR != 0 => {
            Reply::Refused(RefusalKind::from_wire(kind), String::from_utf8_lossy(&data).into_owned())
        }
        kind => Reply::Data(kind, data),
    })
}

fn read<const N: usize>(stream: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn string(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length, text.as_bytes()].concat()
}
