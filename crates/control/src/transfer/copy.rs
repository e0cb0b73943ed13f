//! Copying a file while its bytes are counted and digested.
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use diskimage::Watch;
use sha2::{Digest, Sha256};

use crate::error::ControlError;

/// What is moved at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Zeros of at least this length become holes.
const HOLE_BYTES: usize = 64 << 10;

/// What was copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) bytes: u64,
    /// The SHA-256 of it, in hexadecimal.
    pub(super) sha256: String,
}

/// Copies `from` to `to`, which is made or made anew, and makes it lasting. Zeros become holes.
pub(super) fn copy(from: &Path, to: &Path, watch: &Watch) -> Result<Copied, ControlError> {
    let reading = |error: io::Error| ControlError::file(from, "read", &error);
    let writing = |error: io::Error| ControlError::file(to, "written", &error);
    let mut source = File::open(from).map_err(reading)?;
    let mut target = File::create(to).map_err(writing)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut bytes = 0_u64;
    loop {
        let count = source.read(&mut buffer).map_err(reading)?;
        let read = buffer.get(..count).unwrap_or_default();
        if read.is_empty() {
            break;
        }
        let length = u64::try_from(count).unwrap_or_default();
        watch.pace(length)?;
        digest.update(read);
        for piece in read.chunks(HOLE_BYTES) {
            if piece.iter().any(|byte| *byte != 0) {
                target.write_all(piece).map_err(writing)?;
            } else {
                let skipped = i64::try_from(piece.len()).unwrap_or_default();
                target.seek(SeekFrom::Current(skipped)).map_err(writing)?;
            }
        }
        bytes = bytes.saturating_add(length);
        watch.advance(length)?;
    }
    target.set_len(bytes).and_then(|()| target.sync_all()).map_err(writing)?;
    let sha256 = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Copied { bytes, sha256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_is_the_same_with_holes_where_zeros_were() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let mut data = vec![0; (3 << 20) + 5];
        data[(1 << 20) + 7] = 9;
        data[3 << 20] = 8;
        std::fs::write(&from, &data).unwrap();
        let copied = copy(&from, &to, &Watch::default()).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), data);
        assert_eq!(copied.bytes, (3 << 20) + 5);
        let blocks = std::os::unix::fs::MetadataExt::blocks(&to.metadata().unwrap());
        assert!(blocks * 512 < 1 << 20, "{blocks}");
        // FIPS 180-4's example of one block.
        std::fs::write(&from, b"abc").unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(copy(&from, &to, &Watch::default()).unwrap().sha256, abc);
        assert_eq!(std::fs::read(&to).unwrap(), b"abc");
    }
}
