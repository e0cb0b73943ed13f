//! A session that is played: the input says which move the initiator or the owner of the disks makes next.
//!
//! The initiator keeps to the rules, but for moves that break one on purpose, of which it is known what must come of
//! them. What the target sends is held against [`Initiator`]. At the end everybody does what is due, and every command
//! must be answered.
#![allow(clippy::arithmetic_side_effects, reason = "small numbers; a finding of the fuzzer is a panic")]
use super::initiator::{Command, Initiator, byte_of};
use crate::limits::{MAX_IMMEDIATE_TASKS, WRITE_BUDGET_BYTES};
use crate::login::Parameters;
use crate::pdu::frame::Digests;
use crate::pdu::{Bhs, NO_TAG};
use crate::session::{
    Admission, Event, Flow, Outcome, ReadProgress, Scope, Session, SessionStart, Violation,
};
use connections::ByteQueue;

/// What came of a play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Commands that were answered.
    pub answered: usize,
    /// The initiator broke a rule on purpose, and the target saw it.
    pub violated: bool,
}

/// The most moves of one play.
const MAX_MOVES: usize = 400;
/// The lengths that things have: around the limits that are negotiated.
const LENGTHS: [u32; 16] =
    [0, 1, 511, 512, 513, 1024, 1500, 2048, 4096, 4100, 8192, 10_000, 16_384, 20_000, 32_768, 70_000];

/// Plays a session as `bytes` say: how it was negotiated, then move by move.
///
/// # Panics
/// Where the target breaks a rule.
#[must_use]
pub fn session(bytes: &[u8]) -> Played {
    let mut moves = Moves(bytes);
    let parameters = parameters(&mut moves);
    // Both sequences are near their wrap in some plays.
    let (cmd_sn, stat_sn) = if moves.chance(2) { (1, 1) } else { (u32::MAX - 20, u32::MAX - 10) };
    let start = SessionStart { parameters, discovery: false, cid: 1, cmd_sn, stat_sn, knows_pings: false };
    let mut play = Play {
        parameters,
        session: Session::new(start),
        initiator: Initiator::new(parameters, cmd_sn, stat_sn),
        out: ByteQueue::default(),
        lent: Vec::new(),
        aborted: Vec::new(),
        next_seed: 0,
        largest_write: 0,
        asks_for_data: true,
    };
    let mut count = 0;
    while !moves.0.is_empty() && count < MAX_MOVES {
        count += 1;
        if play.step(&mut moves).is_err() {
            return Played { answered: play.initiator.answered, violated: true };
        }
        play.check();
    }
    Played { answered: play.finish(), violated: false }
}

/// The input, read byte by byte; zeros behind its end.
struct Moves<'a>(&'a [u8]);

impl Moves<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()).checked_rem(end).unwrap_or(0)
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn length(&mut self) -> u32 {
        let at = self.below(LENGTHS.len());
        LENGTHS.get(at).copied().unwrap_or(0)
    }
}

fn parameters(moves: &mut Moves<'_>) -> Parameters {
    let flags = moves.byte();
    let parameters = Parameters {
        digests: Digests { header: flags & 1 != 0, data: flags & 2 != 0 },
        send_data_segment_bytes: moves.length().max(512),
        max_burst_bytes: moves.length().max(512),
        first_burst_bytes: moves.length().max(512),
        initial_r2t: flags & 4 != 0,
        immediate_data: flags & 8 == 0,
        max_outstanding_r2t: 1 + u32::from(flags >> 6),
    };
    Parameters {
        first_burst_bytes: parameters.first_burst_bytes.min(parameters.max_burst_bytes),
        ..parameters
    }
}

struct Play {
    parameters: Parameters,
    session: Session<u32>,
    initiator: Initiator,
    out: ByteQueue,
    /// Commands whose work the disk's owner has; `true`: in the middle of a read, with how much of it was sent.
    lent: Vec<(u32, Option<u64>)>,
    /// Those of them that were aborted since.
    aborted: Vec<u32>,
    next_seed: u32,
    largest_write: u64,
    /// There is room for data that is asked for.
    asks_for_data: bool,
}

impl Play {
    fn step(&mut self, moves: &mut Moves<'_>) -> Result<(), Violation> {
        match moves.byte() % 16 {
            0..=3 => self.command(moves)?,
            4..=7 => self.send_data(moves)?,
            8 | 9 => self.end_work(moves),
            10 => self.pump(moves.chance(3)),
            11 => self.manage(moves)?,
            12 => self.ping(moves)?,
            13 => self.small_talk(moves)?,
            14 => self.asks_for_data = moves.chance(2),
            _ if moves.chance(4) => self.break_a_rule(moves)?,
            _ => {}
        }
        Ok(())
    }

    /// Holds what the target has sent against the rules.
    fn check(&mut self) {
        while self.asks_for_data && self.session.solicited_wish().is_some() {
            self.session.solicit_next(&mut self.out);
        }
        self.initiator.receive(self.out.filled());
        self.out.consume(self.out.len());
        let limit = WRITE_BUDGET_BYTES.max(self.largest_write);
        assert!(self.session.solicited_bytes() <= limit, "more solicited data than the budget");
        assert!(self.session.lent() == self.lent.len(), "the session miscounts what is lent");
    }

    /// Everybody does what is due; then nothing may be left.
    fn finish(mut self) -> usize {
        self.asks_for_data = true;
        self.check();
        for _ in 0..1 << 20 {
            let due = self.initiator.commands.len() + self.lent.len();
            if due == 0 {
                break;
            }
            while let Some((itt, progress)) = self.lent.pop() {
                self.give_back(itt, progress, Outcome::Good);
            }
            self.pump(false);
            self.check();
            let owing = self.owing();
            for itt in owing {
                let sent = self.data_out(itt, u32::MAX, false);
                assert!(sent.is_ok(), "data that was due is refused");
                self.check();
            }
        }
        self.check();
        assert!(self.initiator.commands.is_empty(), "never answered: {:?}", self.initiator.commands);
        assert!(self.initiator.managing.is_empty(), "task management that is never answered");
        assert!(self.initiator.pings.is_empty() && self.initiator.texts == 0, "something is never answered");
        let (asked, unasked) = (self.session.solicited_bytes(), self.session.unasked_bytes());
        assert!((asked, unasked) == (0, 0), "budget is lost: {asked} and {unasked} bytes");
        self.initiator.answered
    }

    fn send(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), Violation> {
        let event = self.session.receive(bhs, data, &mut self.out)?;
        match event {
            Event::Nothing | Event::SendTargets(_) | Event::Logout => {}
            Event::Command(command) => {
                let (itt, immediate) = (command.itt, command.data);
                let Some(wanted) = self.initiator.commands.get_mut(&itt) else { return Ok(()) };
                match self.session.admit(itt, wanted.flow, wanted.seed, immediate, &mut self.out) {
                    Admission::Run(seed, data) => {
                        assert!(seed == wanted.seed, "the work of another command");
                        check_data(wanted, data);
                        self.lent.push((itt, None));
                    }
                    Admission::Moves => {}
                    Admission::Contradiction => {
                        wanted.refused = true;
                        self.lent.push((itt, None));
                    }
                }
            }
            Event::WriteReady { itt, work, data } => {
                let command = self.initiator.commands.get(&itt);
                assert!(command.is_some_and(|command| command.seed == work), "a write of no command");
                if let Some(command) = command {
                    check_data(command, &data);
                }
                self.lent.push((itt, None));
            }
            Event::Manage(request) => {
                let scope = match request.referenced_itt % 3 {
                    0 => Scope::Session,
                    1 => Scope::Lun(request.lun),
                    _ => Scope::Task(request.referenced_itt / 3, request.lun),
                };
                self.abort(scope);
                self.session.abort(request.itt, scope, false, &mut self.out);
                let waits = self.initiator.managing.contains(&request.itt);
                assert!(waits, "asked about task management that nobody wants");
            }
        }
        Ok(())
    }

    /// The commands of a scope are no more for the initiator: nothing may come of them.
    fn abort(&mut self, scope: Scope) {
        let lent: Vec<u32> = self.lent.iter().map(|(itt, _)| *itt).collect();
        let aborted = &mut self.aborted;
        self.initiator.commands.retain(|itt, command| {
            let chosen = match scope {
                Scope::Session => true,
                Scope::Lun(lun) => command.lun == lun,
                Scope::Task(tag, lun) => *itt == tag && command.lun == lun,
            };
            if chosen && lent.contains(itt) {
                aborted.push(*itt);
            }
            !chosen
        });
    }

    fn header(&mut self, opcode: u8, flags: u8, itt: u32, immediate: bool) -> Bhs {
        let mut bhs = Bhs::new(opcode | if immediate { 0x40 } else { 0 }, flags).with_itt(itt);
        bhs.put_u32(24, self.initiator.cmd_sn);
        if !immediate {
            self.initiator.cmd_sn = self.initiator.cmd_sn.wrapping_add(1);
        }
        bhs
    }

    /// The lowest tag that nothing uses.
    fn free_tag(&self) -> u32 {
        let taken = |tag: &u32| {
            self.initiator.commands.contains_key(tag)
                || self.aborted.contains(tag)
                || self.initiator.managing.contains(tag)
                || self.initiator.pings.contains_key(tag)
        };
        (0..).find(|tag| !taken(tag)).unwrap_or(0)
    }

    fn command(&mut self, moves: &mut Moves<'_>) -> Result<(), Violation> {
        let kind = moves.byte();
        let immediate = kind & 0x80 != 0;
        let immediate_room = self.session_immediate() < MAX_IMMEDIATE_TASKS;
        if (immediate && !immediate_room) || (!immediate && !self.initiator.may_send()) {
            return Ok(());
        }
        let (expected, actual) = (moves.length(), u64::from(moves.length()));
        let actual = if kind & 0x40 == 0 { u64::from(expected) } else { actual };
        let flow = match kind & 3 {
            0 => Flow::None,
            1 => Flow::In(actual),
            _ => Flow::Out(actual),
        };
        let (reads, writes) = match (kind >> 2) & 7 {
            0 => (false, false),
            1 => (true, true),
            2 => (true, false),
            3 => (false, true),
            _ => (matches!(flow, Flow::In(_)), matches!(flow, Flow::Out(_))),
        };
        let limit = self.parameters.first_burst_bytes.min(expected);
        // A command that reads by its CDB and still sends data is nobody's: it is left out.
        let may_send = writes && !(reads && matches!(flow, Flow::In(_)));
        let unsolicited = may_send && !self.parameters.initial_r2t && kind & 0x20 != 0;
        let data = if may_send && self.parameters.immediate_data { moves.length().min(limit) } else { 0 };
        let flags = if unsolicited { 0 } else { 0x80 } | u8::from(reads) << 6 | u8::from(writes) << 5;
        let tag = self.free_tag();
        let lun = [0, moves.byte() & 1, 0, 0, 0, 0, 0, 0];
        let mut bhs = self.header(0x01, flags, tag, immediate);
        bhs.put(8, lun);
        bhs.put_u32(20, expected);
        self.next_seed += 1;
        let mut command = Command::new(lun, expected, flow, flags, self.next_seed);
        let bytes: Vec<u8> = (0..data).map(|at| byte_of(command.seed, at)).collect();
        command.sent_bytes = data;
        self.largest_write = self.largest_write.max(u64::from(command.wanted()));
        self.initiator.commands.insert(tag, command);
        self.send(&bhs, &bytes)
    }

    /// Immediate commands that may be on the target's list: all that are not known to be others.
    fn session_immediate(&self) -> usize {
        self.initiator.commands.len() + self.aborted.len()
    }

    /// The commands that owe data.
    fn owing(&self) -> Vec<u32> {
        let owing = self.initiator.commands.iter();
        owing.filter(|(_, c)| c.owes_unsolicited || !c.asked.is_empty()).map(|(itt, _)| *itt).collect()
    }

    fn send_data(&mut self, moves: &mut Moves<'_>) -> Result<(), Violation> {
        let owing = self.owing();
        let Some(itt) = owing.get(moves.below(owing.len())) else { return Ok(()) };
        let length = moves.length();
        let wrong_place = moves.chance(20);
        self.data_out(*itt, length, wrong_place)
    }

    /// Sends up to `length` bytes of what the command owes; at a wrong place, it must fail.
    fn data_out(&mut self, itt: u32, length: u32, wrong_place: bool) -> Result<(), Violation> {
        let limit = self.parameters.first_burst_bytes;
        let Some(command) = self.initiator.commands.get_mut(&itt) else { return Ok(()) };
        let (ttt, at, end, data_sn) = match command.asked.first() {
            _ if command.owes_unsolicited => {
                let end = limit.min(command.expected_bytes);
                (NO_TAG, command.sent_bytes, end, command.unsolicited_sn)
            }
            Some(asked) => (asked.ttt, asked.at, asked.end, asked.data_sn),
            None => return Ok(()),
        };
        let now = length.min(end.saturating_sub(at)).min(65_536);
        let last = at + now >= end;
        let bytes: Vec<u8> = (at..at + now).map(|at| byte_of(command.seed, at)).collect();
        if ttt == NO_TAG {
            command.sent_bytes += now;
            command.unsolicited_sn += 1;
            command.owes_unsolicited = !last;
        } else if let Some(asked) = command.asked.first_mut() {
            asked.at += now;
            asked.data_sn += 1;
            command.sent_bytes = command.sent_bytes.max(asked.at);
            if last {
                command.asked.remove(0);
            }
        }
        // Data of a write that is not carried out yet: a wrong place spoils it.
        let awaited = !self.lent.iter().any(|(lent, _)| *lent == itt) && command.outcome.is_none();
        command.spoilt |= wrong_place && awaited;
        let mut bhs = Bhs::new(0x05, if last { 0x80 } else { 0 }).with_itt(itt);
        bhs.put_u32(20, ttt);
        bhs.put_u32(36, if wrong_place { data_sn.wrapping_add(1) } else { data_sn });
        bhs.put_u32(40, at);
        self.send(&bhs, &bytes)
    }

    /// The owner of the disks ends a command that it has.
    fn end_work(&mut self, moves: &mut Moves<'_>) {
        let at = moves.below(self.lent.len().max(1));
        if at >= self.lent.len() {
            return;
        }
        let (itt, progress) = self.lent.swap_remove(at);
        let outcome = match moves.byte() % 8 {
            0 => Outcome::Check(vec![0; 18]),
            1 => Outcome::ReservationConflict,
            _ => Outcome::Good,
        };
        self.give_back(itt, progress, outcome);
    }

    fn give_back(&mut self, itt: u32, progress: Option<u64>, outcome: Outcome) {
        let was_aborted = self.aborted.iter().position(|tag| *tag == itt);
        was_aborted.map(|at| self.aborted.swap_remove(at));
        let seed = match self.initiator.commands.get_mut(&itt) {
            Some(command) if was_aborted.is_none() => {
                // GOOD comes of a read only with its data.
                if progress.is_none() || outcome != Outcome::Good {
                    command.outcome = Some(outcome.clone());
                }
                command.seed
            }
            _ => 0,
        };
        let (Some(sent), Outcome::Good) = (progress, &outcome) else {
            return self.session.finish(itt, outcome, &mut self.out);
        };
        let start = u32::try_from(sent).unwrap_or(u32::MAX);
        let piece: Vec<u8> = (start..start.saturating_add(3000)).map(|at| byte_of(seed, at)).collect();
        let left =
            self.initiator.commands.get(&itt).map_or(0, |command| command.wanted().saturating_sub(start));
        let piece = piece.get(..left.min(3000) as usize).unwrap_or_default();
        match self.session.return_read(itt, seed, piece, &mut self.out) {
            ReadProgress::Aborted(_) => assert!(was_aborted.is_some(), "a read is gone that nobody aborted"),
            ReadProgress::Done(work) => assert!(work == seed, "the work of another command"),
            ReadProgress::More => {}
        }
    }

    /// Sends Data-In: one PDU of the first command that has some, or all of all; or lends the first out.
    fn pump(&mut self, lend: bool) {
        while let Some(itt) = self.session.next_read() {
            if lend {
                if let Some((_, piece)) = self.session.lend_read(itt) {
                    self.lent.push((itt, Some(piece.offset)));
                }
                return;
            }
            let sent = self.session.send_read(itt, &mut self.out, |seed, offset, buffer| {
                for (at, byte) in (u32::try_from(offset).unwrap_or(u32::MAX)..).zip(buffer) {
                    *byte = byte_of(*seed, at);
                }
                Ok::<(), ()>(())
            });
            assert!(!matches!(sent, Ok(ReadProgress::Aborted(_))), "an aborted read is still in turn");
        }
    }

    fn manage(&mut self, moves: &mut Moves<'_>) -> Result<(), Violation> {
        let immediate = moves.chance(2);
        if !immediate && !self.initiator.may_send() {
            return Ok(());
        }
        let target = u32::from(moves.byte() % 16);
        let tag = self.free_tag() | 0x8000_0000 | self.next_seed << 8;
        if self.initiator.managing.contains(&tag) {
            return Ok(());
        }
        let mut bhs = self.header(0x02, 0x81, tag, immediate);
        bhs.put(8, [0, moves.byte() & 1, 0, 0, 0, 0, 0, 0]);
        bhs.put_u32(20, target);
        self.initiator.managing.push(tag);
        self.send(&bhs, &[])
    }

    fn ping(&mut self, moves: &mut Moves<'_>) -> Result<(), Violation> {
        let immediate = moves.chance(2);
        if !immediate && !self.initiator.may_send() {
            return Ok(());
        }
        let data = vec![moves.byte(); moves.length() as usize];
        let tag = self.free_tag();
        let mut bhs = self.header(0x00, 0x80, tag, immediate);
        bhs.put_u32(20, NO_TAG);
        self.initiator.pings.insert(tag, data.clone());
        self.send(&bhs, &data)
    }

    /// The target's pings, wishes to log out, and text.
    fn small_talk(&mut self, moves: &mut Moves<'_>) -> Result<(), Violation> {
        match moves.byte() % 4 {
            0 => {
                self.session.ping(&mut self.out);
            }
            1 => {
                if let Some(ttt) = self.initiator.pong_due.take() {
                    let mut bhs = self.header(0x00, 0x80, NO_TAG, true);
                    bhs.put_u32(20, ttt);
                    self.send(&bhs, &[])?;
                    assert!(!self.session.awaits_pong(), "a pong that is not heard");
                }
            }
            2 => {
                self.initiator.messages += 1;
                self.session.want_logout(5, &mut self.out);
            }
            _ if self.initiator.may_send() => {
                let tag = self.free_tag();
                let mut bhs = self.header(0x04, 0x80, tag, false);
                bhs.put_u32(20, NO_TAG);
                self.initiator.texts += 1;
                self.send(&bhs, b"X-key=1\0")?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Breaks a rule. What it must lead to is known for each: nothing at all, a Reject, or the end.
    fn break_a_rule(&mut self, moves: &mut Moves<'_>) -> Result<(), Violation> {
        let writing = self.initiator.commands.iter().find(|(_, command)| !command.asked.is_empty());
        let writing = writing.map(|(itt, command)| (*itt, command.clone()));
        let (mut bhs, data): (Bhs, &[u8]) = match (moves.byte() % 7, writing) {
            (0, _) => {
                // SNACK is rejected and does no harm.
                self.initiator.rejects += 1;
                return self.send(&Bhs::new(0x10, 0x80), &[]);
            }
            (1, _) => {
                // The rest of something long over is dropped.
                let mut bhs = Bhs::new(0x05, 0x80).with_itt(0x7FFF_0000);
                bhs.put_u32(20, moves.byte().into());
                return self.send(&bhs, &[1, 2, 3, 4]);
            }
            (2, _) => {
                // An old request is dropped.
                let mut bhs = Bhs::new(0x01, 0x80).with_itt(0x7FFF_0000);
                bhs.put_u32(24, self.initiator.cmd_sn.wrapping_sub(1));
                return self.send(&bhs, &[]);
            }
            (3, Some((itt, command))) => {
                // Data beyond what was asked for.
                let Some(asked) = command.asked.first() else { return Ok(()) };
                let mut bhs = Bhs::new(0x05, 0x80).with_itt(itt);
                bhs.put_u32(20, asked.ttt);
                bhs.put_u32(36, asked.data_sn);
                bhs.put_u32(40, asked.at);
                let bytes = vec![0; asked.end.saturating_sub(asked.at) as usize + 1];
                return if command.spoilt { Ok(()) } else { self.must_fail(&bhs, &bytes) };
            }
            (4, Some((itt, _))) => {
                let mut bhs = Bhs::new(0x05, 0x80).with_itt(itt);
                bhs.put_u32(20, 0x7FFF_FFFF);
                (bhs, &[1])
            }
            (5, _) => (Bhs::new(0x43, 0x87), &[]),
            _ => {
                // A hole in the sequence, where the window has room for one.
                if self.session_immediate() > 60 {
                    return Ok(());
                }
                let mut bhs = Bhs::new(0x01, 0x80).with_itt(0x7FFF_0000);
                bhs.put_u32(24, self.initiator.cmd_sn.wrapping_add(3));
                (bhs, &[])
            }
        };
        bhs.put_data_bytes(0);
        self.must_fail(&bhs, data)
    }

    /// Sends what the target must not take.
    fn must_fail(&mut self, bhs: &Bhs, data: &[u8]) -> Result<(), Violation> {
        self.check();
        self.initiator.rejects += 1;
        let sent = self.send(bhs, data);
        assert!(sent.is_err(), "a broken rule goes through: {bhs:?}");
        self.check();
        sent
    }
}

/// What arrives at the disk is what was sent for it.
fn check_data(command: &Command, data: &[u8]) {
    let right = (0..).zip(data).all(|(at, byte)| byte_of(command.seed, at) == *byte);
    assert!(right, "the disk gets other data than was sent");
    assert!(command.refused || data.len() == out_bytes(command), "{} bytes of {command:?}", data.len());
}

fn out_bytes(command: &Command) -> usize {
    match command.flow {
        Flow::Out(_) => command.wanted() as usize,
        Flow::None | Flow::In(_) => 0,
    }
}
