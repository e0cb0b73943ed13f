//! A FAT16 file system with a few files, written at once.
//!
//! "FAT Specification" (Microsoft, fatgen103) in its simplest form: 512-byte sectors, two FATs, every file in one run of
//! clusters. FAT16 because UEFI wants FAT12 or FAT16 on removable media (UEFI 2.10 §13.3.1) and because it begins at 2 MiB.
//! Names beyond 8.3 get a long name beside a short one that nobody is meant to see. Times are 1980-01-01: the same files
//! give the same volume.
use super::bytes::{Bytes, u16_of, u32_of};
use super::uefi::File;
use super::{MediaError, SECTOR_BYTES};

/// The most that files may have together: twice iPXE and some texts.
pub const MAX_VOLUME_BYTES: usize = 40 << 20;

/// "Determination of FAT type when mounting the volume": FAT16 has from 4085 to 65524 clusters. Some drivers count wrong by
/// a few; we stay away from both ends.
const MIN_CLUSTERS: usize = 4_200;
const MAX_CLUSTERS: usize = 65_000;
/// Clusters that are left free, for whoever edits the script.
const SPARE_CLUSTERS: usize = 64;

const FATS: usize = 2;
const ROOT_ENTRIES: usize = 512;
const ENTRY_BYTES: usize = 32;
const MEDIA_TYPE: u8 = 0xf8;
const END_OF_CHAIN: u16 = 0xffff;
const DIRECTORY: u8 = 0x10;
const ARCHIVE: u8 = 0x20;
const VOLUME_LABEL: u8 = 0x08;
const LONG_NAME: u8 = 0x0f;
/// 1980-01-01, the earliest date.
const DATE: u16 = 0x0021;
const LABEL: &[u8; 11] = b"HEADWATER  ";
/// How many UTF-16 characters an entry of a long name has, and where.
const LONG_NAME_CHARACTERS: usize = 13;
const LONG_NAME_PLACES: [usize; LONG_NAME_CHARACTERS] = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];

/// A volume with these files; `first_sector` is where it begins on its disk ("hidden sectors").
pub(super) fn volume(files: &[File<'_>], first_sector: usize) -> Result<Vec<u8>, MediaError> {
    let size_bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    if size_bytes > MAX_VOLUME_BYTES {
        return Err(MediaError::TooLarge { size_bytes });
    }
    let mut root = Directory::default();
    for (path, bytes) in files {
        root.add(path, bytes);
    }
    let mut cluster_sectors = 1;
    while root.clusters_below(cluster_sectors * SECTOR_BYTES) + SPARE_CLUSTERS > MAX_CLUSTERS {
        cluster_sectors *= 2;
    }
    let layout = Layout::new(cluster_sectors, root.clusters_below(cluster_sectors * SECTOR_BYTES));
    let mut writer = Writer { bytes: layout.boot_sector(first_sector), layout, next_cluster: 2 };
    let mut entries = Bytes::default();
    entries.put(0, &entry(LABEL, VOLUME_LABEL, 0, 0));
    writer.fill(&root, 0, &mut entries);
    let at = layout.root_sector() * SECTOR_BYTES;
    writer.bytes.put(at, entries.as_slice());
    Ok(writer.finish())
}

/// A folder: its files and folders in the order they came.
#[derive(Default)]
struct Directory<'a> {
    nodes: Vec<(&'a str, Node<'a>)>,
}

enum Node<'a> {
    File(&'a [u8]),
    Directory(Directory<'a>),
}

impl<'a> Directory<'a> {
    fn add(&mut self, path: &'a str, bytes: &'a [u8]) {
        let Some((folder, rest)) = path.split_once('/') else {
            self.nodes.push((path, Node::File(bytes)));
            return;
        };
        for (name, node) in &mut self.nodes {
            if let (true, Node::Directory(directory)) = (*name == folder, node) {
                return directory.add(rest, bytes);
            }
        }
        let mut directory = Directory::default();
        directory.add(rest, bytes);
        self.nodes.push((folder, Node::Directory(directory)));
    }

    /// The clusters of everything in it; without those of its own entries, as the root needs none.
    fn clusters_below(&self, cluster_bytes: usize) -> usize {
        let clusters = |node: &Node<'_>| match node {
            Node::File(bytes) => bytes.len().div_ceil(cluster_bytes),
            Node::Directory(directory) => {
                directory.entries_bytes().div_ceil(cluster_bytes) + directory.clusters_below(cluster_bytes)
            }
        };
        self.nodes.iter().map(|(_, node)| clusters(node)).sum()
    }

    /// With "." and "..".
    fn entries_bytes(&self) -> usize {
        let entries: usize = self.nodes.iter().map(|(name, _)| 1 + long_name_entries(name)).sum();
        (2 + entries) * ENTRY_BYTES
    }
}

/// Where things are, in sectors.
#[derive(Clone, Copy)]
struct Layout {
    cluster_sectors: usize,
    clusters: usize,
    fat_sectors: usize,
}

impl Layout {
    fn new(cluster_sectors: usize, used_clusters: usize) -> Self {
        let clusters = (used_clusters + SPARE_CLUSTERS).max(MIN_CLUSTERS);
        let fat_sectors = ((clusters + 2) * 2).div_ceil(SECTOR_BYTES);
        Self { cluster_sectors, clusters, fat_sectors }
    }

    /// One reserved sector comes first: the boot sector.
    fn root_sector(self) -> usize {
        1 + FATS * self.fat_sectors
    }

    fn data_sector(self) -> usize {
        self.root_sector() + ROOT_ENTRIES * ENTRY_BYTES / SECTOR_BYTES
    }

    fn sectors(self) -> usize {
        self.data_sector() + self.clusters * self.cluster_sectors
    }

    fn offset_of(self, cluster: usize) -> usize {
        (self.data_sector() + (cluster - 2) * self.cluster_sectors) * SECTOR_BYTES
    }

    /// "Boot Sector and BPB".
    fn boot_sector(self, first_sector: usize) -> Bytes {
        let mut bytes = Bytes::zeros(SECTOR_BYTES);
        // A jump to "INT 18h: next boot device": this volume does not boot a BIOS by itself.
        bytes.put(0, &[0xeb, 0x3c, 0x90]);
        bytes.put(3, b"HEADWATR");
        bytes.put_u16(11, u16_of(SECTOR_BYTES));
        bytes.put(13, &self.cluster_sectors.to_le_bytes()[..1]);
        bytes.put_u16(14, 1);
        bytes.put(16, &FATS.to_le_bytes()[..1]);
        bytes.put_u16(17, u16_of(ROOT_ENTRIES));
        match u16::try_from(self.sectors()) {
            Ok(sectors) => bytes.put_u16(19, sectors),
            Err(_) => bytes.put_u32(32, u32_of(self.sectors())),
        }
        bytes.put(21, &[MEDIA_TYPE]);
        bytes.put_u16(22, u16_of(self.fat_sectors));
        // A geometry as BIOSes make one up for small sticks: 63 sectors, 255 heads.
        bytes.put_u16(24, 63);
        bytes.put_u16(26, 255);
        bytes.put_u32(28, u32_of(first_sector));
        bytes.put(36, &[0x80, 0, 0x29]);
        bytes.put(39, b"HWBM");
        bytes.put(43, LABEL);
        bytes.put(54, b"FAT16   ");
        bytes.put(62, &[0xcd, 0x18, 0xf4, 0xeb, 0xfd]);
        bytes.put(510, &[0x55, 0xaa]);
        bytes
    }
}

struct Writer {
    bytes: Bytes,
    layout: Layout,
    next_cluster: usize,
}

impl Writer {
    /// Writes everything in a folder, and its entries into `entries`. `own` is its first cluster; 0: the root.
    fn fill(&mut self, directory: &Directory<'_>, own: usize, entries: &mut Bytes) {
        for (name, node) in &directory.nodes {
            let (first, attributes, size) = match node {
                Node::File(file) => {
                    let first = self.allocate(file.len());
                    if !file.is_empty() {
                        self.bytes.put(self.layout.offset_of(first), file);
                    }
                    (first, ARCHIVE, file.len())
                }
                Node::Directory(below) => {
                    let first = self.allocate(below.entries_bytes());
                    let mut table = Bytes::default();
                    table.put(0, &entry(b".          ", DIRECTORY, first, 0));
                    table.put(ENTRY_BYTES, &entry(b"..         ", DIRECTORY, own, 0));
                    self.fill(below, first, &mut table);
                    self.bytes.put(self.layout.offset_of(first), table.as_slice());
                    (first, DIRECTORY, 0)
                }
            };
            let (short, is_whole) = short_name(name);
            if !is_whole {
                put_long_name(name, &short, entries);
            }
            entries.put(entries.len(), &entry(&short, attributes, first, size));
        }
    }

    /// A run of clusters for so many bytes; 0 for none ("a zero-length file has no cluster").
    fn allocate(&mut self, size: usize) -> usize {
        let count = size.div_ceil(self.layout.cluster_sectors * SECTOR_BYTES);
        let first = self.next_cluster;
        self.next_cluster += count;
        for cluster in first..self.next_cluster {
            let next = if cluster + 1 == self.next_cluster { END_OF_CHAIN } else { u16_of(cluster + 1) };
            self.put_in_fats(cluster, next);
        }
        if count == 0 { 0 } else { first }
    }

    fn put_in_fats(&mut self, cluster: usize, value: u16) {
        for fat in 0..FATS {
            self.bytes.put_u16((1 + fat * self.layout.fat_sectors) * SECTOR_BYTES + cluster * 2, value);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.put_in_fats(0, 0xff00 | u16::from(MEDIA_TYPE));
        self.put_in_fats(1, END_OF_CHAIN);
        let mut bytes = self.bytes.into_vec();
        bytes.resize(self.layout.sectors() * SECTOR_BYTES, 0);
        bytes
    }
}

/// "FAT Directory Structure".
fn entry(name: &[u8; 11], attributes: u8, first_cluster: usize, size: usize) -> [u8; ENTRY_BYTES] {
    let mut bytes = Bytes::zeros(ENTRY_BYTES);
    bytes.put(0, name);
    bytes.put(11, &[attributes]);
    for date in [16, 18, 24] {
        bytes.put_u16(date, DATE);
    }
    bytes.put_u16(26, u16_of(first_cluster));
    bytes.put_u32(28, u32_of(size));
    let mut entry = [0; ENTRY_BYTES];
    entry.copy_from_slice(bytes.as_slice());
    entry
}

/// The short name, and whether it says all: capitals in 8.3. Another gets `FIRST6~1.EXT`; no two of our files share that.
fn short_name(name: &str) -> ([u8; 11], bool) {
    let (base, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let is_whole = base.len() <= 8 && extension.len() <= 3 && !name.bytes().any(|b| b.is_ascii_lowercase());
    let base: String =
        if is_whole { base.to_owned() } else { base.chars().take(6).chain(['~', '1']).collect() };
    let mut short = [b' '; 11];
    let letters = base.bytes().take(8).enumerate().chain((8..11).zip(extension.bytes()));
    for (at, letter) in letters {
        if let Some(place) = short.get_mut(at) {
            *place = letter.to_ascii_uppercase();
        }
    }
    (short, is_whole)
}

fn long_name_entries(name: &str) -> usize {
    if short_name(name).1 { 0 } else { name.encode_utf16().count().div_ceil(LONG_NAME_CHARACTERS) }
}

/// "Organization and Association of Short and Long Directory Entries": the last part comes first.
fn put_long_name(name: &str, short: &[u8; 11], entries: &mut Bytes) {
    let sum = short.iter().fold(0_u8, |sum, &byte| sum.rotate_right(1).wrapping_add(byte));
    let characters: Vec<u16> = name.encode_utf16().collect();
    let parts = long_name_entries(name);
    for part in (0..parts).rev() {
        let mut bytes = Bytes::zeros(ENTRY_BYTES);
        let last = if part + 1 == parts { 0x40 } else { 0 };
        bytes.put(0, &[(part + 1).to_le_bytes()[0] | last]);
        bytes.put(11, &[LONG_NAME, 0, sum]);
        for (index, place) in LONG_NAME_PLACES.into_iter().enumerate() {
            // One zero behind the name, then all ones.
            let at = part * LONG_NAME_CHARACTERS + index;
            let filler = if at == characters.len() { 0 } else { 0xffff };
            bytes.put_u16(place, characters.get(at).copied().unwrap_or(filler));
        }
        entries.put(entries.len(), bytes.as_slice());
    }
}
