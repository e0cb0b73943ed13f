//! The console as a browser sees it: requests to its router, and the pages that come back.
#![allow(missing_docs, reason = "tests")]

mod door;
mod farm;
mod host;
mod objects;
mod rights;
mod shown;
mod snapshots;
mod vdisks;
mod wizards;
