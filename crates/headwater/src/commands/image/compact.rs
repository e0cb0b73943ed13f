//! `headwater image compact`: an image without the blocks that hold nothing.
use std::os::unix::fs::MetadataExt;
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
    allocated_bytes_before: u64,
    allocated_bytes_after: u64,
}

pub(super) async fn run(args: CompactArgs, options: ImageOptions) -> anyhow::Result<String> {
    let manner = Manner { what: "compacting", quiet: options.quiet, limit: args.pace.rate_limit };
    let answer = {
        let options = options.clone();
        watched(manner, move |watch| {
            let begun = Instant::now();
            let lock = EditLock::take(&args.file)?;
            let image = open(&args.file, args.format, &options)?;
            let before = std::fs::metadata(&args.file)?;
            let reopen = reading(args.format, &options);
            let wanted = CompactOptions { trimmed_only: args.trimmed_only, verify: args.verify, reopen };
            let summary = compact(&image, &lock, &wanted)?.run(watch)?;
            let after = std::fs::metadata(&args.file)?;
            let made = MadeAnswer::of(&args.file, &summary, begun.elapsed(), args.verify);
            Ok(CompactAnswer {
                made,
                file_bytes_before: before.len(),
                file_bytes_after: after.len(),
                allocated_bytes_before: allocated(&before),
                allocated_bytes_after: allocated(&after),
            })
        })
        .await?
    };
    print(&answer, &options, |answer| {
        let grew = |before, after| format!("{} before, {} now", bytes(before), bytes(after));
        format!(
            "{}file size: {}\nallocated: {}\n",
            answer.made.text(),
            grew(answer.file_bytes_before, answer.file_bytes_after),
            grew(answer.allocated_bytes_before, answer.allocated_bytes_after)
        )
    })
}

/// st_blocks counts units of 512 bytes whatever the file system's own unit is: stat(2).
fn allocated(metadata: &std::fs::Metadata) -> u64 {
    metadata.blocks().saturating_mul(512)
}
