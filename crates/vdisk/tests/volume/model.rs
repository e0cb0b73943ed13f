//! Volumes over images with contents, against plain lists of bytes.
use block::conformance::pattern;
use block::{BlockDevice, LogicalBlockSize};
use mutate::Rng;
use vdisk::Volume;

use crate::fixture::{CLUSTER, Fixture, discard, image, read, write, write_zeroes};

/// One random operation on `model.len()` bytes of the device from `start` on, which nobody else uses.
fn random_step(volume: &Volume, start: u64, model: &mut [u8], unit: usize, rng: &mut Rng) {
    let blocks = model.len() / unit;
    let length = (1 + rng.below(60.min(blocks as u64))) as usize;
    let from = rng.below((blocks - length + 1) as u64) as usize * unit;
    let length = length * unit;
    let at = start + from as u64;
    let part = &mut model[from..from + length];
    match rng.below(9) {
        0..=3 => {
            let fill = rng.next().to_le_bytes();
            part.iter_mut().enumerate().for_each(|(i, byte)| *byte = fill[i % 8] ^ (i / 512) as u8);
            write(volume, at, part).unwrap();
        }
        4 => {
            write_zeroes(volume, at, length as u64).unwrap();
            part.fill(0);
        }
        5 => {
            discard(volume, at, length as u64).unwrap();
            let size = volume.geometry().size.get();
            let end = at + length as u64;
            let whole_end = if end == size { end } else { end / CLUSTER * CLUSTER };
            let whole_start = at.next_multiple_of(CLUSTER);
            if whole_start < whole_end {
                part[(whole_start - at) as usize..(whole_end - at) as usize].fill(0);
            }
        }
        _ => assert!(read(volume, at, length).unwrap() == part, "{length} bytes at {at:#x} differ"),
    }
}

fn agrees_with_model_across_restarts(size: usize, block: LogicalBlockSize, seed: u64) {
    let directory = tempfile::tempdir().unwrap();
    let mut model = pattern(size);
    let fixture = Fixture::new(directory.path(), image(model.clone(), block));
    let mut volume = fixture.begin("boot-1").unwrap();
    let mut rng = Rng::new(seed);
    for _ in 0..40 {
        for _ in 0..40 {
            random_step(&volume, 0, &mut model, block.bytes() as usize, &mut rng);
        }
        let used = volume.usage().used;
        match rng.below(3) {
            0 => volume.close().unwrap(),
            1 => volume.abandon(),
            _ => drop(volume),
        }
        volume = fixture.resume("boot-1").unwrap();
        assert_eq!(volume.usage().used, used);
        assert!(read(&volume, 0, size).unwrap() == model, "the volume differs after it was resumed");
    }
}

#[test]
fn volume_agrees_with_a_model_across_restarts() {
    agrees_with_model_across_restarts(2 << 20, LogicalBlockSize::B512, 1);
    agrees_with_model_across_restarts((1 << 20) + 3 * 512, LogicalBlockSize::B512, 2);
    agrees_with_model_across_restarts(3 << 20, LogicalBlockSize::B4096, 3);
}

#[test]
fn threads_that_share_clusters_never_disturb_each_other() {
    const THREADS: usize = 4;
    // Regions of an odd number of blocks, in turn: each thread meets the others' blocks in its first and last cluster.
    const REGION: usize = 37 * 512;
    let directory = tempfile::tempdir().unwrap();
    let model = pattern(THREADS * 20 * REGION);
    let fixture = Fixture::new(directory.path(), image(model.clone(), LogicalBlockSize::B512));
    let volume = fixture.begin("boot-1").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (volume, model) = (&volume, &model);
            scope.spawn(move || {
                let mut rng = Rng::new(thread as u64);
                let own = |index: usize| (index * THREADS + thread) * REGION;
                let mut regions: Vec<_> = (0..20).map(|i| model[own(i)..own(i) + REGION].to_vec()).collect();
                for _ in 0..3000 {
                    let index = rng.below(20) as usize;
                    random_step(volume, own(index) as u64, &mut regions[index], 512, &mut rng);
                }
                for (index, region) in regions.iter().enumerate() {
                    assert!(read(volume, own(index) as u64, REGION).unwrap() == *region, "region {index}");
                }
            });
        }
    });
}
