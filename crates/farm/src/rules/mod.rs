//! What follows from the model, as plain functions: no database, no clock, no files.
//!
//! A rule that says no gives a [`Refusal`], which carries what stands against it, and who is hit.
mod refusal;

pub use refusal::Refusal;
