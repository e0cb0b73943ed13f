//! Golden images, lab networks and QEMU targets for demo, tests and benches.
//!
//! The lab shells out to the tools that do the work (mmdebstrap, mkfs.ext4, GRUB, ip, QEMU) and adds what they lack: a
//! cache, time limits, errors that show what was said last, and a clean-up that cannot be forgotten. It needs root, for
//! network namespaces and mmdebstrap, and no KVM: guests are emulated.
//!
//! - [`packages`] sees to it that the tools are there.
//! - [`micro::micro`] and [`golden::golden`] give disk images: a guest of a few programs that is up in 10 to 20 s, and a
//!   whole Debian 12 that takes about 40 s. Both go the whole way: firmware, iPXE, GRUB from the disk, kernel, iBFT,
//!   open-iscsi; both keep their disk over a restart of the server, send the ready beacon, and have a root shell on
//!   their serial line.
//! - [`Network`] is a network of one's own; [`Guest`] a device in it, [`Server`] the server under test, [`Service`]
//!   any other program.
//! - What a run leaves when it is killed, [`sweep`] removes; [`Network::begin`] does that by itself.
//!
//! # A boot test
//! ```no_run
//! use lab::{Firmware, Guest, GuestSpec, MICRO_READY_WITHIN, Network, Server, ServerSpec, micro};
//!
//! # fn main() -> anyhow::Result<()> {
//! lab::packages::ensure(lab::packages::TEST)?;
//! let image = micro::micro()?;
//! let network = Network::begin("two_devices_write_apart")?;
//! let configuration = format!(
//!     "# listen on {} of {}, serve {} ...",
//!     lab::SERVER_ADDRESS,
//!     lab::INTERFACE,
//!     image.vhdx.display()
//! );
//! let mut server = Server::start(&network, ServerSpec::new("target/debug/headwater", configuration))?;
//!
//! // Both are on their way at once; a device needs no thread of ours.
//! let mut bios = Guest::start(&network, &GuestSpec::new("bios", Firmware::BiosIpxeRom, 0))?;
//! let mut uefi = Guest::start(&network, &GuestSpec::new("uefi", Firmware::UefiPxe, 1))?;
//! for (guest, text) in [(&mut bios, "one"), (&mut uefi, "two")] {
//!     let line = guest.wait_for(micro::READY, MICRO_READY_WITHIN)?;
//!     println!("up after {:.1} s: {}", line.at.as_secs_f32(), line.text);
//!     guest.run(&format!("echo {text} >/data/file; sync"))?;
//! }
//! assert_eq!(bios.run("cat /data/file")?, "one\n");
//!
//! // A crash of the server: the devices' I/O stalls, then goes on.
//! server.kill()?;
//! server.restart()?;
//! uefi.run_within("dd if=/dev/zero of=/data/more bs=64k count=16 conv=fsync", MICRO_READY_WITHIN)?;
//!
//! // A power cut, and a fresh boot with a clean disk.
//! bios.kill()?;
//! let mut bios = Guest::start(&network, &GuestSpec::new("bios-again", Firmware::BiosIpxeRom, 0))?;
//! bios.wait_for(micro::READY, MICRO_READY_WITHIN)?;
//! assert_eq!(bios.run("ls -A /data | grep -v lost+found || true")?, "");
//! # Ok(())
//! # }
//! ```
//! On a failure the error holds the end of the serial console or of the server's log, and all logs of the run stay in
//! [`home`]`/failed`.
mod cache;
mod command;
mod console;
mod firmware_variables;
mod flaky;
mod forward;
mod guest;
mod home;
mod image;
mod network;
pub mod packages;
mod port;
mod postgres;
mod progress;
mod qmp;
mod run;
mod server;
mod service;

pub use console::Line;
pub use flaky::{FlakyDisk, FlakyFile};
pub use guest::{Firmware, GOLDEN_READY_WITHIN, Guest, GuestSpec, MICRO_READY_WITHIN, Media, MediaKind};
pub use home::home;
pub use image::{Image, golden, micro};
pub use network::{
    Crowd, INTERFACE, Network, RELAY_ADDRESS, SERVER_ADDRESS, SERVER_ADDRESS_V6, SITE_DHCP_ADDRESS,
};
pub use port::free_port;
pub use postgres::Cluster;
pub use run::sweep;
pub use server::{Server, ServerSpec};
pub use service::Service;
