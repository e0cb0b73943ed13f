//! The catalogue on each of its databases: one suite of what it promises, and what only one database can show.
mod sample;
mod sqlite;
mod suite;
