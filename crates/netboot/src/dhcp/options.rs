//! DHCP options: the codes we use, and a set of options read from and written to the wire.
//!
//! An option that occurs several times in a packet is one option, concatenated (RFC 3396 §7); one longer than 255 bytes
//! is split when written. Option overload (52) makes the `file` and `sname` fields carry options as well.
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::packet::PacketError;

/// Filler between options (RFC 2132 §3.1).
pub const PAD: u8 = 0;
/// Subnet mask (RFC 2132 §3.3).
pub const SUBNET_MASK: u8 = 1;
/// Routers (RFC 2132 §3.5).
pub const ROUTERS: u8 = 3;
/// Name servers (RFC 2132 §3.8).
pub const DNS_SERVERS: u8 = 6;
/// The client's host name (RFC 2132 §3.14).
pub const HOST_NAME: u8 = 12;
/// Vendor-specific information; PXE's own options are encapsulated in it (RFC 2132 §8.4).
pub const VENDOR_SPECIFIC: u8 = 43;
/// The address that a client asks for (RFC 2132 §9.1).
pub const REQUESTED_ADDRESS: u8 = 50;
/// How long an address is lent, in seconds (RFC 2132 §9.2).
pub const LEASE_TIME: u8 = 51;
/// `file` or `sname` carry options (RFC 2132 §9.3).
pub const OVERLOAD: u8 = 52;
/// DHCP message type (RFC 2132 §9.6).
pub const MESSAGE_TYPE: u8 = 53;
/// The server's address, as its identity (RFC 2132 §9.7).
pub const SERVER_ID: u8 = 54;
/// What a client would like to be told (RFC 2132 §9.8).
pub const PARAMETER_LIST: u8 = 55;
/// Why, in a NAK (RFC 2132 §9.9).
pub const ERROR_MESSAGE: u8 = 56;
/// The longest message that the sender takes (RFC 2132 §9.10).
pub const MAX_MESSAGE_SIZE: u8 = 57;
/// T1: when to renew (RFC 2132 §9.11).
pub const RENEWAL_TIME: u8 = 58;
/// T2: when to rebind (RFC 2132 §9.12).
pub const REBINDING_TIME: u8 = 59;
/// Vendor class: `PXEClient...`, `HTTPClient...` (RFC 2132 §9.13).
pub const VENDOR_CLASS: u8 = 60;
/// Client identifier (RFC 2132 §9.14).
pub const CLIENT_ID: u8 = 61;
/// Boot server name (RFC 2132 §9.4).
pub const TFTP_SERVER_NAME: u8 = 66;
/// Boot file name (RFC 2132 §9.5).
pub const BOOT_FILE: u8 = 67;
/// User class (RFC 3004); iPXE says here that it is iPXE.
pub const USER_CLASS: u8 = 77;
/// What a relay agent adds (RFC 3046).
pub const RELAY_AGENT: u8 = 82;
/// Client system architecture (RFC 4578 §2.1).
pub const ARCHITECTURE: u8 = 93;
/// Client machine identifier: its SMBIOS UUID (RFC 4578 §2.3).
pub const MACHINE_ID: u8 = 97;
/// iPXE's own encapsulated options.
pub const IPXE: u8 = 175;
/// End of the options (RFC 2132 §3.2).
pub const END: u8 = 255;

/// PXE discovery control, inside option 43 (PXE 2.1 §2.2.1, tag 6).
pub const PXE_DISCOVERY_CONTROL: u8 = 6;
/// Discovery control bit 3: download the boot file named here; no menu, no boot server discovery.
pub const PXE_USE_BOOT_FILE: u8 = 8;
/// The boot item that a client picked, inside option 43 (PXE 2.1 §2.2.1, tag 71).
pub const PXE_BOOT_ITEM: u8 = 71;
/// iPXE: no proxyDHCP offer will follow, do not wait for one; inside option 175.
pub const IPXE_NO_PROXY_DHCP: u8 = 176;

/// A set of options. Its size is bounded by the packet it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(BTreeMap<u8, Vec<u8>>);

impl Options {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the options in `field` to the set, up to the end mark or the end of the field.
    ///
    /// # Errors
    /// [`PacketError::OptionPastEnd`].
    pub fn read(&mut self, mut field: &[u8]) -> Result<(), PacketError> {
        loop {
            field = match field {
                // A missing end mark is forgiven: ROMs exist that fill the packet to its brim.
                [] | [END, ..] => return Ok(()),
                [PAD, rest @ ..] => rest,
                [code, length, rest @ ..] => {
                    let Some((value, rest)) = rest.split_at_checked(usize::from(*length)) else {
                        return Err(PacketError::OptionPastEnd {
                            code: *code,
                            length: *length,
                            left: rest.len(),
                        });
                    };
                    // RFC 3396 §7: parts of one option are concatenated in the order in which they stand.
                    self.0.entry(*code).or_default().extend_from_slice(value);
                    rest
                }
                [code] => return Err(PacketError::OptionPastEnd { code: *code, length: 0, left: 0 }),
            };
        }
    }

    /// The value of an option.
    #[must_use]
    pub fn get(&self, code: u8) -> Option<&[u8]> {
        self.0.get(&code).map(Vec::as_slice)
    }

    /// The value of an option that is one byte.
    #[must_use]
    pub fn byte(&self, code: u8) -> Option<u8> {
        self.array(code).map(|[byte]| byte)
    }

    /// The value of an option that is one 16-bit number.
    #[must_use]
    pub fn u16(&self, code: u8) -> Option<u16> {
        self.array(code).map(u16::from_be_bytes)
    }

    /// The value of an option that is one 32-bit number.
    #[must_use]
    pub fn u32(&self, code: u8) -> Option<u32> {
        self.array(code).map(u32::from_be_bytes)
    }

    /// The value of an option that is one IPv4 address.
    #[must_use]
    pub fn address(&self, code: u8) -> Option<Ipv4Addr> {
        self.array::<4>(code).map(Ipv4Addr::from)
    }

    fn array<const N: usize>(&self, code: u8) -> Option<[u8; N]> {
        self.get(code)?.try_into().ok()
    }

    /// Sets an option.
    pub fn set(&mut self, code: u8, value: impl Into<Vec<u8>>) {
        self.0.insert(code, value.into());
    }

    /// Sets an option to a list of addresses; an empty list sets nothing.
    pub fn set_addresses(&mut self, code: u8, addresses: &[Ipv4Addr]) {
        if !addresses.is_empty() {
            self.set(code, addresses.iter().flat_map(Ipv4Addr::octets).collect::<Vec<u8>>());
        }
    }

    /// Writes the set, with its end mark: the message type first, as everybody else does; the relay agent's option
    /// last (RFC 3046 §2.1).
    pub fn write(&self, out: &mut Vec<u8>) {
        let middle = self.0.keys().copied().filter(|&code| code != MESSAGE_TYPE && code != RELAY_AGENT);
        for code in [MESSAGE_TYPE].into_iter().chain(middle).chain([RELAY_AGENT]) {
            if let Some(value) = self.get(code) {
                write_option(code, value, out);
            }
        }
        out.push(END);
    }
}

/// Writes one option, in parts where it is longer than an option can be (RFC 3396 §6).
pub fn write_option(code: u8, value: &[u8], out: &mut Vec<u8>) {
    let mut rest = value;
    loop {
        let (part, more) = rest.split_at_checked(usize::from(u8::MAX)).unwrap_or((rest, &[]));
        out.push(code);
        out.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
        out.extend_from_slice(part);
        rest = more;
        if rest.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_longer_than_255_bytes_survives_writing_and_reading() {
        let mut options = Options::new();
        options.set(BOOT_FILE, vec![7; 700]);
        options.set(MESSAGE_TYPE, [2]);
        let mut wire = Vec::new();
        options.write(&mut wire);
        assert_eq!(wire[..3], [MESSAGE_TYPE, 1, 2]);
        let mut read = Options::new();
        read.read(&wire).unwrap();
        assert_eq!(read, options);
    }

    #[test]
    fn relay_agent_option_is_written_last() {
        let mut options = Options::new();
        options.set(RELAY_AGENT, [1, 2, 9, 9]);
        options.set(IPXE, [1]);
        let mut wire = Vec::new();
        options.write(&mut wire);
        assert_eq!(wire, [IPXE, 1, 1, RELAY_AGENT, 4, 1, 2, 9, 9, END]);
    }

    #[test]
    fn option_past_the_end_is_rejected_with_its_code() {
        let error = Options::new().read(&[PAD, HOST_NAME, 4, b'a']).unwrap_err();
        assert_eq!(error, PacketError::OptionPastEnd { code: HOST_NAME, length: 4, left: 1 });
        assert!(Options::new().read(&[HOST_NAME]).is_err());
    }

    #[test]
    fn numbers_of_the_wrong_length_are_absent() {
        let mut options = Options::new();
        options.set(SERVER_ID, [10, 0, 0]);
        options.set(ARCHITECTURE, [0, 7, 0]);
        assert_eq!(options.address(SERVER_ID), None);
        assert_eq!(options.u16(ARCHITECTURE), None);
    }
}
