//! The commands of a SCSI disk (SAM-5, SPC-4, SBC-3) carried out on a block device.
//!
//! # The seam to a transport
//! [`Units`] is what one session sees: its logical units, each with what the unit remembers of this initiator
//! (pending unit attentions). [`Units::task`] turns the LUN and the CDB of a request into a [`Task`], or into the
//! [`Rejection`] to answer with; everything that can be judged from the CDB alone (opcode, fields, LBA range,
//! write protection, reservations) is judged there, before any data moves. The task then tells how many bytes go which way
//! ([`Task::transfer`]), judges what the initiator announces to send ([`Task::check_announced`]) and is carried out,
//! in one of two ways:
//!
//! - a task with Data-In: [`Task::read_in`], for any part of the Data-In and in any order, straight into the
//!   transport's own buffer;
//! - every other task: [`Task::run`], once, with all of the Data-Out.
//!
//! Both take the [`block::Patience`] of the caller and answer [`Failure::WouldBlock`] where the device does: the same
//! call with [`block::Patience::Blocking`], on a thread that may wait, then does it. A task holds all that it needs,
//! so it can be sent to such a thread. Tasks may run at the same time and in any order.
//!
//! What all sessions of a unit share (reservations, changeable mode parameters) belongs to the [`LogicalUnit`]: hand
//! the same one to every session that is to see the same disk.
//!
//! # What is not here
//! Residuals and sequence numbers (the transport's), the aborting of tasks (likewise, see
//! [`Task::aborts_tasks_of`]), protection information, third-party copy, atomic writes of more than a block (a
//! [`block::BlockDevice`] promises each block alone), SANITIZE (what a golden image holds cannot be erased from here).
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "tests fail by panicking"))]

mod capacity;
mod cdb;
mod disk;
mod inquiry;
mod logs;
mod medium;
mod mode;
mod nexus;
mod opcodes;
mod port;
mod reservation;
mod sense;
mod shared;
mod task;
#[cfg(test)]
mod testing;
mod unit;
mod units;
mod unmap;

pub use nexus::UnitAttention;
pub use port::InitiatorPort;
pub use sense::{AdditionalSense, CheckCondition, FieldPointer, Rejection, SenseKey};
pub use task::{Failure, Task, TaskKind, Transfer};
pub use unit::{LogicalUnit, UnitIdentity};
pub use units::Units;
