//! A server's answer: its packet, and where it goes.
use std::net::{Ipv4Addr, SocketAddrV4};

use super::boot::BootInfo;
use super::client::ClientMessage;
use super::options::{self, Options};
use super::packet::{MAX_FILE_NAME_BYTES, Op, Packet, PacketError};
use super::{CLIENT_PORT, SERVER_PORT};

/// An answer, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Where they go.
    pub to: SocketAddrV4,
}

/// What a server may answer (RFC 2132 §9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyType {
    /// An offer.
    Offer,
    /// It is yours.
    Ack,
    /// No.
    Nak,
}

/// An answer in the making.
#[derive(Clone, Debug)]
pub struct ReplyBuilder<'a> {
    message: &'a ClientMessage,
    kind: ReplyType,
    packet: Packet,
}

impl<'a> ReplyBuilder<'a> {
    /// An answer to `message` from the server with this address.
    #[must_use]
    pub fn new(message: &'a ClientMessage, kind: ReplyType, server: Ipv4Addr) -> Self {
        let mut options = Options::new();
        let number = match kind {
            ReplyType::Offer => 2,
            ReplyType::Ack => 5,
            ReplyType::Nak => 6,
        };
        options.set(options::MESSAGE_TYPE, [number]);
        options.set_addresses(options::SERVER_ID, &[server]);
        // RFC 6842 §3, RFC 4578 §2.3, RFC 3046 §2.2: these come back as they were sent.
        let echoes = [
            (options::CLIENT_ID, &message.client_id),
            (options::MACHINE_ID, &message.machine_id),
            (options::RELAY_AGENT, &message.relay_agent),
        ];
        for (code, value) in echoes {
            if let Some(value) = value {
                options.set(code, value.clone());
            }
        }
        let packet = Packet {
            op: Op::Reply,
            hops: 0,
            xid: message.xid,
            secs: 0,
            broadcast: message.broadcast,
            // RFC 2131 §4.3.1, table 3: zero in an offer and in a NAK.
            ciaddr: if kind == ReplyType::Ack { message.ciaddr } else { Ipv4Addr::UNSPECIFIED },
            yiaddr: Ipv4Addr::UNSPECIFIED,
            siaddr: Ipv4Addr::UNSPECIFIED,
            giaddr: message.giaddr,
            mac: message.mac,
            sname: Vec::new(),
            file: Vec::new(),
            options,
        };
        Self { message, kind, packet }
    }

    /// Gives the client this address.
    #[must_use]
    pub fn address(mut self, address: Ipv4Addr) -> Self {
        self.packet.yiaddr = address;
        self
    }

    /// The options, to be added to.
    pub fn options(&mut self) -> &mut Options {
        &mut self.packet.options
    }

    /// Tells the client what to boot, from `server`. Firmware looks in different places for it: in the fixed fields
    /// (`siaddr`, `sname`, `file`) or in options 66 and 67; it stands in both. A name that is longer than `file` stands
    /// in option 67 alone (RFC 2132 §9.5).
    #[must_use]
    pub fn boot(mut self, info: &BootInfo, server: Ipv4Addr) -> Self {
        self.packet.siaddr = server;
        self.packet.sname = server.to_string().into_bytes();
        if info.file.len() <= MAX_FILE_NAME_BYTES {
            self.packet.file = info.file.clone().into_bytes();
        }
        self.packet.options.set(options::TFTP_SERVER_NAME, server.to_string());
        self.packet.options.set(options::BOOT_FILE, info.file.clone());
        if let Some(class) = info.vendor_class {
            self.packet.options.set(options::VENDOR_CLASS, class);
        }
        self
    }

    /// The finished answer.
    ///
    /// # Errors
    /// [`PacketError::ReplyTooLong`]: the client takes no message so long.
    pub fn finish(mut self) -> Result<Reply, PacketError> {
        let to = self.destination();
        // RFC 2131 §4.3.2: the relay agent must broadcast a NAK, because the client's address may be wrong.
        if self.kind == ReplyType::Nak && !self.message.giaddr.is_unspecified() {
            self.packet.broadcast = true;
        }
        let bytes = self.packet.encode();
        let max = self.message.max_message_bytes;
        if bytes.len() > max {
            return Err(PacketError::ReplyTooLong { length: bytes.len(), max });
        }
        Ok(Reply { bytes, to })
    }

    /// RFC 2131 §4.1. Where a client without an address could take unicast, we broadcast all the same, as the RFC allows:
    /// unicast to an address that answers no ARP needs a raw socket.
    fn destination(&self) -> SocketAddrV4 {
        let ClientMessage { giaddr, ciaddr, .. } = *self.message;
        if !giaddr.is_unspecified() {
            SocketAddrV4::new(giaddr, SERVER_PORT)
        } else if self.kind != ReplyType::Nak && !ciaddr.is_unspecified() && !self.message.broadcast {
            SocketAddrV4::new(ciaddr, CLIENT_PORT)
        } else {
            SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT)
        }
    }
}
