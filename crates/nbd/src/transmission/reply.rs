//! Replies, written (proto.md, "Simple reply message", "Structured reply chunk message"; extension-ext-header, "Extended
//! reply chunk message").
use super::Terms;
use super::request::Tag;
use crate::wire::{
    EXTENDED_REPLY_MAGIC, Errno, Extent, ReplyMode, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk,
};
use connections::ByteQueue;

/// The longest head that may stand before the bytes of a read: an extended header and the offset of the data.
pub(crate) const MAX_DATA_HEAD_BYTES: usize = 40;

/// The head of a run of data, as it stands before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataHead {
    bytes: [u8; MAX_DATA_HEAD_BYTES],
    length: usize,
}

impl DataHead {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    fn of<const N: usize>(bytes: [u8; N]) -> Self {
        let mut head = Self { bytes: [0; MAX_DATA_HEAD_BYTES], length: N };
        for (to, from) in head.bytes.iter_mut().zip(bytes) {
            *to = from;
        }
        head
    }
}

/// The head of a simple reply to a read: all of its data follows.
pub(crate) fn simple_head(tag: Tag) -> DataHead {
    DataHead::of(simple(tag, 0))
}

/// The head of a chunk with the `length` bytes from `at` on; in `mode`, which is not simple. `last` where no chunk of
/// this reply follows.
pub(crate) fn data_head(mode: ReplyMode, tag: Tag, at: u64, length: u32, last: bool) -> DataHead {
    let payload = u64::from(length).saturating_add(8);
    if mode == ReplyMode::Extended {
        let mut bytes = [0; 40];
        let (head, offset) = bytes.split_at_mut(32);
        head.copy_from_slice(&extended(tag, chunk::OFFSET_DATA, payload, last));
        offset.copy_from_slice(&at.to_be_bytes());
        return DataHead::of(bytes);
    }
    let mut bytes = [0; 28];
    let (head, offset) = bytes.split_at_mut(20);
    head.copy_from_slice(&structured(tag, chunk::OFFSET_DATA, payload, last));
    offset.copy_from_slice(&at.to_be_bytes());
    DataHead::of(bytes)
}

/// A chunk that says that the `length` bytes from `at` on are zeros.
pub(crate) fn hole(mode: ReplyMode, tag: Tag, at: u64, length: u32, last: bool, out: &mut ByteQueue) {
    chunk_head(mode, tag, chunk::OFFSET_HOLE, 12, last, out);
    out.append(&at.to_be_bytes());
    out.append(&length.to_be_bytes());
}

/// The end of a reply whose last content chunk did not say so.
pub(crate) fn end(mode: ReplyMode, tag: Tag, out: &mut ByteQueue) {
    chunk_head(mode, tag, chunk::NONE, 0, true, out);
}

/// The answer to a request that succeeds without data.
pub(crate) fn done(mode: ReplyMode, tag: Tag, out: &mut ByteQueue) {
    match mode {
        // Structured replies allow a simple one here, which is the shorter.
        ReplyMode::Simple | ReplyMode::Structured => out.append(&simple(tag, 0)),
        ReplyMode::Extended => end(mode, tag, out),
    }
}

/// The answer to a request that fails.
pub(crate) fn error(mode: ReplyMode, tag: Tag, errno: Errno, message: &'static str, out: &mut ByteQueue) {
    if mode == ReplyMode::Simple {
        return out.append(&simple(tag, errno.to_wire()));
    }
    let length = u16::try_from(message.len()).unwrap_or(0);
    let payload = u64::from(length).saturating_add(6);
    chunk_head(mode, tag, chunk::ERROR, payload, true, out);
    out.append(&errno.to_wire().to_be_bytes());
    out.append(&length.to_be_bytes());
    out.append(message.as_bytes().get(..usize::from(length)).unwrap_or_default());
}

/// The end of a read that failed at `at`, behind the chunks that are on their way; in `mode`, which is not simple.
pub(crate) fn error_at(mode: ReplyMode, tag: Tag, errno: Errno, at: u64, out: &mut ByteQueue) {
    chunk_head(mode, tag, chunk::ERROR_OFFSET, 14, true, out);
    out.append(&errno.to_wire().to_be_bytes());
    out.append(&[0, 0]);
    out.append(&at.to_be_bytes());
}

/// The answer to BLOCK_STATUS; in `mode`, which is not simple. Not without an extent.
pub(crate) fn block_status(mode: ReplyMode, tag: Tag, extents: &[Extent], out: &mut ByteQueue) {
    let count = u32::try_from(extents.len()).unwrap_or(u32::MAX);
    let id = Terms::ALLOCATION_ID.to_be_bytes();
    if mode == ReplyMode::Extended {
        let payload = u64::from(count).saturating_mul(16).saturating_add(8);
        chunk_head(mode, tag, chunk::BLOCK_STATUS_EXT, payload, true, out);
        out.append(&id);
        out.append(&count.to_be_bytes());
        for extent in extents {
            out.append(&extent.length.to_be_bytes());
            out.append(&u64::from(extent.status()).to_be_bytes());
        }
        return;
    }
    let payload = u64::from(count).saturating_mul(8).saturating_add(4);
    chunk_head(mode, tag, chunk::BLOCK_STATUS, payload, true, out);
    out.append(&id);
    for extent in extents {
        // A compact request asks for less than 4 GiB.
        out.append(&u32::try_from(extent.length).unwrap_or(u32::MAX).to_be_bytes());
        out.append(&extent.status().to_be_bytes());
    }
}

fn chunk_head(mode: ReplyMode, tag: Tag, kind: u16, payload: u64, last: bool, out: &mut ByteQueue) {
    match mode {
        ReplyMode::Extended => out.append(&extended(tag, kind, payload, last)),
        ReplyMode::Simple | ReplyMode::Structured => out.append(&structured(tag, kind, payload, last)),
    }
}

fn simple(tag: Tag, errno: u32) -> [u8; 16] {
    let [a, b] = [SIMPLE_REPLY_MAGIC, errno].map(u32::to_be_bytes);
    joined(&[&a, &b, &tag.cookie.to_be_bytes()])
}

fn structured(tag: Tag, kind: u16, payload: u64, last: bool) -> [u8; 20] {
    let flags = if last { chunk::FLAG_DONE } else { 0 };
    let length = u32::try_from(payload).unwrap_or(u32::MAX).to_be_bytes();
    let magic = STRUCTURED_REPLY_MAGIC.to_be_bytes();
    joined(&[&magic, &flags.to_be_bytes(), &kind.to_be_bytes(), &tag.cookie.to_be_bytes(), &length])
}

fn extended(tag: Tag, kind: u16, payload: u64, last: bool) -> [u8; 32] {
    let flags = if last { chunk::FLAG_DONE } else { 0 };
    let magic = EXTENDED_REPLY_MAGIC.to_be_bytes();
    let numbers = [tag.cookie, tag.offset, payload].map(u64::to_be_bytes);
    let [cookie, offset, length] = &numbers;
    joined(&[&magic, &flags.to_be_bytes(), &kind.to_be_bytes(), cookie, offset, length])
}

fn joined<const N: usize>(pieces: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().zip(pieces.iter().copied().flatten()) {
        *to = *from;
    }
    bytes
}
