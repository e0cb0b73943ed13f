//! qcow2 and VMDK files that are broken on purpose: each is refused, or fails the reads that it spoils, with the
//! structure, its place and the rule.
use std::path::Path;

use block::{BlockDevice, BlockError, ByteLength, ByteOffset, Patience};
use diskimage::storage::{MemoryStorage, Storage};
use diskimage::{Format, Image, OpenOptions};

use crate::tools::{open, program, qemu_img, qemu_io, run};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A disk of 1 MiB whose first 64 KiB and last 64 KiB are written, as qemu-img stores it.
fn made(format: &str, options: &str, compressed: bool) -> MemoryStorage {
    let folder = tempfile::tempdir().unwrap();
    let (raw, image) = (folder.path().join("source.raw"), folder.path().join("image"));
    std::fs::write(&raw, vec![0; MIB as usize]).unwrap();
    qemu_io("raw", &raw, &["write -P 1 0 64k", "write -P 2 960k 64k"]);
    let compress: &[&str] = if compressed { &["-c"] } else { &[] };
    let convert = [&["convert"], compress, &["-f", "raw", "-O", format, "-o", options]];
    qemu_img(&convert.concat(), &[&raw, &image]);
    MemoryStorage::new(&std::fs::read(image).unwrap())
}

fn bytes_at<const N: usize>(file: &MemoryStorage, at: u64) -> [u8; N] {
    let mut bytes = [0; N];
    file.read_at(ByteOffset::new(at), &mut bytes, Patience::Now).unwrap();
    bytes
}

fn opened(file: &MemoryStorage) -> Result<Image, String> {
    let result = Image::from_storage(Box::new(file.clone()), OpenOptions::default());
    result.map_err(|error| error.refusal.to_string())
}

/// What is wrong with the image, at its opening or at a read of its first 4 KiB.
fn complaint(file: &MemoryStorage) -> String {
    match opened(file) {
        Err(refusal) => refusal,
        Ok(image) => match image.read(ByteOffset::ZERO, &mut [0; 4096], Patience::Blocking) {
            Err(BlockError::Corrupt { what }) => what,
            other => panic!("{other:?}"),
        },
    }
}

fn is_sound(file: &MemoryStorage) {
    let mut buffer = [0; 4096];
    opened(file).unwrap().read(ByteOffset::ZERO, &mut buffer, Patience::Blocking).unwrap();
    assert_eq!(buffer, [1; 4096]);
}

/// Puts each case's bytes in its place of a fresh copy, and looks for its words in the complaint.
fn assert_complaints(good: &MemoryStorage, cases: &[(u64, &[u8], &str)]) {
    is_sound(good);
    for (at, bytes, expected) in cases {
        let mut file = good.clone();
        file.put(ByteOffset::new(*at), bytes);
        let complaint = complaint(&file);
        assert!(complaint.contains(expected), "{bytes:x?} at {at:#x}: {complaint}");
    }
}

/// Where the L1 table, the L2 table and the first cluster of a qcow2 image stand.
fn qcow2_places(file: &MemoryStorage) -> (u64, u64, u64) {
    let place = |at| u64::from_be_bytes(bytes_at(file, at)) & 0x00FF_FFFF_FFFF_FE00;
    let l1 = place(40);
    let l2 = place(l1);
    (l1, l2, place(l2))
}

#[test]
fn qcow2_headers_that_break_a_rule_are_refused() {
    let good = made("qcow2", "compat=1.1", false);
    assert_complaints(
        &good,
        &[
            (4, &[0, 0, 0, 1], "qcow version 1"),
            (4, &[0, 0, 0, 4], "qcow2 version 4"),
            (8, &[0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 9], "backing file's name, 9 bytes at 0xffff"),
            (8, &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 4, 0], "longer than 1023 bytes"),
            (20, &[0, 0, 0, 8], "clusters of 2^8 bytes"),
            (20, &[0, 0, 0, 22], "clusters of 2^22 bytes"),
            (20, &[0xFF; 4], "clusters of 2^4294967295 bytes"),
            (24, &[0; 8], "the disk is empty"),
            (24, &[0, 0, 0, 0, 0, 0, 2, 1], "513 bytes"),
            (24, &[0, 0, 0x40, 0, 0, 0, 2, 0], "up to 64 TiB"),
            (24, &[0, 0, 0x40, 0, 0, 0, 0, 0], "the L1 table has 1 entries"),
            (24, &[0xFF; 8], "up to 64 TiB"),
            (32, &[0, 0, 0, 1], "an encrypted qcow2 image (AES)"),
            (32, &[0, 0, 0, 2], "an encrypted qcow2 image (LUKS)"),
            (32, &[0, 0, 0, 9], "an encrypted qcow2 image (method 9)"),
            (36, &[0; 4], "the L1 table has 0 entries, a disk of 1048576 bytes needs 1"),
            (40, &[0; 8], "does not lie at a cluster behind the header"),
            (40, &[0, 0, 0, 0, 0, 3, 0, 8], "does not lie at a cluster behind the header"),
            (40, &[0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0], "in the file of"),
            (72, &[0, 0, 0, 0, 0, 0, 0, 2], "marked as corrupt"),
            (72, &[0, 0, 0, 0, 0, 0, 0, 4], "external data file"),
            (72, &[0, 0, 0, 0, 0, 0, 0, 8], "goes with the wrong feature bit"),
            (72, &[0x80, 0, 0, 0, 0, 0, 0, 0], "unknown incompatible features (0x8000000000000000)"),
            (100, &[0, 0, 0, 103], "103 bytes, not 104 or more"),
            (100, &[0, 1, 0, 8], "do not lie in the first cluster"),
            (104, &[1], "goes with the wrong feature bit"),
        ],
    );
    // Refcounts may be wrong: nobody who reads needs them.
    let mut dirty = good.clone();
    dirty.put(ByteOffset::new(72), &[0, 0, 0, 0, 0, 0, 0, 1]);
    is_sound(&dirty);
    // An L1 table of 2^32 entries, in clusters of 512 bytes.
    let mut huge = good;
    huge.put(ByteOffset::new(20), &[0, 0, 0, 9, 0, 0, 0x40, 0, 0, 0, 0, 0]);
    assert!(complaint(&huge).contains("an L1 table of 17179869184 bytes (more than 33554432)"));
}

#[test]
fn qcow2_tables_that_break_a_rule_are_refused() {
    let good = made("qcow2", "compat=1.1", false);
    let (l1, l2, _) = qcow2_places(&good);
    let end = good.len().get().next_multiple_of(64 * KIB);
    let (over_l1, behind) = (l1.to_be_bytes(), end.to_be_bytes());
    assert_complaints(
        &good,
        &[
            (l1, &[0x40, 0, 0, 0, 0, 4, 0, 0], "reserved bits are set"),
            (l1, &[0, 0, 0, 0, 0, 4, 2, 0], "does not begin at a cluster"),
            (l1, &behind, "does not lie in the file"),
            // A loop: the L1 table as an L2 table.
            (l1, &over_l1, "lies over the header or the L1 table"),
            (l2, &[0x20, 0, 0, 0, 0, 5, 0, 0], "reserved bits are set"),
            (l2, &[0, 0, 0, 0, 0, 5, 2, 0], "does not begin at a multiple of its size"),
            (l2, &behind, "does not lie in the file"),
            (l2, &over_l1, "lies over the header or the L1 table"),
            (l2, &[0xC0, 0, 0, 0, 0, 5, 0, 0], "bit 63 is set"),
            (l2, &[0x40, 0, 0, 0, 0, 0, 2, 0], "lies over the header"),
            (l2, &[0x40, 0, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], "behind the end of the file"),
        ],
    );
    // A bit that version 3 has for zeros.
    let old = made("qcow2", "compat=0.10", false);
    assert_complaints(&old, &[(qcow2_places(&old).1, &[0, 0, 0, 0, 0, 5, 0, 1], "reserved bits are set")]);
}

#[test]
fn qcow2_subclusters_that_contradict_each_other_are_refused() {
    let good = made("qcow2", "extended_l2=on", false);
    let (_, l2, _) = qcow2_places(&good);
    assert_complaints(
        &good,
        &[
            (l2 + 8, &[0xFF; 8], "subcluster 0 both stored and zeros"),
            (l2, &[0; 8], "subcluster 0 stored without a cluster"),
            (l2, &[0x40, 0, 0, 0, 0, 5, 0, 0], "a compressed cluster with subclusters"),
            (20, &[0, 0, 0, 13], "too small for subclusters"),
        ],
    );
}

#[test]
fn qcow2_cut_short_is_refused_where_it_is_read() {
    let good = made("qcow2", "compat=1.1", false);
    let (l1, l2, first) = qcow2_places(&good);
    for (len, expected) in [
        (50, "it is cut short"),
        (100, "it is cut short"),
        (l1 + 7, "in the file of"),
        (l2 + 512, "does not lie in the file"),
        (first + 512, "does not lie in the file"),
    ] {
        let mut cut = good.clone();
        cut.set_len(ByteLength::new(len));
        let complaint = complaint(&cut);
        assert!(complaint.contains(expected), "cut after {len}: {complaint}");
    }
}

/// What Python's zlib makes of `expression`, as raw deflate (`-15`) or with header and checksum (15).
fn deflated(expression: &str, window_bits: i32) -> Vec<u8> {
    let script = format!(
        "import sys,zlib\nc=zlib.compressobj(9,zlib.DEFLATED,{window_bits})\n\
         sys.stdout.write((c.compress({expression})+c.flush()).hex())"
    );
    let hex = run(program("python3", "python3").args(["-c", &script]));
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// A zstd frame (RFC 8878 §3.1.1) of blocks that each repeat one byte.
fn zstd_frame(descriptor: u8, window: u8, blocks: &[(u32, u8)]) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, descriptor, window];
    for (index, &(length, byte)) in blocks.iter().enumerate() {
        let last = u32::from(index + 1 == blocks.len());
        frame.extend(&(length << 3 | 1 << 1 | last).to_le_bytes()[..3]);
        frame.push(byte);
    }
    frame
}

/// Replaces the first cluster of a compressed image of 64 KiB clusters.
fn with_stream(good: &MemoryStorage, stream: &[u8]) -> MemoryStorage {
    let mut file = good.clone();
    let at = good.len().get().next_multiple_of(512);
    file.put(ByteOffset::new(at), stream);
    // x = 62 - (16 - 8) = 54
    let more_sectors = (stream.len() as u64).div_ceil(512) - 1;
    let entry = 1 << 62 | more_sectors << 54 | at;
    let (_, l2, _) = qcow2_places(good);
    file.put(ByteOffset::new(l2), &entry.to_be_bytes());
    file
}

#[test]
fn qcow2_deflated_clusters_expand_to_a_cluster_or_are_refused() {
    let good = made("qcow2", "compat=1.1", true);
    is_sound(&good);
    is_sound(&with_stream(&good, &deflated("b'\\1'*65536", -15)));
    let half = deflated("bytes(i*i//7%251 for i in range(65536))", -15);
    for (stream, expected) in [
        (deflated("b'\\1'*65535", -15), "it expands to 65535 bytes, not to 65536"),
        (deflated("b'\\1'*65537", -15), "it expands to more than its size"),
        // A bomb: a hundred megabytes.
        (deflated("bytes(100<<20)", -15)[..60_000].to_vec(), "it expands to more than its size"),
        (half[..half.len() / 2].to_vec(), "its compressed data breaks off"),
        (vec![0xFF; 512], "its compressed data is not valid"),
    ] {
        let complaint = complaint(&with_stream(&good, &stream));
        assert!(complaint.contains(expected), "{complaint}");
        assert!(complaint.contains("[qcow2] Compressed Clusters Descriptor"), "{complaint}");
    }
}

#[test]
fn qcow2_zstd_clusters_expand_to_a_cluster_or_are_refused() {
    let good = made("qcow2", "compression_type=zstd", true);
    is_sound(&good);
    // A window of 64 KiB; 8 MiB is the most.
    let (kib_64, mib_8, mib_16) = (6 << 3, 13 << 3, 14 << 3);
    let whole = [(65_536, 1)];
    is_sound(&with_stream(&good, &zstd_frame(0, kib_64, &whole)));
    is_sound(&with_stream(&good, &zstd_frame(0, mib_8, &whole)));
    let halves = [zstd_frame(0, kib_64, &[(30_000, 1)]), zstd_frame(0, kib_64, &[(5536, 1), (30_000, 1)])];
    is_sound(&with_stream(&good, &halves.concat()));
    let bomb = vec![(65_536, 1); 30_000];
    let with_checksum = [zstd_frame(4, kib_64, &whole), vec![1, 2, 3, 4]].concat();
    for (stream, expected) in [
        (zstd_frame(0, kib_64, &[(65_535, 1)]), "it expands to 65535 bytes, not to 65536"),
        (zstd_frame(0, kib_64, &[(65_536, 1), (1, 1)]), "it expands to more than its size"),
        (zstd_frame(0, kib_64, &bomb)[..120_000].to_vec(), "it expands to more than its size"),
        (zstd_frame(0, mib_16, &whole), "its compressed data is not valid"),
        (zstd_frame(0, 0xFF, &whole), "its compressed data is not valid"),
        (zstd_frame(0, kib_64, &[(1 << 20, 1)]), "its compressed data is not valid"),
        (with_checksum, "the checksum of its data is wrong"),
        (vec![0xFF; 512], "its compressed data is not valid"),
    ] {
        let file = with_stream(&good, &stream);
        let complaint = complaint(&file);
        // Padding behind a frame that is too short is no frame.
        assert!(
            complaint.contains(expected) || (expected.contains("65535") && complaint.contains("not valid")),
            "{expected}: {complaint}"
        );
    }
}

/// Where the grain directory, the first grain table and the first grain of a VMDK stand.
fn vmdk_places(file: &MemoryStorage) -> (u64, u64, u64) {
    let directory = u64::from_le_bytes(bytes_at(file, 56)) * 512;
    let table = u64::from(u32::from_le_bytes(bytes_at(file, directory))) * 512;
    (directory, table, u64::from(u32::from_le_bytes(bytes_at(file, table))) * 512)
}

#[test]
fn vmdk_headers_that_break_a_rule_are_refused() {
    let good = made("vmdk", "subformat=monolithicSparse", false);
    let text = u64::from_le_bytes(bytes_at(&good, 28)) * 512;
    assert_complaints(
        &good,
        &[
            (4, &[4], "VMDK version 4"),
            (8, &[0, 0x80], "unknown flags (0x8000)"),
            (8, &[3, 0, 1], "compression method 0"),
            (8, &[3, 0, 2], "not both"),
            (77, &[2], "compression method 2"),
            (12, &[0; 8], "the capacity, 0 sectors"),
            (12, &[0xFF; 8], "is not from 1 to 64 TiB"),
            (12, &[1, 0, 0, 0], "the descriptor gives the extent 2048 sectors, its header 1"),
            (20, &[0; 8], "grains of 0 sectors"),
            (20, &[0x81], "grains of 129 sectors"),
            (20, &[0, 0x20], "grains of 8192 sectors"),
            (28, &[0; 8], "one extent of a VMDK by itself"),
            (28, &[0xFF; 8], "the descriptor's place"),
            (36, &[0, 0, 0, 1], "a VMDK descriptor of 8589934592 bytes (more than 1048576)"),
            (44, &[0, 0], "grain tables of 0 entries"),
            (44, &[1, 2], "grain tables of 513 entries"),
            (56, &[0; 8], "does not say where the grain directory is"),
            (56, &[0xFF, 0xFF], "does not lie in the file"),
            (56, &[0xFF; 8], "the markers of a footer are not before and behind it"),
            (73, b"\n\n\r\n", "copied as if it were text"),
            (text, b"?", "does not begin with"),
            (text, &[0; 32], "one extent of a VMDK by itself"),
            (text + 30, &[0xFF], "it is not UTF-8"),
        ],
    );
}

#[test]
fn vmdk_tables_that_break_a_rule_are_refused() {
    let good = made("vmdk", "subformat=monolithicSparse", false);
    let (directory, table, _) = vmdk_places(&good);
    let sector = |at: u64| u32::to_le_bytes((at / 512) as u32);
    let (own, end) = (sector(directory), sector(good.len().get()));
    assert_complaints(
        &good,
        &[
            (directory, &own, "lies over the grain directory"),
            (directory, &end, "does not lie in the file"),
            (directory, &[0xFF; 4], "does not lie in the file"),
            (table, &own, "lies over the header or the grain directory"),
            (table, &end, "does not lie in the file"),
            (table, &[0xFF; 4], "does not lie in the file"),
        ],
    );
    let mut cut = good.clone();
    cut.set_len(ByteLength::new(vmdk_places(&good).2 + 512));
    assert!(complaint(&cut).contains("does not lie in the file"));
}

#[test]
fn vmdk_compressed_grains_that_break_a_rule_are_refused() {
    let good = made("vmdk", "subformat=streamOptimized", false);
    let (_, _, grain) = vmdk_places(&good);
    let (marker, data) = (grain, grain + 12);
    let stored = u64::from(u32::from_le_bytes(bytes_at(&good, grain + 8)));
    let bomb = deflated("bytes(50<<20)", 15);
    assert_complaints(
        &good,
        &[
            (marker, &[128], "its marker says sector 128, the grain table 0"),
            (marker + 8, &[1, 0, 2], "its 131073 bytes are more than 131072"),
            (marker + 8, &[0, 0, 2], "do not lie in the file"),
            (marker + 8, &[9], "its compressed data breaks off"),
            (data, &[0xFF, 0xFF], "its compressed data is not valid"),
            (data + stored - 1, &[0xEE], "the checksum of its data is wrong"),
        ],
    );
    let mut file = good.clone();
    file.put(ByteOffset::new(data), &bomb[..(200 * 1024).min(bomb.len())]);
    file.put(ByteOffset::new(marker + 8), &u32::to_le_bytes(40_000));
    assert!(complaint(&file).contains("it expands to more than its size"));
}

/// As VMware's tools write it: the header says that the footer tells where the directory is.
fn with_footer(good: &MemoryStorage) -> (MemoryStorage, u64) {
    let mut file = good.clone();
    let at = good.len().get().next_multiple_of(512);
    let header: [u8; 512] = bytes_at(good, 0);
    let mut marker = [0; 512];
    (marker[0], marker[12]) = (1, 3);
    file.put(ByteOffset::new(56), &[0xFF; 8]);
    file.put(ByteOffset::new(at), &[&marker[..], &header, &[0; 512]].concat());
    (file, at)
}

#[test]
fn vmdk_directory_is_found_by_the_footer_or_the_file_is_refused() {
    let (good, footer) = with_footer(&made("vmdk", "subformat=streamOptimized", false));
    assert_complaints(
        &good,
        &[
            (footer + 8, &[1], "the markers of a footer are not before and behind it"),
            (footer + 12, &[1], "the markers of a footer are not before and behind it"),
            (footer + 1024 + 12, &[3], "the markers of a footer are not before and behind it"),
            (footer + 512, b"?", "the signature \"KDMV\" is missing"),
            (footer + 512 + 56, &[0xFF; 8], "does not say where the grain directory is"),
            (footer + 512 + 20, &[9], "grains of 9 sectors"),
        ],
    );
    let mut cut = good.clone();
    cut.set_len(ByteLength::new(good.len().get() - 512));
    assert!(complaint(&cut).contains("the file may be cut short"));
    cut.set_len(ByteLength::new(1024));
    assert!(complaint(&cut).contains("the file is too short for one"));
}

#[test]
fn vmdk_extent_file_that_is_too_short_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.vmdk");
    qemu_img(&["create", "-q", "-f", "vmdk", "-o", "subformat=monolithicFlat"], &[&image, Path::new("1M")]);
    assert_eq!(open(&image).format(), Format::Vmdk);
    let flat = std::fs::File::options().write(true).open(folder.path().join("disk-flat.vmdk")).unwrap();
    flat.set_len(MIB - 512).unwrap();
    let error = Image::open(&image, OpenOptions::default()).unwrap_err().refusal.to_string();
    assert!(
        error.contains("\"disk-flat.vmdk\" has 2048 sectors from sector 0 on, its file 1048064"),
        "{error}"
    );
}

#[test]
fn sparse_qcow2_of_sixty_four_tebibytes_costs_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("large.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", "cluster_size=2M"], &[&image, Path::new("64T")]);
    qemu_io("qcow2", &image, &["write -P 5 63T 64k"]);
    let opened = open(&image);
    let mut buffer = vec![0; 64 << 10];
    opened.read(ByteOffset::new(63 << 40), &mut buffer, Patience::Blocking).unwrap();
    assert!(buffer.iter().all(|&byte| byte == 5));
    let extents = crate::tools::extents(&opened, 0, 64 << 40);
    assert!(extents.len() < 600, "{}", extents.len());
}
