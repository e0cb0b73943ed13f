//! The Headwater server and its command line, as a library for the program and its tests.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails, as it should")
)]

pub mod admin;
pub mod catalogue;
pub mod cli;
pub mod cloud;
pub mod columns;
pub mod commands;
pub mod config;
pub mod media;
pub mod path;
pub mod secrets;
pub mod serve;
pub mod state;
pub mod stream;
pub mod timeline;
