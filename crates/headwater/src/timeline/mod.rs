//! The boot timeline: where each boot of each device spent its time.
//!
//! - [`record`] is the pure model: a [`BootRecord`] is fed with timestamped events and holds no clock, socket or file. It is
//!   also what is stored and what the administration interface answers.
//! - [`counters`] counts the requests of a boot's two stages with atomics alone, since a disk request must not wait for anybody's
//!   report.
//! - [`recorder`] keeps the boots that are under way, and [`store`] their files, one for each boot.
//! - [`pattern`] tells how reads come. [`phases`], [`findings`] and [`compare`] are pure: where the time of a boot went, what was
//!   slow about it and what helps, and how two boots differ.
//! - [`presence`] is the rule on whether a device is there, and [`presences`] tells followers when that changes.
//! - [`tracer`] records the requests themselves, where it is asked to.
//! - [`table`] is what administrators show each other.
//!
//! What each figure means and where it is measured stands in `docs/timeline.md`.
pub mod compare;
pub mod counters;
pub mod findings;
pub mod pattern;
pub mod phases;
pub mod presence;
pub mod presences;
pub mod record;
pub mod recorder;
pub mod store;
pub mod table;
pub mod time;
pub mod tracer;

pub use record::{BootRecord, Status};
pub use recorder::Recorder;
pub use time::{Clock, Millis, Moment};
