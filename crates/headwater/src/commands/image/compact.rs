//! `headwater image compact`: an image without the blocks that hold nothing.
use std::time::Instant;

use diskimage::ops::{CompactOptions, compact};
use diskimage::storage::EditLock;
use serde::Serialize;

use super::target::MadeAnswer;
use super::work::{Manner, watched};
use super::{open, print, reading};
use crate::cli::{CompactArgs, ImageOptions};
use crate::columns::bytes;

/// A compaction, as programs read it.
#[derive(Debug, Serialize)]
struct CompactAnswer {
    #[serde(flatten)]
    made: MadeAnswer,
    file_bytes_before: u64,
    file_bytes_after: u64,
}

pub(super) async fn run(args: CompactArgs, options: ImageOptions) -> anyhow::Result<String> {
    let manner = Manner { what: "compacting", quiet: options.quiet, limit: args.pace.rate_limit };
    let answer = {
        let options = options.clone();
        watched(manner, move |watch| {
            let begun = Instant::now();
            let lock = EditLock::take(&args.file)?;
            let image = open(&args.file, args.format, &options)?;
            let file_bytes_before = image.info().file_size.get();
            let reopen = reading(args.format, &options);
            let wanted = CompactOptions { trimmed_only: args.trimmed_only, verify: args.verify, reopen };
            let summary = compact(&image, &lock, &wanted)?.run(watch)?;
            let file_bytes_after = std::fs::metadata(&args.file)?.len();
            let made = MadeAnswer::of(&args.file, &summary, begun.elapsed(), args.verify);
            Ok(CompactAnswer { made, file_bytes_before, file_bytes_after })
        })
        .await?
    };
    print(&answer, &options, |answer| {
        let (before, after) = (bytes(answer.file_bytes_before), bytes(answer.file_bytes_after));
        format!("{}{before} before, {after} now\n", answer.made.text())
    })
}
