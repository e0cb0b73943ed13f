//! What firmware asks of the network at power-on: DHCP, proxyDHCP, TFTP, HTTP boot, iPXE scripts.
//!
//! # One boot
//! 1. The firmware broadcasts a DHCPDISCOVER. [`dhcp::server`] (or [`dhcp::proxy`], beside the site's DHCP server) answers with
//!    the iPXE that fits its architecture: a file name for TFTP, or a URL for UEFI HTTP Boot.
//! 2. The firmware fetches it, from [`tftp`] or [`http`], and starts it.
//! 3. iPXE broadcasts a DHCPDISCOVER of its own, in which it says that it is iPXE. The answer is the URL of its script.
//! 4. iPXE fetches the script. The [`director`] decides the plan, [`script`] writes it down.
//!
//! Machines whose network card has iPXE in its ROM begin at step 3. [`service`] starts all of it on the configured interfaces.
//!
//! # Shape
//! Codecs and state machines take bytes and the time, and give bytes and events; only `service`, `sockets`, the drivers
//! (`dhcp::driver`, `tftp::server`, `advertiser`) and [`http`] touch the network. Every table is bounded; a peer's wrong move
//! costs it its packet and us a rate-limited log line.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::panic
)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "an overflow fails the test"))]

mod advertiser;
pub mod boot_files;
pub mod dhcp;
pub mod director;
pub mod http;
pub mod limits;
pub mod neighbours;
pub mod router_advertisement;
pub mod script;
pub mod script_url;
pub mod service;
mod sockets;
pub mod tftp;
pub mod wake;
