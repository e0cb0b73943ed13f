//! `headwater image rebase`: where the parent is now.
use diskimage::ops::{Trust, rebase};

use super::work::{Manner, watched};
use super::{print_done, reading};
use crate::cli::{ImageOptions, RebaseArgs};

pub(super) async fn run(args: RebaseArgs, options: ImageOptions) -> anyhow::Result<String> {
    let trust = match (args.compare, args.r#unsafe) {
        (true, _) => Trust::Contents,
        (false, true) => Trust::Caller,
        (false, false) => Trust::Linkage,
    };
    let (child, shown) = (args.child.clone(), options.clone());
    let manner = Manner { what: "comparing", quiet: options.quiet, limit: None };
    watched(manner, move |watch| {
        Ok(rebase(&args.child, &args.parent, trust, &reading(None, &options), watch)?)
    })
    .await?;
    print_done(&child, &shown)
}
