//! What the smoke and the fuzz target do with bytes: take them for a disk.
use std::sync::Arc;

use block::{Access, BlockDevice, LogicalBlockSize, MemoryDevice};

/// How much of each file is read.
const START_BYTES: u64 = 4096;

/// Surveys the disk that the bytes make, and reads the beginning of each file that its entries name. Says how many entries
/// there are.
#[must_use]
pub fn disk(bytes: &[u8]) -> Option<usize> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    let device = MemoryDevice::with_contents(bytes, LogicalBlockSize::from_bytes(512)?, Access::ReadOnly)?;
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let survey = crate::survey(&device).ok()?;
    for entry in &survey.entries {
        for file in std::iter::once(&entry.kernel).chain(&entry.initrds) {
            let Ok(mut file) = crate::open(&device, file) else { continue };
            let mut start = vec![0; usize::try_from(file.length().min(START_BYTES)).unwrap_or(0)];
            // What it holds, or an error: both are well.
            let _ = file.read_at(0, &mut start);
        }
    }
    Some(survey.entries.len())
}
