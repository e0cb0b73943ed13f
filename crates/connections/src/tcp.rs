//! How the TCP sockets of a server's peers are set up.
//!
//! What counts is small answers that leave at once, a peer that is gone being noticed, and large answers that cost little.
//! For the last the *congestion control* matters more than anything in a server's own code. BBR spreads what it sends
//! over time by a timer of the socket; at a few GB/s that is tens of thousands of timer interrupts a second, and they
//! cost more than all else that sending costs (measured on loopback with large NBD reads: 2 to 4 instead of 8 GB/s, 0.2
//! instead of 0.07 CPU seconds a GB). It pays where a path is long and lossy. Disks are served over short ones, so the connections get an
//! algorithm that sends as the acknowledgements come in, whatever the system's default is.
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// A silent peer is asked for a sign of life after this long, and then this often, this many times. Where there is a limit
/// for unacknowledged data, Linux takes that limit in place of the count (tcp(7), `TCP_USER_TIMEOUT`): so a peer that is
/// silent is gone after [`UNACKNOWLEDGED`] and one round more, some 130 seconds. Firmware that waits in a menu answers
/// nothing meanwhile, and kernels whose disk is an NBD export have nowhere to go back to: neither is to be given up early.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 5);

/// Data that a peer does not acknowledge, or takes no room for, for this long has nobody to go to.
const UNACKNOWLEDGED: Duration = Duration::from_secs(120);

/// What sends without a timer, the best first. The second is in every kernel and open to every process.
const WITHOUT_PACING: [&str; 2] = ["cubic", "reno"];

/// Which algorithm decides how fast a socket sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC, or where this process may not choose it, Reno: for short paths.
    #[default]
    WithoutPacing,
    /// What the system has as its default.
    System,
}

/// How the sockets of a server are set up.
#[derive(Clone, Copy, Debug)]
pub struct TcpSetup {
    /// What the kernel may hold of a connection's output; it doubles it for its own use. `None` leaves it to the kernel.
    pub send_buffer_bytes: Option<usize>,
    /// Which algorithm decides how fast it sends.
    pub congestion_control: CongestionControl,
}

impl TcpSetup {
    /// Sets up a connected socket.
    ///
    /// # Errors
    /// What the operating system says: the connection has ended already, as a rule.
    pub fn apply(&self, socket: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(socket);
        socket.set_tcp_nodelay(true)?;
        let (idle, interval, retries) = KEEPALIVE;
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(retries);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        if let Some(bytes) = self.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if self.congestion_control == CongestionControl::WithoutPacing {
            avoid_pacing(&socket);
        }
        Ok(())
    }
}

/// The data that one segment of a connection carries, in bytes: what its peer has announced, and what the path is known to carry.
/// `None`: the connection has ended already.
#[must_use]
pub fn segment_bytes(socket: &impl AsFd) -> Option<u32> {
    SockRef::from(socket).tcp_mss().ok()
}

/// Where none can be had, the socket serves all the same, only dearer.
fn avoid_pacing(socket: &SockRef<'_>) {
    let _ = WITHOUT_PACING.iter().any(|name| socket.set_tcp_congestion(name.as_bytes()).is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn segments_of_a_connection_fit_the_path() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let found = segment_bytes(&stream).unwrap();
        assert!((500..=65_536).contains(&found), "{found}");
    }

    #[test]
    fn connections_send_without_pacing_and_without_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let congestion_control = CongestionControl::WithoutPacing;
        TcpSetup { send_buffer_bytes: Some(100_000), congestion_control }.apply(&stream).unwrap();
        let socket = SockRef::from(&stream);
        let name = socket.tcp_congestion().unwrap();
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        assert!(WITHOUT_PACING.contains(&name.as_str()), "{name}");
        assert!(socket.tcp_nodelay().unwrap());
        assert!(socket.send_buffer_size().unwrap() >= 100_000);
    }
}
