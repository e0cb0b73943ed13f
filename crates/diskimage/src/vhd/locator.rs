//! Where a differencing image says that its parent is.
//!
//! The header has the parent's unique identifier, by which it must be recognised; its name in UTF-16BE; and eight
//! locators, each a platform code and the place of a path elsewhere in the file. Two of them are read and written:
//! `W2ru`, a path from the child's folder (`.\base.vhd`), and `W2ku`, an absolute one (`C:\disks\base.vhd`); both are
//! UTF-16LE, unlike all else in the file. The others (`MacX`, `Mac `, `Wi2r`, `Wi2k`) are left as they are.
//!
//! A path is text out of a foreign file. Nothing here follows it: who resolves it, decides where it may lead.
use block::{ByteOffset, Patience};

use super::put_fields;
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::guid::Guid;
use crate::storage::Storage;

pub(super) const RULE: &str = "[VHD] Dynamic Disk Header Format, \"Parent Locator Entries\"";
const STRUCTURE: &str = "parent locator";

/// Where in the header the parts stand that are about the parent.
pub(super) const PARENT_ID_AT: usize = 40;
pub(super) const PARENT_NAME_AT: usize = 64;
pub(super) const PARENT_NAME_BYTES: usize = 512;
pub(super) const LOCATORS_AT: usize = 576;
pub(super) const LOCATORS: usize = 8;
pub(super) const LOCATOR_BYTES: usize = 24;

/// A path from the child's folder.
pub(super) const RELATIVE: [u8; 4] = *b"W2ru";
/// An absolute path.
pub(super) const ABSOLUTE: [u8; 4] = *b"W2ku";

/// The longest path that Windows knows: 32,767 units of UTF-16 and an end.
pub(super) const MAX_PATH_BYTES: u32 = 64 << 10;

/// What a differencing image says of its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParentReference {
    /// The parent's unique identifier.
    pub(crate) unique_id: Guid,
    /// The parent's name in the header, as far as it is text: Windows keeps the absolute path there.
    pub(crate) name: String,
    /// The path in `W2ru`, as it stands there: `.\base.vhd`.
    pub(crate) relative_path: Option<String>,
    /// The path in `W2ku`, as it stands there.
    pub(crate) absolute_path: Option<String>,
    /// All locators in use, in their order.
    pub(crate) locators: Vec<Locator>,
}

/// An entry of the header for one locator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Locator {
    /// What kind of path it is.
    pub(crate) platform: [u8; 4],
    /// Where the path begins.
    pub(crate) at: u64,
    /// How long it is, in bytes.
    pub(crate) length: u32,
    /// How many bytes are kept for it from `at` on.
    pub(crate) room: u64,
}

impl ParentReference {
    /// Reads what `header`, the dynamic header at `header_at` of `storage`, and its locators say.
    pub(super) fn read(storage: &dyn Storage, header: &[u8], header_at: u64) -> Result<Self, Refusal> {
        let entry_at = |index: usize| {
            let within = index.saturating_mul(LOCATOR_BYTES).saturating_add(LOCATORS_AT);
            (within, header_at.saturating_add(u64::try_from(within).unwrap_or(u64::MAX)))
        };
        let cut_short = || Damage::new(STRUCTURE, header_at, RULE, "the header is cut short");
        let mut locators = Vec::new();
        let (mut relative_path, mut absolute_path) = (None, None);
        for index in 0..LOCATORS {
            let (within, at) = entry_at(index);
            let entry = header.get(within..).and_then(Locator::parse).ok_or_else(cut_short)?;
            let Some(locator) = entry.filter(|entry| entry.length > 0) else { continue };
            let path = match locator.platform {
                RELATIVE => &mut relative_path,
                ABSOLUTE => &mut absolute_path,
                _ => {
                    locators.push(locator);
                    continue;
                }
            };
            // The first of a kind counts.
            if path.is_none() {
                *path = Some(locator.path(storage, at)?);
            }
            locators.push(locator);
        }
        let id = header.get(PARENT_ID_AT..).and_then(<[u8]>::first_chunk).ok_or_else(cut_short)?;
        let name = header.get(PARENT_NAME_AT..).and_then(|name| name.get(..PARENT_NAME_BYTES));
        Ok(Self {
            unique_id: Guid::from_be_bytes(*id),
            name: header_name(name.unwrap_or_default()),
            relative_path,
            absolute_path,
            locators,
        })
    }

    /// Puts all of it into `header`, but the paths, which lie elsewhere. Locators that are not here become unused.
    ///
    /// The parent's timestamp stays zero, as Windows 10 leaves it: it says when the parent was last changed, and no
    /// program can hold a copied file to that.
    pub(super) fn encode_over(&self, header: &mut [u8]) {
        let id = self.unique_id.to_be_bytes();
        if let Some(field) = header.get_mut(PARENT_ID_AT..) {
            put_fields(field, &[&id, &[0; 8]]);
        }
        if let Some(field) =
            header.get_mut(PARENT_NAME_AT..).and_then(|rest| rest.get_mut(..PARENT_NAME_BYTES))
        {
            field.fill(0);
            // The last unit stays the end mark.
            let units = self.name.encode_utf16().take(PARENT_NAME_BYTES / 2 - 1);
            let bytes: Vec<u8> = units.flat_map(u16::to_be_bytes).collect();
            put_fields(field, &[&bytes]);
        }
        if let Some(field) =
            header.get_mut(LOCATORS_AT..).and_then(|rest| rest.get_mut(..LOCATORS * LOCATOR_BYTES))
        {
            field.fill(0);
            let bytes: Vec<u8> = self.locators.iter().flat_map(Locator::encode).collect();
            put_fields(field, &[&bytes]);
        }
    }
}

impl Locator {
    /// Its entry in the header. The room is in bytes, as Windows 10 writes it.
    fn encode(&self) -> Vec<u8> {
        let room = u32::try_from(self.room).unwrap_or(u32::MAX);
        let fields: [&[u8]; 5] = [
            &self.platform,
            &room.to_be_bytes(),
            &self.length.to_be_bytes(),
            &[0; 4],
            &self.at.to_be_bytes(),
        ];
        fields.concat()
    }

    /// An entry of the header; `Some(None)` if it is not in use.
    fn parse(bytes: &[u8]) -> Option<Option<Self>> {
        let mut cursor = Cursor::new(bytes);
        let platform: [u8; 4] = cursor.array()?;
        let space = cursor.be_u32()?;
        let length = cursor.be_u32()?;
        let _reserved = cursor.be_u32()?;
        let at = cursor.be_u64()?;
        if platform == [0; 4] {
            return Some(None);
        }
        Some(Some(Self { platform, at, length, room: room(space, length) }))
    }

    /// The path that the entry at `entry_at` names.
    fn path(&self, storage: &dyn Storage, entry_at: u64) -> Result<String, Refusal> {
        let damage = |problem: String| Damage::new(STRUCTURE, entry_at, RULE, problem);
        let end = self.at.checked_add(u64::from(self.length));
        if self.length > MAX_PATH_BYTES || self.room < u64::from(self.length) {
            let problem = format!(
                "a path of {} bytes, in room for {}; there may be {MAX_PATH_BYTES}",
                self.length, self.room
            );
            return Err(damage(problem).into());
        }
        if end.is_none_or(|end| end > storage.len().get()) {
            let problem =
                format!("the path of {} bytes at {:#x} does not lie in the file", self.length, self.at);
            return Err(damage(problem).into());
        }
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or_default()];
        storage.read_at(ByteOffset::new(self.at), &mut bytes, Patience::Blocking)?;
        let (units, rest) = bytes.as_chunks();
        let units: Vec<u16> = units.iter().map(|&unit| u16::from_le_bytes(unit)).collect();
        // Some writers count the end mark, or all of the room, as part of the path.
        let used = units.iter().rposition(|&unit| unit != 0).map_or(0, |last| last.saturating_add(1));
        let text = units.get(..used).and_then(|units| String::from_utf16(units).ok());
        match text.filter(|text| rest.is_empty() && !text.is_empty() && !text.contains('\0')) {
            Some(text) => Ok(text),
            None => Err(damage(format!("the path at {:#x} is no text in UTF-16", self.at)).into()),
        }
    }
}

/// A path as a locator keeps it: UTF-16LE, without an end mark. `None` if it cannot be kept: it is empty, too long, or
/// has a zero in it.
pub(super) fn path_bytes(path: &str) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = path.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let fits = u32::try_from(bytes.len()).is_ok_and(|length| (1..=MAX_PATH_BYTES).contains(&length));
    (fits && !path.contains('\0')).then_some(bytes)
}

/// A path from a folder as Windows writes it: `.\base.vhd`, `..\base.vhd`, from one with `/` between the names.
pub(super) fn windows_relative(path: &str) -> String {
    let path = path.replace('/', "\\");
    match path.split('\\').next() {
        Some("." | "..") => path,
        _ => format!(".\\{path}"),
    }
}

/// How many bytes an entry keeps. [VHD] says that the field counts sectors; Windows 10 and blktap write bytes there.
/// Whoever means sectors writes a number that is smaller than the path, or no multiple of a sector.
fn room(space: u32, length: u32) -> u64 {
    const SECTOR: u32 = 512;
    let is_bytes = space >= length && (space.is_multiple_of(SECTOR) || space == length);
    u64::from(space).saturating_mul(if is_bytes { 1 } else { u64::from(SECTOR) })
}

/// The name in the header: UTF-16BE up to the first zero. It names nothing that is opened, so what is no text is shown
/// as such.
fn header_name(bytes: &[u8]) -> String {
    let units = bytes.as_chunks().0.iter().map(|&unit| u16::from_be_bytes(unit));
    let units: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    /// The entries of the header of a differencing image that Windows 10 made (dfvfs' `fat-differential.vhd`): the
    /// room is in bytes.
    const WINDOWS: [u8; 48] = [
        0x57, 0x32, 0x6B, 0x75, 0, 0, 0x10, 0, 0, 0, 0, 0x54, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0x57,
        0x32, 0x72, 0x75, 0, 1, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x30, 0,
    ];
    const ABSOLUTE_PATH: &str = r"C:\Projects\dfvfs\test_data\fat-parent.vhd";
    const RELATIVE_PATH: &str = r".\fat-parent.vhd";

    fn le(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    fn windows() -> (Vec<u8>, MemoryStorage) {
        let mut header = vec![0; 1024];
        header[PARENT_ID_AT..PARENT_ID_AT + 2].copy_from_slice(&[0x5F, 0xA2]);
        let name: Vec<u8> = ABSOLUTE_PATH.encode_utf16().flat_map(u16::to_be_bytes).collect();
        header[PARENT_NAME_AT..PARENT_NAME_AT + name.len()].copy_from_slice(&name);
        header[LOCATORS_AT..LOCATORS_AT + 48].copy_from_slice(&WINDOWS);
        let mut file = MemoryStorage::default();
        file.put(ByteOffset::new(0x1000), &le(ABSOLUTE_PATH));
        file.put(ByteOffset::new(0x3000), &le(RELATIVE_PATH));
        (header, file)
    }

    #[test]
    fn locators_of_windows_are_read() {
        let (header, file) = windows();
        let parent = ParentReference::read(&file, &header, 0x200).unwrap();
        assert_eq!(parent.absolute_path.as_deref(), Some(ABSOLUTE_PATH));
        assert_eq!(parent.relative_path.as_deref(), Some(RELATIVE_PATH));
        assert_eq!(parent.name, ABSOLUTE_PATH);
        assert_eq!(&parent.unique_id.to_be_bytes()[..2], &[0x5F, 0xA2]);
        assert_eq!((parent.locators[0].room, parent.locators[1].room), (4096, 65536));
    }

    #[test]
    fn encoded_locators_are_those_of_windows() {
        let (header, file) = windows();
        let mut encoded = vec![0; 1024];
        ParentReference::read(&file, &header, 0x200).unwrap().encode_over(&mut encoded);
        assert_eq!(encoded, header);
        assert_eq!(path_bytes(RELATIVE_PATH).unwrap(), le(RELATIVE_PATH));
    }

    #[test]
    fn paths_that_no_locator_can_keep_are_refused() {
        for path in [String::new(), "a\0b".into(), "x".repeat(32769)] {
            assert_eq!(path_bytes(&path), None);
        }
        assert_eq!(path_bytes(&"x".repeat(32768)).map(|bytes| bytes.len()), Some(65536));
    }

    #[test]
    fn relative_paths_are_written_as_windows_does() {
        for (path, written) in [
            ("base.vhd", r".\base.vhd"),
            ("./base.vhd", r".\base.vhd"),
            ("../a/base.vhd", r"..\a\base.vhd"),
            (".hidden.vhd", r".\.hidden.vhd"),
        ] {
            assert_eq!(windows_relative(path), written);
        }
    }

    #[test]
    fn room_counts_bytes_or_sectors() {
        for (space, length, bytes) in
            [(4096, 84, 4096), (84, 84, 84), (1, 84, 512), (2, 1000, 1024), (200, 84, 200 * 512)]
        {
            assert_eq!(room(space, length), bytes, "{space} for {length}");
        }
    }

    #[test]
    fn unknown_platforms_are_kept_and_their_paths_not_looked_at() {
        let (mut header, file) = windows();
        header[LOCATORS_AT..LOCATORS_AT + 4].copy_from_slice(b"MacX");
        header[LOCATORS_AT + 16..LOCATORS_AT + 24].fill(0xFF);
        let parent = ParentReference::read(&file, &header, 0x200).unwrap();
        assert_eq!(parent.absolute_path, None);
        assert_eq!(parent.locators.len(), 2);
        assert_eq!(parent.locators[0].platform, *b"MacX");
    }

    #[test]
    fn end_marks_that_a_writer_counted_are_no_part_of_the_path() {
        let (mut header, file) = windows();
        header[LOCATORS_AT + 24 + 11] = 0x24;
        let mut file = file;
        file.put(ByteOffset::new(0x3024), &[0; 4]);
        let parent = ParentReference::read(&file, &header, 0x200).unwrap();
        assert_eq!(parent.relative_path.as_deref(), Some(RELATIVE_PATH));
    }

    #[test]
    fn hostile_locators_are_refused_with_their_place() {
        let changes: [(usize, &[u8], &str); 5] = [
            (8, &[0xFF, 0xFF, 0xFF, 0xFE], "a path of 4294967294 bytes"),
            (16, &[0xFF; 8], "does not lie in the file"),
            (16, &[0, 0, 0, 0, 0, 0, 0x30, 0], "does not lie in the file"),
            (8, &[0, 0, 0, 0x53], "is no text"),
            (4, &[0, 0, 0, 0], "in room for 0"),
        ];
        for (place, bytes, expected) in changes {
            let (mut header, file) = windows();
            header[LOCATORS_AT + place..LOCATORS_AT + place + bytes.len()].copy_from_slice(bytes);
            let refusal = ParentReference::read(&file, &header, 0x200).unwrap_err().to_string();
            assert!(refusal.contains(expected) && refusal.contains("0x440"), "{refusal}");
        }
        for units in [&[0xD800_u16, 0x41][..], &[0x41, 0, 0x42]] {
            let (mut header, mut file) = windows();
            let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            file.put(ByteOffset::new(0x3000), &bytes);
            header[LOCATORS_AT + 24 + 8..LOCATORS_AT + 24 + 12]
                .copy_from_slice(&(bytes.len() as u32).to_be_bytes());
            let refusal = ParentReference::read(&file, &header, 0x200).unwrap_err().to_string();
            assert!(refusal.contains("is no text"), "{refusal}");
        }
    }

    #[test]
    fn name_that_fills_its_field_or_is_no_text_is_still_shown() {
        let full: Vec<u8> = [0x00, 0x41].repeat(256);
        assert_eq!(header_name(&full), "A".repeat(256));
        assert_eq!(header_name(&[0xD8, 0x00, 0x00, 0x41, 0, 0]), "\u{FFFD}A");
    }
}
