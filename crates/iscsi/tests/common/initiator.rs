//! An initiator that does as it is told, wrong things too.
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::{PATIENCE, TARGET};

/// A connection of an initiator.
pub(crate) struct Initiator {
    pub(crate) stream: TcpStream,
    pub(crate) cmd_sn: u32,
    next_itt: u32,
}

/// A PDU from the target.
#[derive(Clone, Debug)]
pub(crate) struct Pdu {
    pub(crate) header: [u8; 48],
    pub(crate) data: Vec<u8>,
}

impl Pdu {
    pub(crate) fn opcode(&self) -> u8 {
        self.header[0] & 0x3F
    }

    pub(crate) fn u32_at(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.header[at..at + 4].try_into().unwrap())
    }
}

/// One PDU as bytes; the data segment's length is filled in.
pub(crate) fn pdu(mut header: [u8; 48], data: &[u8]) -> Vec<u8> {
    header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

impl Initiator {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, cmd_sn: 1, next_itt: 1 }
    }

    /// Logs in to the lab's disk; `Err` with the status where it is refused.
    pub(crate) fn login(address: SocketAddr, initiator: &str, isid: u8) -> Result<Self, u16> {
        Self::login_with(address, initiator, isid, TARGET, "")
    }

    pub(crate) fn login_with(
        address: SocketAddr,
        initiator: &str,
        isid: u8,
        target: &str,
        more: &str,
    ) -> Result<Self, u16> {
        let mut connection = Self::connect(address);
        let answer = connection.try_login(initiator, isid, target, more).unwrap();
        match u16::from_be_bytes([answer.header[36], answer.header[37]]) {
            0 => Ok(connection),
            status => Err(status),
        }
    }

    pub(crate) fn try_login(
        &mut self,
        initiator: &str,
        isid: u8,
        target: &str,
        more: &str,
    ) -> io::Result<Pdu> {
        let mut header = [0; 48];
        header[0] = 0x43;
        header[1] = 0x87;
        header[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, isid]);
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        let text = format!("InitiatorName={initiator}\0TargetName={target}\0InitialR2T=No\0{more}\0");
        self.send(header, text.as_bytes())?;
        self.receive()
    }

    pub(crate) fn send(&mut self, header: [u8; 48], data: &[u8]) -> io::Result<()> {
        self.stream.write_all(&pdu(header, data))
    }

    pub(crate) fn receive(&mut self) -> io::Result<Pdu> {
        let mut header = [0; 48];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(length);
        Ok(Pdu { header, data })
    }

    /// The header of a command to LUN 1, and its task tag.
    pub(crate) fn command(&mut self, flags: u8, expected: u32, cdb: &[u8]) -> ([u8; 48], u32) {
        let mut header = [0; 48];
        header[0] = 0x01;
        header[1] = flags;
        header[9] = 1;
        let itt = self.next_itt;
        self.next_itt += 1;
        header[16..20].copy_from_slice(&itt.to_be_bytes());
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        (header, itt)
    }

    /// Sends READ(10).
    pub(crate) fn start_read(&mut self, lba: u32, blocks: u16) -> io::Result<u32> {
        let (header, itt) = self.command(0xC0, u32::from(blocks) * 512, &cdb10(0x28, lba, blocks));
        self.send(header, &[])?;
        Ok(itt)
    }

    /// Sends WRITE(10) with all of its data.
    pub(crate) fn start_write(&mut self, lba: u32, data: &[u8]) -> io::Result<u32> {
        let blocks = u16::try_from(data.len() / 512).unwrap();
        let (header, itt) = self.command(0xA0, data.len() as u32, &cdb10(0x2A, lba, blocks));
        self.send(header, data)?;
        Ok(itt)
    }

    pub(crate) fn read(&mut self, lba: u32, blocks: u16) -> io::Result<Vec<u8>> {
        self.start_read(lba, blocks)?;
        let mut bytes = Vec::new();
        loop {
            let pdu = self.receive()?;
            match pdu.opcode() {
                0x25 => {
                    assert_eq!(pdu.u32_at(40) as usize, bytes.len(), "Buffer Offset");
                    bytes.extend_from_slice(&pdu.data);
                    if pdu.header[1] & 1 != 0 {
                        return Ok(bytes);
                    }
                }
                _ => return Err(io::Error::other(format!("{pdu:?}"))),
            }
        }
    }

    pub(crate) fn write(&mut self, lba: u32, data: &[u8]) -> io::Result<()> {
        self.start_write(lba, data)?;
        let answer = self.receive()?;
        match (answer.opcode(), answer.header[3]) {
            (0x21, 0) => Ok(()),
            _ => Err(io::Error::other(format!("{answer:?}"))),
        }
    }

    /// Sends a task management request.
    pub(crate) fn manage(&mut self, function: u8, referenced: u32) -> io::Result<()> {
        let (mut header, _) = self.command(0x80 | function, referenced, &[]);
        header[0] = 0x42;
        self.cmd_sn = self.cmd_sn.wrapping_sub(1);
        self.send(header, &[])
    }

    pub(crate) fn logout(&mut self) -> io::Result<Pdu> {
        let (mut header, _) = self.command(0x80, 0, &[]);
        header[0] = 0x46;
        self.cmd_sn = self.cmd_sn.wrapping_sub(1);
        self.send(header, &[])?;
        self.receive()
    }

    /// Whether the target closes the connection, whatever it still sends.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
        }
    }
}

pub(crate) fn cdb10(opcode: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = blocks.to_be_bytes();
    [opcode, 0, a, b, c, d, 0, high, low, 0]
}
