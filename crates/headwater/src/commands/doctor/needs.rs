//! Which sockets a configuration needs: what the ports, the privileges and the firewall are looked at for.
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::config::{Config, InterfaceMode};
use crate::serve::explain::Transport;

/// A socket that the server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// What for.
    pub(super) service: &'static str,
    /// TCP or UDP.
    pub(super) transport: Transport,
    /// Where.
    pub(super) address: SocketAddr,
    /// The one interface that it hears; `None`: all that have the address.
    pub(super) interface: Option<String>,
}

impl Listener {
    /// `UDP port 67 (DHCP) on eth1`.
    pub(super) fn label(&self) -> String {
        let transport = match self.transport {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        };
        let place = match &self.interface {
            Some(interface) => format!("port {} ({}) on {interface}", self.address.port(), self.service),
            None => format!("{} ({})", self.address, self.service),
        };
        format!("{transport} {place}")
    }

    /// Whether other machines can reach it at all.
    pub(super) fn is_reachable(&self) -> bool {
        !self.address.ip().is_loopback()
    }
}

/// All sockets of a configuration, in the order in which the server opens them.
pub(super) fn listeners(config: &Config) -> Vec<Listener> {
    let tcp = |service| {
        move |address: &SocketAddr| Listener {
            service,
            transport: Transport::Tcp,
            address: *address,
            interface: None,
        }
    };
    let mut all: Vec<Listener> = config.iscsi.listen.iter().map(tcp("iSCSI")).collect();
    all.extend(config.nbd.iter().flat_map(|nbd| &nbd.listen).map(tcp("NBD")));
    all.push(tcp("HTTP")(&config.http_listen));
    all.extend(config.api.iter().map(|api| tcp("API")(&api.listen)));
    for interface in &config.interfaces {
        let udp = |service, port| Listener {
            service,
            transport: Transport::Udp,
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
            interface: Some(interface.name.clone()),
        };
        let dhcp = match interface.mode {
            InterfaceMode::Dhcp(_) => Some("DHCP"),
            InterfaceMode::Proxy => Some("proxyDHCP"),
            InterfaceMode::None => None,
        };
        if let Some(service) = dhcp {
            all.push(udp(service, netboot::dhcp::SERVER_PORT));
            all.push(udp("PXE boot server", netboot::dhcp::PXE_PORT));
        }
        if interface.tftp {
            all.push(udp("TFTP", netboot::tftp::PORT));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_names_the_ports_of_every_service_it_turns_on() {
        let text = "[nbd]\nlisten = \"0.0.0.0:10809\"\ntls = \"off\"\n[http]\nlisten = \"127.0.0.1:8080\"\n[api]\n\
                    [[interface]]\nname = \"eth1\"\nmode = \"proxy\"\n[[interface]]\nname = \"eth2\"\nmode = \"none\"\ntftp = false\n";
        let config = crate::config::parse(text, "x".as_ref()).unwrap();
        let labels: Vec<String> = listeners(&config).iter().map(Listener::label).collect();
        assert_eq!(
            labels,
            [
                "TCP 0.0.0.0:3260 (iSCSI)",
                "TCP 0.0.0.0:10809 (NBD)",
                "TCP 127.0.0.1:8080 (HTTP)",
                "TCP 0.0.0.0:8443 (API)",
                "UDP port 67 (proxyDHCP) on eth1",
                "UDP port 4011 (PXE boot server) on eth1",
                "UDP port 69 (TFTP) on eth1",
            ]
        );
        assert!(!listeners(&config)[2].is_reachable());
    }
}
