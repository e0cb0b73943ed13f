//! `headwater image snapshot`: a new version that begins with the contents of its parent.
use anyhow::bail;
use block::ByteLength;
use diskimage::Format;
use diskimage::ops::{OpError, Replace, SnapshotOptions, snapshot};

use super::target::check_ending;
use super::{open, print_done, reading};
use crate::cli::{ImageOptions, SnapshotArgs};

pub(super) fn run(args: &SnapshotArgs, options: &ImageOptions) -> anyhow::Result<String> {
    let wanted = SnapshotOptions {
        payload_block: args.block_size.map(|size| ByteLength::new(size.0)),
        replace: Replace::Never,
        open: reading(None, options),
    };
    // Why a parent cannot be opened, or have a child, is said below.
    if let Ok(parent) = open(&args.parent, None, options)
        && matches!(parent.format(), Format::Vhd | Format::Vhdx)
    {
        check_ending(&args.child, parent.format())?;
    }
    match snapshot(&args.parent, &args.child, &wanted) {
        Err(OpError::Exists { path }) => bail!("{path:?} is there already; choose another name"),
        made => made?,
    };
    print_done(&args.child, options)
}
