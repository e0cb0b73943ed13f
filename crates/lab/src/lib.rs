//! Golden images, lab networks and QEMU targets for demo, tests and benches.
mod cache;
mod command;
mod console;
mod guest;
mod home;
mod image;
mod network;
pub mod packages;
mod progress;
mod qmp;
mod run;
mod server;
mod service;

pub use console::Line;
pub use guest::{Firmware, GOLDEN_READY_WITHIN, Guest, GuestSpec, MICRO_READY_WITHIN};
pub use home::home;
pub use image::{Image, golden, micro};
pub use network::{INTERFACE, Network, SERVER_ADDRESS, SERVER_ADDRESS_V6, SITE_DHCP_ADDRESS};
pub use run::sweep;
pub use server::{Server, ServerSpec};
pub use service::Service;
