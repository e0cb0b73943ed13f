//! The Headwater server and its command line, as a library for the program and its tests.
pub mod config;
pub mod state;
pub mod timeline;
