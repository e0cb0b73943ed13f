//! Data-In that goes from the page cache to the socket by itself.
mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use block::{
    Access, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Geometry, LogicalBlockSize,
    Patience,
};
use common::initiator::Initiator;
use common::{Lab, Rules, TARGET, run, succeed, text};

const MACHINE: &str = "iqn.2026-01.lab:machine";

/// A file that does not change, of which every 4 KiB in `odd` must be read.
#[derive(Debug)]
struct Golden {
    file: Arc<File>,
    bytes: Vec<u8>,
    odd: Option<ByteRange>,
    spans: AtomicUsize,
}

impl Golden {
    fn new(mebibytes: usize, odd: Option<(u64, u64)>) -> Arc<Self> {
        let bytes = block::conformance::pattern(mebibytes << 20);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let odd = odd.and_then(|(at, length)| ByteRange::new(ByteOffset::new(at), ByteLength::new(length)));
        Arc::new(Self { file: Arc::new(file), bytes, odd, spans: AtomicUsize::new(0) })
    }

    fn spans(&self) -> usize {
        self.spans.load(Ordering::Relaxed)
    }
}

impl BlockDevice for Golden {
    fn geometry(&self) -> Geometry {
        Geometry {
            size: ByteLength::of(&self.bytes),
            logical_block: LogicalBlockSize::B512,
            physical_block: 4096,
            discard_granularity: None,
            access: Access::ReadOnly,
        }
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], _: Patience) -> Result<(), BlockError> {
        let range = self.geometry().check(at, ByteLength::of(buffer))?;
        self.file.read_exact_at(buffer, at.get()).map_err(|source| BlockError::Storage { range, source })
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
        let start = range.start();
        let end = match self.odd {
            Some(odd) if start >= odd.start() && start < odd.end() => return None,
            Some(odd) if start < odd.start() && range.end() > odd.start() => odd.start(),
            _ => range.end(),
        };
        self.spans.fetch_add(1, Ordering::Relaxed);
        let length = end.checked_distance(start)?;
        Some(FileSpan { file: Arc::clone(&self.file), at: start, length })
    }
}

#[test]
fn large_reads_give_the_file_s_bytes_whatever_the_segment_length() {
    let golden = Golden::new(8, Some((1_000_000 / 4096 * 4096, 8192)));
    let lab = Lab::serve(golden.clone(), Rules::default());
    for more in [
        "MaxRecvDataSegmentLength=262144",
        "MaxRecvDataSegmentLength=100000",
        "MaxRecvDataSegmentLength=65536\0MaxBurstLength=131072",
        "MaxRecvDataSegmentLength=262144\0HeaderDigest=None",
        "MaxRecvDataSegmentLength=8192",
    ] {
        let mut initiator = Initiator::login_with(lab.address(), MACHINE, 1, TARGET, more).unwrap();
        let before = golden.spans();
        for (lba, blocks) in [(0, 2048), (1, 2047), (1900, 200), (1950, 10), (14000, 2384), (3, 1)] {
            let expected = &golden.bytes[lba as usize * 512..(lba as usize + usize::from(blocks)) * 512];
            assert!(initiator.read(lba, blocks).unwrap() == expected, "{more}: {blocks} blocks at {lba}");
        }
        let used = golden.spans() > before;
        assert_eq!(used, !more.contains("8192"), "{more}: small segments are copied");
    }
}

#[test]
fn reader_that_dawdles_gets_every_byte_in_order() {
    let golden = Golden::new(16, None);
    let lab = Lab::serve(golden.clone(), Rules::default());
    let more = "MaxRecvDataSegmentLength=262144";
    let mut initiator = Initiator::login_with(lab.address(), MACHINE, 1, TARGET, more).unwrap();
    let reads: Vec<u32> = (0..24).map(|n| n * 1021).collect();
    for lba in &reads {
        initiator.start_read(*lba, 2048).unwrap();
        initiator.start_read(*lba, 1).unwrap();
    }
    let mut got = vec![Vec::new(); reads.len() * 2];
    while got.iter().enumerate().any(|(n, bytes)| bytes.len() < if n % 2 == 0 { 2048 * 512 } else { 512 }) {
        let pdu = initiator.receive().unwrap();
        assert_eq!(pdu.opcode(), 0x25);
        got[pdu.u32_at(16) as usize - 1].extend_from_slice(&pdu.data);
    }
    for (n, bytes) in got.iter().enumerate() {
        let start = reads[n / 2] as usize * 512;
        assert!(*bytes == golden.bytes[start..start + bytes.len()], "read {n}");
    }
}

#[test]
fn data_digest_keeps_data_in_the_output() {
    let golden = Golden::new(4, None);
    let lab = Lab::serve(golden.clone(), Rules::default());
    let mut initiator = Initiator::connect(lab.address());
    let more = "MaxRecvDataSegmentLength=262144\0DataDigest=CRC32C";
    initiator.try_login(MACHINE, 1, TARGET, more).unwrap();
    initiator.start_read(0, 512).unwrap();
    let mut pdu = vec![0; 48 + 256 * 1024 + 4];
    initiator.stream.read_exact(&mut pdu).unwrap();
    let data = &pdu[48..48 + 256 * 1024];
    assert!(*data == golden.bytes[..256 * 1024]);
    assert_eq!(pdu[48 + 256 * 1024..], crc32c::crc32c(data).to_le_bytes());
    assert_eq!(golden.spans(), 0);
}

#[test]
fn file_that_shrinks_costs_one_connection_and_then_tells_sense_data() {
    let golden = Golden::new(4, None);
    let lab = Lab::serve(golden.clone(), Rules::default());
    let more = "MaxRecvDataSegmentLength=262144";
    let mut first = Initiator::login_with(lab.address(), MACHINE, 1, TARGET, more).unwrap();
    golden.file.set_len(1 << 20).unwrap();
    first.start_read(1536, 2048).unwrap();
    assert!(first.is_closed());
    let mut second = Initiator::login_with(lab.address(), MACHINE, 1, TARGET, more).unwrap();
    second.start_read(1536, 2048).unwrap();
    let answer = loop {
        let pdu = second.receive().unwrap();
        if pdu.opcode() != 0x25 {
            break pdu;
        }
    };
    assert_eq!((answer.opcode(), answer.header[3], answer.data[4], answer.data[14]), (0x21, 2, 0x03, 0x11));
}

#[test]
fn real_initiators_read_what_is_sent_so() {
    let golden = Golden::new(32, Some((5 << 20, 1 << 20)));
    let lab = Lab::serve(golden.clone(), Rules::default());
    let folder = tempfile::tempdir().unwrap();
    let (copy, image) = (folder.path().join("copy.raw"), folder.path().join("golden.raw"));
    std::fs::write(&image, &golden.bytes).unwrap();
    let (copy, image) = (copy.to_str().unwrap(), image.to_str().unwrap());
    let packages = "qemu-utils and qemu-block-extra";
    succeed(packages, "qemu-img", &["convert", "-f", "raw", "-O", "raw", &lab.url(""), copy]);
    assert!(std::fs::read(copy).unwrap() == golden.bytes);
    succeed(packages, "qemu-img", &["compare", "-f", "raw", "-F", "raw", &lab.url(""), image]);
    let output = run("libiscsi-bin", "iscsi-perf", &["-m", "8", "-b", "2048", "-t", "1", &lab.url("")]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(golden.spans() > 100, "{} spans", golden.spans());
}
