//! Frames of Zstandard, expanded by libzstd.
//!
//! Its streaming calls stop when the output is full, whatever the frame still claims to hold, and keep no more behind
//! than the window that they were told to allow. libzstd is the decoder that everybody else feeds with foreign bytes,
//! too; a decoder in safe Rust was used here before and took twice its time.
use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{DCtx, DParameter, ErrorCode, InBuffer, OutBuffer};

use super::StreamError;

/// How far back a frame may refer, as a power of two, which is what its decoder keeps: 8 MiB, what RFC 8878 §3.1.1.1.2
/// asks of every decoder. A unit of 2 MiB has no use for more.
const MAX_WINDOW_LOG: u32 = 23;

/// Expands `input` to the start of `output`, and says how many bytes that were. A unit may be made of several frames
/// ([qcow2] "Compressed Clusters Descriptor" leaves it to the writer): frames are expanded until the unit is full.
pub(super) fn expand(input: &[u8], output: &mut [u8]) -> Result<usize, StreamError> {
    let mut decoder = DCtx::try_create().ok_or(StreamError::Memory)?;
    decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG)).map_err(error_of)?;
    let mut source = InBuffer::around(input);
    let mut written = 0;
    while written < output.len() && source.pos() < input.len() {
        written = frame(&mut decoder, &mut source, output, written)?;
    }
    Ok(written)
}

/// Expands one frame behind the first `written` bytes of `output`, and says how many are written then.
fn frame(
    decoder: &mut DCtx<'_>,
    source: &mut InBuffer<'_>,
    output: &mut [u8],
    mut written: usize,
) -> Result<usize, StreamError> {
    loop {
        let mut room = OutBuffer::around_pos(output, written);
        let missing = decoder.decompress_stream(&mut room, source).map_err(error_of)?;
        written = room.pos();
        if missing == 0 {
            return Ok(written);
        }
        if written == output.len() {
            break;
        }
        if source.pos() == source.src.len() {
            return Err(StreamError::BreaksOff);
        }
    }
    // The unit is full: what may still come is the frame's end.
    let mut beyond = [0];
    let mut room = OutBuffer::around(&mut beyond[..]);
    let missing = decoder.decompress_stream(&mut room, source).map_err(error_of)?;
    match (room.pos(), missing) {
        (0, 0) => Ok(written),
        (0, _) => Err(StreamError::BreaksOff),
        _ => Err(StreamError::TooLong),
    }
}

/// libzstd's error codes are those of `zstd_errors.h`, negated.
fn error_of(code: ErrorCode) -> StreamError {
    let is = |known: ZSTD_ErrorCode| code.wrapping_neg() == known as usize;
    if is(ZSTD_ErrorCode::ZSTD_error_checksum_wrong) {
        StreamError::Checksum
    } else if is(ZSTD_ErrorCode::ZSTD_error_memory_allocation) {
        StreamError::Memory
    } else {
        StreamError::Invalid
    }
}
