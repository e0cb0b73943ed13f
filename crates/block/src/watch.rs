//! A decorator that hears of reads, and lets a device pass for one of another shape.
use std::fmt;
use std::sync::Arc;

use crate::device::{Allocation, BlockDevice, FileSpan, Geometry, Patience};
use crate::error::BlockError;
use crate::units::{ByteLength, ByteOffset, ByteRange};

/// What is called before a read: with its place and its length.
type Watcher = Box<dyn Fn(ByteOffset, ByteLength) + Send + Sync>;

/// Hands everything on to another device. What that device is like it says by itself, and whoever wants is told of its
/// reads: tests see by that in which order a server reads, and have it stand still in the middle of one.
pub struct WatchDevice {
    inner: Arc<dyn BlockDevice>,
    geometry: Geometry,
    on_read: Option<Watcher>,
}

impl WatchDevice {
    /// `inner`, unwatched and in its own shape.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        let geometry = inner.geometry();
        Self { inner, geometry, on_read: None }
    }

    /// The same with another geometry, which must allow nothing that the inner device refuses.
    #[must_use]
    pub fn shaped(mut self, shape: impl FnOnce(&mut Geometry)) -> Self {
        shape(&mut self.geometry);
        self
    }

    /// The same with `on_read` called before every attempt to read, on the thread that makes it.
    #[must_use]
    pub fn watched(mut self, on_read: impl Fn(ByteOffset, ByteLength) + Send + Sync + 'static) -> Self {
        self.on_read = Some(Box::new(on_read));
        self
    }
}

impl fmt::Debug for WatchDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inner, geometry, on_read } = self;
        let mut debug = f.debug_struct("WatchDevice");
        debug.field("inner", inner).field("geometry", geometry).field("is_watched", &on_read.is_some());
        debug.finish()
    }
}

impl BlockDevice for WatchDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        if let Some(on_read) = &self.on_read {
            on_read(at, ByteLength::of(buffer));
        }
        self.inner.read(at, buffer, patience)
    }

    fn write(&self, at: ByteOffset, data: &[u8], patience: Patience) -> Result<(), BlockError> {
        self.inner.write(at, data, patience)
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        self.inner.flush(patience)
    }

    fn discard(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.inner.discard(range, patience)
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        self.inner.write_zeroes(range, patience)
    }

    fn allocation(
        &self,
        range: ByteRange,
        patience: Patience,
    ) -> Result<(Allocation, ByteLength), BlockError> {
        self.inner.allocation(range, patience)
    }

    fn file_span(&self, range: ByteRange, patience: Patience) -> Option<FileSpan> {
        self.inner.file_span(range, patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogicalBlockSize, MemoryDevice, conformance};
    use std::sync::Mutex;

    fn memory() -> Arc<dyn BlockDevice> {
        Arc::new(MemoryDevice::zeroed(ByteLength::new(1 << 18), LogicalBlockSize::B512).unwrap())
    }

    #[test]
    fn watched_device_conforms() {
        conformance::writable(&|| Box::new(WatchDevice::new(memory()).watched(|_, _| {})));
    }

    #[test]
    fn watcher_hears_of_reads_alone_and_the_shape_is_the_one_given() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&heard);
        let device = WatchDevice::new(memory())
            .shaped(|geometry| geometry.physical_block = 4096)
            .watched(move |at, length| note.lock().unwrap().push((at.get(), length.get())));
        device.write(ByteOffset::new(512), &[1; 512], Patience::Now).unwrap();
        device.read(ByteOffset::new(512), &mut [0; 1024], Patience::Now).unwrap();
        assert_eq!(*heard.lock().unwrap(), [(512, 1024)]);
        assert_eq!(device.geometry(), Geometry { physical_block: 4096, ..memory().geometry() });
    }
}
