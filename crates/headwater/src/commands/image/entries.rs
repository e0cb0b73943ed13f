//! `headwater image entries`: what an image holds to boot from, as a server finds it for a direct kernel boot.
use std::fmt::Write as _;
use std::sync::Arc;

use block::BlockDevice;
use guest::{FileOnDisk, Scheme, Survey};
use serde::Serialize;

use super::{open, print};
use crate::cli::{EntriesArgs, ImageOptions};
use crate::columns::{align, bytes, columns};

/// What an image holds, as programs read it.
#[derive(Debug, Serialize)]
struct EntriesAnswer {
    scheme: &'static str,
    partitions: Vec<PartitionAnswer>,
    entries: Vec<EntryAnswer>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PartitionAnswer {
    number: u32,
    name: String,
    size_bytes: u64,
    file_system: Option<&'static str>,
    uuid: Option<String>,
    label: Option<String>,
}

#[derive(Debug, Serialize)]
struct EntryAnswer {
    id: String,
    title: String,
    source: String,
    default: bool,
    kernel: FileAnswer,
    initrds: Vec<FileAnswer>,
    options: String,
}

#[derive(Debug, Serialize)]
struct FileAnswer {
    partition: u32,
    path: String,
    /// Where it begins in that file; absent for a whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset_bytes: Option<u64>,
    size_bytes: u64,
}

pub(super) fn run(args: &EntriesArgs, options: &ImageOptions) -> anyhow::Result<String> {
    let image: Arc<dyn BlockDevice> = Arc::new(open(&args.file, args.format, options)?);
    let survey = guest::survey(&image)?;
    print(&EntriesAnswer::of(&image, survey)?, options, text)
}

impl EntriesAnswer {
    fn of(image: &Arc<dyn BlockDevice>, survey: Survey) -> anyhow::Result<Self> {
        let partition = |partition: guest::PartitionSurvey| {
            let (file_system, uuid, label) = partition
                .file_system
                .map_or((None, None, None), |(kind, uuid, label)| (Some(kind), Some(uuid), Some(label)));
            PartitionAnswer {
                number: partition.number.0,
                name: partition.name,
                size_bytes: partition.size,
                file_system,
                uuid,
                label: label.filter(|label| !label.is_empty()),
            }
        };
        let entry = |entry: guest::BootEntry| {
            anyhow::Ok(EntryAnswer {
                kernel: FileAnswer::of(image, &entry.kernel)?,
                initrds: entry
                    .initrds
                    .iter()
                    .map(|file| FileAnswer::of(image, file))
                    .collect::<anyhow::Result<_>>()?,
                source: entry.source.to_string(),
                id: entry.id,
                title: entry.title,
                default: entry.default,
                options: entry.options,
            })
        };
        Ok(Self {
            scheme: match survey.scheme {
                Scheme::Gpt => "gpt",
                Scheme::Mbr => "mbr",
                Scheme::None => "none",
            },
            partitions: survey.partitions.into_iter().map(partition).collect(),
            entries: survey.entries.into_iter().map(entry).collect::<anyhow::Result<_>>()?,
            notes: survey.notes,
        })
    }
}

impl FileAnswer {
    fn of(image: &Arc<dyn BlockDevice>, file: &FileOnDisk) -> anyhow::Result<Self> {
        let size_bytes = guest::open(image, file)?.length();
        Ok(Self {
            partition: file.partition.0,
            path: file.path.clone(),
            offset_bytes: file.piece.map(|(at, _)| at),
            size_bytes,
        })
    }
}

/// The names come from inside the image: nothing in them may steer a terminal.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{FFFD}' } else { c }).collect()
}

fn text(answer: &EntriesAnswer) -> String {
    let mut rows = vec![columns(["PARTITION", "NAME", "SIZE", "FILE SYSTEM", "UUID", "LABEL"])];
    let dash =
        |value: Option<&str>| value.filter(|text| !text.is_empty()).map_or_else(|| "-".to_owned(), shown);
    for partition in &answer.partitions {
        let number =
            if partition.number == 0 { "whole disk".to_owned() } else { partition.number.to_string() };
        rows.push(columns([
            &number,
            &dash(Some(&partition.name)),
            &bytes(partition.size_bytes),
            &dash(partition.file_system),
            &dash(partition.uuid.as_deref()),
            &dash(partition.label.as_deref()),
        ]));
    }
    let mut text = align(&rows, &[2]);
    for entry in &answer.entries {
        let mark = if entry.default { ", the default" } else { "" };
        let _ = writeln!(text, "\n{} ({}{mark})", shown(&entry.title), entry.source);
        let _ = writeln!(text, "  id       {}", shown(&entry.id));
        for (name, file) in std::iter::once(("kernel", &entry.kernel))
            .chain(entry.initrds.iter().map(|file| ("initrd", file)))
        {
            let _ = writeln!(
                text,
                "  {name:<8} {} in partition {}, {}",
                shown(&file.path),
                file.partition,
                bytes(file.size_bytes)
            );
        }
        let _ = writeln!(text, "  options  {}", shown(&entry.options));
    }
    if answer.entries.is_empty() {
        text.push_str(
            "\nno boot entry found: a direct kernel boot needs grub.cfg, entry files of the Boot Loader Specification, a \
             unified kernel image or a kernel in /boot, on FAT or ext4\n",
        );
    }
    for note in &answer.notes {
        let _ = writeln!(text, "\nnote: {}", shown(note));
    }
    text
}
