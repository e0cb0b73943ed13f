//! Real machines (QEMU, emulated) boot from a real `headwater serve` over a real network.
//!
//! `cargo test` alone leaves this target out; `cargo xtask test` runs it, or `cargo test -p headwater --test boots`. It
//! needs root, and Debian packages that the lab installs. Boots run one after the other: emulation needs the processors.
mod debian;
mod every_step;
mod faults;
mod figures;
mod firmware;
mod hostile;
mod identity;
mod kernels;
mod media;
mod menu;
mod nbd_root;
mod newcomers;
mod path_mtu;
mod paths;
mod restarts;
mod site;
mod store;
mod traces;
mod unified;
mod versions;
mod write_cache;
