//! Operations on whole images.
mod compare;
mod convert;
mod disks;

mod merge;
mod places;
