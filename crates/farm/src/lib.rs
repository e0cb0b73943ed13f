//! The farm: what administrators manage, by which rules, and where it is written down.
//!
//! - [`model`]: plain types, right by construction.
//! - [`rules`]: what follows from them, as plain functions. Time goes in, refusals carry their reason.
//! - [`filter`]: the language of lists and views.
//! - [`catalogue`]: all of it in SQLite or PostgreSQL, in transactions with revisions and audit entries.
//! - [`snapshot`]: what boots are decided from: all that matters for it, in memory, immutable.
//! - [`csv`]: devices as tables.
//!
//! How the parts fit, the tables, and how a device comes to its version stand in `docs/design/farm.md`.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]

pub mod catalogue;
pub mod csv;
mod durable;
pub mod filter;
pub mod model;
pub mod rules;
pub mod snapshot;
