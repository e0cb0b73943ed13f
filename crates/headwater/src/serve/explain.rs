//! Why a service could not start, in words that say what to do.
use std::io;
use std::net::SocketAddr;

/// A transport, as `ss` spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Why `service` could not listen on `address`.
#[must_use]
pub fn bind_failed(
    service: &str,
    address: SocketAddr,
    transport: Transport,
    error: &io::Error,
) -> anyhow::Error {
    let (name, flags) = match transport {
        Transport::Tcp => ("tcp", "-ltnp"),
        Transport::Udp => ("udp", "-lunp"),
    };
    let port = address.port();
    let what = format!("{service} cannot listen on {address} ({name})");
    match error.kind() {
        io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "{what}: port {port} is in use by another program; this shows which: ss {flags} 'sport = :{port}'"
        ),
        io::ErrorKind::PermissionDenied => anyhow::anyhow!(
            "{what}: no permission; run as root, or with CAP_NET_BIND_SERVICE (ports below 1024) and CAP_NET_RAW (DHCP)"
        ),
        io::ErrorKind::AddrNotAvailable => {
            anyhow::anyhow!(
                "{what}: this machine has no address {}; its addresses: ip -brief address",
                address.ip()
            )
        }
        _ => anyhow::anyhow!("{what}: {error}"),
    }
}

/// An interface of the configuration does not exist.
#[must_use]
pub fn interface_absent(name: &str, present: &[String]) -> anyhow::Error {
    let nearest = present
        .iter()
        .map(|other| (strsim::jaro_winkler(name, other), other))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = nearest.map_or(String::new(), |(_, other)| format!("; did you mean \"{other}\"?"));
    anyhow::anyhow!("there is no network interface \"{name}\"; present: {}{hint}", present.join(", "))
}

/// The network interfaces of this machine.
#[must_use]
pub fn interfaces() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_in_use_names_port_protocol_and_how_to_find_the_owner() {
        let error = io::Error::from(io::ErrorKind::AddrInUse);
        let address = "0.0.0.0:67".parse().unwrap();
        assert_eq!(
            bind_failed("DHCP", address, Transport::Udp, &error).to_string(),
            "DHCP cannot listen on 0.0.0.0:67 (udp): port 67 is in use by another program; this shows which: ss -lunp 'sport = :67'"
        );
    }

    #[test]
    fn missing_privilege_says_which() {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        let text = bind_failed("TFTP", "0.0.0.0:69".parse().unwrap(), Transport::Udp, &error).to_string();
        assert!(text.contains("CAP_NET_BIND_SERVICE"), "{text}");
    }

    #[test]
    fn absent_interface_lists_the_present_ones() {
        let present = ["eth0".to_owned(), "lo".to_owned()];
        assert_eq!(
            interface_absent("eth1", &present).to_string(),
            "there is no network interface \"eth1\"; present: eth0, lo; did you mean \"eth0\"?"
        );
        assert!(interfaces().contains(&"lo".to_owned()));
    }
}
