//! A network of its own for each user of the lab.
//!
//! A network namespace `hwlab-ID` holds a bridge with the server's addresses, and one tap per guest. The server and
//! QEMU both run inside it: nothing touches the machine's own network, and any number of labs use the same addresses
//! side by side.
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::command::{bound_to_us, run};
use crate::run::Run;
use crate::service::Service;

/// The server's interface in the lab network.
pub const INTERFACE: &str = "br0";
/// The server's IPv4 address there; the network is a /24.
pub const SERVER_ADDRESS: &str = "10.77.0.1";
/// The server's IPv6 address there; the network is a /64.
pub const SERVER_ADDRESS_V6: &str = "fd77::1";
/// The address of the site's own DHCP server, where there is one.
pub const SITE_DHCP_ADDRESS: &str = "10.77.0.2";

/// The relay agent's address in the segment that it joins to the server's network; see [`Network::relay`].
pub const RELAY_ADDRESS: &str = "10.78.0.1";
/// Where simulated devices are reached, and their addresses.
const CROWD_ADDRESS: &str = "10.77.0.4";
const CROWD_NETWORK: &str = "10.78.0.0/15";

/// A lab network; it and everything in it goes when the last user (this, guests, services) is dropped.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

struct Inner {
    run: Run,
    namespace: String,
    next_tap: AtomicU32,
}

impl Network {
    /// Makes a network, after sweeping away what dead runs left. `name` names its folder: a test's name, say.
    ///
    /// # Errors
    /// Where we are not root, or the kernel lacks namespaces, bridges or taps.
    pub fn begin(name: &str) -> Result<Self> {
        let run = Run::begin(name)?;
        let namespace = format!("hwlab-{}", run.id());
        run.record_namespace(&namespace)?;
        ip(&["netns", "add", &namespace])?;
        let network = Self(Arc::new(Inner { run, namespace, next_tap: AtomicU32::new(0) }));
        network.ip(&["link", "set", "lo", "up"])?;
        network.segment(INTERFACE, Some(SERVER_ADDRESS))?;
        network.ip(&["addr", "add", &format!("{SERVER_ADDRESS_V6}/64"), "dev", INTERFACE, "nodad"])?;
        Ok(network)
    }

    /// Makes one more segment: a bridge, on which the server has this address of a /24; `None`: it has none, and only a
    /// [`relay`](Self::relay) joins the two.
    ///
    /// # Errors
    /// Where the kernel lacks bridges.
    pub fn segment(&self, bridge: &str, address: Option<&str>) -> Result<()> {
        self.ip(&["link", "add", bridge, "type", "bridge", "stp_state", "0", "forward_delay", "0"])?;
        if let Some(address) = address {
            self.ip(&["addr", "add", &format!("{address}/24"), "dev", bridge])?;
        }
        self.ip(&["link", "set", bridge, "up"]).map(drop)
    }

    /// The namespace's name, for `ip netns exec`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// A folder for whatever belongs to this use of the lab (stores, configurations); it goes with the network.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.0.run.folder()
    }

    /// A path for a Unix socket: short, since those end at 107 bytes. It goes with the network.
    #[must_use]
    pub fn socket(&self, name: &str) -> std::path::PathBuf {
        self.0.run.socket(name)
    }

    /// Keeps the logs of guests and services when the network goes, as after a failure.
    pub fn keep_logs(&self) {
        self.0.run.keep_logs();
    }

    /// How many bytes have gone between server and guests, in both directions: the measure of how far they are.
    ///
    /// # Errors
    /// Where the system does not say.
    pub fn traffic_bytes(&self) -> Result<u64> {
        let mut sum = 0;
        for direction in ["rx", "tx"] {
            let file = format!("/sys/class/net/{INTERFACE}/statistics/{direction}_bytes");
            let text = crate::command::output(self.command("cat").arg(&file))?;
            sum += text.trim().parse::<u64>().with_context(|| format!("{file}: {text:?}"))?;
        }
        Ok(sum)
    }

    /// Mounts a small file system in memory in the network's folder, for what shall run out of space. Servers that are
    /// started afterwards see it; it goes with the network.
    ///
    /// # Errors
    /// Where it cannot be mounted.
    pub fn small_file_system(&self, name: &str, size_mib: u32) -> Result<std::path::PathBuf> {
        let place = self.folder().join(name);
        std::fs::create_dir(&place)?;
        self.0.run.record_mount(&place)?;
        run(
            "mount",
            &["-t", "tmpfs", "-o", &format!("size={size_mib}m"), "tmpfs", &place.to_string_lossy()],
        )?;
        Ok(place)
    }

    /// A command that runs inside the network: for clients, which are run to their end.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        command_in(&self.0.namespace, program)
    }

    /// Starts a program of one's own inside the network; `name` names its log.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub fn service(&self, name: &str, command: Command) -> Result<Service> {
        Service::start(self, name, command)
    }

    /// Starts an ordinary DHCP server, as a site has one, in a namespace beside this one. It knows nothing of network
    /// boot: with it, the server under test works as proxy. It hands out 10.77.0.100 to 10.77.0.200.
    ///
    /// # Errors
    /// Where dnsmasq does not start.
    pub fn site_dhcp(&self) -> Result<Service> {
        self.site_dhcp_with("")
    }

    /// The same with more lines of dnsmasq's configuration.
    ///
    /// # Errors
    /// As [`site_dhcp`](Self::site_dhcp).
    pub fn site_dhcp_with(&self, more: &str) -> Result<Service> {
        let site = self.neighbour("site", SITE_DHCP_ADDRESS)?;
        ip(&["-n", &site, "addr", "add", "fd77::2/64", "dev", "eth0", "nodad"])?;
        let file = self.0.run.folder().join("site-dhcp.conf");
        let leases = self.0.run.folder().join("site-dhcp.leases");
        std::fs::write(&file, site_dhcp_configuration(&leases.to_string_lossy()) + more)?;
        let mut command = self.command_at(&site, "dnsmasq");
        command.args(["--keep-in-foreground", "--log-facility=-"]).arg("-C").arg(&file);
        let mut service = Service::start(self, "site-dhcp", command)?;
        service.wait_until_listening(&[], &[67])?;
        Ok(service)
    }

    /// Makes a namespace beside this one for a crowd of simulated devices, which need an address each and no machine: all of
    /// 10.78.0.0/15 are addresses of its own. What the server sends there goes through 10.77.0.4, so that it knows one
    /// neighbour and not a thousand.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn crowd(&self) -> Result<Crowd> {
        let namespace = format!("{}-crowd", self.0.namespace);
        self.0.run.record_namespace(&namespace)?;
        ip(&["netns", "add", &namespace])?;
        let inside = |arguments: &[&str]| ip(&[&["-n", &namespace], arguments].concat());
        inside(&["link", "set", "lo", "up"])?;
        self.ip(&["link", "add", "crowd0", "type", "veth", "peer", "name", "eth0", "netns", &namespace])?;
        self.ip(&["link", "set", "crowd0", "master", INTERFACE, "up"])?;
        inside(&["addr", "add", &format!("{CROWD_ADDRESS}/24"), "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["route", "add", "local", CROWD_NETWORK, "dev", "lo"])?;
        // Broadcasts, too, need a way out.
        inside(&["route", "add", "default", "via", SERVER_ADDRESS])?;
        self.ip(&["route", "add", CROWD_NETWORK, "via", CROWD_ADDRESS])?;
        Ok(Crowd { namespace, _network: self.clone() })
    }

    /// Makes a namespace for a neighbour on the server's network, with this address of the /24 on its `eth0`; gives its name, for
    /// [`command_at`](Self::command_at).
    ///
    /// # Errors
    /// Where the kernel lacks namespaces or cables.
    pub fn neighbour(&self, name: &str, address: &str) -> Result<String> {
        let place = format!("{}-{name}", self.0.namespace);
        let cable = format!("{name}0");
        self.0.run.record_namespace(&place)?;
        ip(&["netns", "add", &place])?;
        ip(&["-n", &place, "link", "set", "lo", "up"])?;
        self.ip(&["link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &place])?;
        self.ip(&["link", "set", &cable, "master", INTERFACE, "up"])?;
        ip(&["-n", &place, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
        ip(&["-n", &place, "link", "set", "eth0", "up"])?;
        Ok(place)
    }

    /// A command that runs at a [`neighbour`](Self::neighbour).
    #[must_use]
    pub fn command_at(&self, neighbour: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        command_in(neighbour, program)
    }

    /// Starts a router between the server's network and the segment `bridge`, 10.78.0.0/24, in a namespace of its own: it has the address
    /// [`RELAY_ADDRESS`] there, and dnsmasq on it passes what DHCP clients say on to the server.
    ///
    /// # Errors
    /// Where dnsmasq does not start.
    pub fn relay(&self, bridge: &str) -> Result<Service> {
        let router = format!("{}-relay", self.0.namespace);
        self.0.run.record_namespace(&router)?;
        ip(&["netns", "add", &router])?;
        ip(&["-n", &router, "link", "set", "lo", "up"])?;
        for (end, bridge, inside, address) in [
            ("relay0", INTERFACE, "up0", "10.77.0.3/24"),
            ("relay1", bridge, "down0", &format!("{RELAY_ADDRESS}/24")),
        ] {
            self.ip(&["link", "add", end, "type", "veth", "peer", "name", inside, "netns", &router])?;
            self.ip(&["link", "set", end, "master", bridge, "up"])?;
            ip(&["-n", &router, "addr", "add", address, "dev", inside])?;
            ip(&["-n", &router, "link", "set", inside, "up"])?;
        }
        ip(&["-n", &router, "addr", "add", "fd78::1/64", "dev", "down0", "nodad"])?;
        self.ip(&["route", "add", "10.78.0.0/24", "via", "10.77.0.3"])?;
        let mut forward = command_in(&router, "sh");
        forward.args(["-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]);
        crate::command::output(&mut forward)?;
        let mut command = command_in(&router, "dnsmasq");
        command.args(["--keep-in-foreground", "--log-facility=-", "--conf-file=/dev/null", "--pid-file="]);
        command.args(["--port=0", "--log-dhcp", "--enable-ra", "--dhcp-range=fd78::,ra-only"]);
        command.arg(format!("--dhcp-relay={RELAY_ADDRESS},{SERVER_ADDRESS}"));
        let mut service = Service::start(self, "relay", command)?;
        service.wait_until_listening(&[], &[67])?;
        Ok(service)
    }

    /// Makes a tap on a bridge and gives its name.
    pub(crate) fn tap(&self, bridge: &str) -> Result<String> {
        let tap = format!("tap{}", self.0.next_tap.fetch_add(1, Ordering::Relaxed));
        self.ip(&["tuntap", "add", "dev", &tap, "mode", "tap"])
            .context("cannot make a tap: is the `tun` module there?")?;
        self.ip(&["link", "set", &tap, "master", bridge, "up"])?;
        Ok(tap)
    }

    pub(crate) fn run(&self) -> &Run {
        &self.0.run
    }

    pub(crate) fn ip(&self, arguments: &[&str]) -> Result<String> {
        ip(&[&["-n", &self.0.namespace], arguments].concat())
    }
}

/// Where simulated devices are; it goes with the network.
pub struct Crowd {
    namespace: String,
    _network: Network,
}

impl Crowd {
    /// A command that runs there.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        command_in(&self.namespace, program)
    }
}

fn ip(arguments: &[&str]) -> Result<String> {
    run("ip", arguments)
}

fn command_in(namespace: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = bound_to_us("ip");
    command.args(["netns", "exec", namespace]).arg(program);
    command
}

/// Without a boot file or next server; with router advertisements, which iPXE waits 13 s for.
fn site_dhcp_configuration(leases: &str) -> String {
    format!(
        "port=0\npid-file=\ninterface=eth0\nbind-interfaces\nlog-dhcp\ndhcp-authoritative\nno-ping\n\
         dhcp-leasefile={leases}\ndhcp-range=10.77.0.100,10.77.0.200,255.255.255.0,1h\n\
         dhcp-option=option:router,{SERVER_ADDRESS}\nenable-ra\ndhcp-range=fd77::,ra-only\n"
    )
}
