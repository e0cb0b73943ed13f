//! A site for boot tests: a lab network with a server, some devices, and one golden image.
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lab::{Firmware, Guest, GuestSpec, Image, MICRO_READY_WITHIN, Network, Server, ServerSpec};
use serde_json::Value;

/// Emulated machines take all processors: one site at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_headwater");

/// What `docs/boot-services.md` says for a dnsmasq that names the boot files.
const NAMES: &str = "dhcp-userclass=set:ipxe,iPXE
dhcp-match=set:efi64,option:client-arch,7
dhcp-match=set:efi64,option:client-arch,9
dhcp-match=set:http,option:client-arch,16
dhcp-boot=tag:ipxe,http://10.77.0.1:8080/v1/boot/script
dhcp-boot=tag:!ipxe,tag:http,http://10.77.0.1:8080/boot/ipxe.efi
dhcp-boot=tag:!ipxe,tag:efi64,ipxe.efi,,10.77.0.1
dhcp-boot=tag:!ipxe,tag:!efi64,tag:!http,undionly.kpxe,,10.77.0.1
dhcp-option-force=tag:!ipxe,tag:http,60,HTTPClient
dhcp-option=tag:ipxe,encap:175,176,1b
";

/// With the steps of boots that nobody but a test waits for.
const LOG: [&str; 2] = ["--log", "info,headwater::stream::director=debug"];

/// A device of the configuration. Its machine is the guest with the same index.
pub(crate) struct Device {
    pub(crate) name: &'static str,
    pub(crate) index: u8,
    /// The vDisk that it boots.
    pub(crate) vdisk: &'static str,
    /// More lines of its `[[device]]`.
    pub(crate) more: &'static str,
}

impl Device {
    pub(crate) fn new(name: &'static str, index: u8) -> Self {
        Self { name, index, vdisk: "golden", more: "" }
    }

    pub(crate) fn with(name: &'static str, index: u8, more: &'static str) -> Self {
        Self { more, ..Self::new(name, index) }
    }

    pub(crate) fn spec(&self, firmware: Firmware) -> GuestSpec {
        GuestSpec::new(self.name, firmware, self.index)
    }
}

/// What serves DHCP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dhcp {
    /// Headwater.
    Ours,
    /// A site's dnsmasq; Headwater adds boot information as proxyDHCP.
    Beside,
    /// A site's dnsmasq; Headwater says nothing on DHCP's ports, so that firmware and iPXE learn an address and no more.
    Elsewhere,
    /// The same; it names the boot files and the script, too.
    Names,
}

/// What the server serves.
pub(crate) struct Storage {
    /// Names and images of the vDisks.
    pub(crate) vdisks: Vec<(&'static str, PathBuf)>,
    /// More of the configuration.
    pub(crate) more: String,
}

/// Everything but the machines.
pub(crate) struct Site {
    pub(crate) server: Server,
    // Dropped after the server.
    _site_dhcp: Option<lab::Service>,
    pub(crate) network: Network,
    pub(crate) image: Image,
    _turn: MutexGuard<'static, ()>,
}

impl Site {
    /// A site whose devices boot the micro guest.
    pub(crate) fn micro(name: &str, devices: &[Device]) -> Self {
        Self::begin(name, Dhcp::Ours, lab::micro::micro().unwrap(), devices)
    }

    /// A site whose devices boot the micro guest, with more lines of its `[[vdisk]]`.
    pub(crate) fn with_vdisk(name: &str, vdisk: &str, devices: &[Device]) -> Self {
        let image = lab::micro::micro().unwrap();
        let more = format!("[[vdisk]]\nname = \"golden\"\nfile = \"{}\"\n{vdisk}", image.vhdx.display());
        Self::begin_with(name, Dhcp::Ours, image, devices, |_| Storage { vdisks: Vec::new(), more })
    }

    pub(crate) fn begin(name: &str, dhcp: Dhcp, image: Image, devices: &[Device]) -> Self {
        let vdisks = vec![("golden", image.vhdx.clone())];
        Self::begin_with(name, dhcp, image, devices, |_| Storage { vdisks, more: String::new() })
    }

    /// A site whose storage lies in its network's folder.
    pub(crate) fn begin_with(
        name: &str,
        dhcp: Dhcp,
        image: Image,
        devices: &[Device],
        storage: impl FnOnce(&Network) -> Storage,
    ) -> Self {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        lab::packages::ensure(lab::packages::TEST).unwrap();
        let network = Network::begin(name).unwrap();
        let site_dhcp = match dhcp {
            Dhcp::Ours => None,
            Dhcp::Beside | Dhcp::Elsewhere => Some(network.site_dhcp().unwrap()),
            Dhcp::Names => Some(network.site_dhcp_with(NAMES).unwrap()),
        };
        let storage = storage(&network);
        let mut spec = ServerSpec::new(PROGRAM, configuration(&network, dhcp, &storage, devices));
        spec.arguments = LOG.map(str::to_owned).to_vec();
        match dhcp {
            Dhcp::Ours => {}
            Dhcp::Beside => spec.udp_ports.push(4011),
            Dhcp::Elsewhere | Dhcp::Names => spec.udp_ports.retain(|&port| port != 67),
        }
        let server = Server::start(&network, spec).unwrap();
        Self { server, _site_dhcp: site_dhcp, network, image, _turn: turn }
    }

    /// Powers a device on.
    pub(crate) fn start(&self, device: &Device, firmware: Firmware) -> Guest {
        Guest::start(&self.network, &device.spec(firmware)).unwrap()
    }

    /// Powers several devices with the micro guest on at once and waits until all are up.
    pub(crate) fn boot_all<const N: usize>(&self, devices: &[Device; N]) -> [Guest; N] {
        let mut guests = devices.each_ref().map(|device| self.start(device, Firmware::BiosIpxeRom));
        for guest in &mut guests {
            guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        }
        guests
    }

    /// Powers a device with the micro guest on and waits until it is up.
    pub(crate) fn boot(&self, device: &Device, firmware: Firmware) -> Guest {
        let mut guest = self.start(device, firmware);
        guest.wait_for(lab::micro::READY, MICRO_READY_WITHIN).unwrap();
        guest
    }

    /// The last boot of a device, as `headwater boots show` tells it.
    pub(crate) fn boot_record(&self, device: &Device) -> Value {
        let text = self.headwater(&["boots", "show", device.name, "--output", "json"]);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Runs a command of the program against the server.
    pub(crate) fn headwater(&self, arguments: &[&str]) -> String {
        let mut command = self.network.command(PROGRAM);
        command.args(arguments).arg("--socket").arg(self.network.socket("headwater"));
        stdout(&mut command)
    }

    /// Runs a command of the program against the server, which may refuse it; whether it did what it was asked to, and all
    /// that was said.
    pub(crate) fn asks(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = self.network.command(PROGRAM);
        command.args(arguments).arg("--socket").arg(self.network.socket("headwater"));
        let output = command.output().unwrap();
        let said = [output.stderr, output.stdout].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Runs a program on the server's host, in its network.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        stdout(self.network.command(program).args(arguments))
    }

    /// The image file's hash: it must never change.
    pub(crate) fn image_hash(&self) -> String {
        hash(&self.image.vhdx)
    }
}

fn hash(file: &Path) -> String {
    stdout(Command::new("sha256sum").arg(file))
}

fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{complaint}", output.status);
    text
}

fn configuration(network: &Network, dhcp: Dhcp, storage: &Storage, devices: &[Device]) -> String {
    let folder = network.folder().display();
    let mode = match dhcp {
        Dhcp::Ours => "mode = \"dhcp\"\nrange = \"10.77.0.100-10.77.0.199\"",
        Dhcp::Beside => "mode = \"proxy\"",
        Dhcp::Elsewhere | Dhcp::Names => "mode = \"none\"",
    };
    let mut text = format!(
        "state_dir = \"{folder}/state\"\nadmin_socket = \"{socket}\"\n\
         [[interface]]\nname = \"{interface}\"\n{mode}\n{more}\n",
        socket = network.socket("headwater").display(),
        interface = lab::INTERFACE,
        more = storage.more,
    );
    for (name, file) in &storage.vdisks {
        text.push_str(&format!("[[vdisk]]\nname = \"{name}\"\nfile = \"{}\"\n", file.display()));
    }
    for device in devices {
        let mac = device.spec(Firmware::BiosIpxeRom).mac;
        let (name, vdisk, more) = (device.name, device.vdisk, device.more);
        text.push_str(&format!(
            "[[device]]\nname = \"{name}\"\nmac = \"{mac}\"\nvdisk = \"{vdisk}\"\n{more}\n"
        ));
    }
    text
}

/// Writes a file of the device's own and sees it on its disk.
pub(crate) fn write_proof(guest: &mut Guest, text: &str) {
    guest.run(&format!("echo '{text}' >/data/proof && sync")).unwrap();
    assert_eq!(read_proof(guest), text);
}

/// What [`write_proof`] wrote, read from the disk and not from memory; `none` where there is nothing.
pub(crate) fn read_proof(guest: &mut Guest) -> String {
    let command = "echo 3 >/proc/sys/vm/drop_caches; cat /data/proof 2>/dev/null || echo none";
    guest.run(command).unwrap().trim().to_owned()
}
