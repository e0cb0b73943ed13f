//! `headwater image merge`: one file of an image and its parents.
use std::time::Instant;

use anyhow::bail;
use diskimage::ops::{
    Action, ConvertOptions, Job, MergeOptions, Plan, Step, convert, merge_base, merge_updates,
};
use diskimage::{Image, LayerIndex, Subtype};
use serde::Serialize;

use super::target::{MadeAnswer, format, payload_block, replace, subtype};
use super::work::{Manner, watched};
use super::{open, print, reading};
use crate::cli::{ImageOptions, MergeArgs};

/// A dry run, as programs read it.
#[derive(Debug, Serialize)]
struct PlanAnswer {
    file: String,
    virtual_size_bytes: u64,
    block_bytes: u64,
    clone_bytes: u64,
    copy_bytes: u64,
    blocks_whole: u64,
    blocks_partial: u64,
    blocks_zero: u64,
    blocks_absent: u64,
    steps: Vec<StepAnswer>,
    steps_left_out: u64,
    #[serde(skip)]
    text: String,
}

/// One step.
#[derive(Debug, Serialize)]
struct StepAnswer {
    action: &'static str,
    first_block: u64,
    blocks: u64,
    layer: Option<u16>,
    bytes: u64,
}

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
                return Ok(Outcome::Planned(PlanAnswer::of(&job.plan()?)));
            }
            let summary = job.run(watch)?;
            Ok(Outcome::Made(MadeAnswer::of(&args.into, &summary, begun.elapsed(), args.verify)))
        })
        .await?
    };
    match outcome {
        Outcome::Planned(plan) => print(&plan, &options, |plan| plan.text.clone()),
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
        return Ok(merge_updates(image, first_update(image)?, &args.into, &wanted)?);
    }
    if is_same_kind {
        return Ok(merge_base(image, &args.into, &wanted)?);
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
    Ok(convert(image, &args.into, &wanted)?)
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

impl PlanAnswer {
    fn of(plan: &Plan) -> Self {
        Self {
            file: plan.target.display().to_string(),
            virtual_size_bytes: plan.virtual_size.get(),
            block_bytes: plan.payload_block.get(),
            clone_bytes: plan.clone_bytes,
            copy_bytes: plan.copy_bytes,
            blocks_whole: plan.blocks.whole,
            blocks_partial: plan.blocks.partly,
            blocks_zero: plan.blocks.zero,
            blocks_absent: plan.blocks.absent,
            steps: plan.steps.iter().map(StepAnswer::of).collect(),
            steps_left_out: plan.steps_left_out,
            text: plan.to_string(),
        }
    }
}

impl StepAnswer {
    fn of(step: &Step) -> Self {
        let action = match step.action {
            Action::Clone => "clone",
            Action::Copy => "copy",
            Action::Zero => "zero",
            Action::SetState => "set-state",
        };
        Self {
            action,
            first_block: step.block,
            blocks: step.blocks,
            layer: step.layer.map(LayerIndex::get),
            bytes: step.bytes,
        }
    }
}
