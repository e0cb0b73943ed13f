//! The interface as whoever calls it sees it: requests to the router, and what comes back.
#![allow(missing_docs, reason = "tests")]

mod document;
mod events;
mod farm;
mod host;
mod loads;
mod objects;
mod people;
mod power;
