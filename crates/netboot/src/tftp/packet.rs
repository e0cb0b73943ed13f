//! TFTP packets (RFC 1350 §5, RFC 2347).

/// The longest request that we read (RFC 2347 §2: a request has 512 bytes at most).
pub const MAX_REQUEST_BYTES: usize = 512;
/// The longest text of an error that is kept.
const MAX_ERROR_TEXT_BYTES: usize = 128;

/// What a client may send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPacket {
    /// RRQ.
    Read(ReadRequest),
    /// WRQ.
    Write,
    /// ACK of this block.
    Ack(u16),
    /// ERROR: it gives up.
    Error {
        /// RFC 1350, appendix.
        code: u16,
        /// For people; printable ASCII.
        text: String,
    },
}

/// A read request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The file's name.
    pub file: String,
    /// `octet`, `netascii`.
    pub mode: Mode,
    /// The options that we know.
    pub options: RequestedOptions,
}

/// The transfer mode (RFC 1350 §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Bytes as they are.
    Octet,
    /// Text with its line ends converted, mail, or what nobody knows.
    Other,
}

/// The options of a request that we know, where their values are legal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestedOptions {
    /// Block size: 8 to 65464 (RFC 2348).
    pub blksize: Option<u16>,
    /// Retransmission after so many seconds: 1 to 255 (RFC 2349).
    pub timeout_s: Option<u8>,
    /// It asks for the file's size (RFC 2349).
    pub tsize: bool,
    /// Blocks before an acknowledgement: 1 to 65535 (RFC 7440).
    pub windowsize: Option<u16>,
}

/// Why some bytes are no TFTP that a client may send.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TftpError {
    /// Not even an opcode and a number.
    #[error("the packet has {0} bytes only")]
    TooShort(usize),
    /// A request longer than any may be.
    #[error("the request has {0} bytes; {MAX_REQUEST_BYTES} is the most")]
    TooLong(usize),
    /// An opcode that no client sends.
    #[error("opcode {0} is none of a client's")]
    Opcode(u16),
    /// A name or an option without its end.
    #[error("the request's strings are not all ended by a NUL")]
    Unterminated,
    /// A name that is no text.
    #[error("the file's name is not printable ASCII")]
    Name,
}

/// TFTP's error codes (RFC 1350, appendix).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// See the text.
    Undefined = 0,
    /// No such file.
    NotFound = 1,
    /// Not allowed.
    AccessViolation = 2,
    /// Not what TFTP is.
    IllegalOperation = 4,
}

impl ClientPacket {
    /// Reads a packet.
    ///
    /// # Errors
    /// Why it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, TftpError> {
        let (opcode, rest) = bytes.split_first_chunk().ok_or(TftpError::TooShort(bytes.len()))?;
        let number = || {
            rest.first_chunk().map(|pair| u16::from_be_bytes(*pair)).ok_or(TftpError::TooShort(bytes.len()))
        };
        match u16::from_be_bytes(*opcode) {
            1 if bytes.len() > MAX_REQUEST_BYTES => Err(TftpError::TooLong(bytes.len())),
            1 => read_request(rest).map(Self::Read),
            2 => Ok(Self::Write),
            4 => number().map(Self::Ack),
            5 => {
                let text = rest.get(2..).unwrap_or_default().iter().take(MAX_ERROR_TEXT_BYTES);
                let text = text.take_while(|&&byte| byte != 0).map(|&byte| printable(byte)).collect();
                Ok(Self::Error { code: number()?, text })
            }
            other => Err(TftpError::Opcode(other)),
        }
    }
}

fn printable(byte: u8) -> char {
    if byte == b' ' || byte.is_ascii_graphic() { char::from(byte) } else { '?' }
}

fn read_request(fields: &[u8]) -> Result<ReadRequest, TftpError> {
    let (last, strings) = fields.split_last().ok_or(TftpError::Unterminated)?;
    // Some ROMs pad their request with more NULs: those are empty options, which nobody knows.
    if *last != 0 {
        return Err(TftpError::Unterminated);
    }
    let mut strings = strings.split(|&byte| byte == 0);
    let (Some(file), Some(mode)) = (strings.next(), strings.next()) else {
        return Err(TftpError::Unterminated);
    };
    if file.is_empty() || !file.iter().all(u8::is_ascii_graphic) {
        return Err(TftpError::Name);
    }
    let mut options = RequestedOptions::default();
    while let (Some(name), Some(value)) = (strings.next(), strings.next()) {
        // RFC 2347 §2: in any case, any order; what a server does not know, it leaves out of its answer.
        let number = || std::str::from_utf8(value).ok()?.parse::<u64>().ok();
        match name.to_ascii_lowercase().as_slice() {
            b"blksize" => {
                options.blksize =
                    number().and_then(|n| u16::try_from(n).ok()).filter(|n| (8..=65464).contains(n));
            }
            b"timeout" => options.timeout_s = number().and_then(|n| u8::try_from(n).ok()).filter(|&n| n > 0),
            b"tsize" => options.tsize = number().is_some(),
            b"windowsize" => {
                options.windowsize = number().and_then(|n| u16::try_from(n).ok()).filter(|&n| n > 0);
            }
            _ => {}
        }
    }
    let mode = if mode.eq_ignore_ascii_case(b"octet") { Mode::Octet } else { Mode::Other };
    Ok(ReadRequest { file: String::from_utf8_lossy(file).into_owned(), mode, options })
}

/// A DATA packet.
#[must_use]
pub fn data(block: u16, bytes: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(bytes.len().saturating_add(4));
    packet.extend([0, 3]);
    packet.extend(block.to_be_bytes());
    packet.extend_from_slice(bytes);
    packet
}

/// An OACK packet (RFC 2347 §2).
#[must_use]
pub fn option_acknowledgement(options: &[(&str, u64)]) -> Vec<u8> {
    let mut packet = vec![0, 6];
    for (name, value) in options {
        packet.extend_from_slice(name.as_bytes());
        packet.push(0);
        packet.extend_from_slice(value.to_string().as_bytes());
        packet.push(0);
    }
    packet
}

/// An ERROR packet.
#[must_use]
pub fn error(code: ErrorCode, text: &str) -> Vec<u8> {
    let mut packet = vec![0, 5, 0, code as u8];
    packet.extend_from_slice(text.as_bytes());
    packet.push(0);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> ReadRequest {
        match ClientPacket::decode(bytes).unwrap() {
            ClientPacket::Read(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn request_of_a_uefi_firmware_is_read() {
        let request =
            read(b"\x00\x01ipxe.efi\x00octet\x00tsize\x000\x00blksize\x001468\x00windowsize\x004\x00");
        assert_eq!(request.file, "ipxe.efi");
        assert_eq!(request.mode, Mode::Octet);
        let expected =
            RequestedOptions { blksize: Some(1468), timeout_s: None, tsize: true, windowsize: Some(4) };
        assert_eq!(request.options, expected);
    }

    #[test]
    fn illegal_option_values_are_left_out() {
        let request = read(
            b"\x00\x01f\x00OCTET\x00BLKSIZE\x007\x00timeout\x000\x00windowsize\x00-1\x00multicast\x00\x00",
        );
        assert_eq!((request.mode, request.options), (Mode::Octet, RequestedOptions::default()));
    }

    #[test]
    fn malformed_requests_are_rejected() {
        assert_eq!(ClientPacket::decode(b"\x00"), Err(TftpError::TooShort(1)));
        assert_eq!(ClientPacket::decode(b"\x00\x04\x00"), Err(TftpError::TooShort(3)));
        assert_eq!(ClientPacket::decode(b"\x00\x01"), Err(TftpError::Unterminated));
        assert_eq!(ClientPacket::decode(b"\x00\x01f\x00octet"), Err(TftpError::Unterminated));
        assert_eq!(ClientPacket::decode(b"\x00\x01f\x00"), Err(TftpError::Unterminated));
        assert_eq!(ClientPacket::decode(b"\x00\x01a\nb\x00octet\x00"), Err(TftpError::Name));
        assert_eq!(ClientPacket::decode(&[0, 9, 0, 0]), Err(TftpError::Opcode(9)));
        let long = [b"\x00\x01f\x00octet\x00".to_vec(), vec![0; 600]].concat();
        assert!(matches!(ClientPacket::decode(&long), Err(TftpError::TooLong(_))));
    }

    #[test]
    fn clients_error_text_is_made_printable() {
        let packet = ClientPacket::decode(b"\x00\x05\x00\x08no\nway\x00").unwrap();
        assert_eq!(packet, ClientPacket::Error { code: 8, text: "no?way".to_owned() });
    }
}
