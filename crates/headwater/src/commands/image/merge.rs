//! `headwater image merge`: one file of an image and its parents.
use std::time::Instant;

use anyhow::bail;
use diskimage::ops::{ConvertOptions, Job, MergeOptions, convert, merge_base, merge_updates};
use diskimage::{Image, LayerIndex, Subtype};

use super::names::{names, paths};
use super::plan::PlanAnswer;
use super::target::{MadeAnswer, check_ending, format, payload_block, replace, replacing, subtype};
use super::work::{Manner, watched};
use super::{open, print, reading};
use crate::cli::{ImageOptions, MergeArgs};

/// What came of it.
enum Outcome {
    Planned(PlanAnswer),
    Made(MadeAnswer),
}

pub(super) async fn run(args: MergeArgs, options: ImageOptions) -> anyhow::Result<String> {
    let what = if args.dry_run { "planning" } else { "merging" };
    let manner = Manner { what, quiet: options.quiet, limit: args.pace.rate_limit };
    let outcome = {
        let options = options.clone();
        watched(manner, move |watch| {
            let begun = Instant::now();
            let image = open(&args.leaf, args.source_format, &options)?;
            let job = job(&image, &args, &options)?;
            if args.dry_run {
                let names = names(&image, &args.leaf, &options);
                return Ok(Outcome::Planned(PlanAnswer::of(&job.plan()?, paths(&image), names)));
            }
            let summary = job.run(watch).map_err(replacing)?;
            Ok(Outcome::Made(MadeAnswer::of(&args.into, &summary, begun.elapsed(), args.verify)))
        })
        .await?
    };
    match outcome {
        Outcome::Planned(plan) => print(&plan, &options, PlanAnswer::text),
        Outcome::Made(made) => print(&made, &options, MadeAnswer::text),
    }
}

fn job<'a>(image: &'a Image, args: &MergeArgs, options: &ImageOptions) -> anyhow::Result<Job<'a>> {
    if args.updates && (args.new.format.is_some() || args.new.subformat.is_some()) {
        bail!(
            "merged updates are a difference of the same format as the base: leave --format and --subformat out"
        );
    }
    let format = if args.updates { image.format() } else { format(&args.new, &args.into)? };
    let is_same_kind = format == image.format() && args.new.subformat.is_none();
    // A base of the same kind is fixed where the old one is.
    let base = image.layers().first().map_or(Subtype::Dynamic, |base| base.info.subtype);
    let subtype = match is_same_kind {
        true if args.updates => Subtype::Differencing,
        true => base,
        false => subtype(&args.new, format)?,
    };
    let wanted = MergeOptions {
        payload_block: payload_block(&args.new, format, subtype)?,
        replace: replace(args.force),
        verify: args.verify,
        reopen: reading(args.source_format, options),
    };
    if args.updates {
        check_ending(&args.into, format)?;
        return merge_updates(image, first_update(image)?, &args.into, &wanted).map_err(replacing);
    }
    if is_same_kind {
        return merge_base(image, &args.into, &wanted).map_err(replacing);
    }
    // A base of another kind is a conversion of the whole chain that stays the same disk.
    let wanted = ConvertOptions {
        subtype,
        payload_block: wanted.payload_block,
        identity: image.identity().filter(|_| format == image.format()),
        replace: wanted.replace,
        verify: wanted.verify,
        ..ConvertOptions::to(format)
    };
    convert(image, &args.into, &wanted).map_err(replacing)
}

/// The difference right on the base.
fn first_update(image: &Image) -> anyhow::Result<LayerIndex> {
    match image.layers().len() {
        1 => bail!("this image has no parent: there are no updates to merge"),
        2 => bail!(
            "this image is the only difference on its base: there is nothing to merge it with (--base merges both)"
        ),
        _ => Ok(LayerIndex::new(1)),
    }
}
