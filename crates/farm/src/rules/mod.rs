//! What follows from the model, as plain functions: no database, no clock, no files.
//!
//! | module | answers |
//! |---|---|
//! | [`entitlement`] | which version a device boots, and where it writes |
//! | [`lifecycle`] | what may be made, promoted, reverted, held, deleted and merged |
//! | [`files`] | what files are called, and whether somebody else wrote to one |
//! | [`leases`] | who excludes whom, and when a lease has ended |
//! | [`boot`] | what a machine that asks is given |
//! | [`menu`] | what a device that has a choice does next: its boot menu |
//! | [`newcomers`] | how machines that add themselves are named |
//! | [`permission`] | who may do what where |
//! | [`reports`] | whether a server serves |
//!
//! A rule that says no gives an error that carries what stands against it, and who is hit.
pub mod boot;
pub mod entitlement;
pub mod files;
pub mod leases;
pub mod lifecycle;
pub mod menu;
pub mod newcomers;
pub mod permission;
mod refusal;
pub mod reports;

pub use refusal::Refusal;

#[cfg(test)]
mod sample;
