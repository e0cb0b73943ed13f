//! Replies to options, written (proto.md, "Fixed newstyle negotiation" and "Option reply types").
use crate::limits::MAX_STRING_BYTES;
use crate::wire::{OPTION_REPLY_MAGIC, reply};
use connections::ByteQueue;

/// One reply of type `kind` to option `option`, with the pieces of `data` behind each other.
pub(super) fn write(option: u32, kind: u32, data: &[&[u8]], out: &mut ByteQueue) {
    let length: usize = data.iter().map(|piece| piece.len()).sum();
    out.append(&OPTION_REPLY_MAGIC.to_be_bytes());
    out.append(&option.to_be_bytes());
    out.append(&kind.to_be_bytes());
    // What we send is far below 4 GiB: strings of bounded length.
    out.append(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    for piece in data {
        out.append(piece);
    }
}

/// `NBD_REP_ACK`.
pub(super) fn ack(option: u32, out: &mut ByteQueue) {
    write(option, reply::ACK, &[], out);
}

/// An error, with a line for humans.
pub(super) fn error(option: u32, kind: u32, message: &str, out: &mut ByteQueue) {
    write(option, kind, &[bounded(message).as_bytes()], out);
}

/// `NBD_REP_SERVER`.
pub(super) fn server(option: u32, name: &str, description: &str, out: &mut ByteQueue) {
    let length = u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes();
    write(option, reply::SERVER, &[&length, name.as_bytes(), bounded(description).as_bytes()], out);
}

/// `NBD_REP_INFO`.
pub(super) fn info(option: u32, kind: u16, data: &[&[u8]], out: &mut ByteQueue) {
    let kind = kind.to_be_bytes();
    let pieces: Vec<&[u8]> = std::iter::once(kind.as_slice()).chain(data.iter().copied()).collect();
    write(option, reply::INFO, &pieces, out);
}

/// As much of a text as a string field may hold.
pub(super) fn bounded(text: &str) -> &str {
    let end = (0..=MAX_STRING_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}
