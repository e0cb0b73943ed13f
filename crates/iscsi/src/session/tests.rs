//! The full feature phase, PDU by PDU.
use std::time::{Duration, Instant};

use super::*;
use crate::directory::Portal;
use crate::limits::MAX_OUTSTANDING_R2T;
use crate::pdu::frame::{Digests, frame};

const LUN: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

struct Lab {
    session: Session<u32>,
    out: ByteQueue,
    cmd_sn: u32,
}

impl Lab {
    fn new(parameters: Parameters) -> Self {
        let start = SessionStart {
            parameters,
            discovery: false,
            cid: 3,
            cmd_sn: 100,
            stat_sn: 5,
            knows_pings: false,
        };
        Self { session: Session::new(start), out: ByteQueue::default(), cmd_sn: 100 }
    }

    fn discovery(send_data_segment_bytes: u32) -> Self {
        let parameters = Parameters { send_data_segment_bytes, ..Parameters::default() };
        let start =
            SessionStart { parameters, discovery: true, cid: 3, cmd_sn: 100, stat_sn: 5, knows_pings: false };
        Self { session: Session::new(start), out: ByteQueue::default(), cmd_sn: 100 }
    }

    /// Passes a PDU in; the next CmdSN is filled in where it is 0 and the PDU has one.
    fn send<'d>(&mut self, mut bhs: Bhs, data: &'d [u8]) -> Result<Event<'d, u32>, Violation> {
        if bhs.opcode() != 0x05 && bhs.cmd_sn() == 0 {
            bhs.put_u32(24, self.cmd_sn);
            self.cmd_sn += u32::from(!bhs.immediate());
        }
        self.session.receive(&bhs, data, &mut self.out)
    }

    /// A command that reads (`flags` 0xC0) or writes (0xA0), up to the driver's decision.
    fn begin<'d>(
        &mut self,
        itt: u32,
        flags: u8,
        expected: u32,
        flow: Flow,
        data: &'d [u8],
    ) -> Admission<'d, u32> {
        let Ok(Event::Command(command)) = self.send(command(itt, flags, expected), data) else {
            panic!("no command")
        };
        let admission = self.session.admit(itt, flow, itt, command.data, &mut self.out);
        self.solicit();
        admission
    }

    /// Has all data asked for that the session's own budget allows.
    fn solicit(&mut self) {
        while self.session.solicited_wish().is_some() {
            self.session.solicit_next(&mut self.out);
        }
    }

    /// The PDUs that were sent since the last call.
    fn sent(&mut self) -> Vec<(Bhs, Vec<u8>)> {
        self.solicit();
        let rules = FrameRules { max_data_bytes: 1 << 20, ..self.session.frame_rules() };
        let mut found = Vec::new();
        while let Some(pdu) = frame(self.out.filled(), rules).unwrap() {
            found.push((pdu.bhs, pdu.data.to_vec()));
            let bytes = pdu.total_bytes;
            self.out.consume(bytes);
        }
        found
    }

    /// Sends all Data-In that is due, each byte its offset.
    fn pump(&mut self) {
        while let Some(itt) = self.session.next_read() {
            let fill = |_: &u32, offset: u64, buffer: &mut [u8]| {
                for (at, byte) in buffer.iter_mut().enumerate() {
                    *byte = (offset as usize + at) as u8;
                }
                Ok::<(), ()>(())
            };
            self.session.send_read(itt, &mut self.out, fill).unwrap();
        }
    }
}

fn command(itt: u32, flags: u8, expected: u32) -> Bhs {
    let mut bhs = Bhs::new(0x01, flags);
    bhs.put(8, LUN);
    bhs.put_u32(16, itt);
    bhs.put_u32(20, expected);
    bhs
}

fn data_out(itt: u32, ttt: u32, data_sn: u32, offset: u32, last: bool) -> Bhs {
    let mut bhs = Bhs::new(0x05, if last { 0x80 } else { 0 });
    bhs.put_u32(16, itt);
    bhs.put_u32(20, ttt);
    bhs.put_u32(36, data_sn);
    bhs.put_u32(40, offset);
    bhs
}

fn manage(itt: u32, function: u8, referenced: u32) -> Bhs {
    let mut bhs = Bhs::new(0x42, 0x80 | function);
    bhs.put(8, LUN);
    bhs.put_u32(16, itt);
    bhs.put_u32(20, referenced);
    bhs
}

/// Opcode, status or response, residual flags and count, StatSN.
fn summary(bhs: &Bhs) -> (u8, u8, u8, u32, u32) {
    let code = if bhs.opcode() == 0x21 { bhs.0[3] } else { bhs.0[2] };
    (bhs.opcode(), code, bhs.flags() & 0x06, bhs.u32_at(44), bhs.u32_at(24))
}

#[test]
fn read_is_cut_at_segment_and_burst_limits_with_status_on_the_last_pdu() {
    let parameters =
        Parameters { send_data_segment_bytes: 512, max_burst_bytes: 1024, ..Parameters::default() };
    let mut lab = Lab::new(parameters);
    assert!(matches!(lab.begin(1, 0xC0, 2100, Flow::In(2100), &[]), Admission::Moves));
    lab.pump();
    let sent = lab.sent();
    let fields: Vec<_> =
        sent.iter().map(|(bhs, data)| (bhs.flags(), bhs.u32_at(36), bhs.u32_at(40), data.len())).collect();
    let expected =
        [(0, 0, 0, 512), (0x80, 1, 512, 512), (0, 2, 1024, 512), (0x80, 3, 1536, 512), (0x81, 4, 2048, 52)];
    assert_eq!(fields, expected);
    assert_eq!(sent[4].0.u32_at(24), 5, "StatSN stands where the status is");
    let bytes: Vec<u8> = sent.into_iter().flat_map(|(_, data)| data).collect();
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8));
}

#[test]
fn read_residuals_are_reported() {
    let mut lab = Lab::new(Parameters::default());
    lab.begin(1, 0xC0, 1024, Flow::In(512), &[]);
    lab.begin(2, 0xC0, 512, Flow::In(1024), &[]);
    lab.pump();
    assert!(matches!(lab.begin(3, 0x80, 0, Flow::In(512), &[]), Admission::Run(3, _)));
    lab.session.finish(3, Outcome::Good, &mut lab.out);
    assert!(matches!(lab.begin(4, 0xA0, 512, Flow::In(512), &[]), Admission::Run(4, _)));
    lab.session.finish(4, Outcome::Good, &mut lab.out);
    let sent: Vec<_> = lab.sent().iter().map(|(bhs, data)| (summary(bhs), data.len())).collect();
    assert_eq!(sent[0], ((0x25, 0, 0x02, 512, 5), 512));
    assert_eq!(sent[1], ((0x25, 0, 0x04, 512, 6), 512));
    assert_eq!(sent[2], ((0x21, 0, 0x04, 512, 7), 0));
    assert_eq!(sent[3], ((0x21, 0, 0x04, 512, 8), 0), "what the initiator calls a write takes no Data-In");
}

#[test]
fn failed_read_says_how_much_is_missing() {
    let mut lab = Lab::new(Parameters { send_data_segment_bytes: 512, ..Parameters::default() });
    lab.begin(1, 0xC0, 1024, Flow::In(1024), &[]);
    lab.session.send_read(1, &mut lab.out, |_, _, _| Ok::<(), ()>(())).unwrap();
    assert!(lab.session.send_read(1, &mut lab.out, |_, _, _| Err(())).is_err());
    lab.session.lend_read(1).unwrap();
    lab.session.finish(1, Outcome::Check(vec![0x70; 18]), &mut lab.out);
    let sent = lab.sent();
    assert_eq!(summary(&sent[1].0), (0x21, 2, 0x02, 512, 5));
    assert_eq!(sent[1].0.u32_at(36), 1, "ExpDataSN counts the Data-In PDUs");
    assert_eq!(sent[1].1[..3], [0, 18, 0x70]);
}

#[test]
fn write_with_all_its_data_runs_at_once() {
    let mut lab = Lab::new(Parameters::default());
    let data = [7; 512];
    let Admission::Run(1, got) = lab.begin(1, 0xA0, 512, Flow::Out(512), &data) else {
        panic!("it should run")
    };
    assert_eq!(got, data);
    lab.session.finish(1, Outcome::Good, &mut lab.out);
    assert_eq!(summary(&lab.sent()[0].0), (0x21, 0, 0, 0, 5));
}

#[test]
fn write_asks_for_the_rest_of_its_data_in_bursts() {
    let parameters = Parameters { max_burst_bytes: 1024, max_outstanding_r2t: 2, ..Parameters::default() };
    assert!(parameters.max_outstanding_r2t <= MAX_OUTSTANDING_R2T);
    let mut lab = Lab::new(parameters);
    assert!(matches!(lab.begin(1, 0xA0, 3584, Flow::Out(3584), &[1; 512]), Admission::Moves));
    let asked: Vec<_> = lab
        .sent()
        .iter()
        .map(|(bhs, _)| (bhs.opcode(), bhs.ttt(), bhs.u32_at(36), bhs.u32_at(40), bhs.u32_at(44)))
        .collect();
    assert_eq!(asked, [(0x31, 1, 0, 512, 1024), (0x31, 2, 1, 1536, 1024)]);
    assert!(matches!(lab.send(data_out(1, 1, 0, 512, false), &[2; 512]), Ok(Event::Nothing)));
    assert!(matches!(lab.send(data_out(1, 1, 1, 1024, true), &[2; 512]), Ok(Event::Nothing)));
    let (third, _) = lab.sent().pop().unwrap();
    assert_eq!((third.u32_at(36), third.u32_at(40), third.u32_at(44)), (2, 2560, 1024));
    assert!(matches!(lab.send(data_out(1, 2, 0, 1536, true), &[3; 1024]), Ok(Event::Nothing)));
    let Ok(Event::WriteReady { itt: 1, data, .. }) =
        lab.send(data_out(1, third.ttt(), 0, 2560, true), &[4; 1024])
    else {
        panic!("the write should be complete")
    };
    let expected: Vec<u8> =
        [(1, 512), (2, 1024), (3, 1024), (4, 1024)].iter().flat_map(|(b, n)| vec![*b; *n]).collect();
    assert_eq!(data, expected);
    lab.session.finish(1, Outcome::Good, &mut lab.out);
    assert_eq!(lab.sent()[0].0.u32_at(36), 3, "ExpDataSN counts the R2Ts");
}

#[test]
fn unsolicited_data_is_taken_up_to_first_burst() {
    let parameters = Parameters { initial_r2t: false, first_burst_bytes: 1024, ..Parameters::default() };
    let mut lab = Lab::new(parameters);
    lab.begin(1, 0x20, 2048, Flow::Out(2048), &[1; 512]);
    assert!(lab.sent().is_empty(), "nothing is asked for while unsolicited data comes");
    lab.send(data_out(1, NO_TAG, 0, 512, true), &[2; 512]).unwrap();
    assert_eq!(lab.sent()[0].0.u32_at(40), 1024);

    let mut lab = Lab::new(parameters);
    lab.begin(1, 0x20, 2048, Flow::Out(2048), &[1; 512]);
    assert!(lab.send(data_out(1, NO_TAG, 0, 512, true), &[2; 1024]).is_err());
    assert_eq!(lab.sent()[0].0.opcode(), 0x3F);
}

#[test]
fn data_that_was_not_agreed_on_is_refused() {
    let no_immediate = Parameters { immediate_data: false, ..Parameters::default() };
    assert!(Lab::new(no_immediate).send(command(1, 0xA0, 512), &[0; 512]).is_err());
    assert!(Lab::new(Parameters::default()).send(command(1, 0x20, 512), &[]).is_err(), "InitialR2T=Yes");
    let small = Parameters { first_burst_bytes: 512, ..Parameters::default() };
    assert!(Lab::new(small).send(command(1, 0xA0, 4096), &[0; 1024]).is_err());
    assert!(Lab::new(Parameters::default()).send(command(1, 0xA0, 256), &[0; 512]).is_err());
    let mut lab = Lab::new(Parameters::default());
    lab.begin(1, 0xA0, 1024, Flow::Out(1024), &[]);
    assert!(lab.send(data_out(1, 99, 0, 0, true), &[0; 1024]).is_err(), "an R2T that was not sent");
}

#[test]
fn data_out_of_sequence_fails_the_command_and_not_the_session() {
    for (data_sn, offset) in [(1, 0), (0, 512), (u32::MAX, 0), (0, u32::MAX)] {
        let mut lab = Lab::new(Parameters::default());
        lab.begin(1, 0xA0, 1024, Flow::Out(1024), &[]);
        lab.sent();
        assert!(matches!(lab.send(data_out(1, 1, data_sn, offset, false), &[0; 512]), Ok(Event::Nothing)));
        assert!(lab.sent().is_empty(), "it is answered when its data is over");
        assert!(matches!(lab.send(data_out(1, 1, 5, 512, true), &[0; 512]), Ok(Event::Nothing)));
        let sent = lab.sent();
        assert_eq!((summary(&sent[0].0).0, summary(&sent[0].0).1), (0x21, 2));
        assert_eq!((sent[0].1[4], sent[0].1[14], sent[0].1[15]), (0x0B, 0x47, 0x05));
    }
}

#[test]
fn refused_write_is_answered_when_its_unsolicited_data_is_over() {
    let mut lab = Lab::new(Parameters { initial_r2t: false, ..Parameters::default() });
    assert!(matches!(lab.send(command(1, 0x20, 1024), &[0; 512]), Ok(Event::Command(_))));
    lab.session.refuse(1, 1024, Outcome::Check(vec![0; 18]), &mut lab.out);
    assert!(lab.sent().is_empty());
    lab.send(data_out(1, NO_TAG, 0, 512, true), &[0; 512]).unwrap();
    assert_eq!(lab.sent().len(), 1);
    assert_eq!(lab.session.lent(), 0);
}

#[test]
fn writes_beyond_the_budget_wait_their_turn() {
    let mut lab = Lab::new(Parameters { max_burst_bytes: 1 << 20, ..Parameters::default() });
    let bytes = 3 << 20;
    for itt in 1..=3 {
        lab.begin(itt, 0xA0, bytes, Flow::Out(u64::from(bytes)), &[]);
    }
    let asked: Vec<u32> = lab.sent().iter().map(|(bhs, _)| bhs.itt()).collect();
    assert_eq!(asked, [1], "one write of 3 MiB leaves no room for another");
    lab.send(manage(9, 1, 1), &[]).unwrap();
    lab.session.abort(9, Scope::Task(1, LUN), false, &mut lab.out);
    let after: Vec<(u8, u32)> = lab.sent().iter().map(|(bhs, _)| (bhs.opcode(), bhs.itt())).collect();
    assert_eq!(after, [(0x22, 9), (0x31, 2)]);
}

#[test]
fn data_that_came_unasked_is_counted_until_its_command_is_over_or_asks_for_more() {
    let mut lab = Lab::new(Parameters { initial_r2t: false, ..Parameters::default() });
    // Announced to come unasked: all that may come is counted at once.
    lab.begin(1, 0x20, 4096, Flow::Out(4096), &[0; 512]);
    assert_eq!((lab.session.unasked_bytes(), lab.session.solicited_bytes()), (4096, 0));
    lab.begin(2, 0xA0, 100_000, Flow::Out(100_000), &[0; 1000]);
    assert_eq!((lab.session.unasked_bytes(), lab.session.solicited_bytes()), (4096, 100_000));
    lab.begin(3, 0xA0, 512, Flow::Out(512), &[0; 512]);
    assert_eq!(lab.session.unasked_bytes(), 4096 + 512);
    lab.session.finish(3, Outcome::Good, &mut lab.out);
    lab.session.abort(9, Scope::Session, false, &mut lab.out);
    assert_eq!((lab.session.unasked_bytes(), lab.session.solicited_bytes()), (0, 0));
}

#[test]
fn data_is_overdue_when_one_sequence_of_it_has_been_due_for_too_long() {
    let mut lab = Lab::new(Parameters { max_burst_bytes: 512, ..Parameters::default() });
    let (now, second) = (Instant::now(), Duration::from_secs(1));
    let overdue = |lab: &mut Lab, at: u32| lab.session.data_is_overdue(now + second * at, second * 10);
    assert!(!overdue(&mut lab, 0));
    lab.begin(1, 0xA0, 1024, Flow::Out(1024), &[]);
    assert!(!overdue(&mut lab, 0) && !overdue(&mut lab, 10));
    let tag = lab.sent()[0].0.ttt();
    lab.send(data_out(1, tag, 0, 0, true), &[0; 512]).unwrap();
    assert!(!overdue(&mut lab, 11), "the second sequence is due since now");
    let tag = lab.sent()[0].0.ttt();
    lab.send(data_out(1, tag, 0, 512, false), &[0; 100]).unwrap();
    assert!(!overdue(&mut lab, 21), "a part of it buys no time");
    assert!(overdue(&mut lab, 22));
    lab.send(data_out(1, tag, 1, 612, true), &[0; 412]).unwrap();
    assert!(!overdue(&mut lab, 99), "all is here, and not yet written");
}

#[test]
fn window_closes_with_each_command_and_opens_with_each_answer() {
    let mut lab = Lab::new(Parameters::default());
    for itt in 0..QUEUE_DEPTH {
        assert!(matches!(lab.send(command(itt, 0x80, 0), &[]), Ok(Event::Command(_))));
    }
    assert!(matches!(lab.send(command(900, 0x80, 0), &[]), Ok(Event::Nothing)), "outside the window");
    lab.session.finish(0, Outcome::Good, &mut lab.out);
    let (bhs, _) = lab.sent().pop().unwrap();
    assert_eq!((bhs.u32_at(28), bhs.u32_at(32)), (100 + QUEUE_DEPTH, 100 + QUEUE_DEPTH));
}

#[test]
fn commands_outside_the_window_are_dropped_silently_and_a_hole_is_not() {
    for cmd_sn in [99, 100 + QUEUE_DEPTH, 50_000] {
        let mut lab = Lab::new(Parameters::default());
        let mut bhs = command(1, 0x80, 0);
        bhs.put_u32(24, cmd_sn);
        assert!(matches!(lab.send(bhs, &[]), Ok(Event::Nothing)));
        assert!(lab.sent().is_empty());
    }
    let mut lab = Lab::new(Parameters::default());
    let mut bhs = command(1, 0x80, 0);
    bhs.put_u32(24, 101);
    assert!(lab.send(bhs, &[]).is_err());
}

#[test]
fn immediate_commands_and_tags_are_limited() {
    let mut lab = Lab::new(Parameters::default());
    let immediate = |itt| Bhs::new(0x41, 0x80).with_itt(itt);
    for itt in 0..MAX_IMMEDIATE_TASKS as u32 {
        assert!(lab.send(immediate(itt), &[]).is_ok());
    }
    assert!(lab.send(immediate(100), &[]).is_err());
    let mut lab = Lab::new(Parameters::default());
    lab.send(command(1, 0x80, 0), &[]).unwrap();
    assert!(lab.send(command(1, 0x80, 0), &[]).is_err());
    assert_eq!(lab.sent()[0].0.0[2], RejectReason::TaskInProgress as u8);
}

#[test]
fn abort_waits_for_work_that_is_out() {
    let mut lab = Lab::new(Parameters::default());
    lab.begin(1, 0xC0, 1024, Flow::In(1024), &[]);
    lab.begin(2, 0xA0, 512, Flow::Out(512), &[0; 512]);
    lab.send(manage(9, 2, NO_TAG), &[]).unwrap();
    lab.session.abort(9, Scope::Lun(LUN), false, &mut lab.out);
    assert!(lab.sent().is_empty());
    assert_eq!(lab.session.next_read(), None, "the read is off the list");
    lab.session.finish(2, Outcome::Good, &mut lab.out);
    let sent = lab.sent();
    assert_eq!(sent.len(), 1, "no answer to the aborted command itself");
    assert_eq!((summary(&sent[0].0).0, summary(&sent[0].0).1, sent[0].0.itt()), (0x22, 0, 9));
}

#[test]
fn abort_of_an_unknown_task_says_so() {
    let mut lab = Lab::new(Parameters::default());
    lab.session.abort(9, Scope::Task(5, LUN), false, &mut lab.out);
    assert_eq!(summary(&lab.sent()[0].0).1, 1);
}

#[test]
fn read_that_was_lent_goes_on_where_it_stopped() {
    let mut lab = Lab::new(Parameters { send_data_segment_bytes: 512, ..Parameters::default() });
    lab.begin(1, 0xC0, 2048, Flow::In(2048), &[]);
    let (work, piece) = lab.session.lend_read(1).unwrap();
    assert_eq!((piece.offset, piece.bytes), (0, 2048));
    assert_eq!(lab.session.return_read(1, work, &[9; 1300], &mut lab.out), ReadProgress::More);
    assert_eq!(lab.sent().len(), 2, "what does not fill a PDU is read again");
    let (work, piece) = lab.session.lend_read(1).unwrap();
    assert_eq!((piece.offset, piece.bytes), (1024, 1024));
    assert_eq!(lab.session.return_read(1, work, &[9; 1024], &mut lab.out), ReadProgress::Done(1));
    assert_eq!(lab.session.lent(), 0);
}

#[test]
fn aborted_read_is_dropped_when_it_comes_back() {
    let mut lab = Lab::new(Parameters::default());
    lab.begin(1, 0xC0, 512, Flow::In(512), &[]);
    let (work, _) = lab.session.lend_read(1).unwrap();
    lab.session.abort(9, Scope::Session, false, &mut lab.out);
    assert_eq!(lab.session.return_read(1, work, &[0; 512], &mut lab.out), ReadProgress::Aborted(1));
    let sent = lab.sent();
    assert_eq!((sent.len(), sent[0].0.opcode()), (1, 0x22));
}

#[test]
fn ping_is_echoed_and_ours_is_sent_only_to_those_who_ping() {
    let mut lab = Lab::new(Parameters::default());
    assert!(!lab.session.ping(&mut lab.out));
    let mut ping = Bhs::new(0x40, 0x80).with_itt(4);
    ping.put_u32(20, NO_TAG);
    lab.send(ping, b"echo").unwrap();
    let (bhs, data) = lab.sent().pop().unwrap();
    assert_eq!((bhs.opcode(), bhs.itt(), bhs.ttt(), data.as_slice()), (0x20, 4, NO_TAG, &b"echo"[..]));
    assert!(lab.session.ping(&mut lab.out));
    let (ours, _) = lab.sent().pop().unwrap();
    assert!(lab.session.awaits_pong() && !lab.session.ping(&mut lab.out));
    let mut pong = Bhs::new(0x40, 0x80).with_itt(NO_TAG);
    pong.put_u32(20, ours.ttt());
    lab.send(pong, &[]).unwrap();
    assert!(!lab.session.awaits_pong());
}

#[test]
fn initiator_that_is_known_to_answer_pings_is_pinged_before_it_has_sent_one() {
    let linux = crate::directory::Isid([0x00, 0x02, 0x3D, 1, 2, 3]);
    let ipxe = crate::directory::Isid([0x40, 0, 0, 1, 2, 3]);
    assert_eq!((linux.is_of_open_iscsi(), ipxe.is_of_open_iscsi()), (true, false));
    let mut lab = Lab::new(Parameters::default());
    lab.session.pings = linux.is_of_open_iscsi();
    assert!(lab.session.ping(&mut lab.out) && lab.session.awaits_pong());
}

#[test]
fn long_list_of_targets_comes_in_parts() {
    let mut lab = Lab::discovery(512);
    let mut ask = Bhs::new(0x04, 0x80).with_itt(1);
    ask.put_u32(20, NO_TAG);
    let Ok(Event::SendTargets(SendTargets::All)) = lab.send(ask, b"SendTargets=All\0") else {
        panic!("no question")
    };
    let targets: Vec<_> = (0..40)
        .map(|n| crate::directory::IscsiName::parse(format!("iqn.2026-01.lab:{n}")).unwrap())
        .collect();
    let portal = Portal { address: ([10, 0, 0, 1], 3260).into(), group: 1 };
    lab.session.answer_text(&targets, &[portal], &mut lab.out);
    let mut text = Vec::new();
    loop {
        let (bhs, data) = lab.sent().pop().unwrap();
        text.extend(data);
        if bhs.flags() & 0x80 != 0 {
            break;
        }
        let mut next = Bhs::new(0x04, 0x80).with_itt(2);
        next.put_u32(20, bhs.ttt());
        assert!(matches!(lab.send(next, &[]), Ok(Event::Nothing)));
    }
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.matches("TargetAddress=10.0.0.1:3260,1\0").count(), 40);
}

#[test]
fn text_of_a_normal_session_asks_about_its_own_target_only() {
    let mut lab = Lab::new(Parameters::default());
    let mut ask = Bhs::new(0x04, 0x80).with_itt(1);
    ask.put_u32(20, NO_TAG);
    assert!(matches!(lab.send(ask, b"SendTargets=All\0X-a=1\0"), Ok(Event::Nothing)));
    assert_eq!(lab.sent()[0].1, b"X-a=NotUnderstood\0");
    assert!(matches!(lab.send(ask, b"SendTargets=\0"), Ok(Event::SendTargets(SendTargets::Own))));
}

#[test]
fn discovery_session_takes_no_commands() {
    for bhs in [command(1, 0x80, 0), manage(1, 1, 0), data_out(1, 1, 0, 0, true)] {
        assert!(Lab::discovery(8192).send(bhs, &[]).is_err());
    }
}

#[test]
fn logout_is_answered_by_its_reason() {
    for (reason, cid, response, leaves) in
        [(0, 0, 0, true), (1, 3, 0, true), (1, 4, 1, false), (2, 3, 2, false)]
    {
        let mut lab = Lab::new(Parameters::default());
        let mut bhs = Bhs::new(0x46, 0x80 | reason).with_itt(1);
        bhs.put(20, u16::to_be_bytes(cid));
        assert_eq!(matches!(lab.send(bhs, &[]), Ok(Event::Logout)), leaves);
        assert_eq!(summary(&lab.sent()[0].0).1, response);
    }
}

#[test]
fn snack_is_rejected_and_the_session_goes_on() {
    let mut lab = Lab::new(Parameters::default());
    assert!(matches!(lab.send(Bhs::new(0x10, 0x80), &[]), Ok(Event::Nothing)));
    let (bhs, data) = lab.sent().pop().unwrap();
    assert_eq!((bhs.opcode(), bhs.0[2], data.len()), (0x3F, 3, 48));
}

#[test]
fn login_request_after_login_is_an_error() {
    assert!(Lab::new(Parameters::default()).send(Bhs::new(0x43, 0x87), &[]).is_err());
}

#[test]
fn digests_cover_what_is_sent() {
    let digests = Digests { header: true, data: true };
    let mut lab = Lab::new(Parameters { digests, ..Parameters::default() });
    lab.begin(1, 0xC0, 515, Flow::In(515), &[]);
    lab.pump();
    let sent = lab.sent(); // Checks the digests.
    assert_eq!(sent[0].1.len(), 515);
}
