//! The REST API: what an administrator can do, over HTTP.
//!
//! ```text
//! request ──> driver          who asks, how long the body is, its id        (asynchronous)
//!               │
//!               ├──> operation   one of a table: method, path, schemas, handler
//!               │       └──> resources/*   what it does, through control     (waits for the database)
//!               └──> events      what changes, for whoever listens
//! table ──> openapi           the same table as an OpenAPI 3.1 document
//! ```
//!
//! Every route stands in one table with the schemas of what it takes and gives, so that none can be served without being
//! described: the router and the document are made of the same rows. Handlers are plain functions from what was
//! asked (`asked`) to a reply (`reply`), and wait for the database; one driver lets callers in, bounds bodies,
//! and turns problems (`problem`) into answers.
//!
//! Objects are read and changed in one way (`resources::object`): a resource says how its body becomes a record of the
//! catalogue and back, and listing, filtering, revisions, idempotency, permissions and audit follow from that.
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

mod asked;
mod driver;
mod events;
pub mod guest_commands;
pub mod host;
pub mod live;
pub mod load;
mod openapi;
mod operation;
mod problem;
pub mod rates;
mod reply;
mod resources;
mod sight;
mod table;
mod wire;

use std::sync::Arc;

use control::Control;
use control::people::People;
use tokio::sync::{Semaphore, watch};

use live::Live;

pub use driver::{Door, router};
pub use openapi::document;
pub use problem::ErrorAnswer;
pub use sight::Sight;

/// What the answers are made of.
pub struct Api {
    control: Arc<Control>,
    people: Arc<People>,
    live: Arc<dyn Live>,
    stopping: watch::Receiver<bool>,
    listeners: Arc<Semaphore>,
}

impl Api {
    /// On a farm, and on the server that serves it. When `stopping` becomes true, answers that go on end.
    #[must_use]
    pub fn new(
        control: Arc<Control>,
        people: Arc<People>,
        live: Arc<dyn Live>,
        stopping: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let listeners = Arc::new(Semaphore::new(events::MAX_LISTENERS));
        Arc::new(Self { control, people, live, stopping, listeners })
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("control", &self.control).finish_non_exhaustive()
    }
}
