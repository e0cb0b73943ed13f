//! `headwater image compare`: do two images hold the same?
use std::fmt::Write as _;
use std::path::Path;

use anyhow::anyhow;
use block::BlockError;
use diskimage::ops::{CompareError, CompareOptions, Comparison, compare};
use serde::Serialize;

use super::work::{Manner, watched};
use super::{open, print};
use crate::cli::{CompareArgs, ImageOptions};
use crate::columns::bytes;
use crate::commands::{Answer, Verdict};

/// How many differing ranges are shown to people.
const SHOWN_RANGES: usize = 10;

/// A comparison, as programs read it.
#[derive(Debug, Serialize)]
struct CompareAnswer {
    same: bool,
    /// Whether all was compared, and not only what lies before the first difference.
    complete: bool,
    sizes_bytes: [u64; 2],
    first_difference: Option<u64>,
    differing_bytes: u64,
    ranges: Vec<RangeAnswer>,
    ranges_left_out: u64,
    read_bytes: u64,
}

/// Sectors that differ.
#[derive(Debug, Serialize)]
struct RangeAnswer {
    start: u64,
    length: u64,
}

pub(super) async fn run(args: CompareArgs, options: ImageOptions) -> anyhow::Result<Answer> {
    let manner = Manner { what: "comparing", quiet: options.quiet, limit: None };
    let first = args.first;
    let found = {
        let options = options.clone();
        watched(manner, move |watch| {
            let one = open(&args.one, args.format, &options)?;
            let other = open(&args.other, args.other_format, &options)?;
            let wanted = CompareOptions { strict: args.strict, stop_at_first: args.first };
            let found = compare(&one, &other, &wanted, watch);
            found.map_err(|error| match error {
                CompareError::First(source) => unreadable(&args.one, source),
                CompareError::Second(source) => unreadable(&args.other, source),
                CompareError::Cancelled(cancelled) => anyhow!(cancelled),
            })
        })
        .await?
    };
    let complete = found.is_same() || !first;
    let verdict = if found.is_same() { Verdict::Yes } else { Verdict::No };
    Ok(Answer { text: print(&CompareAnswer::of(&found, complete), &options, text)?, verdict })
}

impl CompareAnswer {
    fn of(found: &Comparison, complete: bool) -> Self {
        let range = |range: &diskimage::ops::DifferingRange| RangeAnswer {
            start: range.start.get(),
            length: range.bytes,
        };
        Self {
            same: found.is_same(),
            complete,
            sizes_bytes: found.sizes,
            first_difference: found.first_difference.map(block::ByteOffset::get),
            differing_bytes: found.differing_bytes,
            ranges: found.ranges.iter().map(range).collect(),
            ranges_left_out: found.ranges_left_out,
            read_bytes: found.read_bytes,
        }
    }
}

fn unreadable(path: &Path, source: BlockError) -> anyhow::Error {
    anyhow::Error::new(source).context(format!("image {path:?} cannot be read"))
}

fn text(found: &CompareAnswer) -> String {
    let mut text = String::new();
    let [one, other] = found.sizes_bytes;
    if one != other {
        let _ = writeln!(text, "sizes: {} and {} ({one} and {other} bytes)", bytes(one), bytes(other));
    }
    if found.same {
        let longer =
            if one == other { "" } else { "; what the longer one has behind the shorter one is zeros" };
        let _ = writeln!(text, "the images hold the same{longer}");
        return text;
    }
    if let Some(first) = found.first_difference {
        let _ = writeln!(text, "the images differ, first at byte {first} ({first:#x})");
    }
    if !found.complete {
        return text;
    }
    for range in found.ranges.iter().take(SHOWN_RANGES) {
        let _ = writeln!(text, "  {:#x}, {}", range.start, bytes(range.length));
    }
    let more = found.ranges.len().saturating_sub(SHOWN_RANGES);
    let more = found.ranges_left_out.saturating_add(u64::try_from(more).unwrap_or(u64::MAX));
    if more > 0 {
        let _ = writeln!(text, "  and {more} {} more", if more == 1 { "range" } else { "ranges" });
    }
    match found.differing_bytes {
        0 => {}
        1 => text.push_str("1 byte differs\n"),
        many => {
            let _ = writeln!(text, "{many} bytes differ");
        }
    }
    text
}
