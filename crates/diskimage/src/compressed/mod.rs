//! Parts of a disk that lie compressed in a file: qcow2's clusters and VMDK's grains.
//!
//! A compressed part is a *unit*: its size when expanded is fixed by the image's header, its bytes in the file are
//! bounded by that size. Expanding it writes into a buffer of exactly that size and stops when the buffer is full:
//! whatever a stream claims, it cannot take more memory or time than one unit is worth.
//!
//! Expanding takes long against a read of memory, so it belongs to threads that may wait: with [`Patience::Now`] only
//! what the [`ExpandedUnits`] keep is given.
use std::io::{self, Read};

use block::{ByteOffset, Patience};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags as flags};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use crate::error::{Damage, ResolveError};
use crate::storage::Storage;

mod expanded;

pub(crate) use expanded::ExpandedUnits;

/// The largest unit that is expanded: qcow2's largest cluster.
pub(crate) const MAX_UNIT_BYTES: u64 = 2 << 20;
/// How far back a zstd frame may refer, which is what its decoder keeps: what RFC 8878 §3.1.1.1.2 asks of every
/// decoder. A unit of 2 MiB has no use for more.
const MAX_ZSTD_WINDOW_BYTES: u64 = 8 << 20;

/// How units are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// RFC 1951, without header and checksum.
    Deflate,
    /// RFC 1950: deflate between a header and a checksum.
    Zlib,
    /// RFC 8878.
    Zstd,
}

/// Where a unit lies, and what it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub(crate) compression: Compression,
    /// Its first compressed byte's place in the file.
    pub(crate) at: u64,
    /// How many bytes of the file may belong to it.
    pub(crate) stored_bytes: u64,
    /// How many bytes it must at least expand to. More than `full_bytes` is never given.
    pub(crate) needed_bytes: u64,
    /// How many bytes it expands to. The last unit of a disk may have less.
    pub(crate) full_bytes: u64,
    /// What it is called, and where the rule stands.
    pub(crate) name: &'static str,
    pub(crate) rule: &'static str,
}

/// Why a stream is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum StreamError {
    #[error("its compressed data breaks off")]
    BreaksOff,
    #[error("its compressed data is not valid")]
    Invalid,
    #[error("the checksum of its data is wrong")]
    Checksum,
    #[error("it expands to more than its size")]
    TooLong,
}

impl Unit {
    /// The unit's bytes, out of the file. What is missing to the full size is zeros.
    pub(crate) fn expand(&self, storage: &dyn Storage) -> Result<Vec<u8>, ResolveError> {
        let damage = |problem: String| Damage::new(self.name, self.at, self.rule, problem);
        let stored = usize::try_from(self.stored_bytes).unwrap_or(usize::MAX);
        let full = usize::try_from(self.full_bytes.min(MAX_UNIT_BYTES)).unwrap_or_default();
        let mut input = vec![0; stored];
        storage.read_at(ByteOffset::new(self.at), &mut input, Patience::Blocking)?;
        let mut output = vec![0; full];
        let written =
            self.compression.expand(&input, &mut output).map_err(|error| damage(error.to_string()))?;
        let written = u64::try_from(written).unwrap_or_default();
        if written < self.needed_bytes {
            return Err(damage(format!("it expands to {written} bytes, not to {}", self.needed_bytes)).into());
        }
        Ok(output)
    }
}

impl Compression {
    /// Expands `input` to the start of `output`, and says how many bytes that were. What lies in `input` behind the
    /// end of the stream is left alone: units are padded.
    fn expand(self, input: &[u8], output: &mut [u8]) -> Result<usize, StreamError> {
        match self {
            Self::Deflate => inflate(input, output, flags::TINFL_FLAG_IGNORE_ADLER32),
            Self::Zlib => inflate(
                input,
                output,
                flags::TINFL_FLAG_PARSE_ZLIB_HEADER | flags::TINFL_FLAG_COMPUTE_ADLER32,
            ),
            Self::Zstd => expand_zstd(input, output),
        }
    }
}

fn inflate(input: &[u8], output: &mut [u8], kind: u32) -> Result<usize, StreamError> {
    let mut decoder = Box::<DecompressorOxide>::default();
    let kind = kind | flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    let (status, _, written) = decompress(&mut decoder, input, output, 0, kind);
    match status {
        TINFLStatus::Done => Ok(written),
        TINFLStatus::HasMoreOutput => Err(StreamError::TooLong),
        TINFLStatus::Adler32Mismatch => Err(StreamError::Checksum),
        TINFLStatus::FailedCannotMakeProgress | TINFLStatus::NeedsMoreInput => Err(StreamError::BreaksOff),
        _ => Err(StreamError::Invalid),
    }
}

/// A unit may be made of several frames ([qcow2] "Compressed Clusters Descriptor" leaves it to the writer): frames are
/// expanded until the unit is full.
fn expand_zstd(input: &[u8], output: &mut [u8]) -> Result<usize, StreamError> {
    let mut source = input;
    let mut written = 0_usize;
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAX_ZSTD_WINDOW_BYTES);
    while written < output.len() && !source.is_empty() {
        let before = source.len();
        let mut frame =
            StreamingDecoder::new_with_decoder(&mut source, decoder).map_err(|_| StreamError::Invalid)?;
        loop {
            let rest = output.get_mut(written..).unwrap_or_default();
            if rest.is_empty() {
                // The frame must end here as well.
                if read_piece(&mut frame, &mut [0])? != 0 {
                    return Err(StreamError::TooLong);
                }
                break;
            }
            match read_piece(&mut frame, rest)? {
                0 => break,
                count => written = written.saturating_add(count),
            }
        }
        decoder = frame.into_frame_decoder();
        if decoder.get_checksum_from_data().is_some_and(|sum| decoder.get_calculated_checksum() != Some(sum))
        {
            return Err(StreamError::Checksum);
        }
        debug_assert!(source.len() < before, "a frame has a header");
    }
    Ok(written)
}

fn read_piece(frame: &mut impl Read, buffer: &mut [u8]) -> Result<usize, StreamError> {
    frame.read(buffer).map_err(|error| {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(inner) = cause {
            if inner.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::UnexpectedEof) {
                return StreamError::BreaksOff;
            }
            cause = inner.source();
        }
        StreamError::Invalid
    })
}
