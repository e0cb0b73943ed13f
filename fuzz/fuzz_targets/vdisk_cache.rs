//! A write cache's file whose map and header a stranger has changed: it is refused, or becomes a volume that reads and
//! writes every block. The header's checksum is made right, so that what lies behind it is reached.
#![no_main]
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, LazyLock};

use block::{Access, BlockDevice, ByteLength, ByteOffset, LogicalBlockSize, MemoryDevice, Patience};
use libfuzzer_sys::fuzz_target;
use vdisk::{
    BootId, CacheObserver, CacheUsage, FullCause, ImageFingerprint, Volume, WriteCacheConfig, WriteCacheKind,
    stored_boot,
};

const SIZE: usize = 64 << 10;
const HEADER_BYTES: usize = 4096;
const FINGERPRINT: ImageFingerprint = ImageFingerprint([7; 32]);

#[derive(Debug)]
struct Deaf;

impl CacheObserver for Deaf {
    fn warning(&self, _: &str, _: CacheUsage) {}
    fn full(&self, _: &str, _: CacheUsage, _: FullCause) {}
}

/// A write cache, and what stands behind its data.
struct Cache {
    image: Arc<dyn BlockDevice>,
    config: WriteCacheConfig,
    file: File,
    tail: Vec<u8>,
}

impl Cache {
    fn new(kind: WriteCacheKind, name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("headwater-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let limit = ByteLength::new(1 << 40);
        let config = WriteCacheConfig { kind, directory, device: name.into(), limit, warn_percent: 80 };
        let bytes = (0..SIZE).map(|at| (at >> 9) as u8).collect();
        let image = MemoryDevice::with_contents(bytes, LogicalBlockSize::B512, Access::ReadOnly).unwrap();
        let image: Arc<dyn BlockDevice> = Arc::new(image);
        let volume =
            Volume::begin_boot(Arc::clone(&image), FINGERPRINT, &config, boot(), Arc::new(Deaf)).unwrap();
        volume.write(ByteOffset::new(4096), &[1; 8192], Patience::Blocking).unwrap();
        volume.abandon();
        drop(volume);
        let file = File::options().read(true).write(true).open(config.path()).unwrap();
        let mut tail = std::fs::read(config.path()).unwrap();
        tail.drain(..SIZE.min(tail.len()));
        Self { image, config, file, tail }
    }
}

fn boot() -> BootId {
    BootId::new("boot-1").unwrap()
}

static CACHES: LazyLock<[Cache; 2]> = LazyLock::new(|| {
    [Cache::new(WriteCacheKind::Volatile, "volatile"), Cache::new(WriteCacheKind::Persistent, "persistent")]
});

// Changes of the map and the header, three bytes each: where (16 bits) and what; the first byte says which cache.
fuzz_target!(|input: &[u8]| {
    let [which, changes @ ..] = input else { return };
    let cache = &CACHES[usize::from(which & 1)];
    let mut tail = cache.tail.clone();
    for change in changes.as_chunks::<3>().0 {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % tail.len();
        tail[at] = change[2];
    }
    tail.truncate(if which & 2 == 0 { tail.len() } else { usize::from(*which) << 6 });
    if which & 4 == 0 && tail.len() >= HEADER_BYTES {
        let header = tail.len() - HEADER_BYTES;
        tail[header + 12..header + 16].fill(0);
        let crc = crc32c::crc32c(&tail[header..]);
        tail[header + 12..header + 16].copy_from_slice(&crc.to_le_bytes());
    }
    cache.file.set_len(SIZE as u64).unwrap();
    cache.file.write_all_at(&tail, SIZE as u64).unwrap();
    let _ = stored_boot(&cache.config);
    let Ok(volume) =
        Volume::resume(Arc::clone(&cache.image), FINGERPRINT, &cache.config, boot(), Arc::new(Deaf))
    else {
        return;
    };
    let mut bytes = vec![0; SIZE];
    volume.read(ByteOffset::ZERO, &mut bytes, Patience::Blocking).unwrap();
    volume.write(ByteOffset::new(512), &[9; 8192], Patience::Blocking).unwrap();
    volume.read(ByteOffset::new(512), &mut bytes[..8192], Patience::Blocking).unwrap();
    assert!(bytes[..8192] == [9; 8192], "a write is lost");
    volume.abandon();
});
