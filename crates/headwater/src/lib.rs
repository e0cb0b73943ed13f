//! The Headwater server and its command line, as a library for the program and its tests.
pub mod admin;
pub mod cli;
pub mod commands;
pub mod config;
pub mod log_limit;
pub mod serve;
pub mod state;
pub mod stream;
pub mod timeline;
