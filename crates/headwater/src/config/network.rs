//! `[netboot]`, `[[interface]]` and `[[relay]]`: what firmware is answered, and where.
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use netboot::boot_files::{BootFileNames, is_plain_name};
use netboot::dhcp::subnet::MAX_DNS_SERVERS;

use super::problem::Position;
use super::reader::Section;
use super::values::{duration, plain_name};

/// The longest name of a network interface (`IFNAMSIZ` less its end mark).
const MAX_INTERFACE_NAME_BYTES: usize = 15;

/// The most addresses in a pool: a /16.
const MAX_POOL_ADDRESSES: u32 = 65_536;

/// Where boot files come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetbootFiles {
    /// The directory with iPXE's binaries.
    pub boot_files: PathBuf,
    /// Which of them firmware of each kind gets.
    pub names: BootFileNames,
}

/// `[[interface]]`: a network that machines boot on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name: `eth1`.
    pub name: String,
    /// What is done there.
    pub mode: InterfaceMode,
    /// Whether TFTP is served there.
    pub tftp: bool,
    /// Whether IPv6 router solicitations are answered, so that iPXE does not wait for a router; `None`: only as DHCP
    /// server.
    pub router_advertisements: Option<bool>,
    /// Where in the configuration.
    pub defined_at: Position,
}

/// What DHCP does on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceMode {
    /// It is the network's DHCP server.
    Dhcp(DhcpPool),
    /// It adds boot information beside another DHCP server.
    Proxy,
    /// Nothing: another DHCP server names the boot files too.
    None,
}

/// `[[relay]]`: a network that machines boot on and whose DHCP relay agent sends to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayedNetwork {
    /// The interface that the relay agent's packets come in by; its mode is DHCP.
    pub interface: String,
    /// What is handed out there; mask and router are set.
    pub pool: DhcpPool,
}

/// What a DHCP server hands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DhcpPool {
    /// The pool.
    pub range: AddressRange,
    /// The network's mask; `None`: that of the interface.
    pub netmask: Option<Ipv4Addr>,
    /// The default route; `None`: none.
    pub router: Option<Ipv4Addr>,
    /// Name servers.
    pub dns: Vec<Ipv4Addr>,
    /// How long an address stays with a machine.
    pub lease: Duration,
}

/// A run of addresses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The lowest.
    pub first: Ipv4Addr,
    /// The highest.
    pub last: Ipv4Addr,
}

impl AddressRange {
    fn parse(text: &str) -> Result<Self, String> {
        let expected = || format!("\"{text}\" is not a range such as \"10.0.0.100-10.0.0.199\"");
        let (first, last) = text.split_once('-').ok_or_else(expected)?;
        let read = |part: &str| part.trim().parse::<Ipv4Addr>().map_err(|_| expected());
        let (first, last) = (read(first)?, read(last)?);
        let Some(more) = last.to_bits().checked_sub(first.to_bits()) else {
            return Err(format!("the range ends ({last}) before it begins ({first})"));
        };
        if more >= MAX_POOL_ADDRESSES {
            return Err(format!("the range has more than {MAX_POOL_ADDRESSES} addresses"));
        }
        Ok(Self { first, last })
    }

    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

pub(super) fn read_files(root: &mut Section<'_>) -> NetbootFiles {
    let mut files =
        NetbootFiles { boot_files: PathBuf::from("/usr/lib/ipxe"), names: BootFileNames::default() };
    let Some(mut section) = root.section("netboot") else { return files };
    if let Some(directory) = section.path("boot_files") {
        files.boot_files = directory;
    }
    let name = |text: &str| {
        let wrong = "is not a file's name: letters, digits and ._- alone, without directories";
        if is_plain_name(text) { Ok(text.to_owned()) } else { Err(format!("\"{text}\" {wrong}")) }
    };
    let names = &mut files.names;
    if let Some(bios) = section.string_as("bios", name) {
        names.bios = bios;
    }
    if let Some(uefi_x64) = section.string_as("uefi_x64", name) {
        names.uefi_x64 = uefi_x64;
    }
    names.uefi_ia32 = section.string_as("uefi_ia32", name);
    names.uefi_arm64 = section.string_as("uefi_arm64", name);
    section.finish();
    files
}

pub(super) fn read_interfaces(root: &mut Section<'_>) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    for mut section in root.sections("interface") {
        let Some(interface) = read_interface(&mut section) else { continue };
        if let Some(other) = interfaces.iter().find(|other| other.name == interface.name) {
            let (name, line) = (&interface.name, other.defined_at.line);
            section.report("name", format!("interface \"{name}\" is defined twice; first on line {line}"));
            continue;
        }
        check_pools(&section, &interface, &interfaces);
        interfaces.push(interface);
    }
    interfaces
}

/// Reads the networks behind relay agents; each must come in by an interface on which we are the DHCP server.
pub(super) fn read_relays(root: &mut Section<'_>, interfaces: &[Interface]) -> Vec<RelayedNetwork> {
    let mut relays: Vec<RelayedNetwork> = Vec::new();
    for mut section in root.sections("relay") {
        let interface = section.required("interface", |text| Ok(text.to_owned()));
        let pool = read_relayed_pool(&mut section);
        section.finish();
        let (Some(interface), Some(pool)) = (interface, pool) else { continue };
        let ours = interfaces.iter().filter_map(|interface| match &interface.mode {
            InterfaceMode::Dhcp(pool) => Some((interface.name.as_str(), pool)),
            InterfaceMode::Proxy | InterfaceMode::None => None,
        });
        if !ours.clone().any(|(name, _)| name == interface) {
            let message = format!(
                "no interface \"{interface}\" has mode \"dhcp\"; relay agents' requests are answered there alone"
            );
            section.report("interface", message);
        }
        let others = relays.iter().map(|relay| &relay.pool);
        if let Some(other) =
            ours.map(|(_, pool)| pool).chain(others).find(|other| other.range.overlaps(pool.range))
        {
            let AddressRange { first, last } = other.range;
            section.report("range", format!("the range overlaps another one: {first}-{last}"));
        }
        relays.push(RelayedNetwork { interface, pool });
    }
    relays
}

fn read_relayed_pool(section: &mut Section<'_>) -> Option<DhcpPool> {
    let address = |text: &str| text.parse().map_err(|_| format!("\"{text}\" is not an IPv4 address"));
    let range = section.required("range", AddressRange::parse);
    let netmask = section.required("netmask", address);
    // Its machines are in another network than we are.
    let router = section.required("router", address);
    let dns = read_dns(section);
    let lease = read_lease(section);
    Some(DhcpPool { range: range?, netmask: Some(netmask?), router: Some(router?), dns, lease })
}

fn read_dns(section: &mut Section<'_>) -> Vec<Ipv4Addr> {
    let dns = section.strings("dns", MAX_DNS_SERVERS, |text| {
        text.parse().map_err(|_| format!("\"{text}\" is not an IPv4 address"))
    });
    dns.unwrap_or_default()
}

fn read_lease(section: &mut Section<'_>) -> Duration {
    let lease = section.string_as("lease", |text| {
        let lease = duration(text)?;
        let sensible = Duration::from_secs(60)..=Duration::from_secs(366 * 86_400);
        if sensible.contains(&lease) {
            Ok(lease)
        } else {
            Err(format!("\"{text}\" is not between 1min and 1year"))
        }
    });
    lease.unwrap_or(Duration::from_secs(12 * 3600))
}

fn read_interface(section: &mut Section<'_>) -> Option<Interface> {
    let name = section.required("name", |text| {
        let name = plain_name(text)?;
        if name.len() > MAX_INTERFACE_NAME_BYTES {
            return Err(format!(
                "\"{text}\" is longer than a network interface's name can be ({MAX_INTERFACE_NAME_BYTES})"
            ));
        }
        Ok(name)
    });
    let mode = section.required("mode", |text| match text {
        "dhcp" | "proxy" | "none" => Ok(text.to_owned()),
        _ => Err(format!(
            "\"{text}\" is not a mode; known: \"dhcp\" (be the DHCP server), \"proxy\" (beside one), \"none\""
        )),
    });
    let tftp = section.boolean("tftp").unwrap_or(true);
    let router_advertisements = section.boolean("router_advertisements");
    let range = section.string_as("range", AddressRange::parse);
    let netmask = section.ipv4("netmask");
    let router = section.ipv4("router");
    let dns = read_dns(section);
    let lease = read_lease(section);
    section.finish();
    let (name, mode) = (name?, mode?);
    let mode = match mode.as_str() {
        "dhcp" => {
            if section.value("range").is_none() {
                section.report("mode", format!("interface \"{name}\": mode \"dhcp\" needs a range of addresses to hand out (range = \"10.0.0.100-10.0.0.199\")"));
            }
            let pool = DhcpPool { range: range?, netmask, router, dns, lease };
            if pool.router.is_some_and(|router| pool.range.contains(router)) {
                section.report(
                    "router",
                    format!(
                        "interface \"{name}\": the router's address lies in the range that is handed out"
                    ),
                );
            }
            InterfaceMode::Dhcp(pool)
        }
        other => {
            for key in ["range", "netmask", "router", "dns", "lease"] {
                if section.value(key).is_some() {
                    section.report(key, format!("interface \"{name}\": {key} has no meaning in mode \"{other}\"; it belongs to mode \"dhcp\""));
                }
            }
            if other == "proxy" { InterfaceMode::Proxy } else { InterfaceMode::None }
        }
    };
    Some(Interface { name, mode, tftp, router_advertisements, defined_at: section.position() })
}

/// Two pools must not hand out one address.
fn check_pools(section: &Section<'_>, interface: &Interface, before: &[Interface]) {
    let InterfaceMode::Dhcp(pool) = &interface.mode else { return };
    for other in before {
        let InterfaceMode::Dhcp(others) = &other.mode else { continue };
        if pool.range.overlaps(others.range) {
            section.report(
                "range",
                format!(
                    "interface \"{}\": its range overlaps that of interface \"{}\" on line {}",
                    interface.name, other.name, other.defined_at.line
                ),
            );
        }
    }
}
