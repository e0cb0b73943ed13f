//! An iSCSI initiator that can do two things: log in without authentication, and read one block (RFC 7143 §11).
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail, ensure};

/// The basic header segment of every PDU.
const HEADER_BYTES: usize = 48;
/// What is read: eight logical blocks of 512 bytes.
const READ_BYTES: u32 = 4096;

/// A session that is held.
pub(super) struct Session {
    stream: TcpStream,
}

impl Session {
    /// Logs in over `stream` as initiator `number`.
    pub(super) fn log_in(mut stream: TcpStream, target: &str, number: u32) -> Result<Self> {
        let keys = format!(
            "InitiatorName=iqn.2026-11.org.headwater.bench:{number}\0TargetName={target}\0SessionType=Normal\0HeaderDigest=None\0DataDigest=None\0"
        );
        let mut pdu = header(0x43, 0x87, u32::try_from(keys.len())?, 1);
        // ISID in the random format, different for each session (§11.12.5).
        pdu[8..14].copy_from_slice(&[
            0x80,
            0,
            0,
            number.to_be_bytes()[1],
            number.to_be_bytes()[2],
            number.to_be_bytes()[3],
        ]);
        // CmdSN stands where other requests have the expected length.
        pdu[24..28].copy_from_slice(&1_u32.to_be_bytes());
        pdu.extend_from_slice(keys.as_bytes());
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        stream.write_all(&pdu)?;
        let (answer, _) = receive(&mut stream)?;
        // §11.13.5: status class and detail.
        ensure!(answer[0] == 0x23 && answer[36..38] == [0, 0], "login refused: {:02x?}", &answer[36..38]);
        Ok(Self { stream })
    }

    /// READ(10) of the disk's first blocks on LUN 1; so that the session has used what it uses.
    pub(super) fn read(&mut self) -> Result<()> {
        let mut pdu = header(0x01, 0xC1, 0, 2);
        pdu[9] = 1;
        pdu[20..24].copy_from_slice(&READ_BYTES.to_be_bytes());
        pdu[24..28].copy_from_slice(&1_u32.to_be_bytes());
        pdu[32] = 0x28;
        pdu[32 + 8] = u8::try_from(READ_BYTES / 512)?;
        self.stream.write_all(&pdu)?;
        let mut data_bytes = 0;
        loop {
            let (answer, data) = receive(&mut self.stream)?;
            data_bytes += data.len();
            match answer[0] {
                // Data-In with status, or without (§11.7.3).
                0x25 if answer[1] & 1 == 1 => break,
                0x25 => {}
                // A first command may only hear that the disk is new to it (UNIT ATTENTION).
                0x21 => return Ok(()),
                other => bail!("an answer with opcode {other:#04x}"),
            }
        }
        ensure!(data_bytes == READ_BYTES as usize, "{data_bytes} bytes instead of {READ_BYTES}");
        Ok(())
    }
}

/// A connection from an address of its own among 127.0.0.0/8: a server lets one address have few.
pub(super) fn connect(server: SocketAddr, number: u32) -> Result<TcpStream> {
    let [_, _, high, low] = number.to_be_bytes();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 1, high, low], 0)).into())?;
    socket.connect(&server.into()).with_context(|| format!("connection {number} failed"))?;
    Ok(socket.into())
}

fn header(opcode: u8, flags: u8, data_bytes: u32, itt: u32) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES];
    header[0] = opcode;
    header[1] = flags;
    header[5..8].copy_from_slice(&data_bytes.to_be_bytes()[1..]);
    header[16..20].copy_from_slice(&itt.to_be_bytes());
    header
}

fn receive(stream: &mut TcpStream) -> Result<([u8; HEADER_BYTES], Vec<u8>)> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let bytes = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
    let mut data = vec![0; bytes.next_multiple_of(4)];
    stream.read_exact(&mut data)?;
    data.truncate(bytes);
    Ok((header, data))
}
