//! A DHCP packet on the wire (RFC 2131 §2): the fixed fields of BOOTP, the magic cookie, the options.
use std::net::Ipv4Addr;

use super::options::{OVERLOAD, Options};
use crate::director::MacAddress;

/// The fixed fields and the magic cookie.
const HEADER_BYTES: usize = 240;
/// RFC 1542 §2.1: a BOOTP message has 300 bytes or more; some relays and ROMs drop shorter ones.
const MIN_PACKET_BYTES: usize = 300;
/// The longest packet that we read. One Ethernet frame carries less; jumbo frames are no use to DHCP.
pub const MAX_PACKET_BYTES: usize = 2048;
/// Marks the options as DHCP's (RFC 2131 §3).
const MAGIC_COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Hardware type Ethernet (RFC 1700).
const ETHERNET: u8 = 1;
const SNAME_BYTES: usize = 64;
const FILE_BYTES: usize = 128;
/// The broadcast bit in `flags` (RFC 2131 §2, figure 2).
const BROADCAST_FLAG: u16 = 0x8000;

/// Why some bytes are no DHCP packet that we could use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Shorter than the fixed fields.
    #[error("the packet has {length} bytes; DHCP needs {HEADER_BYTES} at least")]
    TooShort {
        /// Its length.
        length: usize,
    },
    /// Longer than any client's.
    #[error("the packet has {length} bytes; {MAX_PACKET_BYTES} is the most we read")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// `op` is neither BOOTREQUEST nor BOOTREPLY.
    #[error("op is {0}, neither request (1) nor reply (2)")]
    Op(u8),
    /// Not an Ethernet client.
    #[error("hardware type {kind} with addresses of {length} bytes; only Ethernet is served")]
    Hardware {
        /// `htype`.
        kind: u8,
        /// `hlen`.
        length: u8,
    },
    /// The hardware address is zero or a multicast address.
    #[error("the client's hardware address {0} is no station's")]
    ClientAddress(MacAddress),
    /// BOOTP without DHCP's cookie.
    #[error("no DHCP magic cookie: plain BOOTP is not served")]
    NoCookie,
    /// An option runs past the end of its field.
    #[error("option {code} says {length} bytes, but {left} are left")]
    OptionPastEnd {
        /// The option.
        code: u8,
        /// The length that it claims.
        length: u8,
        /// The bytes that are left.
        left: usize,
    },
    /// No message type, or an unknown one.
    #[error("message type (option 53) is {0:?}")]
    MessageType(Option<u8>),
    /// A reply where a request must stand.
    #[error("a server's message came to the server's port")]
    NotARequest,
    /// The answer does not fit into what the client takes.
    #[error("the answer has {length} bytes, and the client takes {max}")]
    ReplyTooLong {
        /// Its length.
        length: usize,
        /// The client's limit.
        max: usize,
    },
}

/// Request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// From a client (BOOTREQUEST).
    Request,
    /// From a server (BOOTREPLY).
    Reply,
}

/// A packet, field by field in RFC 2131's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who sends.
    pub op: Op,
    /// How many relays it crossed.
    pub hops: u8,
    /// Transaction.
    pub xid: u32,
    /// Seconds since the client began.
    pub secs: u16,
    /// The client cannot take unicast before it has an address.
    pub broadcast: bool,
    /// The client's address, where it has one.
    pub ciaddr: Ipv4Addr,
    /// "Your" address: what the server gives.
    pub yiaddr: Ipv4Addr,
    /// The next server: where the boot file is.
    pub siaddr: Ipv4Addr,
    /// The relay agent's address.
    pub giaddr: Ipv4Addr,
    /// `chaddr`.
    pub mac: MacAddress,
    /// The server's name; at most 63 bytes are written.
    pub sname: Vec<u8>,
    /// The boot file's name; at most 127 bytes are written.
    pub file: Vec<u8>,
    /// The options.
    pub options: Options,
}

impl Packet {
    /// Reads a packet.
    ///
    /// # Errors
    /// Whatever makes it no Ethernet client's DHCP.
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
        if bytes.len() > MAX_PACKET_BYTES {
            return Err(PacketError::TooLong { length: bytes.len() });
        }
        if bytes.len() < HEADER_BYTES {
            return Err(PacketError::TooShort { length: bytes.len() });
        }
        let mut fields = Fields(bytes);
        let op = match fields.byte()? {
            1 => Op::Request,
            2 => Op::Reply,
            other => return Err(PacketError::Op(other)),
        };
        let (kind, length) = (fields.byte()?, fields.byte()?);
        let hops = fields.byte()?;
        let xid = u32::from_be_bytes(fields.array()?);
        let secs = u16::from_be_bytes(fields.array()?);
        let flags = u16::from_be_bytes(fields.array()?);
        let [ciaddr, yiaddr, siaddr, giaddr] =
            [fields.array::<4>()?, fields.array()?, fields.array()?, fields.array()?].map(Ipv4Addr::from);
        let mac = MacAddress(fields.array()?);
        let _rest_of_chaddr: [u8; 10] = fields.array()?;
        let sname: [u8; SNAME_BYTES] = fields.array()?;
        let file: [u8; FILE_BYTES] = fields.array()?;
        let cookie: [u8; 4] = fields.array()?;
        if kind != ETHERNET || length != 6 {
            return Err(PacketError::Hardware { kind, length });
        }
        // IEEE 802 §8.2: the lowest bit of the first byte marks a group address, which no station has.
        if mac.0 == [0; 6] || mac.0.first().is_some_and(|first| first & 1 == 1) {
            return Err(PacketError::ClientAddress(mac));
        }
        if cookie != MAGIC_COOKIE {
            return Err(PacketError::NoCookie);
        }
        let mut options = Options::new();
        options.read(fields.0)?;
        // RFC 2131 §4.1: options first, then `file`, then `sname`.
        let overload = options.byte(OVERLOAD).unwrap_or(0);
        let (file_carries, sname_carries) = (overload & 1 != 0, overload & 2 != 0);
        if file_carries {
            options.read(&file)?;
        }
        if sname_carries {
            options.read(&sname)?;
        }
        Ok(Self {
            op,
            hops,
            xid,
            secs,
            broadcast: flags & BROADCAST_FLAG != 0,
            ciaddr,
            yiaddr,
            siaddr,
            giaddr,
            mac,
            sname: if sname_carries { Vec::new() } else { until_nul(&sname) },
            file: if file_carries { Vec::new() } else { until_nul(&file) },
            options,
        })
    }

    /// Writes the packet, padded to BOOTP's minimum.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MIN_PACKET_BYTES);
        out.extend([if self.op == Op::Request { 1 } else { 2 }, ETHERNET, 6, self.hops]);
        out.extend(self.xid.to_be_bytes());
        out.extend(self.secs.to_be_bytes());
        out.extend(if self.broadcast { BROADCAST_FLAG } else { 0 }.to_be_bytes());
        for address in [self.ciaddr, self.yiaddr, self.siaddr, self.giaddr] {
            out.extend(address.octets());
        }
        out.extend(self.mac.0);
        out.extend([0; 10]);
        write_text(&self.sname, SNAME_BYTES, &mut out);
        write_text(&self.file, FILE_BYTES, &mut out);
        out.extend(MAGIC_COOKIE);
        self.options.write(&mut out);
        out.resize(out.len().max(MIN_PACKET_BYTES), 0);
        out
    }
}

/// The longest name that fits into the `file` field with its NUL.
pub const MAX_FILE_NAME_BYTES: usize = FILE_BYTES - 1;

fn until_nul(field: &[u8]) -> Vec<u8> {
    field.iter().copied().take_while(|&byte| byte != 0).collect()
}

/// Writes a NUL-terminated text of a fixed width.
fn write_text(text: &[u8], width: usize, out: &mut Vec<u8>) {
    let room = width.saturating_sub(1);
    out.extend(text.iter().copied().take(room).chain(std::iter::repeat(0)).take(width));
}

/// Takes the fixed fields off the front of a packet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let (field, rest) =
            self.0.split_first_chunk().ok_or(PacketError::TooShort { length: self.0.len() })?;
        self.0 = rest;
        Ok(*field)
    }

    fn byte(&mut self) -> Result<u8, PacketError> {
        self.array().map(|[byte]| byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dhcp::options::{BOOT_FILE, MESSAGE_TYPE, TFTP_SERVER_NAME};

    pub(crate) fn discover() -> Packet {
        let mut options = Options::new();
        options.set(MESSAGE_TYPE, [1]);
        Packet {
            op: Op::Request,
            hops: 0,
            xid: 0x1234_5678,
            secs: 4,
            broadcast: true,
            ciaddr: Ipv4Addr::UNSPECIFIED,
            yiaddr: Ipv4Addr::UNSPECIFIED,
            siaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: Ipv4Addr::UNSPECIFIED,
            mac: MacAddress([0x52, 0x54, 0, 0x77, 0, 0x10]),
            sname: Vec::new(),
            file: b"name".to_vec(),
            options,
        }
    }

    #[test]
    fn packet_survives_writing_and_reading() {
        let packet = discover();
        let wire = packet.encode();
        assert_eq!(wire.len(), MIN_PACKET_BYTES);
        assert_eq!(Packet::decode(&wire).unwrap(), packet);
    }

    #[test]
    fn overloaded_fields_are_read_as_options() {
        let mut packet = discover();
        packet.options.set(OVERLOAD, [3]);
        let mut wire = packet.encode();
        wire[108..112].copy_from_slice(&[BOOT_FILE, 1, b'f', 255]);
        wire[44..48].copy_from_slice(&[TFTP_SERVER_NAME, 1, b's', 255]);
        let read = Packet::decode(&wire).unwrap();
        assert_eq!(read.options.get(BOOT_FILE), Some(&b"f"[..]));
        assert_eq!(read.options.get(TFTP_SERVER_NAME), Some(&b"s"[..]));
        assert_eq!((read.file, read.sname), (Vec::new(), Vec::new()));
    }

    #[test]
    fn packet_cut_anywhere_in_its_header_is_rejected() {
        let wire = discover().encode();
        for length in 0..HEADER_BYTES {
            assert!(
                matches!(Packet::decode(&wire[..length]), Err(PacketError::TooShort { .. })),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn foreign_hardware_and_group_addresses_are_rejected() {
        let wire = discover().encode();
        let with = |at: usize, byte: u8| {
            let mut wire = wire.clone();
            wire[at] = byte;
            Packet::decode(&wire).unwrap_err()
        };
        assert_eq!(with(0, 3), PacketError::Op(3));
        assert_eq!(with(1, 32), PacketError::Hardware { kind: 32, length: 6 });
        assert_eq!(with(2, 16), PacketError::Hardware { kind: 1, length: 16 });
        assert!(matches!(with(28, 0x53), PacketError::ClientAddress(_)));
        assert_eq!(with(236, 0), PacketError::NoCookie);
    }

    #[test]
    fn name_longer_than_its_field_is_cut_with_a_nul_at_its_end() {
        let mut packet = discover();
        packet.file = vec![b'x'; 400];
        let wire = packet.encode();
        assert_eq!(wire[108 + 126..108 + 128], [b'x', 0]);
        assert_eq!(Packet::decode(&wire).unwrap().file.len(), MAX_FILE_NAME_BYTES);
    }
}
