//! An iSCSI initiator for replays: logs in without authentication and reads, some requests at a time (RFC 7143 §11).
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Result, bail, ensure};

/// The basic header segment of every PDU.
const HEADER_BYTES: usize = 48;
/// The logical blocks of lab images.
const BLOCK_BYTES: u64 = 512;
/// What we take in one Data-In PDU, as initiators of today do.
const MAX_DATA_BYTES: u32 = 262_144;
/// The most of one READ(10): 65,535 blocks would be more than initiators ask for.
const MAX_READ_BYTES: u64 = 1 << 20;

/// A range of the disk to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// A session.
pub(super) struct Session {
    stream: TcpStream,
    lun: u8,
    next_tag: u32,
    cmd_sn: u32,
    exp_stat_sn: u32,
    /// Tags of requests that are not answered, with the bytes that are still to come.
    open: VecDeque<(u32, u64)>,
    scratch: Vec<u8>,
}

impl Session {
    /// Logs in. `isid` tells the sessions of one initiator apart.
    pub(super) fn log_in(
        stream: TcpStream,
        initiator: &str,
        target: &str,
        lun: u8,
        isid: [u8; 6],
    ) -> Result<Self> {
        let keys = format!(
            "InitiatorName={initiator}\0TargetName={target}\0SessionType=Normal\0HeaderDigest=None\0DataDigest=None\0\
             MaxRecvDataSegmentLength={MAX_DATA_BYTES}\0"
        );
        let mut session = Self {
            stream,
            lun,
            next_tag: 1,
            cmd_sn: 1,
            exp_stat_sn: 0,
            open: VecDeque::new(),
            scratch: Vec::new(),
        };
        // Straight from operational negotiation to the full feature phase (§11.12).
        let mut pdu = header(0x43, 0x87, u32::try_from(keys.len())?, 0);
        pdu[8..14].copy_from_slice(&isid);
        pdu[24..28].copy_from_slice(&session.cmd_sn.to_be_bytes());
        pdu.extend_from_slice(keys.as_bytes());
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        session.stream.write_all(&pdu)?;
        let answer = session.receive()?;
        // §11.13.5: status class and detail.
        ensure!(answer[0] == 0x23 && answer[36..38] == [0, 0], "login refused: {:02x?}", &answer[36..38]);
        // A new session hears once that the disk is new to it (UNIT ATTENTION).
        for _ in 0..3 {
            session.command(&[0; 6], 0)?;
            if session.answer()? == 0 {
                return Ok(session);
            }
        }
        bail!("the disk does not get ready")
    }

    /// Reads all ranges, up to `depth` of them at a time. The bytes that came.
    pub(super) fn read_all(&mut self, ranges: &[Range], depth: usize) -> Result<u64> {
        let mut bytes = 0;
        for range in ranges {
            let (mut at, end) = (range.offset, range.offset + range.length);
            while at < end {
                while self.open.len() >= depth.max(1) {
                    self.expect_good()?;
                }
                let length = MAX_READ_BYTES.min(end - at);
                let blocks = length.div_ceil(BLOCK_BYTES);
                let mut cdb = [0; 10];
                cdb[0] = 0x28;
                cdb[2..6].copy_from_slice(&u32::try_from(at / BLOCK_BYTES)?.to_be_bytes());
                cdb[7..9].copy_from_slice(&u16::try_from(blocks)?.to_be_bytes());
                self.command(&cdb, blocks * BLOCK_BYTES)?;
                bytes += blocks * BLOCK_BYTES;
                at += length;
            }
        }
        while !self.open.is_empty() {
            self.expect_good()?;
        }
        Ok(bytes)
    }

    /// Says that it goes, and goes.
    pub(super) fn log_out(mut self) -> Result<()> {
        let mut pdu = header(0x46, 0x80, 0, self.next_tag);
        pdu[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        pdu[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        self.stream.write_all(&pdu)?;
        while self.receive()?[0] != 0x26 {}
        Ok(())
    }

    fn command(&mut self, cdb: &[u8], read_bytes: u64) -> Result<()> {
        // Final, simple; with R where data is expected (§11.3.1).
        let flags = if read_bytes > 0 { 0xC1 } else { 0x81 };
        let mut pdu = header(0x01, flags, 0, self.next_tag);
        pdu[9] = self.lun;
        pdu[20..24].copy_from_slice(&u32::try_from(read_bytes)?.to_be_bytes());
        pdu[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        pdu[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        pdu[32..32 + cdb.len()].copy_from_slice(cdb);
        self.stream.write_all(&pdu)?;
        self.open.push_back((self.next_tag, read_bytes));
        self.next_tag = self.next_tag.wrapping_add(1);
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        Ok(())
    }

    fn expect_good(&mut self) -> Result<()> {
        let status = self.answer()?;
        ensure!(status == 0, "a read ended with SCSI status {status:#04x}");
        Ok(())
    }

    /// Waits until one request has its status.
    fn answer(&mut self) -> Result<u8> {
        loop {
            let answer = self.receive()?;
            let tag = u32::from_be_bytes([answer[16], answer[17], answer[18], answer[19]]);
            let bytes = u64::from(u32::from_be_bytes([0, answer[5], answer[6], answer[7]]));
            let place = self.open.iter().position(|(open, _)| *open == tag);
            let status = match answer[0] {
                // Data-In, with status in its last PDU or without (§11.7.3).
                0x25 => {
                    if let Some((_, left)) = place.and_then(|place| self.open.get_mut(place)) {
                        *left = left.saturating_sub(bytes);
                    }
                    (answer[1] & 1 == 1).then_some(answer[3])
                }
                0x21 => Some(answer[3]),
                // NOP-In, asynchronous messages: nothing that a replay waits for.
                0x20 | 0x32 => None,
                other => bail!("an answer with opcode {other:#04x}"),
            };
            let Some(status) = status else { continue };
            let (_, left) = place.and_then(|place| self.open.remove(place)).unwrap_or_default();
            ensure!(status != 0 || left == 0, "{left} bytes of a read did not come");
            return Ok(status);
        }
    }

    fn receive(&mut self) -> Result<[u8; HEADER_BYTES]> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let bytes = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        self.scratch.resize(bytes.next_multiple_of(4), 0);
        self.stream.read_exact(&mut self.scratch)?;
        // Data-In without status has no StatSN (§11.7.4).
        if header[0] != 0x25 || header[1] & 1 == 1 {
            let stat_sn = u32::from_be_bytes([header[24], header[25], header[26], header[27]]);
            self.exp_stat_sn = stat_sn.wrapping_add(1);
        }
        Ok(header)
    }
}

fn header(opcode: u8, flags: u8, data_bytes: u32, tag: u32) -> Vec<u8> {
    let mut header = vec![0; HEADER_BYTES];
    header[0] = opcode;
    header[1] = flags;
    header[5..8].copy_from_slice(&data_bytes.to_be_bytes()[1..]);
    header[16..20].copy_from_slice(&tag.to_be_bytes());
    header
}
