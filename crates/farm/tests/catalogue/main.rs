//! The catalogue on each of its databases: one suite of what it promises, and what only one database can show.
#![allow(
    clippy::redundant_closure_for_method_calls,
    reason = "a method is not general enough over lifetimes here"
)]
mod postgres;
mod sample;
mod sqlite;
mod suite;
