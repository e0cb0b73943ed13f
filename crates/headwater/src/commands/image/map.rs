//! `headwater image map`: which parts of the disk lie where.
use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::{Image, LayerIndex, Source};
use serde::Serialize;

use super::names::{names, paths};
use super::open;
use crate::cli::{ImageOptions, MapArgs, Output, RunKind};
use crate::columns::{align, columns, name};

/// A run of the disk, as programs read it.
#[derive(Debug, Serialize)]
struct RunAnswer {
    start: u64,
    length: u64,
    #[serde(flatten)]
    place: Place,
}

/// Where a run lies.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Place {
    Zero,
    Data {
        file: String,
        /// `None` where the bytes lie in the file in another form: in its log, or compressed.
        offset: Option<u64>,
    },
}

pub(super) fn run(args: &MapArgs, options: &ImageOptions) -> anyhow::Result<String> {
    let image = open(&args.file, args.format, options)?;
    let names = match options.output {
        Output::Json => paths(&image),
        Output::Table => names(&image, &args.file, options),
    };
    let mut runs = runs(&image, &names)?;
    runs.retain(|run| match args.only {
        None => true,
        Some(RunKind::Data) => run.place != Place::Zero,
        Some(RunKind::Zero) => run.place == Place::Zero,
    });
    match options.output {
        // One object a line: maps are long.
        Output::Json => {
            runs.iter().try_fold(String::new(), |text, run| Ok(text + &serde_json::to_string(run)? + "\n"))
        }
        Output::Table => Ok(table(&runs)),
    }
}

/// The whole map, runs that follow each other in one place put together.
fn runs(image: &Image, names: &[String]) -> anyhow::Result<Vec<RunAnswer>> {
    let name = |layer: LayerIndex| names.get(usize::from(layer.get())).cloned().unwrap_or_default();
    let end = image.geometry().size.get();
    let mut runs: Vec<RunAnswer> = Vec::new();
    let mut at = 0;
    while at < end {
        let rest = ByteLength::new(end.saturating_sub(at));
        let Some(range) = ByteRange::new(ByteOffset::new(at), rest) else { break };
        let extent = image.extent(range, Patience::Blocking)?;
        let length = extent.range.length().get();
        let place = match extent.source {
            Source::Zero => Place::Zero,
            Source::File { layer, at } => Place::Data { file: name(layer), offset: Some(at.get()) },
            Source::Replayed { layer, .. } | Source::Encoded { layer } => {
                Place::Data { file: name(layer), offset: None }
            }
        };
        match runs.last_mut() {
            Some(last) if last.goes_on_with(&place) => last.length = last.length.saturating_add(length),
            _ => runs.push(RunAnswer { start: at, length, place }),
        }
        at = at.saturating_add(length);
    }
    Ok(runs)
}

impl RunAnswer {
    fn goes_on_with(&self, next: &Place) -> bool {
        match (&self.place, next) {
            (Place::Zero, Place::Zero) => true,
            (Place::Data { file, offset }, Place::Data { file: next_file, offset: next_offset }) => {
                file == next_file && offset.map(|offset| offset.saturating_add(self.length)) == *next_offset
            }
            _ => false,
        }
    }
}

fn table(runs: &[RunAnswer]) -> String {
    let mut rows = vec![columns(["START", "LENGTH", "KIND", "OFFSET", "FILE"])];
    for run in runs {
        let (kind, offset, file) = match &run.place {
            Place::Zero => ("zero", String::new(), ""),
            Place::Data { file, offset: Some(offset) } => ("data", format!("{offset:#x}"), file.as_str()),
            Place::Data { file, offset: None } => ("data", "-".to_owned(), file.as_str()),
        };
        rows.push(columns([
            &format!("{:#x}", run.start),
            &format!("{:#x}", run.length),
            kind,
            &offset,
            &name(file),
        ]));
    }
    align(&rows, &[0, 1, 3])
}
