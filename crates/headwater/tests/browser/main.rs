//! The console in a real browser, against the real server with real images: what an administrator does in it, from an
//! empty farm to a machine that boots.
//!
//! Needs chromium and chromium-driver, and what the harness needs. `HEADWATER_SCREENSHOTS=FOLDER` keeps a picture of every
//! page, in both themes and on a narrow screen (`cargo xtask screenshots`).
#![allow(missing_docs, reason = "tests")]

#[path = "../harness/mod.rs"]
mod harness;

mod connection;
mod driver;
mod keyboard;
mod pages;
mod people;
mod place;
mod servers;
mod setting_up;
mod versions;
