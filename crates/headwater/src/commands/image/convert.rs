//! `headwater image convert`: the contents of an image in another format.
use std::time::Instant;

use diskimage::ops::{ConvertOptions, FindZeros, convert};
use diskimage::{Image, OpenOptions};

use super::target::{MadeAnswer, format, payload_block, replace, replacing, subtype};
use super::work::{Manner, watched};
use super::{print, reading};
use crate::cli::{ConvertArgs, ImageOptions, SectorSize};

pub(super) async fn run(args: ConvertArgs, options: ImageOptions) -> anyhow::Result<String> {
    let format = format(&args.new, &args.target)?;
    let subtype = subtype(&args.new, format)?;
    let wanted = ConvertOptions {
        subtype,
        payload_block: payload_block(&args.new, format, subtype)?,
        logical_block: args.sector_size.map(SectorSize::logical_block),
        replace: replace(args.force),
        zeros: if args.find_zeros { FindZeros::Everywhere } else { FindZeros::WhereCopied },
        verify: args.verify,
        ..ConvertOptions::to(format)
    };
    let manner = Manner { what: "converting", quiet: options.quiet, limit: args.pace.rate_limit };
    let answer = {
        let options = options.clone();
        watched(manner, move |watch| {
            let begun = Instant::now();
            let opened = OpenOptions {
                backing_files: args.allow_backing_file,
                ..reading(args.source_format, &options)
            };
            let image = Image::open(&args.source, opened)?;
            let made = convert(&image, &args.target, &wanted).and_then(|job| job.run(watch));
            let summary = made.map_err(replacing)?;
            Ok(MadeAnswer::of(&args.target, &summary, begun.elapsed(), args.verify))
        })
        .await?
    };
    print(&answer, &options, MadeAnswer::text)
}
