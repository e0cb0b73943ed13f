//! `headwater image snapshot`: a new version that begins with the contents of its parent.
use block::ByteLength;
use diskimage::ops::{Replace, SnapshotOptions, snapshot};

use super::{print_done, reading};
use crate::cli::{ImageOptions, SnapshotArgs};

pub(super) fn run(args: &SnapshotArgs, options: &ImageOptions) -> anyhow::Result<String> {
    let wanted = SnapshotOptions {
        payload_block: args.block_size.map(|size| ByteLength::new(size.0)),
        replace: Replace::Never,
        open: reading(None, options),
    };
    snapshot(&args.parent, &args.child, &wanted)?;
    print_done(&args.child, options)
}
