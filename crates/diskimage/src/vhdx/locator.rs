//! The parent locator: what a differencing file says of its parent ([MS-VHDX] §2.6.2.6).
//!
//! It is a small table of keys and values, all of them text. Two kinds of values matter: the *linkage*, by which the
//! right parent is recognised wherever it lies, and up to three paths, by which it is looked for. Paths are a
//! stranger's words: they are parsed here as text and nothing more. Who follows one confines it.
use super::MIB;
use crate::cursor::Cursor;
use crate::error::{Damage, Refusal};
use crate::guid::Guid;

/// The only type of locator that the specification knows ([MS-VHDX] §2.6.2.6.3).
const VHDX_LOCATOR: Guid = Guid::from_u128(0xB04A_EFB7_D19E_4A81_B789_25B8_E944_5913);
/// More keys than five are nowhere known. Each can name 128 KiB of the item, and several the same: this bounds what
/// is taken from it.
const MAX_ENTRIES: u16 = 64;
const HEADER_BYTES: usize = 20;
const ENTRY_BYTES: usize = 12;
const NAME: &str = "parent locator";
const RULE: &str = "[MS-VHDX] §2.6.2.6";
const ENTRY_RULE: &str = "[MS-VHDX] §2.6.2.6.2";
const KEYS_RULE: &str = "[MS-VHDX] §2.6.2.6.3";

const PARENT_LINKAGE: &str = "parent_linkage";
const PARENT_LINKAGE2: &str = "parent_linkage2";
const RELATIVE_PATH: &str = "relative_path";
const VOLUME_PATH: &str = "volume_path";
const ABSOLUTE_WIN32_PATH: &str = "absolute_win32_path";

/// What a differencing file says of its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Locator {
    /// The `DataWriteGuid` that the parent must have.
    pub(crate) parent_linkage: Guid,
    /// Another one that it may have instead: there while the parent is changed in place by a merge.
    pub(crate) parent_linkage2: Option<Guid>,
    /// Where the parent lies, seen from the child's folder, with `\` between names.
    pub(crate) relative_path: Option<String>,
    /// Where it lies on a volume of Windows.
    pub(crate) volume_path: Option<String>,
    /// Where it lies by a drive's letter.
    pub(crate) absolute_win32_path: Option<String>,
    /// Keys that the specification does not know, with their values.
    pub(crate) other: Vec<(String, String)>,
}

impl Locator {
    /// The locator in this metadata item, which lies at `at` in the file.
    pub(super) fn parse(item: &[u8], at: u64) -> Result<Self, Refusal> {
        let damage = |rule, problem: String| Damage::new(NAME, at, rule, problem);
        let short = || damage(RULE, "it is cut short".into());
        let mut cursor = Cursor::new(item);
        let kind = Guid::from_le_bytes(cursor.array().ok_or_else(short)?);
        if kind != VHDX_LOCATOR {
            return Err(Refusal::unsupported(
                RULE,
                format!("a parent that is not a VHDX file (type {kind})"),
            ));
        }
        cursor.skip(2).ok_or_else(short)?;
        let count = cursor.le_u16().ok_or_else(short)?;
        if count > MAX_ENTRIES {
            let problem = format!("it says that it has {count} entries (the limit is {MAX_ENTRIES})");
            return Err(damage(RULE, problem).into());
        }
        let mut values = Vec::new();
        for index in 0..count {
            let entry = Entry::take(&mut cursor).ok_or_else(short)?;
            let text = entry.read(item);
            let pair = text.map_err(|problem| damage(ENTRY_RULE, format!("entry {index}: {problem}")))?;
            values.push(pair);
        }
        Self::of_values(values).map_err(|problem| damage(KEYS_RULE, problem).into())
    }

    fn of_values(values: Vec<(String, String)>) -> Result<Self, String> {
        let (mut linkage, mut linkage2) = (None, None);
        let (mut relative_path, mut volume_path, mut absolute_win32_path) = (None, None, None);
        let mut other: Vec<(String, String)> = Vec::new();
        for (key, value) in values {
            let slot = match key.as_str() {
                PARENT_LINKAGE => &mut linkage,
                PARENT_LINKAGE2 => &mut linkage2,
                RELATIVE_PATH => &mut relative_path,
                VOLUME_PATH => &mut volume_path,
                ABSOLUTE_WIN32_PATH => &mut absolute_win32_path,
                _ => {
                    if other.iter().any(|(known, _)| *known == key) {
                        return Err(format!("the key {key:?} is there twice"));
                    }
                    other.push((key, value));
                    continue;
                }
            };
            if slot.replace(value).is_some() {
                return Err(format!("the key {key:?} is there twice"));
            }
        }
        let guid = |text: String| {
            Guid::from_text(&text)
                .ok_or_else(|| format!("{text:?} is no identifier that a parent could have"))
        };
        let Some(linkage) = linkage else {
            return Err(format!("there is no {PARENT_LINKAGE:?}, by which the parent is recognised"));
        };
        if relative_path.is_none() && volume_path.is_none() && absolute_win32_path.is_none() {
            return Err("there is no path by which the parent could be found".into());
        }
        Ok(Self {
            parent_linkage: guid(linkage)?,
            parent_linkage2: linkage2.map(guid).transpose()?,
            relative_path,
            volume_path,
            absolute_win32_path,
            other,
        })
    }

    /// As it is stored, or `None` where a text is empty, has a NUL in it, or is longer than an entry can say.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let braced = |guid: Guid| format!("{{{guid}}}");
        let linkage = Some(braced(self.parent_linkage));
        let known = [
            (PARENT_LINKAGE, linkage),
            (PARENT_LINKAGE2, self.parent_linkage2.map(braced)),
            (RELATIVE_PATH, self.relative_path.clone()),
            (VOLUME_PATH, self.volume_path.clone()),
            (ABSOLUTE_WIN32_PATH, self.absolute_win32_path.clone()),
        ];
        let known = known.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let pairs: Vec<(String, String)> = known.chain(self.other.iter().cloned()).collect();
        let count = u16::try_from(pairs.len()).ok().filter(|&count| count <= MAX_ENTRIES)?;

        let mut head = VHDX_LOCATOR.to_le_bytes().to_vec();
        head.extend([0; 2]);
        head.extend(count.to_le_bytes());
        let texts_at = pairs.len().checked_mul(ENTRY_BYTES)?.checked_add(HEADER_BYTES)?;
        let mut texts: Vec<u8> = Vec::new();
        for (key, value) in &pairs {
            let (key, value) = (utf16(key)?, utf16(value)?);
            let key_at = texts_at.checked_add(texts.len())?;
            texts.extend(&key);
            let value_at = texts_at.checked_add(texts.len())?;
            texts.extend(&value);
            head.extend(u32::try_from(key_at).ok()?.to_le_bytes());
            head.extend(u32::try_from(value_at).ok()?.to_le_bytes());
            head.extend(u16::try_from(key.len()).ok()?.to_le_bytes());
            head.extend(u16::try_from(value.len()).ok()?.to_le_bytes());
        }
        head.extend(texts);
        (u64::try_from(head.len()).ok()? <= MIB).then_some(head)
    }
}

/// The text as it is stored, without a NUL at its end.
fn utf16(text: &str) -> Option<Vec<u8>> {
    let allowed = !text.is_empty() && !text.contains('\0');
    allowed.then(|| text.encode_utf16().flat_map(u16::to_le_bytes).collect())
}

/// An entry as it is stored ([MS-VHDX] §2.6.2.6.2).
struct Entry {
    key_at: u32,
    value_at: u32,
    key_bytes: u16,
    value_bytes: u16,
}

impl Entry {
    fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        let key_at = cursor.le_u32()?;
        let value_at = cursor.le_u32()?;
        let key_bytes = cursor.le_u16()?;
        let value_bytes = cursor.le_u16()?;
        Some(Self { key_at, value_at, key_bytes, value_bytes })
    }

    fn read(&self, item: &[u8]) -> Result<(String, String), String> {
        let key = text(item, self.key_at, self.key_bytes);
        let value = text(item, self.value_at, self.value_bytes);
        Ok((
            key.map_err(|problem| format!("its key {problem}"))?,
            value.map_err(|problem| format!("its value {problem}"))?,
        ))
    }
}

/// The text of `length` bytes at `at` of the item, or what is wrong with it.
fn text(item: &[u8], at: u32, length: u16) -> Result<String, String> {
    if at == 0 || length == 0 || !length.is_multiple_of(2) {
        return Err(format!("has {length} bytes at {at:#x}"));
    }
    let start = usize::try_from(at).unwrap_or(usize::MAX);
    let bytes = item.get(start..).and_then(|rest| rest.get(..usize::from(length)));
    let bytes = bytes.ok_or_else(|| format!("of {length} bytes at {at:#x} ends behind the item"))?;
    let units = bytes.as_chunks().0.iter().map(|&unit| u16::from_le_bytes(unit));
    let text: Result<String, _> = char::decode_utf16(units).collect();
    let text = text.map_err(|_| String::from("is no UTF-16 text"))?;
    if text.contains('\0') {
        return Err("has a NUL in it".into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of the first entry begins here: two entries, and the first key of 14 letters.
    const FIRST_VALUE: usize = HEADER_BYTES + 2 * ENTRY_BYTES + 28;

    fn locator() -> Locator {
        Locator {
            parent_linkage: Guid::from_u128(0x83ED_0EC3_24C8_49A6_A959_5E4B_F128_8BFB),
            parent_linkage2: None,
            relative_path: Some(r"..\base.vhdx".into()),
            volume_path: None,
            absolute_win32_path: None,
            other: Vec::new(),
        }
    }

    fn refusal(change: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut item = locator().encode().unwrap();
        change(&mut item);
        Locator::parse(&item, 0x21_0028).unwrap_err().to_string()
    }

    #[test]
    fn locator_encodes_byte_for_byte_as_the_specification_lays_it_out() {
        let mut expected = vec![
            0xB7, 0xEF, 0x4A, 0xB0, 0x9E, 0xD1, 0x81, 0x4A, 0xB7, 0x89, 0x25, 0xB8, 0xE9, 0x44, 0x59, 0x13,
        ];
        expected.extend([0, 0, 2, 0]);
        // The key of 28 bytes at 44, its value of 76 at 72; the key of 26 at 148, its value of 24 at 174.
        expected.extend([44, 0, 0, 0, 72, 0, 0, 0, 28, 0, 76, 0]);
        expected.extend([148, 0, 0, 0, 174, 0, 0, 0, 26, 0, 24, 0]);
        for text in
            ["parent_linkage", "{83ed0ec3-24c8-49a6-a959-5e4bf1288bfb}", "relative_path", r"..\base.vhdx"]
        {
            expected.extend(text.bytes().flat_map(|byte| [byte, 0]));
        }
        assert_eq!(locator().encode().unwrap(), expected);
    }

    #[test]
    fn locator_parses_as_it_was_encoded() {
        let full = Locator {
            parent_linkage2: Some(Guid::from_u128(7)),
            volume_path: Some(r"\\?\Volume{26a21bda-a627-11d7-9931-806e6f6e6963}\b.vhdx".into()),
            absolute_win32_path: Some(r"\\?\d:\Träger\😀.vhdx".into()),
            other: vec![("vendor".into(), "x".into()), ("Vendor".into(), "y".into())],
            ..locator()
        };
        for locator in [locator(), full] {
            assert_eq!(Locator::parse(&locator.encode().unwrap(), 0).unwrap(), locator);
        }
    }

    #[test]
    fn texts_that_no_entry_can_hold_are_not_encoded() {
        for path in [String::new(), "a\0b".into(), "x".repeat(32768)] {
            assert_eq!(Locator { relative_path: Some(path), ..locator() }.encode(), None);
        }
        let longest = Locator { relative_path: Some("x".repeat(32767)), ..locator() };
        assert_eq!(Locator::parse(&longest.encode().unwrap(), 0).unwrap(), longest);
        let crowded = (0..64).map(|n| (n.to_string(), "x".into())).collect();
        assert_eq!(Locator { other: crowded, ..locator() }.encode(), None);
    }

    /// What a refusal says, and the change that brings it about.
    type Case = (&'static str, fn(&mut Vec<u8>));

    #[test]
    fn hostile_locators_are_refused() {
        let cases: [Case; 15] = [
            ("not a VHDX file", |item| item[0] ^= 1),
            ("cut short", |item| item.truncate(19)),
            ("cut short", |item| item.truncate(31)),
            ("65535 entries", |item| item[18..20].fill(0xFF)),
            // 40 entries, where texts follow the second: their letters make no sense as entries.
            ("entry 2: its key", |item| item[18] = 40),
            ("entry 0: its key has 28 bytes at 0x0", |item| item[20] = 0),
            ("entry 0: its key has 0 bytes", |item| item[28] = 0),
            ("entry 0: its key has 27 bytes", |item| item[28] = 27),
            ("entry 1: its value of 24 bytes at 0xffffffae ends", |item| item[37..40].fill(0xFF)),
            ("entry 1: its value of 26 bytes at 0xae ends", |item| item[42] = 26),
            ("has a NUL", |item| item[FIRST_VALUE..FIRST_VALUE + 2].fill(0)),
            ("no UTF-16", |item| item[FIRST_VALUE..FIRST_VALUE + 2].fill(0xD8)),
            ("no identifier", |item| item[FIRST_VALUE + 2] = b'g'),
            ("there is no \"parent_linkage\"", |item| item[44] = b'P'),
            ("there is no path", |item| item[18] = 1),
        ];
        for (expected, change) in cases {
            let refusal = refusal(change);
            assert!(refusal.contains(expected), "{expected}: {refusal}");
        }
        let twice = refusal(|item| item.copy_within(20..32, 32));
        assert!(twice.contains("\"parent_linkage\" is there twice"), "{twice}");
    }
}
