//! A blocking initiator with any number of commands in flight, for measuring targets: ours and others'.
//!
//! It logs in without authentication (RFC 7143 §6.3), uses one connection and one LUN, asks for R2Ts before it sends data, and
//! throws away what it reads. A target that breaks the protocol gets an error and no memory beyond one PDU's.
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The basic header segment (RFC 7143 §11.2.1).
const HEADER_BYTES: usize = 48;

/// The longest data segment that we say we take, and send (§13.12).
const SEGMENT_BYTES: u32 = 256 * 1024;

/// What a target takes that does not say (§13.12).
const DEFAULT_SEGMENT_BYTES: usize = 8192;

/// The most rounds of a login: ours needs one, and a target may answer in parts (§6.3.3).
const MAX_LOGIN_ROUNDS: usize = 8;

/// How often a new session may hear of what happened before it (UNIT ATTENTION, SAM-5 §5.14).
const MAX_ATTENTIONS: usize = 16;

/// How often a target may ask us something while we wait for one answer.
const MAX_INTERRUPTIONS: usize = 100_000;

/// What an initiator wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Its own name.
    pub initiator: String,
    /// The target's name.
    pub target: String,
    /// The unit.
    pub lun: u16,
    /// Tells sessions of one initiator apart: the qualifier of an ISID of the random type (§11.12.5).
    pub number: u32,
    /// How long the target may be silent.
    pub patience: Duration,
}

/// Why it goes no further.
#[derive(Debug, thiserror::Error)]
pub enum InitiatorError {
    /// The connection.
    #[error("the connection to the target failed: {0}")]
    Connection(#[from] io::Error),
    /// Login status class and detail (§11.13.5).
    #[error("the target refuses the login with status {0:#06x}{hint}", hint = login_hint(*.0))]
    Refused(u16),
    /// The target does what it must not.
    #[error("the target breaks the protocol: {0}")]
    Protocol(&'static str),
    /// The unit cannot be used.
    #[error("the unit cannot be used: {command} ends with status {status:#04x}")]
    Unit {
        /// What was asked.
        command: &'static str,
        /// The SCSI status.
        status: u8,
    },
}

fn login_hint(status: u16) -> &'static str {
    match status {
        0x0201 => ": it wants a proof (CHAP), which this initiator does not give",
        0x0202 => ": this initiator may not use it",
        0x0203 => ": there is no such target",
        0x0204 => ": it is gone for good",
        _ => "",
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// READ(16).
    Read {
        /// The first logical block.
        lba: u64,
        /// How many.
        blocks: u32,
    },
    /// WRITE(16).
    Write {
        /// The first logical block.
        lba: u64,
        /// What: whole blocks.
        data: &'a [u8],
    },
    /// SYNCHRONIZE CACHE(10) of the whole unit.
    Flush,
    /// UNMAP of one range.
    Unmap {
        /// The first logical block.
        lba: u64,
        /// How many.
        blocks: u32,
    },
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// To which command: what [`Initiator::submit`] gave.
    pub tag: u32,
    /// The SCSI status; 0 is GOOD.
    pub status: u8,
}

/// A session.
#[derive(Debug)]
pub struct Initiator {
    stream: TcpStream,
    lun: u16,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    next_tag: u32,
    segment_bytes: usize,
    block_bytes: u32,
    blocks: u64,
    /// Of commands that have data to send: what an R2T will ask for.
    outgoing: std::collections::HashMap<u32, Vec<u8>>,
    segment: Vec<u8>,
}

type Header = [u8; HEADER_BYTES];

impl Initiator {
    /// Logs in, and learns the size of the unit.
    ///
    /// # Errors
    /// [`InitiatorError`].
    pub fn connect(target: SocketAddr, wish: &Wish) -> Result<Self, InitiatorError> {
        let stream = TcpStream::connect_timeout(&target, wish.patience)?;
        Self::log_in(stream, wish)
    }

    /// As [`connect`](Self::connect), over a connection that exists.
    ///
    /// # Errors
    /// [`InitiatorError`].
    pub fn log_in(stream: TcpStream, wish: &Wish) -> Result<Self, InitiatorError> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(wish.patience))?;
        stream.set_write_timeout(Some(wish.patience))?;
        let mut initiator = Self {
            stream,
            lun: wish.lun,
            cmd_sn: 1,
            max_cmd_sn: 1,
            exp_stat_sn: 0,
            next_tag: 1,
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            block_bytes: 512,
            blocks: 0,
            outgoing: std::collections::HashMap::new(),
            segment: Vec::new(),
        };
        initiator.negotiate(wish)?;
        initiator.attend()?;
        initiator.capacity()?;
        Ok(initiator)
    }

    /// The size of a logical block in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The size of the unit in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_bytes.into())
    }

    /// Whether the target takes another command now (CmdSN within its window, §4.2.2.1).
    #[must_use]
    pub fn has_room(&self) -> bool {
        // Serial number arithmetic (RFC 1982).
        self.max_cmd_sn.wrapping_sub(self.cmd_sn) < 1 << 31
    }

    /// Sends a command; its tag.
    ///
    /// # Errors
    /// A connection that fails.
    pub fn submit(&mut self, command: &Command<'_>) -> Result<u32, InitiatorError> {
        let mut cdb = [0; 16];
        let (flags, expected, data) = match *command {
            Command::Read { lba, blocks } => {
                cdb = cdb16(0x88, lba, blocks);
                (0xC0, u64::from(blocks).saturating_mul(self.block_bytes.into()), None)
            }
            Command::Write { lba, data } => {
                let blocks = data.len().checked_div(self.block_bytes as usize).unwrap_or(0);
                cdb = cdb16(0x8A, lba, u32::try_from(blocks).unwrap_or(u32::MAX));
                (0xA0, data.len() as u64, Some(data.to_vec()))
            }
            Command::Flush => {
                put(&mut cdb, 0, &[0x35]);
                (0x80, 0, None)
            }
            Command::Unmap { lba, blocks } => {
                // SBC-4 §5.35: one descriptor of 16 bytes behind a header of 8.
                let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
                list.extend_from_slice(&lba.to_be_bytes());
                list.extend_from_slice(&blocks.to_be_bytes());
                list.extend_from_slice(&[0; 4]);
                put(&mut cdb, 0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24]);
                (0xA0, 24, Some(list))
            }
        };
        self.command(flags, u32::try_from(expected).unwrap_or(u32::MAX), cdb, data)
    }

    /// Waits for an answer, and does what the target asks for meanwhile.
    ///
    /// # Errors
    /// A connection that fails, or a target that breaks the protocol.
    pub fn receive(&mut self) -> Result<Answer, InitiatorError> {
        for _ in 0..MAX_INTERRUPTIONS {
            let header = self.pdu()?;
            let tag = u32_at(&header, 16);
            let opcode = byte(&header, 0) & 0x3F;
            match opcode {
                // SCSI Response (§11.4): response code, then status.
                0x21 if byte(&header, 2) != 0 => {
                    return Err(InitiatorError::Protocol("a command failed at the target"));
                }
                0x21 => {
                    self.outgoing.remove(&tag);
                    return Ok(Answer { tag, status: byte(&header, 3) });
                }
                // Data-In (§11.7): with S it carries the status.
                0x25 if byte(&header, 1) & 1 != 0 => return Ok(Answer { tag, status: byte(&header, 3) }),
                0x25 => {}
                0x31 => self.send_data(&header, tag)?,
                0x20 => self.answer_ping(&header)?,
                0x32 => return Err(InitiatorError::Protocol("it ends the session (asynchronous message)")),
                _ => return Err(InitiatorError::Protocol("an answer that nothing was asked for")),
            }
        }
        Err(InitiatorError::Protocol("it asks without end and does not answer"))
    }

    fn negotiate(&mut self, wish: &Wish) -> Result<(), InitiatorError> {
        let Wish { initiator, target, number, .. } = wish;
        let mut text = format!(
            "InitiatorName={initiator}\0TargetName={target}\0SessionType=Normal\0HeaderDigest=None\0DataDigest=None\0\
             InitialR2T=Yes\0ImmediateData=No\0MaxRecvDataSegmentLength={SEGMENT_BYTES}\0MaxBurstLength=1048576\0\
             MaxConnections=1\0ErrorRecoveryLevel=0\0"
        );
        let mut tsih = [0; 2];
        let mut keys = String::new();
        for _ in 0..MAX_LOGIN_ROUNDS {
            // Login Request (§11.12): immediate, from the operational stage to full feature, unless the target goes on.
            let mut header = [0; HEADER_BYTES];
            put(&mut header, 0, &[0x43, 0x87]);
            let [a, b, c, d] = number.to_be_bytes();
            put(&mut header, 8, &[0x80, a, b, c, d, 0]);
            put(&mut header, 14, &tsih);
            put(&mut header, 24, &self.cmd_sn.to_be_bytes());
            put(&mut header, 28, &self.exp_stat_sn.to_be_bytes());
            self.send(header, text.as_bytes())?;
            let answer = self.pdu()?;
            if byte(&answer, 0) & 0x3F != 0x23 {
                return Err(InitiatorError::Protocol("a login is answered with something else"));
            }
            let status = u16::from_be_bytes([byte(&answer, 36), byte(&answer, 37)]);
            if status != 0 {
                return Err(InitiatorError::Refused(status));
            }
            tsih = [byte(&answer, 14), byte(&answer, 15)];
            keys.push_str(&String::from_utf8_lossy(&self.segment));
            if byte(&answer, 1) & 0x83 == 0x83 {
                let taken = keys.split('\0').find_map(|pair| pair.strip_prefix("MaxRecvDataSegmentLength="));
                let taken = taken.and_then(|value| value.parse().ok()).unwrap_or(DEFAULT_SEGMENT_BYTES);
                self.segment_bytes = taken.clamp(512, SEGMENT_BYTES as usize);
                return Ok(());
            }
            text.clear();
        }
        Err(InitiatorError::Protocol("a login without end"))
    }

    /// TEST UNIT READY until nothing is reported any more.
    fn attend(&mut self) -> Result<(), InitiatorError> {
        let mut status = 0;
        for _ in 0..MAX_ATTENTIONS {
            self.command(0x80, 0, [0; 16], None)?;
            status = self.receive()?.status;
            if status == 0 {
                return Ok(());
            }
        }
        Err(InitiatorError::Unit { command: "TEST UNIT READY", status })
    }

    /// READ CAPACITY(16) (SBC-4 §5.20).
    fn capacity(&mut self) -> Result<(), InitiatorError> {
        let mut cdb = [0; 16];
        put(&mut cdb, 0, &[0x9E, 0x10]);
        put(&mut cdb, 13, &[32]);
        self.command(0xC0, 32, cdb, None)?;
        let mut found = None;
        loop {
            let header = self.pdu()?;
            let status = byte(&header, 3);
            let (opcode, has_status) = (byte(&header, 0) & 0x3F, byte(&header, 1) & 1 != 0);
            if opcode == 0x25 && found.is_none() {
                found = self.segment.first_chunk::<12>().copied();
            }
            if opcode == 0x21 || opcode == 0x25 && has_status {
                let Some([a, b, c, d, e, f, g, h, i, j, k, l]) = found.filter(|_| status == 0) else {
                    return Err(InitiatorError::Unit { command: "READ CAPACITY(16)", status });
                };
                self.blocks = u64::from_be_bytes([a, b, c, d, e, f, g, h]).saturating_add(1);
                self.block_bytes = u32::from_be_bytes([i, j, k, l]);
                if !self.block_bytes.is_power_of_two() || !(512..=65_536).contains(&self.block_bytes) {
                    return Err(InitiatorError::Protocol("a block size that no disk has"));
                }
                return Ok(());
            }
            if opcode != 0x25 {
                return Err(InitiatorError::Protocol("an answer that nothing was asked for"));
            }
        }
    }

    /// SCSI Command (§11.3).
    fn command(
        &mut self,
        flags: u8,
        expected: u32,
        cdb: [u8; 16],
        data: Option<Vec<u8>>,
    ) -> Result<u32, InitiatorError> {
        let tag = self.next_tag;
        // 0xffffffff is reserved (§11.2.1.8).
        self.next_tag = self.next_tag.wrapping_add(1) & 0x7FFF_FFFF;
        let mut header = [0; HEADER_BYTES];
        put(&mut header, 0, &[0x01, flags]);
        put(&mut header, 8, &self.lun_field());
        put(&mut header, 16, &tag.to_be_bytes());
        put(&mut header, 20, &expected.to_be_bytes());
        put(&mut header, 24, &self.cmd_sn.to_be_bytes());
        put(&mut header, 28, &self.exp_stat_sn.to_be_bytes());
        put(&mut header, 32, &cdb);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        if let Some(data) = data {
            self.outgoing.insert(tag, data);
        }
        self.send(header, &[])?;
        Ok(tag)
    }

    /// What an R2T asks for (§11.8), as Data-Out (§11.7).
    fn send_data(&mut self, r2t: &Header, tag: u32) -> Result<(), InitiatorError> {
        let wrong = InitiatorError::Protocol("an R2T for data that there is not");
        let Some(data) = self.outgoing.remove(&tag) else { return Err(wrong) };
        let (offset, length) = (u32_at(r2t, 40) as usize, u32_at(r2t, 44) as usize);
        let Some(wanted) = data.get(offset..offset.saturating_add(length)) else { return Err(wrong) };
        let (mut at, mut number) = (offset, 0_u32);
        for piece in wanted.chunks(self.segment_bytes) {
            let after = at.saturating_add(piece.len());
            let last = after >= offset.saturating_add(length);
            let mut header = [0; HEADER_BYTES];
            put(&mut header, 0, &[0x05, if last { 0x80 } else { 0 }]);
            put(&mut header, 8, &self.lun_field());
            put(&mut header, 16, &tag.to_be_bytes());
            put(&mut header, 20, r2t.get(20..24).unwrap_or_default());
            put(&mut header, 28, &self.exp_stat_sn.to_be_bytes());
            put(&mut header, 36, &number.to_be_bytes());
            put(&mut header, 40, &u32::try_from(at).unwrap_or(u32::MAX).to_be_bytes());
            self.send(header, piece)?;
            (at, number) = (after, number.wrapping_add(1));
        }
        self.outgoing.insert(tag, data);
        Ok(())
    }

    /// NOP-In with a tag wants a NOP-Out (§11.18, §11.19).
    fn answer_ping(&mut self, ping: &Header) -> Result<(), InitiatorError> {
        if u32_at(ping, 20) == u32::MAX {
            return Ok(());
        }
        let mut header = [0; HEADER_BYTES];
        put(&mut header, 0, &[0x40, 0x80]);
        put(&mut header, 8, ping.get(8..16).unwrap_or_default());
        put(&mut header, 16, &u32::MAX.to_be_bytes());
        put(&mut header, 20, ping.get(20..24).unwrap_or_default());
        put(&mut header, 24, &self.cmd_sn.to_be_bytes());
        put(&mut header, 28, &self.exp_stat_sn.to_be_bytes());
        self.send(header, &[])
    }

    fn lun_field(&self) -> [u8; 8] {
        // Flat below 256 is the peripheral form (SAM-5 §4.7.7).
        let [high, low] = self.lun.to_be_bytes();
        [high, low, 0, 0, 0, 0, 0, 0]
    }

    fn send(&mut self, mut header: Header, data: &[u8]) -> Result<(), InitiatorError> {
        let [_, length @ ..] = u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes();
        put(&mut header, 5, &length);
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Ok(self.stream.write_all(&bytes)?)
    }

    /// One PDU; its data is in `segment`.
    fn pdu(&mut self) -> Result<Header, InitiatorError> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        if byte(&header, 4) != 0 {
            return Err(InitiatorError::Protocol("additional headers, which no answer has"));
        }
        let length = u32::from_be_bytes([0, byte(&header, 5), byte(&header, 6), byte(&header, 7)]);
        if length > SEGMENT_BYTES {
            return Err(InitiatorError::Protocol("a data segment longer than we take"));
        }
        self.segment.resize((length as usize).next_multiple_of(4), 0);
        self.stream.read_exact(&mut self.segment)?;
        self.segment.truncate(length as usize);
        let opcode = byte(&header, 0) & 0x3F;
        // StatSN counts where there is a status (§4.2.2.2), and not in an R2T or a ping of the target's own.
        let has_status = match opcode {
            0x25 => byte(&header, 1) & 1 != 0,
            0x31 => false,
            0x20 => u32_at(&header, 16) != u32::MAX,
            _ => true,
        };
        if has_status {
            self.exp_stat_sn = u32_at(&header, 24).wrapping_add(1);
        }
        self.max_cmd_sn = u32_at(&header, 32);
        Ok(header)
    }
}

fn cdb16(opcode: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    put(&mut cdb, 0, &[opcode]);
    put(&mut cdb, 2, &lba.to_be_bytes());
    put(&mut cdb, 10, &blocks.to_be_bytes());
    cdb
}

fn put(target: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, from) in target.iter_mut().skip(at).zip(bytes) {
        *to = *from;
    }
}

fn byte(header: &Header, at: usize) -> u8 {
    header.get(at).copied().unwrap_or(0)
}

fn u32_at(header: &Header, at: usize) -> u32 {
    header.get(at..).and_then(<[u8]>::first_chunk::<4>).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
