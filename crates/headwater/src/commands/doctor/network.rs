//! `headwater doctor network DEVICE`: which packets really get to a device.
//!
//! Pings that may not be fragmented (RFC 792, RFC 1191) are sent in rising and falling sizes until the largest one that is answered is
//! known. Firmware mostly answers none; then what the kernel and TCP know is all that can be said, and it is said.
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ::api::host::NetworkReport;
use anyhow::{Context as _, bail};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery};
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use crate::admin::api::BootsAnswer;
use crate::cli::{NetworkArgs, Output};
use crate::commands::client::Client;
use crate::path::{LimitedBy, PathMtu, towards};
use crate::timeline::BootRecord;
use crate::timeline::record::StepKind;

/// The smallest packet that every host takes (RFC 791 §3.1 says 576; what is smaller tells nothing).
const LEAST_BYTES: u32 = 576;

/// How long an answer is waited for: far more than a local network needs.
const WAIT: Duration = Duration::from_millis(400);

/// How often a size is tried: one packet may be lost for other reasons.
const TRIES: usize = 3;

/// The longest IPv4 packet.
const MOST_BYTES: u32 = 65_535;

/// IPv4 header without options, and ICMP echo header.
const HEADERS_BYTES: u32 = 28;

/// What was found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The device, or the address that was asked for.
    device: String,
    /// Its address.
    address: IpAddr,
    /// As the kernel knows the path, after the pings.
    path: PathMtu,
    /// Who limits it.
    limited_by: LimitedBy,
    /// The largest packet that was answered; none: pings are not answered.
    pinged_bytes: Option<u32>,
}

/// Runs the command; what it prints.
///
/// # Errors
/// In words for the administrator.
pub async fn run(args: &NetworkArgs, output: Output) -> anyhow::Result<String> {
    let (address, known) = match args.device.parse::<IpAddr>() {
        Ok(address) => (address, None),
        Err(_) => of_device(args).await?,
    };
    let device = args.device.clone();
    let report = tokio::task::spawn_blocking(move || examine(device, address, known)).await??;
    Ok(match output {
        Output::Table => text(&report),
        Output::Json => serde_json::to_string_pretty(&report)? + "\n",
    })
}

/// Looks at the way to a device; `known` is what its connection tells of it.
///
/// # Errors
/// There is no way, or pings cannot be sent.
pub(crate) fn examine(device: String, address: IpAddr, known: Option<PathMtu>) -> anyhow::Result<Report> {
    let before = towards(address).with_context(|| format!("there is no way to {address}"))?;
    let pinged_bytes = match address.to_canonical() {
        IpAddr::V4(address) => {
            let most = before.link_mtu_bytes.unwrap_or(before.mtu_bytes).min(MOST_BYTES);
            pings(address, most)?
        }
        IpAddr::V6(_) => None,
    };
    // Pings may have taught the kernel something; of segments only the connection knows.
    let mut path = PathMtu { ..towards(address)? };
    if let Some(known) = known {
        (path.agreed_segment_bytes, path.segment_bytes) = (known.agreed_segment_bytes, known.segment_bytes);
    }
    Ok(Report { device, address, limited_by: path.limited_by(), path, pinged_bytes })
}

impl Report {
    /// As the running server answers it.
    pub(crate) fn told(&self, at: String) -> NetworkReport {
        NetworkReport {
            device: self.device.clone(),
            at,
            address: self.address.to_string(),
            mtu_bytes: self.path.mtu_bytes,
            pinged_bytes: self.pinged_bytes,
            limited_by: self.limited_by.as_str().to_owned(),
            text: text(self),
        }
    }
}

/// Where a device logged in from last, and what was known of the way then.
pub(crate) fn last_login(boots: Vec<BootRecord>) -> Option<(IpAddr, Option<PathMtu>)> {
    boots.into_iter().find_map(|boot| {
        let peer = boot.steps.iter().rev().find_map(|step| match &step.kind {
            StepKind::Login { peer, .. } => peer.parse::<SocketAddr>().ok(),
            _ => None,
        });
        Some((peer?.ip(), boot.path))
    })
}

/// Where a device is, as its last login says.
async fn of_device(args: &NetworkArgs) -> anyhow::Result<(IpAddr, Option<PathMtu>)> {
    let device = &args.device;
    let is_name = device.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if !is_name || device.is_empty() {
        bail!("\"{device}\" is neither a device's name nor an address");
    }
    let answer: BootsAnswer = Client::new(&args.reach)?.get(&format!("/v1/boots/{device}")).await?;
    last_login(answer.boots)
        .with_context(|| format!("device {device} has not logged in from another machine: name its address"))
}

/// The largest packet that is answered.
fn pings(address: Ipv4Addr, most: u32) -> anyhow::Result<Option<u32>> {
    let ping =
        Ping::new(address).context("pings need the right to send them: run as root, or with CAP_NET_RAW")?;
    let mut number = 0_u16;
    Ok(largest(LEAST_BYTES.min(most), most, |bytes| {
        (0..TRIES).any(|_| {
            number = number.wrapping_add(1);
            ping.is_answered(bytes, number).unwrap_or(false)
        })
    }))
}

/// The largest size from `least` to `most` that gets through, if sizes do so up to a limit; `None`: not even the smallest.
fn largest(least: u32, most: u32, mut gets_through: impl FnMut(u32) -> bool) -> Option<u32> {
    if !gets_through(least) {
        return None;
    }
    // Mostly the link is the limit.
    if gets_through(most) {
        return Some(most);
    }
    let (mut good, mut bad) = (least, most);
    while bad.saturating_sub(good) > 1 {
        let middle = good.midpoint(bad);
        if gets_through(middle) { good = middle } else { bad = middle }
    }
    Some(good)
}

struct Ping {
    socket: Socket,
}

impl Ping {
    fn new(address: Ipv4Addr) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4))?;
        // Never fragmented, and not held to what the kernel believes of the path: that is what is looked into.
        sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
        socket.connect(&SocketAddr::from((address, 0)).into())?;
        socket.set_read_timeout(Some(WAIT))?;
        Ok(Self { socket })
    }

    /// Whether an echo request of so many bytes with its IP header is answered in time.
    fn is_answered(&self, bytes: u32, number: u16) -> io::Result<bool> {
        let own = std::process::id().to_be_bytes();
        let [.., a, b] = own;
        let [high, low] = number.to_be_bytes();
        // RFC 792: echo request; identifier and sequence number.
        let mut packet = vec![8, 0, 0, 0, a, b, high, low];
        packet.resize(packet.len().saturating_add(bytes.saturating_sub(HEADERS_BYTES) as usize), 0x5A);
        let sum = checksum(&packet).to_be_bytes();
        for (to, from) in packet.iter_mut().skip(2).zip(sum) {
            *to = from;
        }
        // What is larger than the link sends is refused here (EMSGSIZE).
        self.socket.send(&packet)?;
        let deadline = Instant::now();
        let mut answer = vec![0; MOST_BYTES as usize];
        while deadline.elapsed() < WAIT {
            let length = match (&self.socket).read(&mut answer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                // A router has said that it is too large.
                Err(error) => return Err(error),
            };
            let header = usize::from(answer.first().copied().unwrap_or(0) & 0x0F).saturating_mul(4);
            let reply = answer.get(header..length).and_then(<[u8]>::first_chunk::<8>);
            if reply.is_some_and(|[kind, _, _, _, rest @ ..]| *kind == 0 && *rest == [a, b, high, low]) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| match *pair {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    let mut sum: u32 = words.fold(0, u32::wrapping_add);
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF).wrapping_add(sum >> 16);
    }
    u16::try_from(sum ^ 0xFFFF).unwrap_or(0)
}

fn text(report: &Report) -> String {
    let Report { device, address, path, pinged_bytes, .. } = report;
    let mut text = format!("{device} at {address}: {}\n", path.describe());
    let most = path.link_mtu_bytes.unwrap_or(path.mtu_bytes);
    text.push_str(&match pinged_bytes {
        Some(bytes) if *bytes >= most => format!("pings of {bytes} bytes arrive whole: the path carries all that the link sends\n"),
        Some(bytes) => format!(
            "pings of more than {bytes} bytes do not arrive, though the link sends {most}: a switch, a router or the device limits \
             them. Jumbo frames must be on at every one of them, and at the device; without that, all is well at {bytes}\n"
        ),
        None => "the device answers no pings (firmware does not, and firewalls keep them away): ask again when its system runs\n".to_owned(),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_packet_is_found_wherever_the_limit_is() {
        for limit in [576, 577, 1400, 1500, 8999, 9000] {
            let mut asked = 0;
            let found = largest(576, 9000, |bytes| {
                asked += 1;
                bytes <= limit
            });
            assert_eq!(found, Some(limit));
            assert!(asked < 20, "{asked} sizes were tried");
        }
        assert_eq!(largest(576, 9000, |_| false), None);
    }

    #[test]
    fn checksum_is_that_of_rfc_1071() {
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(checksum(&[0x01]), !0x0100);
    }

    #[test]
    fn report_says_who_limits() {
        let path = |mtu_bytes| PathMtu {
            mtu_bytes,
            interface: Some("eth0".to_owned()),
            link_mtu_bytes: Some(9000),
            agreed_segment_bytes: None,
            segment_bytes: None,
        };
        let report = |mtu, pinged_bytes| {
            let path = path(mtu);
            let (device, address) = ("lab-01".to_owned(), IpAddr::from([10, 0, 0, 7]));
            text(&Report { device, address, limited_by: path.limited_by(), path, pinged_bytes })
        };
        assert!(report(9000, Some(9000)).contains("carries all that the link sends"));
        let limited = report(1500, Some(1500));
        assert!(limited.contains("something on the way") && limited.contains("more than 1500"), "{limited}");
        assert!(report(9000, None).contains("answers no pings"));
    }
}
