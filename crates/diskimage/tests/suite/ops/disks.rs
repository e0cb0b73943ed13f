//! Disks to work on.
use std::path::Path;

use crate::tools::{qemu_img, qemu_size};

/// Numbers that are the same on every machine: SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length.div_ceil(8))
            .flat_map(|_| self.below(u64::MAX).to_le_bytes())
            .take(length as usize)
            .collect()
    }
}

/// A raw disk with runs of noise between holes, some of them long and at odd places, and with stored zeros.
pub(crate) fn raw_disk(path: &Path, size: u64, seed: u64) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(size).unwrap();
    let mut random = Random(seed);
    let longest = (size / 512).min(5000);
    for run in 0..12 {
        let length = 512 * (1 + random.below(longest));
        let at = 512 * random.below((size - length) / 512 + 1);
        let bytes = if run % 4 == 3 { vec![0; length as usize] } else { random.bytes(length) };
        rustix::io::pwrite(&file, &bytes, at).unwrap();
    }
}

/// What qemu-img calls a format.
pub(crate) fn qemu_name(format: diskimage::Format) -> &'static str {
    match format {
        diskimage::Format::Vhd => "vpc",
        diskimage::Format::Vhdx => "vhdx",
        diskimage::Format::Raw => "raw",
        diskimage::Format::Qcow2 => "qcow2",
        diskimage::Format::Vmdk => "vmdk",
    }
}

/// Holds an image file against a raw one, by qemu-img alone.
pub(crate) fn assert_qemu_reads(image: &Path, format: diskimage::Format, raw: &Path) {
    assert_eq!(qemu_size(qemu_name(format), image), raw.metadata().unwrap().len());
    let identical = qemu_img(&["compare", "-f", qemu_name(format), "-F", "raw"], &[image, raw]);
    assert!(identical.contains("identical"), "{identical}");
}
