//! Who has a port: the kernel's tables of sockets (`/proc/net/tcp` and its kin), and the processes that hold them.
//!
//! A table tells of each socket its local address and the number of its inode, and not which network interface it is
//! bound to; whether a port is free is found out by binding to it. A process shows the sockets that it has open as links
//! `socket:[INODE]` in `/proc/PID/fd`, to root and to its own user alone.
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::serve::explain::Transport;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Its number.
    pub(super) pid: u32,
    /// Its program's name, as the kernel keeps it (15 bytes).
    pub(super) program: String,
}

impl Process {
    /// Whether it is a server of ours.
    pub(super) fn is_headwater(&self) -> bool {
        self.program == "headwater"
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (process {})", self.program, self.pid)
    }
}

/// A socket that waits for what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    local: SocketAddr,
    inode: u64,
}

/// The state of a TCP socket that listens, and of a UDP socket without a peer (`net/tcp_states.h`).
const LISTEN: &str = "0A";
const UNCONNECTED: &str = "07";

/// The processes that wait on this port: those that can be seen. Sockets whose process cannot are counted.
pub(super) fn holders(transport: Transport, address: SocketAddr) -> (Vec<Process>, usize) {
    let (tables, state) = match transport {
        Transport::Tcp => (["tcp", "tcp6"], LISTEN),
        Transport::Udp => (["udp", "udp6"], UNCONNECTED),
    };
    let mut inodes = Vec::new();
    for table in tables {
        let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        let waiting = text.lines().skip(1).filter_map(|line| parse_line(line, state));
        inodes.extend(waiting.filter(|socket| overlap(socket.local, address)).map(|socket| socket.inode));
    }
    inodes.sort_unstable();
    inodes.dedup();
    let mut seen = processes_of(&inodes);
    let hidden = inodes.iter().filter(|inode| !seen.contains_key(*inode)).count();
    let mut processes: Vec<Process> = std::mem::take(&mut seen).into_values().collect();
    processes.sort_by_key(|process| process.pid);
    processes.dedup();
    (processes, hidden)
}

/// Whether two sockets want the same packets: one port, and one address, or all addresses.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() == other.port() && (a == b || a.is_unspecified() || b.is_unspecified())
}

/// `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...`.
fn parse_line(line: &str, state: &str) -> Option<Waiting> {
    let words: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let [_, local, _, is, .., inode] = words.as_slice() else { return None };
    let (address, port) = local.split_once(':')?;
    let local = SocketAddr::new(parse_address(address)?, u16::from_str_radix(port, 16).ok()?);
    (*is == state).then_some(Waiting { local, inode: inode.parse().ok()? })
}

/// The file prints network byte order as the machine's integers of 32 bits.
fn parse_address(text: &str) -> Option<IpAddr> {
    let word = |at: usize| {
        let digits = text.get(at..at.checked_add(8)?)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    match text.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let bytes = [word(0)?, word(8)?, word(16)?, word(24)?].concat();
            let bytes: [u8; 16] = bytes.try_into().ok()?;
            Some(IpAddr::V6(Ipv6Addr::from(bytes)))
        }
        _ => None,
    }
}

/// Which process has which of these sockets open.
fn processes_of(inodes: &[u64]) -> BTreeMap<u64, Process> {
    let mut found = BTreeMap::new();
    if inodes.is_empty() {
        return found;
    }
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        for file in std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten() {
            let Some(inode) = std::fs::read_link(file.path()).ok().and_then(|link| socket_inode(&link))
            else {
                continue;
            };
            if inodes.contains(&inode) {
                let program = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
                found.insert(inode, Process { pid, program: program.trim_end().to_owned() });
            }
        }
    }
    found
}

fn socket_inode(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn tables_of_the_kernel_are_read() {
        let tcp = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0";
        let local = "127.0.0.1:8080".parse().unwrap();
        assert_eq!(parse_line(tcp, LISTEN), Some(Waiting { local, inode: 4711 }));
        assert_eq!(parse_line(tcp, UNCONNECTED), None);
        let tcp6 = "   1: 0000000000000000FFFF00000100007F:0CBC 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 12 1";
        assert_eq!(
            parse_line(tcp6, LISTEN).map(|socket| socket.local),
            Some("[::ffff:127.0.0.1]:3260".parse().unwrap())
        );
        for broken in ["", "sl", "0: 01:1 0:0 0A a b c d e f", "0: ÄÄÄÄ:1F90 0 0A a b c d e 1"] {
            assert_eq!(parse_line(broken, LISTEN), None, "{broken}");
        }
    }

    #[test]
    fn all_addresses_overlap_with_each_one() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(overlap(address("0.0.0.0:67"), address("10.0.0.1:67")));
        assert!(overlap(address("[::]:67"), address("10.0.0.1:67")));
        assert!(overlap(address("[::ffff:10.0.0.1]:67"), address("10.0.0.1:67")));
        assert!(!overlap(address("10.0.0.2:67"), address("10.0.0.1:67")));
        assert!(!overlap(address("0.0.0.0:67"), address("0.0.0.0:68")));
    }

    #[test]
    fn holder_of_a_port_is_found_by_its_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (processes, hidden) = holders(Transport::Tcp, listener.local_addr().unwrap());
        assert_eq!(processes.iter().map(|process| process.pid).collect::<Vec<_>>(), [std::process::id()]);
        assert_eq!(hidden, 0);
    }
}
