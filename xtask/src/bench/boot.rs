//! `cargo xtask bench boot`: one virtual machine, one image, three ways to boot it: from a disk of its own (virtio), over
//! iSCSI (SAN boot), and with kernel and initramfs over HTTP (direct kernel boot). The ways alternate.
//!
//! Everything is taken from the machine's serial console, which all three have: when the loader speaks for the first time
//! (GRUB, or the iPXE script of a direct kernel boot), and when the system says that it is up, with its uptime. So there are three spans that mean
//! the same everywhere:
//!
//! - *to the loader*: power on, firmware; DHCP, script and login where there is a network;
//! - *first stage*: the loader gets kernel and initramfs, until the kernel's clock starts;
//! - *second stage*: from there until the system is up.
//!
//! Machines are emulated (TCG), as the whole lab: their processors are some twenty times slower than real ones, storage and network
//! are not. A boot that is bound by processors looks better here than on hardware; what the network adds in milliseconds is as real.
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use lab::{Firmware, GOLDEN_READY_WITHIN, Guest, GuestSpec, MediaKind, Network, Server, ServerSpec};

use super::{Aim, Measure, median};
use crate::run::{build_program, run};

/// How often, and by what.
#[derive(Args)]
pub(crate) struct BootArguments {
    /// Boots of each way
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// What the machine has in its flash
    #[arg(long, value_enum, default_value_t = FirmwareKind::Bios)]
    firmware: FirmwareKind,
    /// How long one boot may take, in seconds
    #[arg(long, default_value_t = 2 * GOLDEN_READY_WITHIN.as_secs())]
    patience: u64,
    /// The program to measure; by default its release build
    #[arg(long)]
    program: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FirmwareKind {
    Bios,
    Uefi,
}

/// A way to boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Local,
    San,
    Kernel,
}

impl Way {
    const ALL: [Self; 3] = [Self::Local, Self::San, Self::Kernel];

    fn name(self) -> &'static str {
        match self {
            Self::Local => "local-disk",
            Self::San => "san-boot",
            Self::Kernel => "kernel-boot",
        }
    }

    /// What the console shows when the loader speaks.
    fn loader(self) -> &'static str {
        match self {
            Self::Local | Self::San => "GRUB: loading kernel",
            Self::Kernel => "Headwater: vDisk",
        }
    }
}

/// One boot, in seconds.
#[derive(Clone, Copy, Debug)]
struct Boot {
    to_loader: f64,
    first_stage: f64,
    second_stage: f64,
}

impl Boot {
    fn spans(self) -> [(&'static str, f64); 4] {
        let Self { to_loader, first_stage, second_stage } = self;
        [
            ("to the loader", to_loader),
            ("first stage", first_stage),
            ("second stage", second_stage),
            ("ready", to_loader + first_stage + second_stage),
        ]
    }
}

/// How much longer a boot over the network may take than one from a local disk.
const AIM: f64 = 1.10;

/// Measures. Every boot is told of when it is over, so that a run that is broken off has not been in vain.
///
/// # Errors
/// Where something needed is missing, or a machine does not get up.
pub(crate) fn measure(arguments: &BootArguments) -> Result<Vec<Measure>> {
    lab::packages::ensure(lab::packages::DEMO)?;
    let program = arguments.program.clone().map_or_else(build_program, Ok)?;
    let image = lab::golden::golden()?;
    let network = Network::begin("bench-boot")?;
    let local = network.folder().join("local.raw");
    run(std::process::Command::new("qemu-img")
        .args(["convert", "-f", "vhdx", "-O", "raw"])
        .arg(&image.vhdx)
        .arg(&local))?;
    for way in [Way::San, Way::Kernel] {
        std::fs::copy(&image.vhdx, copy(&network, way))?;
    }
    let _server = Server::start(&network, ServerSpec::new(program, configuration(&network)))?;
    let mut boots: Vec<(Way, Boot)> = Vec::new();
    for round in 1..=arguments.rounds {
        for way in Way::ALL {
            let booted = boot(&network, way, arguments, &local);
            let boot = booted.with_context(|| format!("round {round}, {}", way.name()))?;
            let told = boot.spans().map(|(name, seconds)| format!("{name} {seconds:.2} s")).join(", ");
            eprintln!("round {round} of {}: {}: {told}", arguments.rounds, way.name());
            boots.push((way, boot));
        }
    }
    Ok(measures(&boots))
}

fn boot(network: &Network, way: Way, arguments: &BootArguments, local: &Path) -> Result<Boot> {
    let uefi = arguments.firmware == FirmwareKind::Uefi;
    let firmware = match (way, uefi) {
        (Way::Local, false) => Firmware::BiosMedia,
        (Way::Local, true) => Firmware::UefiMedia,
        (_, false) => Firmware::BiosIpxeRom,
        (_, true) => Firmware::UefiPxe,
    };
    let mut spec = GuestSpec::new(way.name(), firmware, index(way));
    if way == Way::Local {
        spec = spec.with_media(MediaKind::SystemDisk, local);
    }
    let patience = Duration::from_secs(arguments.patience);
    let mut guest = Guest::start(network, &spec)?;
    let loader = guest.wait_for(way.loader(), patience)?.at.as_secs_f64();
    let ready = guest.wait_for(lab::golden::READY, patience)?;
    let uptime = ready.text.split_whitespace().find_map(|word| word.strip_prefix("uptime=")?.parse().ok());
    let second_stage: f64 = uptime.with_context(|| format!("no uptime in {:?}", ready.text))?;
    let first_stage = ready.at.as_secs_f64() - second_stage - loader;
    Ok(Boot { to_loader: loader, first_stage, second_stage })
}

fn measures(boots: &[(Way, Boot)]) -> Vec<Measure> {
    let of = |wanted: Way, span: usize| {
        let values = boots.iter().filter(|(way, _)| *way == wanted);
        median(values.filter_map(|(_, boot)| Some(boot.spans().get(span)?.1)).collect())
    };
    let mut measures = Vec::new();
    for way in [Way::San, Way::Kernel] {
        for (span, name) in ["to the loader", "first stage", "second stage", "ready"].into_iter().enumerate()
        {
            measures.push(Measure {
                measure: format!("{}: {name}", way.name()),
                ours: of(way, span),
                peer: of(Way::Local, span),
                peer_name: "the same machine from a virtio disk".to_owned(),
                unit: "s",
                aim: Aim::AtMost(AIM),
            });
        }
    }
    measures
}

fn index(way: Way) -> u8 {
    match way {
        Way::Local => 0,
        Way::San => 1,
        Way::Kernel => 2,
    }
}

/// A vDisk for each way: which kernel a device is started with is the vDisk's.
fn copy(network: &Network, way: Way) -> PathBuf {
    network.folder().join(format!("{}.vhdx", way.name()))
}

fn configuration(network: &Network) -> String {
    let folder = network.folder().display();
    let mut text = format!(
        "state_dir = \"{folder}/state\"\nadmin_socket = \"{}\"\n[[interface]]\nname = \"{}\"\nmode = \"dhcp\"\n\
         range = \"10.77.0.100-10.77.0.199\"\n",
        network.socket("headwater").display(),
        lab::INTERFACE,
    );
    for (way, more) in [(Way::San, ""), (Way::Kernel, "boot = \"kernel\"\n")] {
        let (name, mac) = (way.name(), GuestSpec::new("", Firmware::BiosIpxeRom, index(way)).mac);
        text.push_str(&format!(
            "[[vdisk]]\nname = \"{name}\"\nfile = \"{}\"\n{more}[[device]]\nname = \"{name}\"\nmac = \"{mac}\"\nvdisk = \"{name}\"\n",
            copy(network, way).display()
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_add_up_and_each_way_is_held_against_the_local_disk() {
        let boot = |first_stage| Boot { to_loader: 1.0, first_stage, second_stage: 10.0 };
        let boots =
            [(Way::Local, boot(1.0)), (Way::San, boot(3.0)), (Way::San, boot(5.0)), (Way::Kernel, boot(1.0))];
        let measures = measures(&boots);
        let ratio = |name: &str| {
            let found = measures.iter().find(|measure| measure.measure == name).unwrap();
            format!("{:.1} {:.1}", found.ours, found.peer)
        };
        assert_eq!(ratio("san-boot: first stage"), "4.0 1.0");
        assert_eq!(ratio("san-boot: ready"), "15.0 12.0");
        assert_eq!(ratio("kernel-boot: ready"), "12.0 12.0");
    }
}
