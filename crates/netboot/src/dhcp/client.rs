//! A client's message, checked: what servers and proxies act on.
use std::net::Ipv4Addr;

use super::options::{self, Options};
use super::packet::{Op, Packet, PacketError};
use crate::director::{ClientKind, DhcpClient, MacAddress};

/// What a DHCP message takes where the client does not say (RFC 2131 §2: a 576-byte datagram less IP and UDP headers).
const DEFAULT_MESSAGE_BYTES: u16 = 548;
/// The longest answer that we write, whatever a client says it takes: it fits into an Ethernet frame.
const LONGEST_MESSAGE_BYTES: u16 = 1472;
/// IP and UDP headers, which option 57 counts.
const HEADERS_BYTES: u16 = 28;
/// The longest client identifier that is kept and sent back. RFC 4361 identifiers have under 150 bytes.
const MAX_CLIENT_ID_BYTES: usize = 255;

/// What a client may send (RFC 2132 §9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// Is there a server?
    Discover,
    /// I take this offer; or: I want to keep this address.
    Request,
    /// Somebody else has the address that you gave me.
    Decline,
    /// I need the address no more.
    Release,
    /// I have an address; tell me the rest.
    Inform,
}

/// A client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMessage {
    /// What it wants.
    pub kind: MessageType,
    /// Who it is.
    pub firmware: ClientKind,
    /// Transaction.
    pub xid: u32,
    /// The relays that it crossed.
    pub hops: u8,
    /// It cannot take unicast yet.
    pub broadcast: bool,
    /// The address that it has.
    pub ciaddr: Ipv4Addr,
    /// The relay agent that passed it on.
    pub giaddr: Ipv4Addr,
    /// Its hardware address.
    pub mac: MacAddress,
    /// The address that it asks for.
    pub requested: Option<Ipv4Addr>,
    /// The server that it means.
    pub server_id: Option<Ipv4Addr>,
    /// Its identifier, to be sent back (RFC 6842 §3).
    pub client_id: Option<Vec<u8>>,
    /// Its architecture's number, where it has one.
    pub architecture: Option<u16>,
    /// Its vendor class says PXE.
    pub pxe: bool,
    /// Option 97 as it came, to be sent back (RFC 4578 §2.3).
    pub machine_id: Option<Vec<u8>>,
    /// What the relay agent added, to be sent back (RFC 3046 §2.2).
    pub relay_agent: Option<Vec<u8>>,
    /// The boot item that a PXE client picked, to be sent back.
    pub boot_item: Option<Vec<u8>>,
    /// The longest message that it takes.
    pub max_message_bytes: usize,
}

impl ClientMessage {
    /// Reads a client's message.
    ///
    /// # Errors
    /// Whatever makes it none.
    pub fn decode(bytes: &[u8]) -> Result<Self, PacketError> {
        let packet = Packet::decode(bytes)?;
        if packet.op != Op::Request {
            return Err(PacketError::NotARequest);
        }
        let options = &packet.options;
        let kind = match options.byte(options::MESSAGE_TYPE) {
            Some(1) => MessageType::Discover,
            Some(3) => MessageType::Request,
            Some(4) => MessageType::Decline,
            Some(7) => MessageType::Release,
            Some(8) => MessageType::Inform,
            Some(2 | 5 | 6) => return Err(PacketError::NotARequest),
            other => return Err(PacketError::MessageType(other)),
        };
        let nonzero = |address: &Ipv4Addr| !address.is_unspecified();
        let vendor_class = options.get(options::VENDOR_CLASS).unwrap_or_default();
        let architecture = architecture(options, vendor_class);
        let max_message = options.u16(options::MAX_MESSAGE_SIZE).map_or(DEFAULT_MESSAGE_BYTES, |size| {
            size.saturating_sub(HEADERS_BYTES).clamp(DEFAULT_MESSAGE_BYTES, LONGEST_MESSAGE_BYTES)
        });
        Ok(Self {
            kind,
            firmware: client_kind(options, vendor_class, architecture),
            xid: packet.xid,
            hops: packet.hops,
            broadcast: packet.broadcast,
            ciaddr: packet.ciaddr,
            giaddr: packet.giaddr,
            mac: packet.mac,
            requested: options.address(options::REQUESTED_ADDRESS).filter(nonzero),
            server_id: options.address(options::SERVER_ID).filter(nonzero),
            client_id: kept(options, options::CLIENT_ID).filter(|id| id.len() <= MAX_CLIENT_ID_BYTES),
            architecture,
            pxe: vendor_class.starts_with(b"PXEClient"),
            // RFC 4578 §2.3: type 0 and 16 bytes. Anything else is not worth sending back.
            machine_id: kept(options, options::MACHINE_ID).filter(|id| id.len() == 17),
            relay_agent: kept(options, options::RELAY_AGENT),
            boot_item: boot_item(options),
            max_message_bytes: usize::from(max_message),
        })
    }

    /// The client's SMBIOS UUID.
    #[must_use]
    pub fn uuid(&self) -> Option<[u8; 16]> {
        match self.machine_id.as_deref()? {
            [0, uuid @ ..] => uuid.try_into().ok(),
            _ => None,
        }
    }

    /// As the director knows it.
    #[must_use]
    pub fn client(&self) -> DhcpClient {
        DhcpClient { mac: self.mac, kind: self.firmware, uuid: self.uuid() }
    }
}

fn kept(options: &Options, code: u8) -> Option<Vec<u8>> {
    options.get(code).filter(|value| !value.is_empty()).map(<[u8]>::to_vec)
}

/// The architecture in option 93, or else in the vendor class `PXEClient:Arch:00007:UNDI:003016` (RFC 4578 §2.1
/// and §2.4).
fn architecture(options: &Options, vendor_class: &[u8]) -> Option<u16> {
    // RFC 4578 §2.1: a list; the first is what runs.
    let listed = options
        .get(options::ARCHITECTURE)
        .and_then(<[u8]>::first_chunk)
        .map(|pair| u16::from_be_bytes(*pair));
    listed.or_else(|| {
        let text = std::str::from_utf8(vendor_class).ok()?;
        let (_, after) = text.split_once(":Arch:")?;
        after.get(..5)?.parse().ok()
    })
}

fn client_kind(options: &Options, vendor_class: &[u8], architecture: Option<u16>) -> ClientKind {
    if options.get(options::USER_CLASS).is_some_and(says_ipxe) {
        return ClientKind::Ipxe;
    }
    let (pxe, http) = (vendor_class.starts_with(b"PXEClient"), vendor_class.starts_with(b"HTTPClient"));
    // IANA "Processor Architecture Types"; RFC 4578 §2.1 gives the first ten, with 7 and 9 mixed up: firmware
    // uses 7 for x64, some uses 9.
    match (pxe, http, architecture) {
        (true, _, Some(0)) => ClientKind::BiosPxe,
        (true, _, Some(7 | 9)) => ClientKind::UefiX64Pxe,
        (true, _, Some(6)) => ClientKind::UefiIa32Pxe,
        (true, _, Some(11)) => ClientKind::UefiArm64Pxe,
        (_, true, Some(15)) => ClientKind::UefiIa32Http,
        (_, true, Some(16)) => ClientKind::UefiX64Http,
        (_, true, Some(19)) => ClientKind::UefiArm64Http,
        _ => ClientKind::Other,
    }
}

/// RFC 3004 §4 wants a list of length-prefixed classes; iPXE sends its name bare.
fn says_ipxe(user_class: &[u8]) -> bool {
    const NAME: &[u8] = b"iPXE";
    if user_class == NAME {
        return true;
    }
    let mut rest = user_class;
    while let [length, more @ ..] = rest {
        let Some((class, more)) = more.split_at_checked(usize::from(*length)) else { return false };
        if class == NAME {
            return true;
        }
        rest = more;
    }
    false
}

fn boot_item(options: &Options) -> Option<Vec<u8>> {
    let mut inner = Options::new();
    // What is wrong inside option 43 is no reason to refuse the packet: it belongs to the vendor.
    inner.read(options.get(options::VENDOR_SPECIFIC)?).ok()?;
    // PXE 2.1 §2.2.1: type and layer, two bytes each.
    inner.get(options::PXE_BOOT_ITEM).filter(|item| item.len() == 4).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(vendor: &[u8], architecture: Option<u16>, user_class: Option<&[u8]>) -> ClientKind {
        let mut options = Options::new();
        if let Some(architecture) = architecture {
            options.set(options::ARCHITECTURE, architecture.to_be_bytes());
        }
        if let Some(class) = user_class {
            options.set(options::USER_CLASS, class);
        }
        let found = super::architecture(&options, vendor);
        client_kind(&options, vendor, found)
    }

    #[test]
    fn architecture_and_vendor_class_tell_the_firmware() {
        let pxe = b"PXEClient:Arch:00000:UNDI:002001";
        let http = b"HTTPClient:Arch:00016:UNDI:003001";
        assert_eq!(kind_of(pxe, Some(0), None), ClientKind::BiosPxe);
        assert_eq!(kind_of(pxe, Some(7), None), ClientKind::UefiX64Pxe);
        assert_eq!(kind_of(pxe, Some(9), None), ClientKind::UefiX64Pxe);
        assert_eq!(kind_of(pxe, Some(11), None), ClientKind::UefiArm64Pxe);
        assert_eq!(kind_of(pxe, Some(6), None), ClientKind::UefiIa32Pxe);
        assert_eq!(kind_of(pxe, Some(10), None), ClientKind::Other);
        assert_eq!(kind_of(http, Some(15), None), ClientKind::UefiIa32Http);
        assert_eq!(kind_of(http, Some(16), None), ClientKind::UefiX64Http);
        assert_eq!(kind_of(http, Some(19), None), ClientKind::UefiArm64Http);
        assert_eq!(kind_of(b"MSFT 5.0", None, None), ClientKind::Other);
        assert_eq!(kind_of(b"", Some(7), None), ClientKind::Other);
    }

    #[test]
    fn architecture_is_found_in_the_vendor_class_where_option_93_is_absent() {
        assert_eq!(kind_of(b"PXEClient:Arch:00007:UNDI:003016", None, None), ClientKind::UefiX64Pxe);
        assert_eq!(kind_of(b"PXEClient:Arch:000", None, None), ClientKind::Other);
    }

    #[test]
    fn ipxe_is_recognised_bare_and_in_a_list() {
        let pxe = b"PXEClient:Arch:00007:UNDI:003010";
        assert_eq!(kind_of(pxe, Some(7), Some(b"iPXE")), ClientKind::Ipxe);
        assert_eq!(kind_of(pxe, Some(7), Some(b"\x04iPXE")), ClientKind::Ipxe);
        assert_eq!(kind_of(pxe, Some(7), Some(b"\x03abc\x04iPXE")), ClientKind::Ipxe);
        assert_eq!(kind_of(pxe, Some(7), Some(b"\x05iPXE")), ClientKind::UefiX64Pxe);
        assert_eq!(kind_of(pxe, Some(7), Some(b"\x00\x00\x00")), ClientKind::UefiX64Pxe);
    }
}
