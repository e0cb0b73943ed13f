//! The initiator's side of a session, as an oracle: what it has asked for, what data it owes, and which PDUs of the
//! target are legal at this moment. Every rule that it holds the target to is an assertion.
#![allow(clippy::arithmetic_side_effects, reason = "small numbers; a finding of the fuzzer is a panic")]
use std::collections::BTreeMap;

use crate::limits::QUEUE_DEPTH;
use crate::login::Parameters;
use crate::pdu::frame::{FrameRules, frame};
use crate::pdu::{Bhs, NO_TAG};
use crate::session::{Flow, Outcome};

/// A command that has not been answered.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) lun: [u8; 8],
    pub(super) expected_bytes: u32,
    pub(super) flow: Flow,
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// Tells its data from that of others.
    pub(super) seed: u32,
    /// Data-Out that was sent, from the start on.
    pub(super) sent_bytes: u32,
    /// Unsolicited data was announced and is not over.
    pub(super) owes_unsolicited: bool,
    pub(super) unsolicited_sn: u32,
    /// What the target has asked for and does not have.
    pub(super) asked: Vec<Asked>,
    asked_bytes: u32,
    asked_count: u32,
    received_bytes: u32,
    received_pdus: u32,
    burst_bytes: u32,
    /// How the driver has ended it.
    pub(super) outcome: Option<Outcome>,
    /// The driver has found it contradictory.
    pub(super) refused: bool,
    /// Data of it was left out: it must fail.
    pub(super) spoilt: bool,
}

/// An R2T that is not wholly answered.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) ttt: u32,
    pub(super) at: u32,
    pub(super) end: u32,
    pub(super) data_sn: u32,
}

/// The initiator.
pub(super) struct Initiator {
    parameters: Parameters,
    pub(super) commands: BTreeMap<u32, Command>,
    /// Task management requests and pings that are not answered, the pings with their data.
    pub(super) managing: Vec<u32>,
    pub(super) pings: BTreeMap<u32, Vec<u8>>,
    /// The target's ping.
    pub(super) pong_due: Option<u32>,
    pub(super) cmd_sn: u32,
    stat_sn: u32,
    max_cmd_sn: u32,
    /// Rejects that are due.
    pub(super) rejects: u32,
    /// Text and logout responses and asynchronous messages that are due.
    pub(super) texts: u32,
    pub(super) logouts: u32,
    pub(super) messages: u32,
    pub(super) answered: usize,
}

/// The byte at `at` of the data of the command with this seed, either way.
pub(super) fn byte_of(seed: u32, at: u32) -> u8 {
    seed.wrapping_mul(0x9E37_79B9).wrapping_add(at.wrapping_mul(0x0100_0193)).to_be_bytes()[0]
}

impl Command {
    pub(super) fn new(lun: [u8; 8], expected_bytes: u32, flow: Flow, flags: u8, seed: u32) -> Self {
        Self {
            lun,
            expected_bytes,
            flow,
            reads: flags & 0x40 != 0,
            writes: flags & 0x20 != 0,
            seed,
            sent_bytes: 0,
            owes_unsolicited: flags & 0x80 == 0,
            unsolicited_sn: 0,
            asked: Vec::new(),
            asked_bytes: 0,
            asked_count: 0,
            received_bytes: 0,
            received_pdus: 0,
            burst_bytes: 0,
            outcome: None,
            refused: false,
            spoilt: false,
        }
    }

    /// The bytes that move: what the CDB says and the initiator expects.
    pub(super) fn wanted(&self) -> u32 {
        match self.flow {
            Flow::In(bytes) if self.reads => {
                u32::try_from(bytes).unwrap_or(u32::MAX).min(self.expected_bytes)
            }
            Flow::Out(bytes) if self.writes => {
                u32::try_from(bytes).unwrap_or(u32::MAX).min(self.expected_bytes)
            }
            _ => 0,
        }
    }

    /// Overflow or underflow as a target must report it (RFC 7143 §11.4.5): flag and count.
    fn residual(&self) -> (u8, u32) {
        let expected = match self.flow {
            Flow::In(_) if !self.reads => 0,
            _ => i64::from(self.expected_bytes),
        };
        let actual = match (self.flow, self.refused) {
            (Flow::None, _) | (_, true) => 0,
            // A read that fails has moved what was sent.
            (Flow::In(_), _) if self.received_bytes > 0 || self.outcome_is_late() => {
                i64::from(self.received_bytes)
            }
            (Flow::In(bytes) | Flow::Out(bytes), _) => i64::try_from(bytes).unwrap_or(i64::MAX),
        };
        let count = u32::try_from((expected - actual).abs()).unwrap_or(u32::MAX);
        match expected.cmp(&actual) {
            std::cmp::Ordering::Equal => (0, 0),
            std::cmp::Ordering::Greater => (0x02, count),
            std::cmp::Ordering::Less => (0x04, count),
        }
    }

    /// Whether it was ended in the middle of its Data-In.
    fn outcome_is_late(&self) -> bool {
        self.wanted() > 0 && self.outcome.is_some()
    }
}

impl Initiator {
    pub(super) fn new(parameters: Parameters, cmd_sn: u32, stat_sn: u32) -> Self {
        Self {
            parameters,
            commands: BTreeMap::new(),
            managing: Vec::new(),
            pings: BTreeMap::new(),
            pong_due: None,
            cmd_sn,
            stat_sn,
            max_cmd_sn: cmd_sn.wrapping_add(QUEUE_DEPTH - 1),
            rejects: 0,
            texts: 0,
            logouts: 0,
            messages: 0,
            answered: 0,
        }
    }

    /// Whether the window has room for one more request in the sequence.
    pub(super) fn may_send(&self) -> bool {
        self.max_cmd_sn.wrapping_sub(self.cmd_sn) < QUEUE_DEPTH
    }

    /// Reads what the target has sent, and checks all of it.
    pub(super) fn receive(&mut self, mut output: &[u8]) {
        let rules = FrameRules {
            digests: self.parameters.digests,
            max_data_bytes: self.parameters.send_data_segment_bytes,
        };
        while !output.is_empty() {
            let pdu = frame(output, rules).ok().flatten();
            assert!(pdu.is_some(), "the target sends something that is no PDU of legal length");
            let Some(pdu) = pdu else { return };
            output = output.get(pdu.total_bytes..).unwrap_or_default();
            self.numbers(&pdu.bhs);
            self.take(&pdu.bhs, pdu.data);
        }
    }

    fn numbers(&mut self, bhs: &Bhs) {
        let data_without_status = bhs.opcode() == 0x25 && bhs.flags() & 1 == 0;
        let stands_still = bhs.opcode() == 0x31 || (bhs.opcode() == 0x20 && bhs.itt() == NO_TAG);
        if data_without_status {
            assert!(bhs.u32_at(24) == 0, "StatSN of a Data-In without status");
        } else {
            assert!(bhs.u32_at(24) == self.stat_sn, "StatSN {} for {}", bhs.u32_at(24), self.stat_sn);
            self.stat_sn = self.stat_sn.wrapping_add(u32::from(!stands_still));
        }
        assert!(bhs.u32_at(28) == self.cmd_sn, "ExpCmdSN {} for {}", bhs.u32_at(28), self.cmd_sn);
        let max = bhs.u32_at(32);
        assert!(max.wrapping_sub(self.max_cmd_sn) <= QUEUE_DEPTH, "MaxCmdSN goes back or far ahead");
        assert!(max.wrapping_sub(self.cmd_sn).wrapping_add(1) <= QUEUE_DEPTH, "too wide a window");
        self.max_cmd_sn = max;
    }

    fn take(&mut self, bhs: &Bhs, data: &[u8]) {
        match bhs.opcode() {
            0x20 => self.nop_in(bhs, data),
            0x21 => self.response(bhs),
            0x22 => {
                let at = self.managing.iter().position(|itt| *itt == bhs.itt());
                assert!(at.is_some(), "an answer to no task management request");
                at.map(|at| self.managing.swap_remove(at));
            }
            0x24 => due(&mut self.texts, "text response"),
            0x25 => self.data_in(bhs, data),
            0x26 => due(&mut self.logouts, "logout response"),
            0x31 => self.ready_to_transfer(bhs),
            0x32 => due(&mut self.messages, "asynchronous message"),
            0x3F => due(&mut self.rejects, "reject"),
            other => assert!(other == 0x20, "opcode {other:#04x} in full feature phase"),
        }
    }

    fn nop_in(&mut self, bhs: &Bhs, data: &[u8]) {
        if bhs.itt() == NO_TAG {
            assert!(self.pong_due.is_none() && data.is_empty(), "a ping while one is unanswered");
            self.pong_due = Some(bhs.ttt());
            return;
        }
        let sent = self.pings.remove(&bhs.itt());
        let limit = self.parameters.send_data_segment_bytes as usize;
        let echo = sent.as_deref().map(|sent| sent.get(..limit).unwrap_or(sent));
        assert!(echo == Some(data), "an answer to no ping, or with other data");
    }

    fn response(&mut self, bhs: &Bhs) {
        let command = self.commands.remove(&bhs.itt());
        assert!(command.is_some(), "a response to no command: {:#x}", bhs.itt());
        let Some(command) = command else { return };
        let [status, ..] = bhs.array::<1>(3);
        let expected = match &command.outcome {
            _ if command.spoilt => 0x02,
            Some(Outcome::Good) => 0,
            Some(Outcome::Check(_)) => 0x02,
            Some(Outcome::ReservationConflict) => 0x18,
            None => 0xFF,
        };
        assert!(status == expected, "status {status:#04x} where the disk said {:?}", command.outcome);
        assert!(!command.owes_unsolicited, "answered while data for it still comes");
        assert!(command.asked.is_empty(), "answered before the data that was asked for");
        let residual = (bhs.flags() & 0x06, bhs.u32_at(44));
        assert!(residual == command.residual(), "residual {residual:?} of {command:?}");
        let data_pdus = command.asked_count + command.received_pdus;
        assert!(bhs.u32_at(36) == data_pdus, "ExpDataSN {} after {data_pdus}", bhs.u32_at(36));
        self.answered += 1;
    }

    fn data_in(&mut self, bhs: &Bhs, data: &[u8]) {
        let max_burst = self.parameters.max_burst_bytes;
        let command = self.commands.get_mut(&bhs.itt());
        assert!(command.is_some(), "data of no command: {:#x}", bhs.itt());
        let Some(command) = command else { return };
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        assert!(length > 0 && bhs.u32_at(40) == command.received_bytes, "Data-In out of place");
        assert!(bhs.u32_at(36) == command.received_pdus, "DataSN out of order");
        let right = (command.received_bytes..).zip(data).all(|(at, byte)| byte_of(command.seed, at) == *byte);
        assert!(right, "data of another command or place");
        command.received_bytes += length;
        command.received_pdus += 1;
        command.burst_bytes += length;
        assert!(command.received_bytes <= command.wanted(), "more Data-In than is wanted");
        assert!(command.burst_bytes <= max_burst, "a sequence longer than MaxBurstLength");
        let (last, status) = (bhs.flags() & 0x80 != 0, bhs.flags() & 1 != 0);
        if last {
            command.burst_bytes = 0;
        }
        if status {
            assert!(last && command.received_bytes == command.wanted(), "status before the end of the data");
            let flow = Flow::In(match command.flow {
                Flow::In(bytes) => bytes,
                Flow::None | Flow::Out(_) => 0,
            });
            let whole = Command { received_bytes: 0, outcome: None, flow, ..command.clone() };
            assert!((bhs.flags() & 0x06, bhs.u32_at(44)) == whole.residual(), "residual of {command:?}");
            self.commands.remove(&bhs.itt());
            self.answered += 1;
        }
    }

    fn ready_to_transfer(&mut self, bhs: &Bhs) {
        let parameters = self.parameters;
        let tag_in_use =
            self.commands.values().flat_map(|other| &other.asked).any(|asked| asked.ttt == bhs.ttt());
        assert!(!tag_in_use && bhs.ttt() != NO_TAG, "a transfer tag twice");
        let command = self.commands.get_mut(&bhs.itt());
        assert!(command.is_some(), "R2T for no command: {:#x}", bhs.itt());
        let Some(command) = command else { return };
        assert!(bhs.lun() == command.lun, "R2T for another unit");
        assert!(!command.owes_unsolicited && !command.spoilt, "R2T where none is due");
        assert!(bhs.u32_at(36) == command.asked_count, "R2TSN out of order");
        let (at, length) = (bhs.u32_at(40), bhs.u32_at(44));
        if command.asked_count == 0 {
            command.asked_bytes = command.sent_bytes.min(command.wanted());
        }
        assert!(at == command.asked_bytes, "R2T at {at} after {}", command.asked_bytes);
        assert!(length > 0 && length <= parameters.max_burst_bytes, "R2T for {length} bytes");
        let end = at + length;
        assert!(end <= command.wanted(), "R2T behind the end of the data");
        command.asked_bytes = end;
        command.asked_count += 1;
        command.asked.push(Asked { ttt: bhs.ttt(), at, end, data_sn: 0 });
        assert!(command.asked.len() <= parameters.max_outstanding_r2t as usize, "too many R2Ts");
    }
}

/// One of these is due, and has come.
fn due(count: &mut u32, what: &str) {
    assert!(*count > 0, "a {what} that is not due");
    *count -= 1;
}
