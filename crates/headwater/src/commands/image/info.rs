//! `headwater image info`: what an image is, and the files that it is made of.
use std::fmt::Write as _;
use std::path::Path;

use diskimage::{Image, LayerInfo};
use serde::Serialize;

use super::names::names;
use super::target::subformat;
use super::{open, print};
use crate::cli::{ImageOptions, InfoArgs};
use crate::columns::{align, bytes, columns, name};

/// An image, as programs read it.
#[derive(Debug, Serialize)]
struct ImageAnswer {
    file: String,
    format: String,
    #[serde(skip)]
    title: &'static str,
    subformat: &'static str,
    virtual_size_bytes: u64,
    logical_sector_bytes: u64,
    physical_sector_bytes: u32,
    identity: Option<String>,
    creator: Option<String>,
    log_replayed: bool,
    /// The base first.
    chain: Vec<FileAnswer>,
}

/// One file of it.
#[derive(Debug, Serialize)]
struct FileAnswer {
    file: String,
    /// As people know it.
    #[serde(skip)]
    name: String,
    subformat: &'static str,
    virtual_size_bytes: u64,
    block_bytes: Option<u64>,
    file_bytes: u64,
    allocated_bytes: Option<u64>,
}

pub(super) fn run(args: &InfoArgs, options: &ImageOptions) -> anyhow::Result<String> {
    let image = open(&args.file, args.format, options)?;
    let names = names(&image, &args.file, options);
    print(&ImageAnswer::of(&args.file, &image, names), options, text)
}

impl ImageAnswer {
    fn of(file: &Path, image: &Image, names: Vec<String>) -> Self {
        let info = image.info();
        Self {
            file: file.display().to_string(),
            format: info.format.to_string(),
            title: info.format.title(),
            subformat: subformat(info.subtype),
            virtual_size_bytes: info.virtual_size.get(),
            logical_sector_bytes: info.logical_block.bytes(),
            physical_sector_bytes: info.physical_block,
            identity: info.identity.map(uuid),
            creator: info.creator,
            log_replayed: info.log_replayed,
            chain: image.layers().iter().zip(names).map(FileAnswer::of).collect(),
        }
    }
}

impl FileAnswer {
    fn of((layer, name): (&LayerInfo, String)) -> Self {
        let info = &layer.info;
        Self {
            name,
            file: layer.path.as_deref().map_or_else(String::new, |path| path.display().to_string()),
            subformat: subformat(info.subtype),
            virtual_size_bytes: info.virtual_size.get(),
            block_bytes: info.payload_block.map(block::ByteLength::get),
            file_bytes: info.file_size.get(),
            allocated_bytes: info.allocated.map(block::ByteLength::get),
        }
    }
}

fn text(image: &ImageAnswer) -> String {
    let mut lines = vec![
        ("image", name(&image.file).into_owned()),
        ("format", format!("{}, {}", image.title, image.subformat)),
        ("virtual size", format!("{} ({} bytes)", bytes(image.virtual_size_bytes), image.virtual_size_bytes)),
        ("on disk", on_disk(image)),
        (
            "sectors",
            format!("{} bytes logical, {} physical", image.logical_sector_bytes, image.physical_sector_bytes),
        ),
    ];
    lines.extend(image.identity.clone().map(|identity| ("identity", identity)));
    lines.extend(image.creator.as_deref().map(|creator| ("made by", name(creator).into_owned())));
    if image.log_replayed {
        lines.push((
            "log",
            "was not empty: the file was not closed, its newest metadata was read from the log".into(),
        ));
    }
    let mut text = String::new();
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<13} {value}");
    }
    text.push('\n');
    text + &tree(&image.chain)
}

/// How much the files take, against the disk.
fn on_disk(image: &ImageAnswer) -> String {
    let allocated: Option<u64> = image.chain.iter().map(|file| file.allocated_bytes).sum();
    let files = match image.chain.len() {
        1 => String::new(),
        count => format!(" in {count} files"),
    };
    let Some(allocated) = allocated else { return "unknown".into() };
    let share = u128::from(allocated).saturating_mul(100).checked_div(u128::from(image.virtual_size_bytes));
    format!("{}{files}, {} % of the virtual size", bytes(allocated), share.unwrap_or_default())
}

/// The chain as a tree, the base at its root.
fn tree(chain: &[FileAnswer]) -> String {
    let mut rows = vec![columns(["FILE", "KIND", "VIRTUAL", "BLOCK", "FILE SIZE", "ALLOCATED"])];
    for (depth, file) in chain.iter().enumerate() {
        let branch = match depth.checked_sub(1) {
            None => String::new(),
            Some(indent) => "   ".repeat(indent) + "└─ ",
        };
        let size = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), bytes);
        rows.push(columns([
            &format!("{branch}{}", name(&file.name)),
            file.subformat,
            &bytes(file.virtual_size_bytes),
            &size(file.block_bytes),
            &bytes(file.file_bytes),
            &size(file.allocated_bytes),
        ]));
    }
    align(&rows, &[2, 3, 4, 5])
}

/// The text form of an identifier.
fn uuid(bytes: [u8; 16]) -> String {
    let mut text = String::new();
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, subformat: &'static str, allocated: u64) -> FileAnswer {
        FileAnswer {
            file: format!("/srv/{name}"),
            name: name.to_owned(),
            subformat,
            virtual_size_bytes: 20 << 30,
            block_bytes: Some(2 << 20),
            file_bytes: allocated,
            allocated_bytes: Some(allocated),
        }
    }

    #[test]
    fn chain_is_drawn_as_a_tree_with_the_base_at_its_root() {
        let chain = [
            file("win.vhdx", "dynamic", 5 << 30),
            file("win.1.avhdx", "differencing", 1 << 30),
            file("win.2.avhdx", "differencing", 100 << 20),
        ];
        let expected = "\
FILE                KIND          VIRTUAL    BLOCK  FILE SIZE  ALLOCATED
win.vhdx            dynamic       20.0 GiB  2.0 MiB    5.0 GiB    5.0 GiB
└─ win.1.avhdx      differencing  20.0 GiB  2.0 MiB    1.0 GiB    1.0 GiB
   └─ win.2.avhdx   differencing  20.0 GiB  2.0 MiB    100 MiB    100 MiB
";
        let squeezed = |text: &str| {
            text.split('\n')
                .map(|line| {
                    line.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect::<Vec<_>>().join("|")
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(squeezed(&tree(&chain)), squeezed(expected));
    }

    #[test]
    fn identity_is_written_as_its_text_form() {
        let bytes = std::array::from_fn(|place| u8::try_from(place * 17).unwrap());
        assert_eq!(uuid(bytes), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
