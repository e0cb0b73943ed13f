//! Operations on whole images: merge, convert, compact, snapshot, rebase, compare.
//!
//! # The theory
//! Merge, convert and compact are one thing: a new image, made block by block of the pieces that a source has of each
//! (`view`). What differs is the view (a whole chain, or only what its upper files say) and what the new image
//! is to be. A [`Job`] can be asked for its [`Plan`], which moves nothing, and run. Payload is moved the cheapest way
//! that source and target allow (`mover`): a merge on a file system that shares extents writes tables and not much
//! besides.
//!
//! # What holds
//! - Sources are opened for reading and never change: they can be served all the while.
//! - The target is a new file under another name until it is whole and on disk; then it gets its name in one step
//!   (`partial`). An error, a cancel or a full disk leaves nothing; a killed process leaves a file that the next one
//!   recognises and removes.
//! - Memory is bounded: by a few buffers, and what one payload block needs.
mod compact;
mod compare;
mod convert;
mod copier;
mod error;
mod filler;
mod holes;
mod job;
mod merge;
mod mover;
mod parent;
mod partial;
mod plan;
mod rebase;
mod run;
mod shape;
mod snapshot;
mod trial;
mod view;
mod zeros;

pub use compact::{CompactOptions, compact};
pub use compare::{CompareError, CompareOptions, Comparison, DifferingRange, compare};
pub use convert::{ConvertOptions, convert};
pub use error::OpError;
pub use job::{Job, Summary};
pub use merge::{MergeOptions, merge_base, merge_updates};
pub use mover::Moved;
pub(crate) use partial::is_same_file;
pub use partial::{Replace, remove_leftover};
pub use plan::{Action, Blocks, Plan, Step, Total, Totals};
pub use rebase::{Trust, rebase};
pub use snapshot::{SnapshotOptions, snapshot};
pub use zeros::FindZeros;
