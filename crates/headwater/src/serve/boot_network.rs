//! The boot services' configuration, out of ours and of what the machine's interfaces say.
use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::Context;
use netboot::boot_files::{BootFilesConfig, Shelf};
use netboot::dhcp::subnet::Subnet;
use netboot::service::{InterfaceConfig, Mode, NetbootConfig};

use super::explain;
use crate::config::{Config, DhcpPool, Interface, InterfaceMode, RelayedNetwork};

/// What the boot services are told; `kernels` are boot files with places of their own, `shelf` is where those out of images are.
///
/// # Errors
/// An interface that is absent, or whose network cannot be told.
pub(super) fn config(
    config: &Config,
    http_port: u16,
    present: &[String],
    kernels: Vec<(String, PathBuf)>,
    shelf: Shelf,
) -> anyhow::Result<NetbootConfig> {
    let mut interfaces = Vec::new();
    for interface in &config.interfaces {
        if !present.contains(&interface.name) {
            return Err(explain::interface_absent(&interface.name, present));
        }
        interfaces.push(InterfaceConfig {
            name: interface.name.clone(),
            address: None,
            mode: mode(interface, &config.relays)?,
            tftp: interface.tftp,
            router_advertisements: interface.router_advertisements,
        });
    }
    let boot_files = &config.netboot.boot_files;
    Ok(NetbootConfig {
        interfaces,
        http_port,
        boot_files: BootFilesConfig {
            directories: vec![boot_files.clone()],
            names: config.netboot.names.clone(),
            placed: kernels,
            shelf,
            ..BootFilesConfig::default()
        },
        lease_directory: Some(lease_directory(config)),
    })
}

/// Where leases are kept.
pub(super) fn lease_directory(config: &Config) -> PathBuf {
    config.state_dir.join("leases")
}

fn mode(interface: &Interface, relays: &[RelayedNetwork]) -> anyhow::Result<Mode> {
    match &interface.mode {
        InterfaceMode::None => Ok(Mode::None),
        InterfaceMode::Proxy => Ok(Mode::Proxy),
        InterfaceMode::Dhcp(pool) => {
            let relayed = relays.iter().filter(|relay| relay.interface == interface.name);
            let relayed = relayed.map(|relay| subnet(&interface.name, &relay.pool));
            Ok(Mode::Dhcp {
                subnet: subnet(&interface.name, pool)?,
                relayed: relayed.collect::<anyhow::Result<_>>()?,
            })
        }
    }
}

fn subnet(interface: &str, pool: &DhcpPool) -> anyhow::Result<Subnet> {
    let netmask = match pool.netmask {
        Some(netmask) => netmask,
        None => {
            let routes =
                std::fs::read_to_string("/proc/self/net/route").context("the routes cannot be read")?;
            connected_netmask(&routes, interface, pool.range.first).with_context(|| {
                format!(
                    "interface \"{interface}\" has no address in the network of its range (from {}); give it one (ip address \
                     add ADDRESS/PREFIX dev {interface}; ip link set {interface} up), or set netmask",
                    pool.range.first
                )
            })?
        }
    };
    Ok(Subnet {
        first: pool.range.first,
        last: pool.range.last,
        netmask,
        router: pool.router,
        dns: pool.dns.clone(),
        lease: pool.lease,
    })
}

/// The mask of the network that `interface` is connected to and that `address` lies in, out of the kernel's routes
/// (`/proc/net/route`: interface, destination, gateway, flags, three counters, mask; addresses as hexadecimal numbers in
/// memory order).
fn connected_netmask(routes: &str, interface: &str, address: Ipv4Addr) -> Option<Ipv4Addr> {
    let number =
        |text: &str| u32::from_str_radix(text, 16).ok().map(|number| Ipv4Addr::from(number.to_ne_bytes()));
    let connected = routes.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, destination, gateway, _, _, _, _, mask, ..] = fields.as_slice() else { return None };
        let (destination, gateway, mask) = (number(destination)?, number(gateway)?, number(mask)?);
        (*name == interface && gateway.is_unspecified() && !mask.is_unspecified())
            .then_some((destination, mask))
    });
    let mut containing = connected.filter(|(destination, mask)| *destination == address & *mask);
    containing.next().map(|(_, mask)| mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn netmask_is_that_of_the_connected_network() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                      eth1\t00000000\t01004D0A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth0\t00004D0A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                      eth1\t00004D0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        let address = Ipv4Addr::new(10, 77, 0, 100);
        assert_eq!(connected_netmask(routes, "eth1", address), Some(Ipv4Addr::new(255, 255, 0, 0)));
        assert_eq!(connected_netmask(routes, "eth1", Ipv4Addr::new(10, 78, 0, 1)), None);
        assert_eq!(connected_netmask(routes, "eth2", address), None);
    }
}
