//! Unified kernel images (UAPI.5): a PE program whose sections are the kernel, its initramfs and its command line.
use super::{BootEntry, FileOnDisk, Source, Volume, version};
use crate::error::GuestError;
use crate::filesystem::OpenFile;
use crate::window::little;

const DIRECTORY: &str = "/EFI/Linux";
/// Where the header of the PE format begins is told here ("PE Format", MS-DOS stub).
const HEADER_POINTER_AT: usize = 0x3C;
/// "PE Format", COFF file header: the loader takes at most 96 sections.
const MAX_SECTIONS: u64 = 96;
const SECTION_BYTES: u64 = 40;
/// Command lines have 2 KiB at most on x86 (`COMMAND_LINE_SIZE`); os-release files are as short.
const MAX_TEXT_BYTES: u64 = 64 << 10;

/// A section: its name, where it lies in the file, and how long it is there.
struct Section {
    name: String,
    at: u64,
    length: u64,
}

/// The images of a volume, newest first.
pub(super) fn find(volume: &Volume) -> Result<Vec<BootEntry>, GuestError> {
    let mut entries = Vec::new();
    for name in volume.files(DIRECTORY, ".efi")? {
        let path = format!("{DIRECTORY}/{}", name.name);
        let mut file = volume.system.open(&path)?;
        if let Some(entry) = read(volume, &path, &name.name, file.as_mut())? {
            entries.push(entry);
        }
    }
    entries.sort_by(|(a, _), (b, _)| version::compare(b, a));
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// The version and entry of an image; nothing where the file is another program.
fn read(
    volume: &Volume,
    path: &str,
    name: &str,
    file: &mut dyn OpenFile,
) -> Result<Option<(String, BootEntry)>, GuestError> {
    let Some(sections) = sections(file)? else { return Ok(None) };
    let section = |wanted: &str| sections.iter().find(|section| section.name == wanted);
    let piece =
        |section: &Section| FileOnDisk { piece: Some((section.at, section.length)), ..volume.file(path) };
    let Some(kernel) = section(".linux") else { return Ok(None) };
    let release = text(file, section(".osrel"))?;
    let field = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.map(|value| value.trim_matches(['"', '\'']).to_owned())
    };
    let id = name.to_lowercase().strip_suffix(".efi").map_or_else(|| name.to_owned(), str::to_owned);
    let kernel_version = text(file, section(".uname"))?;
    let title = field("PRETTY_NAME").unwrap_or_else(|| id.clone());
    let title = if kernel_version.is_empty() { title } else { format!("{title} ({kernel_version})") };
    let entry = BootEntry {
        id: id.clone(),
        title,
        source: Source::UnifiedKernelImage,
        kernel: piece(kernel),
        // Microcode comes first (UAPI.5, ".ucode").
        initrds: [".ucode", ".initrd"].into_iter().filter_map(section).map(piece).collect(),
        options: text(file, section(".cmdline"))?.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
        default: false,
    };
    Ok(Some((if kernel_version.is_empty() { id } else { kernel_version }, entry)))
}

fn text(file: &mut dyn OpenFile, section: Option<&Section>) -> Result<String, GuestError> {
    let Some(section) = section else { return Ok(String::new()) };
    let mut bytes = vec![0; usize::try_from(section.length.min(MAX_TEXT_BYTES)).unwrap_or(0)];
    file.read_at(section.at, &mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.trim_end_matches('\0').trim().to_owned())
}

/// The sections of a PE program ("PE Format": signature, COFF file header, section table).
fn sections(file: &mut dyn OpenFile) -> Result<Option<Vec<Section>>, GuestError> {
    let mut stub = [0; 64];
    if file.length() < 64 {
        return Ok(None);
    }
    file.read_at(0, &mut stub)?;
    let header_at = little::<4>(&stub, HEADER_POINTER_AT);
    let inside = |at: u64, length: u64| at.saturating_add(length) <= file.length();
    if !stub.starts_with(b"MZ") || !inside(header_at, 24) {
        return Ok(None);
    }
    let mut header = [0; 24];
    file.read_at(header_at, &mut header)?;
    let (count, optional) = (little::<2>(&header, 6), little::<2>(&header, 20));
    let table_at = header_at.saturating_add(24).saturating_add(optional);
    let table_bytes = count.saturating_mul(SECTION_BYTES);
    let inside = |at: u64, length: u64| at.saturating_add(length) <= file.length();
    if !header.starts_with(b"PE\0\0") || count > MAX_SECTIONS || !inside(table_at, table_bytes) {
        return Ok(None);
    }
    let mut table = vec![0; usize::try_from(table_bytes).unwrap_or(0)];
    file.read_at(table_at, &mut table)?;
    let length = file.length();
    let section = |row: &[u8]| {
        let name = String::from_utf8_lossy(row.get(..8)?).trim_end_matches('\0').to_owned();
        // What is stored is rounded up to the file's alignment; VirtualSize is what it holds.
        let (held, stored) = (little::<4>(row, 8), little::<4>(row, 16));
        let at = little::<4>(row, 20);
        let used = if held == 0 { stored } else { held.min(stored) };
        (at.saturating_add(used) <= length).then_some(Section { name, at, length: used })
    };
    Ok(Some(table.chunks_exact(40).filter_map(section).collect()))
}
