//! Parts of a disk that lie compressed in a file: qcow2's clusters and VMDK's grains.
//!
//! A compressed part is a *unit*: its size when expanded is fixed by the image's header, its bytes in the file are
//! bounded by that size. Expanding it writes into a buffer of exactly that size and stops when the buffer is full:
//! whatever a stream claims, it cannot take more memory or time than one unit is worth.
//!
//! Expanding takes long against a read of memory, so it belongs to threads that may wait: with [`Patience::Now`] only
//! what the [`ExpandedUnits`] keep is given.
use block::{ByteOffset, Patience};
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags as flags};

use crate::error::{Damage, ResolveError};
use crate::storage::Storage;

mod expanded;
mod zstd;

pub(crate) use expanded::ExpandedUnits;

/// The largest unit that is expanded: qcow2's largest cluster.
pub(crate) const MAX_UNIT_BYTES: u64 = 2 << 20;

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
    #[error("there is no memory to expand it in")]
    Memory,
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
            Self::Zstd => zstd::expand(input, output),
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
