//! The console: pages for administrators, rendered on the server.
//!
//! ```text
//! request ──> door     whose session it is, that a form is ours, what every answer carries
//!              └──> pages/*   data in, markup out: one file for each page
//!                    ├── rights   what somebody may do where: what buttons ask, as the API does
//!                    ├── ask      the REST API, in this process: every right, filter and message is its own
//!                    └── board    what is shown live: boots and rates, read once however many look
//! ```
//!
//! A page asks the REST API for what it shows, as the command line does, and so does a button that changes something: there is
//! nothing that the console alone can do, and nothing that it is allowed alone. Every part of a page that is
//! renewed by itself has an address of its own, which gives that part to htmx and a whole page to everybody else. Without
//! JavaScript all works but what renews itself.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::panic,
        reason = "a test that fails this way fails, as it should"
    )
)]

mod answer;
mod ask;
mod assets;
mod board;
mod boot;
mod commands;
mod conflict;
mod door;
mod fields;
mod frame;
mod fresh;
mod markup;
mod pages;
mod paths;
mod profile;
mod rates;
mod rights;
mod said;
mod sight;
mod statuses;
mod wire;

use std::sync::Arc;

use api::live::Live;
use axum::Router;
use control::Control;
use control::people::People;
use tokio::sync::watch;

use board::Board;
use fresh::Fresh;

pub use commands::every_command;
pub use door::router;

/// What the pages are made of.
pub struct Console {
    control: Arc<Control>,
    people: Arc<People>,
    api: Router,
    board: Arc<Board>,
    /// What overviews that renew themselves show those who see the whole farm, who all see the same.
    overview: Fresh<pages::overview::Data>,
}

impl Console {
    /// On the REST API of a farm, whose router stands behind [`api::Door::Network`], and on the server that serves it.
    /// What is shown live is followed until `stopping` becomes true. To be called within a tokio runtime.
    #[must_use]
    pub fn start(
        control: Arc<Control>,
        people: Arc<People>,
        api: Router,
        live: Arc<dyn Live>,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let board = Board::start(live, stopping);
        Arc::new(Self { control, people, api, board, overview: Fresh::default() })
    }
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").field("control", &self.control).finish_non_exhaustive()
    }
}
