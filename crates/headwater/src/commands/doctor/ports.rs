//! Are the ports free that the server listens on, and if not, who has them?
//!
//! Each is bound to for a moment, as the server does it; only that tells about addresses that are not ours and about
//! sockets of single interfaces.
use std::io;

use socket2::{Domain, Protocol, Socket, Type};

use super::finding::{Finding, Subject};
use super::needs::Listener;
use super::sockets::{Process, holders};
use crate::serve::explain::Transport;

pub(super) fn examine(listeners: &[Listener]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut free = Vec::new();
    for listener in listeners {
        match bind(listener) {
            Ok(()) => free.push(listener.label()),
            Err(error) => findings.extend(refused(listener, &error)),
        }
    }
    if !free.is_empty() {
        findings.insert(0, Finding::ok(Subject::Ports, format!("free: {}", free.join(", "))));
    }
    findings
}

fn bind(listener: &Listener) -> io::Result<()> {
    let domain = Domain::for_address(listener.address);
    let (kind, protocol) = match listener.transport {
        Transport::Tcp => (Type::STREAM, Protocol::TCP),
        Transport::Udp => (Type::DGRAM, Protocol::UDP),
    };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    if listener.transport == Transport::Tcp {
        // As the server does: connections that a dead server has left do not count.
        socket.set_reuse_address(true)?;
    }
    if let Some(interface) = &listener.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(&listener.address.into())?;
    if listener.transport == Transport::Tcp { socket.listen(1) } else { Ok(()) }
}

fn refused(listener: &Listener, error: &io::Error) -> Option<Finding> {
    let label = listener.label();
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let (processes, hidden) = holders(listener.transport, listener.address);
            Some(in_use(listener, &processes, hidden))
        }
        // The privileges are a subject of their own, and so are interfaces that are not there.
        io::ErrorKind::PermissionDenied => None,
        _ if listener.interface.is_some()
            && error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) =>
        {
            None
        }
        io::ErrorKind::AddrNotAvailable => Some(Finding::problem(
            Subject::Ports,
            format!("{label}: this machine has no address {}", listener.address.ip()),
            "The server does not start.",
            format!(
                "give the machine the address (ip address add {}/PREFIX dev INTERFACE), or listen on another one; \
                 \"ip -brief address\" lists those that it has",
                listener.address.ip()
            ),
        )),
        _ => Some(Finding::problem(
            Subject::Ports,
            format!("{label} cannot be listened on: {error}"),
            "The server does not start.",
            "mend what the system says, or listen elsewhere",
        )),
    }
}

fn in_use(listener: &Listener, processes: &[Process], hidden: usize) -> Finding {
    let label = listener.label();
    if !processes.is_empty() && hidden == 0 && processes.iter().all(Process::is_headwater) {
        let names: Vec<String> = processes.iter().map(ToString::to_string).collect();
        return Finding::ok(Subject::Ports, format!("{label} is served by {}", names.join(", ")));
    }
    let mut names: Vec<String> =
        processes.iter().filter(|process| !process.is_headwater()).map(ToString::to_string).collect();
    if hidden > 0 || names.is_empty() {
        names.push("a process that cannot be seen from here (run as root)".to_owned());
    }
    let flag = if listener.transport == Transport::Tcp { 't' } else { 'u' };
    let program = processes.first().map_or("PROGRAM", |process| process.program.as_str());
    Finding::problem(
        Subject::Ports,
        format!("{label} is held by {}", names.join(", ")),
        "The server does not start.",
        format!(
            "stop that program (systemctl disable --now {program}), or let the server listen elsewhere; \
             \"ss -l{flag}np 'sport = :{}'\" shows it",
            listener.address.port()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use std::net::SocketAddr;

    fn listener(transport: Transport, address: SocketAddr) -> Listener {
        Listener { service: "iSCSI", transport, address, interface: None }
    }

    #[test]
    fn free_ports_are_fine() {
        let free = |transport| {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            listener(transport, socket.local_addr().unwrap())
        };
        let findings = examine(&[free(Transport::Tcp), free(Transport::Udp)]);
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert_eq!(finding.level, Level::Ok);
    }

    #[test]
    fn held_port_names_its_holder_and_how_to_find_it() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let findings = examine(&[listener(Transport::Tcp, socket.local_addr().unwrap())]);
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert_eq!(finding.level, Level::Problem);
        assert!(finding.found.contains(&format!("(process {})", std::process::id())), "{finding:?}");
        assert!(finding.mend.as_ref().unwrap().contains("ss -ltnp"), "{finding:?}");
    }

    #[test]
    fn port_held_by_a_server_of_ours_is_as_it_should_be() {
        let wanted = listener(Transport::Tcp, "0.0.0.0:3260".parse().unwrap());
        let ours = Process { pid: 7, program: "headwater".to_owned() };
        let tgtd = Process { pid: 8, program: "tgtd".to_owned() };
        assert_eq!(in_use(&wanted, std::slice::from_ref(&ours), 0).level, Level::Ok);
        assert_eq!(in_use(&wanted, std::slice::from_ref(&ours), 1).level, Level::Problem);
        let both = in_use(&wanted, &[ours, tgtd], 0);
        assert!(both.level == Level::Problem && both.found.contains("tgtd (process 8)"), "{both:?}");
    }

    #[test]
    fn address_of_another_machine_is_told() {
        // RFC 5737: documentation addresses, which nobody has.
        let findings = examine(&[listener(Transport::Tcp, "192.0.2.1:3260".parse().unwrap())]);
        assert!(findings[0].found.contains("no address 192.0.2.1"), "{findings:?}");
    }
}
