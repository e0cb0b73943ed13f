//! What a volume says of where its bytes lie: the image's file for what was never written, nothing for the rest.
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use block::{
    Access, Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Geometry,
    LogicalBlockSize, Patience, conformance,
};

use crate::fixture::Fixture;

const SIZE: usize = 1 << 20;

/// An image that lies in a file as it is.
#[derive(Debug)]
struct Flat(Arc<File>);

impl Flat {
    fn new(bytes: &[u8]) -> Arc<Self> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(Self(Arc::new(file)))
    }
}

impl BlockDevice for Flat {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: ByteLength::new(SIZE as u64),
            logical_block: LogicalBlockSize::B512,
            physical_block: 4096,
            discard_granularity: None,
            access: Access::ReadOnly,
        }
    }
    fn read(&self, at: ByteOffset, buffer: &mut [u8], _: Patience) -> Result<(), BlockError> {
        let range = self.geometry().check(at, ByteLength::of(buffer))?;
        self.0.read_exact_at(buffer, at.get()).map_err(|source| BlockError::Storage { range, source })
    }
    fn write(&self, _: ByteOffset, _: &[u8], _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }
    fn flush(&self, _: Patience) -> Result<(), BlockError> {
        Ok(())
    }
    fn discard(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }
    fn write_zeroes(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Err(BlockError::ReadOnly)
    }
    fn file_span(&self, range: ByteRange, _: Patience) -> Option<FileSpan> {
        Some(FileSpan { file: Arc::clone(&self.0), at: range.start(), length: range.length() })
    }
}

fn range(at: u64, length: u64) -> ByteRange {
    ByteRange::new(ByteOffset::new(at), ByteLength::new(length)).unwrap()
}

#[test]
fn written_clusters_cut_the_spans_and_show_in_the_allocation() {
    let bytes = conformance::pattern(SIZE);
    let directory = tempfile::tempdir().unwrap();
    let volume = Fixture::new(directory.path(), Flat::new(&bytes)).begin("boot-1").unwrap();
    let span = |at, length| {
        volume.file_span(range(at, length), Patience::Now).map(|span| (span.at.get(), span.length.get()))
    };
    let stored = |at| {
        let (kind, length) = volume.allocation(range(at, SIZE as u64 - at), Patience::Blocking).unwrap();
        (kind, length.get())
    };
    assert_eq!(span(512, 100 << 10), Some((512, 100 << 10)));
    assert_eq!(stored(0), (Allocation::Data, SIZE as u64));

    volume.write(ByteOffset::new(40960 + 512), &[1; 512], Patience::Blocking).unwrap();
    volume.discard(range(81920, 8192), Patience::Blocking).unwrap();
    assert_eq!(span(512, 100 << 10), Some((512, 40960 - 512)), "up to the written cluster");
    assert_eq!(span(40960, 512), None, "its cluster moved as a whole");
    assert_eq!(span(45056, 1 << 19), Some((45056, 81920 - 45056)));
    assert_eq!(span(81920, 4096), None);
    assert_eq!(span(90112, 4096), Some((90112, 4096)));
    assert_eq!(stored(81920), (Allocation::Hole, 8192), "no space, whatever the image has there");
    assert_eq!(stored(40960), (Allocation::Data, 4096));
    volume.abandon();
    assert_eq!(span(512, 512), None, "a closed volume tells nothing");
    assert!(matches!(volume.allocation(range(0, 512), Patience::Now), Err(BlockError::Closed)));
}
