//! Operations on whole images.
mod compare;
mod convert;
mod disks;
mod faults;

mod merge;
mod places;
mod rebase;
