//! Measures an iSCSI target: as many commands in flight as asked for, as cheaply as this initiator can.
//!
//! ```text
//! cargo run --release -p iscsi --example iscsi_blast -- 127.0.0.1:3260 iqn.2026-01.io.headwater:serve 1 \
//!     iqn.2026-11.org.headwater.bench:client write random 4096 32 3
//! ```
//!
//! Address, target, LUN, initiator's name, what to do, in which order, bytes a command, depth, seconds. Prints one line of
//! JSON: commands and bytes a second, and latencies in microseconds. One connection, no authentication, no digests.
//!
//! All that there is to send goes out by one `writev` that takes write data from where it lies, and all that has come is
//! taken by one `read`; the answers are not copied out of it.
use std::io::{IoSlice, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The basic header segment (RFC 7143 §11.2.1).
const HEADER_BYTES: usize = 48;
/// What may come in one PDU: we announce it as MaxRecvDataSegmentLength.
const SEGMENT_BYTES: usize = 256 * 1024;
const INPUT_BYTES: usize = 4 * SEGMENT_BYTES;
/// Parts of one `writev`: below what Linux takes at once.
const MAX_PARTS: usize = 512;
/// Tag of commands that are sent before the measurement; no place in the table is as high.
const FIRST_TAG: u32 = 0x0100_0000;

struct Work {
    writes: bool,
    random: bool,
    bytes: usize,
    depth: usize,
    time: Duration,
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, target, lun, initiator, what, order, bytes, depth, seconds] = arguments.as_slice() else {
        return Err("usage: iscsi_blast ADDRESS:PORT TARGET LUN INITIATOR read|write random|sequential BYTES DEPTH SECONDS".into());
    };
    let work = Work {
        writes: what == "write",
        random: order == "random",
        bytes: bytes.parse()?,
        depth: depth.parse()?,
        time: Duration::from_secs_f64(seconds.parse()?),
    };
    let mut wire = Wire::log_in(address, target, initiator, lun.parse()?)?;
    let blocks = wire.capacity()?;
    let started = Instant::now();
    let mut latencies_ns = blast(&mut wire, &work, blocks, started)?;
    report(&work, &mut latencies_ns, started.elapsed());
    Ok(())
}

/// A command under way, in the place of the table that its tag names.
#[derive(Clone, Copy)]
struct Under {
    start: Instant,
}

/// Keeps the depth full for as long as asked, and takes what is left; the latency of each command.
fn blast(wire: &mut Wire, work: &Work, blocks: u64, started: Instant) -> Result<Vec<u64>, Failure> {
    let data: Vec<u8> = (0..work.bytes).map(|at| (at % 251) as u8).collect();
    let blocks_each = u16::try_from(work.bytes / 512)?;
    let places = blocks / u64::from(blocks_each);
    let mut under = vec![Under { start: started }; work.depth];
    let mut free: Vec<u32> = (0..u32::try_from(work.depth)?).rev().collect();
    let (mut latencies_ns, mut now) = (Vec::new(), started);
    let (mut state, mut turn) = (0x9E37_79B9_7F4A_7C15_u64, 0_u64);
    loop {
        while now - started < work.time && wire.window_is_open() {
            let Some(tag) = free.pop() else { break };
            // xorshift: repeatable, and nearly free.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            turn += 1;
            let place = if work.random { state % places } else { turn % places };
            let lba = u32::try_from(place * u64::from(blocks_each))?;
            wire.command(tag, lba, blocks_each, work.writes.then_some(data.as_slice()));
            under[tag as usize].start = now;
        }
        wire.send(&data)?;
        if free.len() == work.depth {
            return Ok(latencies_ns);
        }
        let finished = wire.receive(&data)?;
        now = Instant::now();
        for tag in finished {
            let start = under.get(tag as usize).ok_or("an answer to nothing")?.start;
            latencies_ns.push(u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX));
            free.push(tag);
        }
    }
}

/// A session of one connection.
struct Wire {
    stream: TcpStream,
    lun: u8,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    /// Of write data: with the command, and in each PDU (RFC 7143 §13.10 to §13.14).
    first_burst: usize,
    send_segment: usize,
    immediate: bool,
    input: Vec<u8>,
    filled: usize,
    /// PDUs to be sent: the header, and which part of the write data goes behind it.
    headers: Vec<([u8; HEADER_BYTES], std::ops::Range<usize>)>,
}

impl Wire {
    fn log_in(address: &str, target: &str, initiator: &str, lun: u8) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut wire = Self {
            stream,
            lun,
            cmd_sn: 1,
            max_cmd_sn: 1,
            exp_stat_sn: 0,
            first_burst: 65_536,
            send_segment: 8192,
            immediate: true,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            headers: Vec::new(),
        };
        let keys = format!(
            "InitiatorName={initiator}\0TargetName={target}\0SessionType=Normal\0HeaderDigest=None\0DataDigest=None\0\
             InitialR2T=No\0ImmediateData=Yes\0MaxBurstLength=1048576\0FirstBurstLength=65536\0MaxOutstandingR2T=1\0\
             MaxRecvDataSegmentLength={SEGMENT_BYTES}\0MaxConnections=1\0ErrorRecoveryLevel=0\0"
        );
        let mut text = keys.into_bytes();
        let mut answered = Vec::new();
        // §6.2: from the operational stage to the full feature phase; a target that has more to say gets asked again.
        for _ in 0..8 {
            let mut header = [0; HEADER_BYTES];
            (header[0], header[1]) = (0x43, 0x87);
            header[5..8].copy_from_slice(&u32::try_from(text.len())?.to_be_bytes()[1..]);
            header[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, 1]);
            header[24..28].copy_from_slice(&1_u32.to_be_bytes());
            header[28..32].copy_from_slice(&wire.exp_stat_sn.to_be_bytes());
            text.resize(text.len().next_multiple_of(4), 0);
            wire.stream.write_all(&[&header[..], &text].concat())?;
            let answer = wire.next_pdu()?;
            if answer.header[0] != 0x23 || answer.header[36] != 0 {
                return Err(format!("login refused: {:02x?}", &answer.header[36..38]).into());
            }
            answered.extend_from_slice(&answer.data);
            wire.exp_stat_sn = u32_at(&answer.header, 24).wrapping_add(1);
            wire.max_cmd_sn = u32_at(&answer.header, 32);
            if answer.header[1] & 0x80 != 0 {
                wire.agree(&answered)?;
                return Ok(wire);
            }
            text.clear();
        }
        Err("the login does not end".into())
    }

    /// What the target has declared or chosen.
    fn agree(&mut self, text: &[u8]) -> Result<(), Failure> {
        for pair in text.split(|byte| *byte == 0) {
            let Some((key, value)) = std::str::from_utf8(pair)?.split_once('=') else { continue };
            match key {
                "MaxRecvDataSegmentLength" => self.send_segment = value.parse()?,
                "FirstBurstLength" => self.first_burst = value.parse()?,
                "ImmediateData" => self.immediate = value == "Yes",
                _ => {}
            }
        }
        self.send_segment &= !511;
        Ok(())
    }

    /// Blocks of the disk; what it has to tell a new initiator (UNIT ATTENTION) is taken before.
    fn capacity(&mut self) -> Result<u64, Failure> {
        for attempt in 0..8 {
            let mut header = self.header(FIRST_TAG + attempt, 0xC1, 8);
            header[32] = 0x25;
            self.headers.push((header, 0..0));
            self.send(&[])?;
            let mut told = Vec::new();
            loop {
                let answer = self.next_pdu()?;
                self.note(&answer.header);
                let (opcode, status) = (answer.header[0] & 0x3F, answer.header[3]);
                let ends = opcode == 0x21 || (opcode == 0x25 && answer.header[1] & 1 == 1);
                told.extend_from_slice(if opcode == 0x25 { &answer.data } else { &[] });
                if ends && status == 0 && told.len() >= 8 {
                    if u32_at(&told, 4) != 512 {
                        return Err("the disk's blocks are not of 512 bytes".into());
                    }
                    return Ok(u64::from(u32_at(&told, 0)) + 1);
                }
                if ends {
                    break;
                }
            }
        }
        Err("the disk does not tell its capacity".into())
    }

    /// §4.2.2.1, in serial numbers.
    fn window_is_open(&self) -> bool {
        self.max_cmd_sn.wrapping_sub(self.cmd_sn).cast_signed() >= 0
    }

    fn header(&mut self, tag: u32, flags: u8, expected: u32) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        (header[0], header[1], header[9]) = (0x01, flags, self.lun);
        header[16..20].copy_from_slice(&tag.to_be_bytes());
        header[20..24].copy_from_slice(&expected.to_be_bytes());
        header[24..28].copy_from_slice(&self.cmd_sn.to_be_bytes());
        header[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        header
    }

    /// Queues READ(10) or WRITE(10), the latter with as much data as may go with it.
    fn command(&mut self, tag: u32, lba: u32, blocks: u16, data: Option<&[u8]>) {
        let flags = if data.is_some() { 0xA1 } else { 0xC1 };
        let mut header = self.header(tag, flags, u32::from(blocks) * 512);
        header[32] = if data.is_some() { 0x2A } else { 0x28 };
        header[34..38].copy_from_slice(&lba.to_be_bytes());
        header[39..41].copy_from_slice(&blocks.to_be_bytes());
        let most = if self.immediate { self.first_burst.min(self.send_segment) } else { 0 };
        let with = data.map_or(0, <[u8]>::len).min(most);
        header[5..8].copy_from_slice(&(with as u32).to_be_bytes()[1..]);
        self.headers.push((header, 0..with));
    }

    /// Queues what an R2T asks for (§11.8), in Data-Out PDUs (§11.7).
    fn data_out(&mut self, r2t: &[u8]) {
        let (offset, bytes) = (u32_at(r2t, 40) as usize, u32_at(r2t, 44) as usize);
        let mut at = 0;
        for data_sn in 0_u32.. {
            let piece = (bytes - at).min(self.send_segment);
            let mut header = [0; HEADER_BYTES];
            (header[0], header[1]) = (0x05, if at + piece == bytes { 0x80 } else { 0 });
            header[5..8].copy_from_slice(&(piece as u32).to_be_bytes()[1..]);
            header[8..24].copy_from_slice(&r2t[8..24]);
            header[28..32].copy_from_slice(&self.exp_stat_sn.to_be_bytes());
            header[36..40].copy_from_slice(&data_sn.to_be_bytes());
            header[40..44].copy_from_slice(&((offset + at) as u32).to_be_bytes());
            self.headers.push((header, offset + at..offset + at + piece));
            at += piece;
            if at >= bytes {
                break;
            }
        }
    }

    /// Sends what is queued; write data is of whole blocks, so that no PDU needs padding.
    fn send(&mut self, data: &[u8]) -> Result<(), Failure> {
        for batch in self.headers.chunks(MAX_PARTS / 2) {
            let mut parts: Vec<IoSlice<'_>> = Vec::with_capacity(2 * batch.len());
            for (header, range) in batch {
                parts.push(IoSlice::new(header));
                if !range.is_empty() {
                    parts.push(IoSlice::new(&data[range.clone()]));
                }
            }
            let mut rest = parts.as_mut_slice();
            while !rest.is_empty() {
                let count = self.stream.write_vectored(rest)?;
                IoSlice::advance_slices(&mut rest, count);
            }
        }
        self.headers.clear();
        Ok(())
    }

    /// Takes what has come, at least something; the tags of the commands that have ended.
    fn receive(&mut self, data: &[u8]) -> Result<Vec<u32>, Failure> {
        let count = self.stream.read(&mut self.input[self.filled..])?;
        if count == 0 {
            return Err("the target has closed the connection".into());
        }
        self.filled += count;
        let (mut finished, mut at) = (Vec::new(), 0);
        let input = std::mem::take(&mut self.input);
        while let Some(header) = input[at..self.filled].get(..HEADER_BYTES) {
            let total = HEADER_BYTES + data_bytes(header).next_multiple_of(4);
            if at + total > self.filled {
                break;
            }
            let opcode = header[0] & 0x3F;
            self.note(header);
            match opcode {
                // §11.7.3: Data-In with the status; SCSI Response.
                0x25 if header[1] & 1 == 0 => {}
                0x21 | 0x25 if header[3] == 0 => finished.push(u32_at(header, 16)),
                0x31 => self.data_out(header),
                0x20 => {}
                _ => {
                    return Err(
                        format!("an answer with opcode {opcode:#04x}, status {:#04x}", header[3]).into()
                    );
                }
            }
            at += total;
        }
        self.input = input;
        self.input.copy_within(at..self.filled, 0);
        self.filled -= at;
        // What was asked for goes out before anything new.
        self.send(data)?;
        Ok(finished)
    }

    /// The numbers that every answer brings (§11.4.9 to §11.4.11).
    fn note(&mut self, header: &[u8]) {
        let has_status = match header[0] & 0x3F {
            0x25 => header[1] & 1 == 1,
            // §11.8.4 and §11.19: an R2T's and a ping's StatSN is that of the next answer.
            0x31 | 0x20 => false,
            _ => true,
        };
        if has_status {
            self.exp_stat_sn = u32_at(header, 24).wrapping_add(1);
        }
        self.max_cmd_sn = u32_at(header, 32);
    }

    fn next_pdu(&mut self) -> Result<Pdu, Failure> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let bytes = data_bytes(&header);
        let mut data = vec![0; bytes.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(bytes);
        Ok(Pdu { header, data })
    }
}

struct Pdu {
    header: [u8; HEADER_BYTES],
    data: Vec<u8>,
}

fn data_bytes(header: &[u8]) -> usize {
    u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn report(work: &Work, latencies_ns: &mut [u64], took: Duration) {
    latencies_ns.sort_unstable();
    let requests = latencies_ns.len();
    let rate = requests as f64 / took.as_secs_f64();
    let percentile = |part: f64| {
        let at = ((requests as f64 * part) as usize).min(requests.saturating_sub(1));
        latencies_ns.get(at).copied().unwrap_or(0) as f64 / 1000.0
    };
    println!(
        "{{\"requests\":{requests},\"requests_per_second\":{rate:.0},\"mb_per_second\":{:.1},\"latency_us_p50\":{:.1},\"latency_us_p99\":{p99:.1},\"latency_us_p99_least\":{p99:.1},\"latency_us_p99_most\":{p99:.1}}}",
        rate * work.bytes as f64 / 1e6,
        percentile(0.5),
        p99 = percentile(0.99),
    );
}
