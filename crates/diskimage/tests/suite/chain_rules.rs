//! What holds a chain together: the right parents, found in the store and nowhere else, and read as one disk.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use block::conformance::{pattern, read_only};
use block::{BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::chain::{
    ChainError, FileName, FoundParent, MAX_LAYERS, ParentReference, ParentResolver, Parents,
};
use diskimage::chain::{Store, Tried, Vicinity};
use diskimage::storage::{MemoryStorage, Storage, StorageError};
use diskimage::{Children, Image, LayerIndex, MutableImage, OpenOptions, Refusal, Source};

use crate::builder::{BAT_AT, Change, Entry, LOG_GUID, MIB, Vhdx, guid_of};
use crate::tools::{extents, open, qemu_img, read, save};

/// A base of 4 MiB whose blocks hold the byte `id`.
fn base(id: u8) -> Vhdx {
    let mut base = Vhdx::new(4 * MIB, 4 * MIB);
    base.id = id;
    let at = base.payload_at();
    base.bat = (0..4).map(|block| (block, (at + block * MIB) | 6)).collect();
    base.data = vec![(at, vec![id; 4 << 20])];
    base
}

/// A child that holds nothing, of the parent `parent_id` at `path`.
fn child(id: u8, parent_id: u8, path: &str) -> Vhdx {
    let mut child = Vhdx::new(4 * MIB, 4 * MIB);
    (child.id, child.has_parent) = (id, true);
    child.locator = vec![("parent_linkage", guid_of(parent_id)), ("relative_path", path.into())];
    child
}

fn put(vhdx: &Vhdx, folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    save(&vhdx.build(), &path);
    path
}

fn refused(path: &Path, parents: Parents) -> (ChainError, String) {
    let error = Image::open(path, OpenOptions { parents, ..OpenOptions::default() }).unwrap_err();
    let message = error.refusal.to_string();
    let Refusal::Chain(error) = error.refusal else { panic!("{message}") };
    (*error, message)
}

fn byte_at(image: &Image, at: u64) -> u8 {
    let mut block = [0; 512];
    read(image, at, &mut block);
    assert!(block.iter().all(|&byte| byte == block[0]));
    block[0]
}

#[test]
fn parent_that_is_another_file_is_refused_with_both_names_and_identifiers() {
    let folder = tempfile::tempdir().unwrap();
    let parent = put(&base(1), folder.path(), "base.vhdx").canonicalize().unwrap();
    let leaf = put(&child(2, 9, "base.vhdx"), folder.path(), "leaf.vhdx");
    let (error, message) = refused(&leaf, Parents::Beside);
    assert!(matches!(error, ChainError::Linkage { .. }), "{message}");
    let (wanted, found) = (guid_of(9), guid_of(1));
    for part in
        [leaf.to_str().unwrap(), parent.to_str().unwrap(), &wanted[1..37], &found[1..37], "image rebase"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    // The second linkage counts as well: a merge in place sets it first.
    let mut moving = child(2, 9, "base.vhdx");
    moving.locator.push(("parent_linkage2", guid_of(1)));
    assert_eq!(byte_at(&open(&put(&moving, folder.path(), "leaf.vhdx")), 0), 1);
    // And it is checked at every step: here the parent's own parent is the wrong one.
    put(&child(2, 9, "base.vhdx"), folder.path(), "middle.vhdx");
    let leaf = put(&child(3, 2, "middle.vhdx"), folder.path(), "leaf.vhdx");
    let (_, message) = refused(&leaf, Parents::Beside);
    assert!(message.contains("middle.vhdx\" was made from"), "{message}");
}

#[test]
fn missing_parent_is_named_with_all_places_that_were_tried() {
    let folder = tempfile::tempdir().unwrap();
    let mut leaf = child(2, 1, r"..\away\base.vhdx");
    leaf.locator.push(("volume_path", r"\\?\Volume{26a21bda-a627-11d7-9931-806e6f6e6963}\one.vhdx".into()));
    leaf.locator.push(("absolute_win32_path", r"\\?\d:\two.vhdx".into()));
    let path = put(&leaf, folder.path(), "leaf.vhdx");
    let (error, message) = refused(&path, Parents::Beside);
    let ChainError::NotFound { tried, .. } = error else { panic!("{message}") };
    let why: Vec<&str> = tried.iter().map(|Tried { why, .. }| why.as_str()).collect();
    assert_eq!(why, ["leads out of the store", "is not there", "is not there"]);
    assert!(message.contains("two.vhdx") && message.contains("image rebase"), "{message}");
    // By the name in the last of them it is found in the child's own folder.
    put(&base(1), folder.path(), "two.vhdx");
    assert_eq!(byte_at(&open(&path), 0), 1);
    assert_eq!(open(&path).layers()[0].path.as_deref().unwrap().file_name().unwrap(), "two.vhdx");
}

#[test]
fn nothing_outside_the_store_is_ever_a_parent() {
    let around = tempfile::tempdir().unwrap();
    let store = around.path().join("store");
    // The right parent, everywhere but in the store.
    let outside = put(&base(1), around.path(), "base.vhdx");
    std::fs::create_dir_all(&store).unwrap();
    std::os::unix::fs::symlink("../base.vhdx", store.join("link.vhdx")).unwrap();
    std::os::unix::fs::symlink("..", store.join("folder")).unwrap();
    let absolute = outside.to_str().unwrap();
    for said in [
        r"..\base.vhdx",
        "../base.vhdx",
        r".\..\store\..\base.vhdx",
        absolute,
        &format!(r"\\localhost{absolute}"),
        &format!("C:{absolute}"),
        "link.vhdx",
        r"folder\base.vhdx",
        r"folder\store\..\base.vhdx",
    ] {
        let leaf = put(&child(2, 1, said), &store, "leaf.vhdx");
        for parents in [Parents::Beside, Parents::In(store.clone())] {
            let (error, message) = refused(&leaf, parents);
            assert!(matches!(error, ChainError::NotFound { .. }), "{said}: {message}");
        }
        // In a larger store it is reached, by the paths that are relative.
        let larger = OpenOptions { parents: Parents::In(around.path().into()), ..OpenOptions::default() };
        let is_relative = !said.contains(absolute);
        assert_eq!(Image::open(&leaf, larger).is_ok(), is_relative, "{said}");
    }
    let leaf = put(&child(2, 1, "base.vhdx"), around.path(), "leaf.vhdx");
    let (error, message) = refused(&leaf, Parents::In(store));
    assert!(matches!(error, ChainError::Outside { child: FileName(Some(_)), .. }), "{message}");
}

#[test]
fn file_among_its_own_parents_is_refused_whatever_it_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let itself = put(&child(1, 1, "self.vhdx"), folder.path(), "self.vhdx");
    let (error, message) = refused(&itself, Parents::Beside);
    assert!(matches!(error, ChainError::Cycle { .. }), "{message}");
    for dirty in [false, true] {
        let mut one = child(1, 2, "two.vhdx");
        one.dirty = dirty;
        let entry = Entry {
            sequence: 7,
            tail: 0,
            guid: LOG_GUID,
            flushed: one.file_bytes,
            last: one.file_bytes,
            changes: Vec::new(),
        };
        one.log = vec![(0, entry.build())];
        let one = put(&one, folder.path(), "one.vhdx");
        put(&child(2, 1, "again.vhdx"), folder.path(), "two.vhdx");
        let _ = std::fs::remove_file(folder.path().join("again.vhdx"));
        std::fs::hard_link(&one, folder.path().join("again.vhdx")).unwrap();
        let (error, message) = refused(&one, Parents::Beside);
        assert!(matches!(error, ChainError::Cycle { .. }), "{message}");
        let _ = std::fs::remove_file(folder.path().join("again.vhdx"));
        std::os::unix::fs::symlink("one.vhdx", folder.path().join("again.vhdx")).unwrap();
        let (error, message) = refused(&one, Parents::Beside);
        assert!(matches!(error, ChainError::Cycle { .. }), "{message}");
    }
}

#[test]
fn formats_and_sectors_do_not_mix_in_a_chain() {
    let folder = tempfile::tempdir().unwrap();
    let options = "subformat=fixed";
    qemu_img(
        &["create", "-q", "-f", "vpc", "-o", options],
        &[&folder.path().join("base.vhd"), "4M".as_ref()],
    );
    let leaf = put(&child(2, 1, "base.vhd"), folder.path(), "leaf.vhdx");
    let (error, message) = refused(&leaf, Parents::Beside);
    assert!(matches!(error, ChainError::Mixed { .. }), "{message}");
    assert!(message.contains("another format (VHD)"), "{message}");
    let mut large = base(1);
    large.sector = 4096;
    put(&large, folder.path(), "base.vhdx");
    let leaf = put(&child(2, 1, "base.vhdx"), folder.path(), "leaf.vhdx");
    let (error, message) = refused(&leaf, Parents::Beside);
    assert!(matches!(error, ChainError::SectorSize { .. }), "{message}");
    std::fs::write(folder.path().join("base.vhdx"), b"vhdxfile and no more").unwrap();
    let (error, message) = refused(&leaf, Parents::Beside);
    assert!(matches!(error, ChainError::Parent { .. }), "{message}");
    let error = Image::from_storage(Box::new(child(2, 1, "x").build()), OpenOptions::default()).unwrap_err();
    assert!(error.refusal.to_string().contains("open it by its path"), "{}", error.refusal);
}

/// Parents in memory, by the relative path that names them.
#[derive(Debug)]
struct InMemory {
    files: BTreeMap<String, MemoryStorage>,
    cold: bool,
}

impl ParentResolver for InMemory {
    fn resolve(&self, _: Option<&Path>, reference: &ParentReference) -> Result<FoundParent, ChainError> {
        let name = reference.relative_path.clone().unwrap_or_default();
        let Some(file) = self.files.get(&name) else {
            return Err(ChainError::NotFound { child: FileName(None), tried: Vec::new() });
        };
        let storage: Box<dyn Storage> =
            if self.cold { Box::new(Cold(file.clone())) } else { Box::new(file.clone()) };
        Ok(FoundParent { path: name.into(), storage })
    }
}

/// Storage in which nothing is in memory until someone has waited for it.
#[derive(Debug)]
struct Cold(MemoryStorage);

impl Storage for Cold {
    fn len(&self) -> ByteLength {
        self.0.len()
    }

    fn read_at(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), StorageError> {
        match patience {
            Patience::Now => Err(StorageError::WouldBlock),
            Patience::Blocking => self.0.read_at(at, buffer, patience),
        }
    }
}

fn in_memory(leaf: &Vhdx, parents: Vec<(&str, Vhdx)>, cold: bool) -> Result<Image, Refusal> {
    let files = parents.into_iter().map(|(name, file)| (name.to_owned(), file.build())).collect();
    let parents = Parents::By(Arc::new(InMemory { files, cold }));
    let options = OpenOptions { parents, ..OpenOptions::default() };
    let leaf: Box<dyn Storage> = if cold { Box::new(Cold(leaf.build())) } else { Box::new(leaf.build()) };
    Image::from_storage(leaf, options).map_err(|error| error.refusal)
}

#[test]
fn chain_has_as_many_files_as_the_limit_says_and_not_one_more() {
    let small = |mut file: Vhdx| {
        (file.file_bytes, file.virtual_bytes) = (BAT_AT + MIB, MIB);
        file.bat.clear();
        file.data.clear();
        file
    };
    for (files, fits) in [(MAX_LAYERS, true), (MAX_LAYERS + 1, false)] {
        let names: Vec<String> = (0..files).map(|number| number.to_string()).collect();
        let mut parents = vec![("0", small(base(1)))];
        for number in 1..files - 1 {
            parents.push((&names[number], small(child(1, 1, &names[number - 1]))));
        }
        let result = in_memory(&small(child(1, 1, &names[files - 2])), parents, false);
        match result {
            Ok(image) => assert!(fits && image.layers().len() == MAX_LAYERS && byte_at(&image, 0) == 0),
            Err(refusal) => {
                assert!(!fits && refusal.to_string().contains("more than 128 files"), "{refusal}");
            }
        }
    }
}

/// A child whose block 0 has some sectors of its own, whose block 1 is all its own, whose block 2 hides the parent;
/// block 3 is the parent's. And what it reads as, over a parent of `under`.
fn mixed_child(sector: u32, under: &[u8]) -> (Vhdx, Vec<u8>) {
    let mut file = child(2, 1, "base");
    file.sector = sector;
    let at = file.payload_at();
    let ratio = (1_u64 << 23) * u64::from(sector) / MIB;
    file.bat = vec![(0, at | 7), (1, (at + MIB) | 6), (2, 2), (ratio, (at + 2 * MIB) | 6)];
    let own = pattern(2 << 20);
    // Sectors 3 to 17 and 21; bits of block 1 that mean nothing.
    let bits = [0b1111_1000, 0xFF, 0b0010_0011];
    let sectors = (3..18).chain([21]);
    file.data = vec![
        (at, own.clone()),
        (at + 2 * MIB, bits.to_vec()),
        (at + 2 * MIB + MIB / u64::from(sector) / 8, vec![0x55; 9]),
    ];
    let mut expected = under.to_vec();
    for one in sectors {
        let range = one * sector as usize..(one + 1) * sector as usize;
        expected[range.clone()].copy_from_slice(&own[range]);
    }
    expected[1 << 20..2 << 20].copy_from_slice(&own[1 << 20..]);
    expected[2 << 20..3 << 20].fill(0);
    (file, expected)
}

fn patterned_base(sector: u32) -> (Vhdx, Vec<u8>) {
    let mut under = base(1);
    under.sector = sector;
    let contents = pattern(4 << 20);
    under.data = vec![(under.payload_at(), contents.clone())];
    (under, contents)
}

#[test]
fn chain_conforms_in_memory_and_on_files_with_either_sector_size() {
    for sector in [512, 4096] {
        let (under, contents) = patterned_base(sector);
        let (mut leaf, expected) = mixed_child(sector, &contents);
        read_only(&in_memory(&leaf, vec![("base", under.clone())], false).unwrap(), &expected);
        let folder = tempfile::tempdir().unwrap();
        put(&under, folder.path(), "base.vhdx");
        leaf.locator[1].1 = "base.vhdx".into();
        let path = put(&leaf, folder.path(), "leaf.vhdx");
        let image = open(&path);
        read_only(&image, &expected);
        // What the leaf says by itself: nothing of block 3, zeros for block 2.
        let range = |block: u64| ByteRange::new(ByteOffset::new(block * MIB), ByteLength::new(MIB)).unwrap();
        let above = |block| image.extent_above(LayerIndex::BASE, range(block), Patience::Blocking).unwrap();
        assert_eq!(above(3), (range(3), None));
        assert_eq!(above(2), (range(2), Some(Source::Zero)));
        assert_eq!(above(0).0.length().get(), 3 * u64::from(sector));
        let parent = Image::open_parent_of(&path, OpenOptions::default()).unwrap().unwrap();
        read_only(&parent, &contents);
        let none = Image::open_parent_of(&folder.path().join("base.vhdx"), OpenOptions::default()).unwrap();
        assert!(none.is_none());
    }
}

#[test]
fn dirty_logs_of_child_and_parent_are_both_replayed() {
    let (mut under, contents) = patterned_base(512);
    let (mut leaf, mut expected) = mixed_child(512, &contents);
    let entry = |file: &Vhdx, changes| Entry {
        sequence: 5,
        tail: 0,
        guid: LOG_GUID,
        flushed: file.file_bytes,
        last: file.file_bytes,
        changes,
    };
    // The parent's log: 4 KiB of block 3 are another's, 8 KiB behind them zeros.
    let at = under.payload_at() + 3 * MIB;
    let changes = vec![
        Change::Data { at: at + 4096, sector: vec![7; 4096] },
        Change::Zero { at: at + 8192, length: 8192 },
    ];
    under.log = vec![(0, entry(&under, changes).build())];
    under.dirty = true;
    let block = 3 << 20;
    expected[block + 4096..block + 8192].fill(7);
    expected[block + 8192..block + 16384].fill(0);
    // The child's log: the table changes, so that block 2 is the parent's again; and the bitmap, so that of block 0
    // only sector 40 is here.
    let mut table = vec![0; 4096];
    for (index, entry) in &leaf.bat[..2] {
        table[*index as usize * 8..][..8].copy_from_slice(&entry.to_le_bytes());
    }
    let mut bits = vec![0; 4096];
    bits[5] = 1;
    let changes = vec![
        Change::Data { at: BAT_AT, sector: table },
        Change::Data { at: leaf.payload_at() + 2 * MIB, sector: bits },
    ];
    leaf.log = vec![(0, entry(&leaf, changes).build())];
    leaf.dirty = true;
    let own = pattern(2 << 20);
    expected[..1 << 20].copy_from_slice(&contents[..1 << 20]);
    expected[40 * 512..41 * 512].copy_from_slice(&own[40 * 512..41 * 512]);
    expected[2 << 20..3 << 20].copy_from_slice(&contents[2 << 20..3 << 20]);
    let image = in_memory(&leaf, vec![("base", under)], false).unwrap();
    assert!(image.layers().iter().all(|layer| layer.info.log_replayed));
    read_only(&image, &expected);
    let sources: Vec<Source> = extents(&image, 3 * MIB, MIB).iter().map(|extent| extent.source).collect();
    assert!(matches!(sources[1], Source::Replayed { layer: LayerIndex::BASE, .. }), "{sources:?}");
    assert_eq!(sources[2], Source::Zero);
}

#[test]
fn large_sparse_chain_opens_at_once_and_answers_without_waiting_once_touched() {
    const TIB: u64 = 1 << 40;
    let large = |mut file: Vhdx| {
        file.virtual_bytes = 64 * TIB;
        file.block_bytes = 32 << 20;
        file.file_bytes = file.payload_at() + 64 * MIB;
        file.bat.clear();
        file.data.clear();
        file
    };
    let mut under = large(base(1));
    let last = ((64 * TIB) >> 25) - 1;
    let at = under.payload_at();
    under.bat = vec![(last + last / 128, (at + 32 * MIB) | 6)];
    under.data = vec![(at + 64 * MIB - 512, vec![5; 512])];
    let parents = vec![("base", under), ("middle", large(child(2, 1, "base")))];
    let image = in_memory(&large(child(3, 2, "middle")), parents, true).unwrap();
    let mut buffer = [9; 512];
    let (hole, end) = (ByteOffset::new(40 * TIB), ByteOffset::new(64 * TIB - 512));
    let result = image.read(hole, &mut buffer, Patience::Now);
    assert!(matches!(result, Err(BlockError::WouldBlock)), "{result:?}");
    image.read(hole, &mut buffer, Patience::Blocking).unwrap();
    buffer.fill(9);
    image.read(hole, &mut buffer, Patience::Now).unwrap();
    assert_eq!(buffer, [0; 512]);
    image.read(end, &mut buffer, Patience::Blocking).unwrap();
    assert_eq!(buffer, [5; 512]);
    // The map is there; the payload itself is not in memory.
    let range = ByteRange::new(end, ByteLength::new(512)).unwrap();
    let place = ByteOffset::new(at + 64 * MIB - 512);
    let extent = image.extent(range, Patience::Now).unwrap();
    assert_eq!(extent.source, Source::File { layer: LayerIndex::BASE, at: place });
    let result = image.read(end, &mut buffer, Patience::Now);
    assert!(matches!(result, Err(BlockError::WouldBlock)), "{result:?}");
}

#[test]
fn finely_divided_chain_reads_right_past_every_limit_of_the_map() {
    // One block of 64 MiB of which every other sector, or every other page, is the child's: more runs than the map
    // keeps, or more than one that must not wait may look at.
    for (bits, kept) in [(0b0101_0101_u8, false), (0x0F, false), (0xFF, true)] {
        let shape = |mut file: Vhdx| {
            (file.virtual_bytes, file.block_bytes) = (64 * MIB, 64 << 20);
            file.file_bytes = file.payload_at() + 66 * MIB;
            file
        };
        let mut under = shape(base(1));
        let at = under.payload_at();
        under.bat = vec![(0, at | 6)];
        under.data = vec![(at, vec![1; 64 << 20])];
        let mut leaf = shape(child(2, 1, "base"));
        let ratio = (1 << 32) / (64 * MIB);
        leaf.bat = vec![(0, at | 7), (ratio, (at + 64 * MIB) | 6)];
        let bitmap: Vec<u8> =
            (0..16384).map(|byte| if bits == 0xFF { (byte & 1) as u8 * 0xFF } else { bits }).collect();
        leaf.data = vec![(at, vec![2; 64 << 20]), (at + 64 * MIB, bitmap.clone())];
        let image = in_memory(&leaf, vec![("base", under)], false).unwrap();
        let range = ByteRange::new(ByteOffset::ZERO, ByteLength::new(MIB)).unwrap();
        // More steps than may be made without waiting, in all three.
        assert!(matches!(image.extent(range, Patience::Now), Err(BlockError::WouldBlock)));
        let mut buffer = vec![0; 1 << 20];
        for at in [0, 63 * MIB] {
            image.read(ByteOffset::new(at), &mut buffer, Patience::Blocking).unwrap();
            for (sector, bytes) in (at / 512..).zip(buffer.chunks(512)) {
                let held = bitmap[sector as usize / 8] >> (sector % 8) & 1;
                assert!(bytes.iter().all(|&byte| byte == 1 + held), "sector {sector}");
            }
        }
        let extent = image.extent(range, Patience::Now).unwrap_or_else(|_| panic!("{bits:#x}"));
        assert_eq!(
            extent.range.length().get(),
            if kept { 4096 } else { (bits.trailing_ones() * 512).into() }
        );
    }
}

#[test]
fn store_knows_children_and_leaves_and_guards_their_parents() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let base_path = put(&base(1), &root, "base.vhdx");
    let middle = put(&child(2, 1, "base.vhdx"), &root, "a/middle.avhdx");
    let leaf = put(&child(3, 2, "middle.avhdx"), &root, "a/leaf.avhdx");
    let other = put(&child(4, 1, "base.vhdx"), &root, "other.vhdx");
    std::fs::write(root.join("notes.txt"), "no image").unwrap();
    std::fs::write(root.join("broken.vhdx"), "vhdxfile, and no more").unwrap();
    let store = Store::open(&root).unwrap();
    let scan = store.scan().unwrap();
    assert_eq!(scan.images.len(), 4);
    assert_eq!(scan.refused.len(), 1);
    let linkage = |path: &Path| scan.images.iter().find(|image| image.path == path).unwrap().linkage;
    let children: Vec<&Path> = scan.children_of(linkage(&base_path)).map(|image| &*image.path).collect();
    assert_eq!(children, [&*middle, &*other]);
    let leaves: Vec<&Path> =
        scan.leaves_above(linkage(&base_path)).iter().map(|image| &*image.path).collect();
    assert_eq!(leaves, [&*leaf, &*other]);
    assert_eq!(store.child_of(&middle, Some(linkage(&middle))).unwrap(), Some(leaf.clone()));
    assert_eq!(store.child_of(&leaf, Some(linkage(&leaf))).unwrap(), None);
    let before = std::fs::read(&base_path).unwrap();
    let refused = MutableImage::open(&base_path, None, None, &store).unwrap_err();
    assert!(matches!(refused.refusal, Refusal::HasChild { .. }), "{}", refused.refusal);
    assert!(std::fs::read(&base_path).unwrap() == before);
    // A leaf has none, and is opened with what is below it.
    let below = Image::open_parent_of(&other, OpenOptions::default()).unwrap().unwrap();
    MutableImage::open(&other, None, Some(Arc::new(below)), &store).unwrap();
}

/// A child counts in the folders beside only if it leads to the very file: a copy of the store does not.
#[test]
fn child_in_a_folder_beside_guards_its_parent_where_no_store_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let base_path = put(&base(1), &root, "store/golden/base.vhdx");
    put(&child(2, 1, r"..\golden\base.vhdx"), &root, "store/golden-backup/versions/child.avhdx");
    put(&child(2, 1, "base.vhdx"), &root, "store/copy/child.avhdx");
    std::fs::write(root.join("store/broken.vhdx"), "vhdxfile, and no more").unwrap();
    let child_of = |path: &Path| {
        let linkage = Store::around(path).unwrap().scan().unwrap().images[0].linkage;
        Vicinity::of(path).unwrap().child_of(path, Some(linkage)).unwrap()
    };
    assert_eq!(child_of(&base_path), None);
    let beside = put(&child(3, 1, r"..\golden\base.vhdx"), &root, "store/versions/child.avhdx");
    assert_eq!(child_of(&base_path), Some(beside.clone()));
    std::fs::remove_file(beside).unwrap();
    let above = put(&child(4, 1, r"golden\base.vhdx"), &root, "store/child.avhdx");
    assert_eq!(child_of(&base_path), Some(above));
    let inside = put(&child(5, 1, "elsewhere.vhdx"), &root, "store/golden/child.avhdx");
    assert_eq!(child_of(&base_path), Some(inside), "below its own folder the identifier is enough");
}
