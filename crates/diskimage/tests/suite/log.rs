//! Log replay: random logs against a plain model and against qemu's replay, and logs that must be refused.
use block::{ByteOffset, Patience};
use diskimage::{Image, LayerIndex, OpenOptions, Source};
use mutate::Rng;

use crate::builder::{Change, Entry, LOG_GUID, MIB, Vhdx};
use crate::tools::{assert_same, extents, qemu_img, qemu_raw, read, save};

const SECTOR: u64 = 4096;
/// How many blocks the disk has, all of them in the file.
const BLOCKS: u64 = 4;

/// What a refusal says, and the change of an entry that brings it about.
type Case = (&'static str, fn(&mut Vec<u8>));

/// A disk whose blocks all have contents, and a log that is to be replayed.
fn dirty() -> Vhdx {
    let mut vhdx = Vhdx::new(BLOCKS * MIB, BLOCKS * MIB);
    let at = vhdx.payload_at();
    for block in 0..BLOCKS {
        vhdx.bat.push((block, (at + block * MIB) | 6));
        vhdx.data.push((at + block * MIB, block::conformance::pattern(1 << 20)));
    }
    vhdx.dirty = true;
    vhdx
}

fn entry(vhdx: &Vhdx, sequence: u64, tail: u64, changes: Vec<Change>) -> Entry {
    let (flushed, last) = (vhdx.file_bytes, vhdx.file_bytes);
    Entry { sequence, tail, guid: LOG_GUID, flushed, last, changes }
}

fn data(at: u64, fill: u8) -> Change {
    Change::Data { at, sector: vec![fill; SECTOR as usize] }
}

fn zero(at: u64, sectors: u64) -> Change {
    Change::Zero { at, length: sectors * SECTOR }
}

fn byte_at(image: &Image, at: u64) -> u8 {
    let mut sector = [0; 512];
    read(image, at, &mut sector);
    assert!(sector.iter().all(|&byte| byte == sector[0]));
    sector[0]
}

#[test]
fn later_changes_hide_earlier_ones_of_either_kind() {
    let mut vhdx = dirty();
    let at = vhdx.payload_at();
    let changes = vec![
        data(at, 1),
        zero(at, 2),
        zero(at + 3 * SECTOR, 3),
        data(at + 4 * SECTOR, 2),
        data(at + SECTOR, 3),
    ];
    vhdx.log = vec![(0, entry(&vhdx, 9, 0, changes).build())];
    let image = vhdx.open().unwrap();
    assert!(image.info().log_replayed);
    let bytes: Vec<u8> = [0, 1, 3, 4, 5].map(|sector| byte_at(&image, sector * SECTOR)).to_vec();
    assert_eq!(bytes, [0, 3, 0, 2, 0]);
    let sources: Vec<Source> = extents(&image, 0, 7 * SECTOR).iter().map(|extent| extent.source).collect();
    let place = |sector: u64| ByteOffset::new(at + sector * SECTOR);
    let expected = [
        Source::Zero,
        Source::Replayed { layer: LayerIndex::BASE, at: place(1) },
        Source::File { layer: LayerIndex::BASE, at: place(2) },
        Source::Zero,
        Source::Replayed { layer: LayerIndex::BASE, at: place(4) },
        Source::Zero,
        Source::File { layer: LayerIndex::BASE, at: place(6) },
    ];
    assert_eq!(sources, expected);
}

#[test]
fn entries_before_the_tail_of_the_head_are_not_replayed() {
    let mut vhdx = dirty();
    let at = vhdx.payload_at();
    vhdx.log = vec![
        (0, entry(&vhdx, 5, 0, vec![data(at, 1), data(at + SECTOR, 1)]).build()),
        (3 * SECTOR, entry(&vhdx, 6, 3 * SECTOR, vec![data(at, 2)]).build()),
        (5 * SECTOR, entry(&vhdx, 7, 3 * SECTOR, vec![]).build()),
    ];
    let image = vhdx.open().unwrap();
    assert_eq!(byte_at(&image, 0), 2);
    assert!(matches!(extents(&image, SECTOR, 512)[0].source, Source::File { .. }));
}

#[test]
fn head_whose_tail_is_outside_its_sequence_does_not_count() {
    let mut vhdx = dirty();
    let at = vhdx.payload_at();
    vhdx.log = vec![
        (0, entry(&vhdx, 5, 0, vec![data(at, 1)]).build()),
        // Greater numbers, but the entry that the head needs is gone.
        (8 * SECTOR, entry(&vhdx, 20, 6 * SECTOR, vec![data(at, 2)]).build()),
        (10 * SECTOR, entry(&vhdx, 21, 6 * SECTOR, vec![data(at, 3)]).build()),
    ];
    assert_eq!(byte_at(&vhdx.open().unwrap(), 0), 1);
}

#[test]
fn entries_of_another_session_do_not_count() {
    let mut vhdx = dirty();
    let at = vhdx.payload_at();
    let mut old = entry(&vhdx, 99, 8 * SECTOR, vec![data(at, 2)]);
    old.guid = *b"an older session";
    vhdx.log = vec![(0, entry(&vhdx, 5, 0, vec![data(at, 1)]).build()), (8 * SECTOR, old.build())];
    assert_eq!(byte_at(&vhdx.open().unwrap(), 0), 1);
}

#[test]
fn entry_goes_round_the_end_of_the_log() {
    let mut vhdx = dirty();
    let at = vhdx.payload_at();
    let changes: Vec<Change> = (0..200).map(|n| data(at + n * SECTOR, n as u8)).collect();
    for from_end in [1, 2, 3, 100] {
        let tail = MIB - from_end * SECTOR;
        vhdx.log = vec![(tail, entry(&vhdx, 1, tail, changes.clone()).build())];
        let image = vhdx.open().unwrap();
        for n in 0..200 {
            assert_eq!(byte_at(&image, n * SECTOR), n as u8, "sector {n}, tail at {tail:#x}");
        }
    }
}

#[test]
fn file_grows_to_the_last_offset_of_the_head_with_zeros() {
    let mut vhdx = dirty();
    let at = vhdx.payload_at();
    // The last block lies behind the end of the file; the log has the BAT entry that says so.
    vhdx.file_bytes -= MIB;
    vhdx.data.pop();
    vhdx.bat.pop();
    let mut bat = vec![0; SECTOR as usize];
    for block in 0..BLOCKS {
        bat[block as usize * 8..][..8].copy_from_slice(&((at + block * MIB) | 6).to_le_bytes());
    }
    let changes =
        vec![Change::Data { at: crate::builder::BAT_AT, sector: bat }, data(at + 4 * MIB - 2 * SECTOR, 8)];
    let mut entry = entry(&vhdx, 3, 0, changes);
    entry.last = at + BLOCKS * MIB;
    vhdx.log = vec![(0, entry.build())];
    let image = vhdx.open().unwrap();
    assert_eq!(byte_at(&image, 3 * MIB), 0);
    assert_eq!(byte_at(&image, 4 * MIB - 2 * SECTOR), 8);
    assert_eq!(byte_at(&image, 4 * MIB - SECTOR), 0);
}

#[test]
fn logs_that_cannot_be_replayed_are_refused() {
    let empty = dirty();
    assert!(empty.refusal().contains("no valid sequence"), "{}", empty.refusal());

    let at = empty.payload_at();
    let refusal = |entry: &Entry, change: fn(&mut Vec<u8>)| {
        let mut vhdx = empty.clone();
        let mut bytes = entry.build();
        change(&mut bytes);
        vhdx.log = vec![(0, crate::builder::sealed(bytes))];
        vhdx.refusal()
    };
    let good = entry(&empty, 3, 0, vec![data(at, 1)]);
    let cut = Entry { flushed: empty.file_bytes + 1, ..good.clone() };
    assert!(refusal(&cut, |_| ()).contains("it has been cut short"));
    let cases: [Case; 8] = [
        ("descriptor at 0x100040: it has the signature \"desk\"", |bytes| bytes[67] = b'k'),
        ("descriptor at 0x100040: it has sequence number 4, its entry 3", |bytes| bytes[88] = 4),
        ("not made of whole sectors", |bytes| bytes[80] = 1),
        ("not made of whole sectors", |bytes| bytes[80..88].fill(0xF0)),
        ("data sector at 0x101000: the signature", |bytes| bytes[4096] = b'D'),
        ("data sector at 0x101000: it has sequence number 4294967299", |bytes| bytes[4100] = 1),
        ("its entry ends before it", |bytes| {
            bytes.truncate(4096);
            bytes[9] = 0x10;
        }),
        ("no valid sequence", |bytes| bytes[24..28].fill(0xFF)),
    ];
    for (expected, change) in cases {
        let message = refusal(&good, change);
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn log_that_changes_what_its_replay_stands_on_is_refused() {
    let mut vhdx = dirty();
    // The file type identifier, a header, the run up to the region tables, the log: its ends and the whole of it.
    let hostile = [
        (zero(0, 1), "the headers"),
        (data(0x20000, 7), "the headers"),
        (zero(0x2F000, 2), "the headers"),
        (data(MIB, 7), "the log"),
        (data(2 * MIB - SECTOR, 7), "the log"),
        (zero(MIB - SECTOR, 300), "the log"),
    ];
    for (change, expected) in hostile {
        vhdx.log = vec![(0, entry(&vhdx, 3, 0, vec![change.clone()]).build())];
        assert!(vhdx.refusal().contains(expected), "{change:?}: {}", vhdx.refusal());
    }
    // What lies beside them may change, the second region table too.
    let beside = vec![zero(MIB - SECTOR, 1), zero(0x40000, 16), data(vhdx.payload_at(), 1)];
    vhdx.log = vec![(0, entry(&vhdx, 3, 0, beside).build())];
    assert_eq!(byte_at(&vhdx.open().unwrap(), 0), 1);
}

#[test]
fn changed_byte_of_an_entry_makes_it_invalid() {
    let mut vhdx = dirty();
    let at = vhdx.payload_at();
    let good = entry(&vhdx, 3, 0, vec![data(at, 1)]).build();
    for place in [4, 8, 16, 30, 60, 100, 5000, 8191] {
        let mut bytes = good.clone();
        bytes[place] ^= 1;
        vhdx.log = vec![(0, bytes)];
        assert!(vhdx.refusal().contains("no valid sequence"), "byte {place}: {}", vhdx.refusal());
    }
}

#[test]
fn log_of_overlapping_entries_is_given_up() {
    let mut vhdx = dirty();
    // Every sector begins an entry that claims the whole log: the checksums alone would be 64 MiB of work here, and
    // grow with the square of the log.
    let mut entry = entry(&vhdx, 3, 0, vec![]).build();
    entry[8..12].copy_from_slice(&(1_u32 << 20).to_le_bytes());
    vhdx.log = (0..256).map(|sector| (sector * SECTOR, entry.clone())).collect();
    assert!(vhdx.refusal().contains("lie over each other"), "{}", vhdx.refusal());
}

#[test]
fn random_logs_replay_as_a_plain_model_does() {
    for seed in 0..60 {
        let random = random_log(&mut Rng::new(seed), Within::Specification);
        let image = random.vhdx.open().unwrap();
        let mut disk = vec![0; (BLOCKS * MIB) as usize];
        for block in disk.chunks_mut(1 << 20) {
            block.copy_from_slice(&block::conformance::pattern(1 << 20));
        }
        for change in &random.replayed {
            let (at, bytes) = match change {
                Change::Data { at, sector } => (at, sector.clone()),
                Change::Zero { at, length } => (at, vec![0; *length as usize]),
            };
            let start = (at - random.vhdx.payload_at()) as usize;
            disk[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        let mut ours = vec![0; disk.len()];
        read(&image, 0, &mut ours);
        assert!(ours == disk, "seed {seed}");
    }
}

#[test]
fn random_logs_replay_as_qemu_replays_them() {
    let directory = tempfile::tempdir().unwrap();
    for seed in 0..30 {
        let vhdx = random_log(&mut Rng::new(seed), Within::Qemu).vhdx;
        let file = vhdx.build();
        let path = directory.path().join("random.vhdx");
        save(&file, &path);
        let image = Image::from_storage(Box::new(file.clone()), OpenOptions::default()).unwrap();
        assert!(image.info().log_replayed);
        qemu_img(&["check", "-q", "-r", "all"], &[&path]);
        println!("seed {seed}");
        assert_same(&image, &qemu_raw("vhdx", &path));
    }
}

struct RandomLog {
    vhdx: Vhdx,
    /// What its replay must change, in order.
    replayed: Vec<Change>,
}

/// What a random log may be like.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Anything: it begins anywhere, goes round the end, and has entries before the tail that must not be replayed.
    Specification,
    /// What qemu 7.2 replays as the specification says. It takes no notice of tails, does not find the start of a
    /// sequence that goes round the end, and fails on entries with more than 126 changes.
    Qemu,
}

/// A random log with other sessions' entries around it.
fn random_log(rng: &mut Rng, within: Within) -> RandomLog {
    let (most_changes, places) = match within {
        Within::Specification => (300, MIB / SECTOR),
        Within::Qemu => (126, 20),
    };
    let mut vhdx = dirty();
    let start = rng.below(places) * SECTOR;
    let sequence = rng.below(1 << 40) + 1;
    for _ in 0..rng.below(4) {
        let at = rng.below(MIB / SECTOR) * SECTOR;
        let changes = (0..4).map(|_| random_change(&vhdx, rng)).collect();
        let mut other = entry(&vhdx, sequence + 100, at, changes);
        other.guid = *b"an older session";
        vhdx.log.push((at, other.build()));
    }
    let (mut used, mut tail, mut replayed) = (0, start, Vec::new());
    for index in 0..=rng.below(6) {
        let place = (start + used) % MIB;
        let restarts = within == Within::Specification && rng.below(2) == 0;
        let changes: Vec<Change> = (0..=rng.below(most_changes)).map(|_| random_change(&vhdx, rng)).collect();
        let entry_tail = if restarts { place } else { tail };
        let bytes = entry(&vhdx, sequence + index, entry_tail, changes.clone()).build();
        used += bytes.len() as u64;
        if used >= MIB || (within == Within::Qemu && start + used >= MIB) {
            // The entry does not fit; the one before stays the head, with its own tail.
            break;
        }
        if restarts {
            replayed.clear();
        }
        tail = entry_tail;
        replayed.extend(changes);
        vhdx.log.push((place, bytes));
    }
    RandomLog { vhdx, replayed }
}

fn random_change(vhdx: &Vhdx, rng: &mut Rng) -> Change {
    let sectors = BLOCKS * MIB / SECTOR;
    let sector = rng.below(sectors);
    let at = vhdx.payload_at() + sector * SECTOR;
    if rng.below(4) == 0 {
        return zero(at, rng.below((sectors - sector).min(20)) + 1);
    }
    let mut bytes: Vec<u8> = (0..SECTOR / 8).flat_map(|_| rng.next().to_le_bytes()).collect();
    bytes[0] = 7;
    Change::Data { at, sector: bytes }
}

#[test]
fn replayed_bytes_are_read_without_waiting() {
    let mut vhdx = dirty();
    let at = vhdx.payload_at();
    vhdx.log = vec![(0, entry(&vhdx, 3, 0, vec![data(at, 5)]).build())];
    let image = vhdx.open().unwrap();
    let mut sector = [0; 4096];
    block::BlockDevice::read(&image, ByteOffset::ZERO, &mut sector, Patience::Now).unwrap();
    assert_eq!(sector, [5; 4096]);
}

#[test]
fn entry_that_a_crash_tore_is_told_by_a_check() {
    let mut vhdx = dirty();
    let at = vhdx.payload_at();
    let whole = entry(&vhdx, 9, 0, vec![data(at, 1)]).build();
    let mut torn = entry(&vhdx, 10, 0, vec![data(at, 2)]).build();
    let torn_at = whole.len() as u64;
    torn[5000] ^= 1;
    vhdx.log = vec![(0, whole.clone()), (torn_at, torn)];
    assert_eq!(byte_at(&vhdx.open().unwrap(), 0), 1);
    let codes = |vhdx: &Vhdx| {
        let report = diskimage::check::check(&vhdx.build(), diskimage::Format::Vhdx).unwrap();
        let codes = report.findings().iter().map(|finding| finding.code);
        codes.filter(|code| code.starts_with("vhdx-log")).collect::<Vec<_>>()
    };
    assert_eq!(codes(&vhdx), ["vhdx-log-dirty", "vhdx-log-torn"]);
    vhdx.log = vec![(0, whole)];
    assert_eq!(codes(&vhdx), ["vhdx-log-dirty"]);
}
