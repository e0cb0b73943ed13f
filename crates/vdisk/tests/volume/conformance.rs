//! Volumes keep the contract of block devices.
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use block::{BlockDevice, DelayDevice, LogicalBlockSize, conformance};

use crate::fixture::{Fixture, image};

/// Runs the suite on volumes over images of `size` zeros.
fn volumes_conform(
    size: usize,
    block: LogicalBlockSize,
    wrap: impl Fn(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>,
) {
    let directory = tempfile::tempdir().unwrap();
    let made = Cell::new(0);
    conformance::writable(&|| {
        made.set(made.get() + 1);
        let mut fixture = Fixture::new(directory.path(), wrap(image(vec![0; size], block)));
        fixture.config.device = format!("device-{}", made.get());
        Box::new(fixture.begin("boot-1").unwrap())
    });
}

#[test]
fn volume_of_512_byte_blocks_conforms() {
    volumes_conform(5 << 20, LogicalBlockSize::B512, |image| image);
}

#[test]
fn volume_of_4096_byte_blocks_conforms() {
    volumes_conform(5 << 20, LogicalBlockSize::B4096, |image| image);
}

#[test]
fn volume_that_ends_inside_a_cluster_conforms() {
    volumes_conform((1 << 20) + 1536, LogicalBlockSize::B512, |image| image);
}

#[test]
fn volume_on_a_slow_image_conforms() {
    let slow =
        |image| -> Arc<dyn BlockDevice> { Arc::new(DelayDevice::new(image, Duration::from_micros(10))) };
    volumes_conform(2 << 20, LogicalBlockSize::B512, slow);
    volumes_conform(2 << 20, LogicalBlockSize::B4096, slow);
}
