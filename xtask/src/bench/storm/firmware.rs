//! What firmware and iPXE do before there is a disk: DHCP (RFC 2131), TFTP (RFC 1350, 2347, 2348), HTTP.
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Between two tries of the same question.
const TRY_EVERY: Duration = Duration::from_secs(2);
/// How often a question is asked.
const TRIES: u32 = 15;
/// RFC 2131 §3.
const MAGIC: [u8; 4] = [99, 130, 83, 99];
/// A block of TFTP: what fits an Ethernet frame.
const TFTP_BLOCK_BYTES: usize = 1432;

/// A device's card.
pub(super) type MacBytes = [u8; 6];

/// The cards of all devices: one socket, from which each hears the answers to its own questions.
pub(super) struct Cards {
    socket: UdpSocket,
    waiting: Mutex<HashMap<u32, Sender<Vec<u8>>>>,
}

/// What DHCP told.
pub(super) struct Lease {
    pub(super) address: Ipv4Addr,
    /// The boot file's name.
    pub(super) file: String,
}

impl Cards {
    /// Starts to listen.
    pub(super) fn begin() -> Result<Arc<Self>> {
        let socket =
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68)).context("cannot have the DHCP client's port")?;
        socket.set_broadcast(true)?;
        let cards = Arc::new(Self { socket, waiting: Mutex::default() });
        let listener = Arc::clone(&cards);
        std::thread::spawn(move || {
            let mut packet = [0; 2048];
            while let Ok(length) = listener.socket.recv(&mut packet) {
                let Some(id) = packet.get(4..8).and_then(|id| id.try_into().ok()).map(u32::from_be_bytes)
                else {
                    continue;
                };
                let waiting = listener.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(card) = waiting.get(&id) {
                    // A card that does not wait any more has its answer.
                    let _ = card.send(packet[..length].to_vec());
                }
            }
        });
        Ok(cards)
    }

    /// Discover, offer, request, acknowledgement. `ipxe`: asks as iPXE does, else as a BIOS's PXE.
    pub(super) fn lease(&self, mac: MacBytes, ipxe: bool) -> Result<Lease> {
        // Different for each device and question, the same for its repetitions.
        let id = u32::from_be_bytes([mac[2] ^ u8::from(ipxe), mac[3], mac[4], mac[5]]);
        let (sender, answers) = channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id, sender);
        let result = self.exchange(id, mac, ipxe, &answers);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        result
    }

    fn exchange(&self, id: u32, mac: MacBytes, ipxe: bool, answers: &Receiver<Vec<u8>>) -> Result<Lease> {
        let offer = self.ask(&packet(id, mac, ipxe, 1, None), answers, 2).context("no DHCP offer")?;
        let address = Ipv4Addr::new(offer[16], offer[17], offer[18], offer[19]);
        let server = option(&offer, 54).context("an offer without its server")?;
        let request = packet(id, mac, ipxe, 3, Some((address, server)));
        let answer = self.ask(&request, answers, 5).context("no DHCP acknowledgement")?;
        let field = answer.get(108..236).unwrap_or_default();
        let in_field = field.split(|byte| *byte == 0).next().unwrap_or_default();
        let file = option(&answer, 67).unwrap_or(in_field);
        Ok(Lease { address, file: String::from_utf8_lossy(file).trim_end_matches('\0').to_owned() })
    }

    /// Asks until an answer of this type comes.
    fn ask(&self, question: &[u8], answers: &Receiver<Vec<u8>>, wanted: u8) -> Result<Vec<u8>> {
        for _ in 0..TRIES {
            self.socket.send_to(question, (Ipv4Addr::BROADCAST, 67))?;
            while let Ok(answer) = answers.recv_timeout(TRY_EVERY) {
                if option(&answer, 53) == Some(&[wanted]) {
                    return Ok(answer);
                }
            }
        }
        bail!("asked {TRIES} times")
    }
}

fn packet(id: u32, mac: MacBytes, ipxe: bool, kind: u8, choice: Option<(Ipv4Addr, &[u8])>) -> Vec<u8> {
    let mut packet = vec![0; 236];
    packet[..4].copy_from_slice(&[1, 1, 6, 0]);
    packet[4..8].copy_from_slice(&id.to_be_bytes());
    // Answers by broadcast: there is no address yet.
    packet[10] = 0x80;
    packet[28..34].copy_from_slice(&mac);
    packet.extend(MAGIC);
    packet.extend([53, 1, kind]);
    // RFC 4578: architecture 0, a BIOS.
    packet.extend([93, 2, 0, 0, 94, 3, 1, 2, 1]);
    packet.extend([55, 6, 1, 3, 43, 60, 66, 67]);
    packet.extend([60, 32]);
    packet.extend(b"PXEClient:Arch:00000:UNDI:002001");
    if ipxe {
        packet.extend([77, 4]);
        packet.extend(b"iPXE");
    }
    if let Some((address, server)) = choice {
        packet.extend([50, 4]);
        packet.extend(address.octets());
        packet.extend([54, 4]);
        packet.extend(server);
    }
    packet.push(255);
    packet
}

/// An option of a packet.
fn option(packet: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = packet.get(240..)?;
    loop {
        let (&code, after) = rest.split_first()?;
        match code {
            0 => rest = after,
            255 => return None,
            _ => {
                let (&length, after) = after.split_first()?;
                let (value, after) = after.split_at_checked(usize::from(length))?;
                if code == wanted {
                    return Some(value);
                }
                rest = after;
            }
        }
    }
}

/// Fetches a file by TFTP; how many bytes it has.
pub(super) fn fetch_by_tftp(own: Ipv4Addr, server: Ipv4Addr, file: &str) -> Result<u64> {
    let socket = UdpSocket::bind((own, 0))?;
    socket.set_read_timeout(Some(TRY_EVERY))?;
    let mut question = vec![0, 1];
    for word in [file, "octet", "blksize", &TFTP_BLOCK_BYTES.to_string()] {
        question.extend(word.as_bytes());
        question.push(0);
    }
    let (mut to, mut bytes, mut expected) = (SocketAddr::from((server, 69)), 0, 1_u16);
    let mut block_bytes = 512;
    let mut answer = [0; 2048];
    let mut tries = 0;
    loop {
        socket.send_to(&question, to)?;
        let Ok((length, from)) = socket.recv_from(&mut answer) else {
            tries += 1;
            ensure!(tries < TRIES, "TFTP gave no answer {TRIES} times");
            continue;
        };
        let (kind, block) = (answer[1], u16::from_be_bytes([answer[2], answer[3]]));
        match kind {
            6 => {
                (to, block_bytes) = (from, TFTP_BLOCK_BYTES);
                question = vec![0, 4, 0, 0];
            }
            3 if block == expected => {
                (to, tries) = (from, 0);
                bytes += (length - 4) as u64;
                question = [&[0, 4][..], &block.to_be_bytes()].concat();
                expected = expected.wrapping_add(1);
                if length - 4 < block_bytes {
                    socket.send_to(&question, to)?;
                    return Ok(bytes);
                }
            }
            // One that came twice.
            3 => {}
            _ => bail!("TFTP: {}", String::from_utf8_lossy(answer.get(4..length).unwrap_or_default())),
        }
    }
}

/// A connection from an address of its own.
pub(super) fn connect(own: Ipv4Addr, server: SocketAddrV4) -> Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((own, 0)).into())?;
    socket.connect(&SocketAddr::V4(server).into()).with_context(|| format!("no connection to {server}"))?;
    let stream: TcpStream = socket.into();
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TRY_EVERY * TRIES))?;
    Ok(stream)
}

/// One HTTP request; the answer's body.
pub(super) fn http(own: Ipv4Addr, server: SocketAddrV4, head: &str, body: &str) -> Result<String> {
    let mut stream = connect(own, server)?;
    let length = body.len();
    write!(
        stream,
        "{head} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer to an HTTP request")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "{status}: {body}");
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_behind_padding_and_others() {
        let asked =
            packet(7, [2, 0, 0, 0, 0, 1], true, 3, Some((Ipv4Addr::new(10, 78, 0, 1), &[10, 77, 0, 1])));
        assert_eq!(option(&asked, 53), Some(&[3][..]));
        assert_eq!(option(&asked, 77), Some(&b"iPXE"[..]));
        assert_eq!(option(&asked, 54), Some(&[10, 77, 0, 1][..]));
        assert_eq!(option(&asked, 12), None);
        let mut padded = vec![0; 240];
        padded.extend([0, 0, 53, 1, 5, 67, 9]);
        assert_eq!(option(&padded, 53), Some(&[5][..]));
        assert_eq!(option(&padded, 67), None, "cut off");
    }
}
