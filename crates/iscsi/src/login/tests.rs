//! Logins as real initiators send them (captured with tcpdump from the programs that the files are named after), and
//! the ways to get one wrong.
use super::*;
use crate::directory::ChapSecret;

const IPXE: &[u8] = include_bytes!("../../testdata/ipxe-1.0-2019.bin");
const QEMU: &[u8] = include_bytes!("../../testdata/qemu-7.2.bin");
const LIBISCSI_DISCOVERY: &[u8] = include_bytes!("../../testdata/libiscsi-1.19-discovery.bin");

const CHALLENGE: Challenge = Challenge { identifier: 7, bytes: [0x5A; 16] };
/// `hashlib.md5(b"\x07" + b"twelve-bytes" + b"\x5a" * 16).hexdigest()` in Python.
const RESPONSE: &str = include_str!("../../testdata/chap-response.txt");

/// A login with the directory's answers given at once.
struct Played {
    login: Login,
    out: ByteQueue,
    chap: bool,
    target: Option<ChapSecret>,
    open: Option<NotOpened>,
    events: Vec<LoginEvent>,
}

/// One login response: flags, TSIH, status, text.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    flags: u8,
    tsih: u16,
    status: u16,
    text: String,
}

impl Played {
    fn new(chap: bool) -> Self {
        let login = Login::new(SocketAddr::from(([10, 0, 0, 7], 4000)));
        Self { login, out: ByteQueue::default(), chap, target: None, open: None, events: Vec::new() }
    }

    fn send(&mut self, bhs: &Bhs, text: &[u8]) -> Result<(), String> {
        let mut event = self.login.receive(bhs, text, &mut self.out)?;
        if let LoginEvent::AskAuthentication(_) = event {
            let credentials = ChapCredentials {
                target: self.target.clone(),
                ..ChapCredentials::one_way("lab", "twelve-bytes")
            };
            let needed = if self.chap { Authentication::Chap(credentials) } else { Authentication::None };
            event = self.login.authentication(Ok(needed), CHALLENGE, &mut self.out);
        }
        if let LoginEvent::AskOpen { .. } = event {
            let answer = self.open.take().map_or(Ok(77), Err);
            event = self.login.opened(answer, &mut self.out);
        }
        self.events.push(event);
        Ok(())
    }

    fn text(&mut self, flags: u8, text: &str) -> Reply {
        self.send(&request(flags), text.replace(' ', "\0").as_bytes()).unwrap();
        self.replies().pop().unwrap()
    }

    fn replies(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        for (bhs, data) in pdus(self.out.filled()) {
            assert_eq!(bhs.opcode(), 0x23);
            let text = String::from_utf8(data.to_vec()).unwrap().trim_end_matches('\0').replace('\0', " ");
            replies.push(Reply { flags: bhs.flags(), tsih: bhs.u16_at(14), status: bhs.u16_at(36), text });
        }
        self.out.consume(self.out.len());
        replies
    }

    fn established(&self) -> Option<&Established> {
        match self.events.last() {
            Some(LoginEvent::Established(established)) => Some(established),
            _ => None,
        }
    }
}

fn request(flags: u8) -> Bhs {
    let mut bhs = Bhs::new(0x43, flags);
    bhs.put(8, [0x80, 1, 2, 3, 4, 5]);
    bhs.put_u32(16, 9);
    bhs.put_u32(24, 1000);
    bhs
}

fn pdus(mut bytes: &[u8]) -> Vec<(Bhs, &[u8])> {
    let rules = crate::pdu::frame::FrameRules { digests: Digests::default(), max_data_bytes: 1 << 20 };
    let mut found = Vec::new();
    while let Some(pdu) = crate::pdu::frame::frame(bytes, rules).unwrap() {
        found.push((pdu.bhs, pdu.data));
        bytes = &bytes[pdu.total_bytes..];
    }
    found
}

fn play(transcript: &[u8]) -> (Played, Vec<Reply>) {
    let mut played = Played::new(false);
    for (bhs, data) in pdus(transcript).into_iter().take_while(|(bhs, _)| bhs.opcode() == 3) {
        played.send(&bhs, data).unwrap();
    }
    let replies = played.replies();
    (played, replies)
}

const NAMES: &str = "InitiatorName=iqn.2026-01.lab:a TargetName=iqn.2026-01.lab:disk SessionType=Normal ";

#[test]
fn login_of_ipxe_is_answered_in_two_stages() {
    let (played, replies) = play(IPXE);
    assert_eq!(replies.len(), 2);
    assert_eq!((replies[0].flags, replies[0].tsih, replies[0].status), (0x81, 0, 0));
    assert_eq!(replies[0].text, "TargetPortalGroupTag=1 AuthMethod=None");
    assert_eq!((replies[1].flags, replies[1].tsih, replies[1].status), (0x87, 77, 0));
    let established = played.established().unwrap();
    assert_eq!(established.attempt.initiator.as_str(), "iqn.2026-01.lab:ipxe");
    assert_eq!(established.attempt.target.as_ref().unwrap().as_str(), "iqn.2026-01.io.headwater:serve");
    assert_eq!(established.parameters.max_outstanding_r2t, 1);
    assert_eq!(established.stat_sn, 2);
}

#[test]
fn login_of_qemu_begins_in_the_operational_stage() {
    let (played, replies) = play(QEMU);
    let [reply] = &replies[..] else { panic!("{replies:?}") };
    assert_eq!((reply.flags, reply.status), (0x87, 0));
    for part in [
        "MaxRecvDataSegmentLength=262144",
        "TargetPortalGroupTag=1",
        "FirstBurstLength=65536",
        "InitialR2T=No",
    ] {
        assert!(reply.text.contains(part), "{part} in {}", reply.text);
    }
    let parameters = played.established().unwrap().parameters;
    assert_eq!((parameters.first_burst_bytes, parameters.max_burst_bytes), (65536, 262_144));
    assert!(!parameters.initial_r2t && parameters.immediate_data);
}

#[test]
fn discovery_login_of_libiscsi_needs_no_target() {
    let (played, replies) = play(LIBISCSI_DISCOVERY);
    assert_eq!(replies[0].status, 0);
    assert!(!replies[0].text.contains("TargetPortalGroupTag"));
    assert_eq!(played.established().unwrap().attempt.target, None);
}

#[test]
fn right_chap_proof_opens() {
    let mut played = Played::new(true);
    let reply = played.text(0x81, &format!("{NAMES}AuthMethod=CHAP,None"));
    assert_eq!((reply.flags, reply.text.as_str()), (0x00, "TargetPortalGroupTag=1 AuthMethod=CHAP"));
    let reply = played.text(0x00, "CHAP_A=6,5,7");
    assert_eq!(reply.text, format!("CHAP_A=5 CHAP_I=7 CHAP_C=0x{}", "5a".repeat(16)));
    let reply = played.text(0x81, &format!("CHAP_N=lab CHAP_R={}", RESPONSE.trim()));
    assert_eq!((reply.flags, reply.status), (0x81, 0));
    let reply = played.text(0x87, "MaxRecvDataSegmentLength=8192");
    assert_eq!((reply.flags, reply.tsih, reply.status), (0x87, 77, 0));
    assert!(played.established().is_some());
}

#[test]
fn wrong_or_missing_chap_proof_is_refused() {
    let first = format!("{NAMES}AuthMethod=CHAP");
    let flows: [&[(u8, &str)]; 6] = [
        &[(0x81, &first), (0x00, "CHAP_A=5"), (0x81, "CHAP_N=lab CHAP_R=0x00")],
        &[(0x81, &first), (0x00, "CHAP_A=5"), (0x81, "CHAP_N=lab")],
        &[(0x81, &first), (0x00, "CHAP_A=6")],
        &[(0x81, &first), (0x00, "CHAP_N=lab CHAP_R=0x00")],
        &[(0x81, NAMES), (0x87, "InitialR2T=No")],
        &[(0x87, NAMES)],
    ];
    for flow in flows {
        let mut played = Played::new(true);
        let last = flow.iter().map(|(flags, text)| played.text(*flags, text)).last().unwrap();
        assert_eq!((last.status, last.tsih, last.flags & 0x80), (0x0201, 0, 0), "{flow:?}");
        assert!(matches!(played.events.last(), Some(LoginEvent::Refused(_))));
        assert!(played.send(&request(0x87), b"").is_err(), "a refused login takes nothing more");
    }
    let mut played = Played::new(true);
    assert_eq!(played.text(0x81, &format!("{NAMES}AuthMethod=KRB5,None")).status, 0x0201);
}

#[test]
fn initiator_that_wants_the_target_to_prove_itself_is_refused() {
    let mut played = Played::new(true);
    played.text(0x81, &format!("{NAMES}AuthMethod=CHAP"));
    played.text(0x00, "CHAP_A=5");
    let proof = format!("CHAP_N=lab CHAP_R={} CHAP_I=1 CHAP_C=0x0102", RESPONSE.trim());
    assert_eq!(played.text(0x81, &proof).status, 0x0201);
}

/// `hashlib.sha256(b"\x01" + b"another-secret" + b"\x01\x02").hexdigest()` in Python.
const TARGET_RESPONSE: &str = "52ba190917f4731bf47c399d0e8b4622743a61c771cef5ac9e50aaca3d345368";
/// `hashlib.sha256(b"\x07" + b"twelve-bytes" + b"\x5a" * 16).hexdigest()` in Python.
const RESPONSE_SHA256: &str = "8ef15a8d4a5bc4cc195d491f8f2a6674baa749ce0fcfcc3eb142c30c40daa56e";

#[test]
fn target_proves_itself_with_its_own_secret() {
    let mut played = Played::new(true);
    played.target = Some(ChapSecret { user: "disk".to_owned(), secret: b"another-secret".to_vec() });
    played.text(0x81, &format!("{NAMES}AuthMethod=CHAP"));
    assert!(played.text(0x00, "CHAP_A=7,5").text.starts_with("CHAP_A=7 "));
    let proof = format!("CHAP_N=lab CHAP_R=0x{RESPONSE_SHA256} CHAP_I=1 CHAP_C=0x0102");
    let reply = played.text(0x81, &proof);
    assert_eq!((reply.flags, reply.status), (0x81, 0));
    assert_eq!(reply.text, format!("CHAP_N=disk CHAP_R=0x{TARGET_RESPONSE}"));
}

#[test]
fn reflected_challenge_and_equal_secrets_are_refused() {
    let mut played = Played::new(true);
    played.target = Some(ChapSecret { user: "disk".to_owned(), secret: b"another-secret".to_vec() });
    played.text(0x81, &format!("{NAMES}AuthMethod=CHAP"));
    played.text(0x00, "CHAP_A=5");
    let reflected = format!("CHAP_N=lab CHAP_R={} CHAP_I=7 CHAP_C=0x{}", RESPONSE.trim(), "5a".repeat(16));
    assert_eq!(played.text(0x81, &reflected).status, 0x0201);

    let mut played = Played::new(true);
    played.target = Some(ChapSecret { user: "disk".to_owned(), secret: b"twelve-bytes".to_vec() });
    assert_eq!(played.text(0x81, &format!("{NAMES}AuthMethod=CHAP")).status, 0x0201);
}

#[test]
fn redirection_names_the_other_address() {
    let to = SocketAddr::from(([10, 0, 0, 9], 3260));
    for (refusal, status) in
        [(Refusal::MovedTemporarily(to), 0x0101), (Refusal::MovedPermanently(to), 0x0102)]
    {
        let mut played = Played::new(false);
        played.open = Some(NotOpened::Refused(refusal));
        let reply = played.text(0x87, NAMES);
        assert_eq!((reply.status, reply.text.as_str()), (status, "TargetAddress=10.0.0.9:3260"));
        assert_eq!(reply.flags & 0x80, 0);
    }
}

#[test]
fn faulty_first_requests_get_the_status_that_names_the_fault() {
    let too_many: String = (0..=64).map(|n| format!("X-k{n}=1 ")).collect();
    let cases = [
        ("", 0x0207),
        ("InitiatorName=iqn.2026-01.lab:a", 0x0207),
        ("TargetName=iqn.2026-01.lab:disk", 0x0207),
        ("InitiatorName=nonsense TargetName=iqn.2026-01.lab:disk", 0x0200),
        ("InitiatorName=iqn.2026-01.lab:a SessionType=Strange", 0x0209),
        ("InitiatorName=iqn.2026-01.lab:a =", 0x0200),
        (too_many.as_str(), 0x0200),
    ];
    for (text, status) in cases {
        assert_eq!(Played::new(false).text(0x87, text).status, status, "{text}");
    }
    let mut played = Played::new(false);
    let mut newer = request(0x87);
    newer.0[3] = 1;
    played.send(&newer, NAMES.replace(' ', "\0").as_bytes()).unwrap();
    assert_eq!(played.replies()[0].status, 0x0205);
}

#[test]
fn refusals_of_the_directory_become_their_status() {
    let cases = [
        (NotOpened::NoSuchSession, 0x020A),
        (NotOpened::Refused(Refusal::AuthenticationFailed), 0x0201),
        (NotOpened::Refused(Refusal::NotAuthorized(String::new())), 0x0202),
        (NotOpened::Refused(Refusal::NotFound(String::new())), 0x0203),
        (NotOpened::Refused(Refusal::Removed(String::new())), 0x0204),
        (NotOpened::Refused(Refusal::Unavailable(String::new())), 0x0301),
        (NotOpened::Refused(Refusal::OutOfResources(String::new())), 0x0302),
    ];
    for (no, status) in cases {
        let mut played = Played::new(false);
        played.open = Some(no);
        assert_eq!(played.text(0x87, NAMES).status, status);
    }
}

#[test]
fn text_in_parts_is_put_together_and_bounded() {
    let mut played = Played::new(false);
    let (first, second) = NAMES.split_at(20);
    assert_eq!(played.text(0x44, first), Reply { flags: 0x04, tsih: 0, status: 0, text: String::new() });
    assert_eq!(played.text(0x87, second).tsih, 77);

    let mut played = Played::new(false);
    let part = vec![b'a'; 5000];
    played.send(&request(0x44), &part).unwrap();
    played.send(&request(0x44), &part).unwrap();
    assert_eq!(played.replies()[1].status, 0x0200);
}

#[test]
fn unknown_keys_are_not_understood_within_the_output_limit() {
    let mut played = Played::new(false);
    let unknown: String = (0..60).map(|n| format!("{}{n:02}=1 ", "k".repeat(61))).collect();
    let reply = played.text(0x87, &format!("{NAMES}{unknown}"));
    assert_eq!(reply.text.matches("=NotUnderstood").count(), 60);
    assert!(reply.text.len() < MAX_TEXT_BYTES);
}

#[test]
fn login_that_never_ends_is_ended() {
    let mut played = Played::new(false);
    let mut last = played.text(0x04, NAMES);
    for _ in 0..MAX_LOGIN_REQUESTS {
        assert_eq!(last.status, 0);
        last = played.text(0x04, "");
    }
    assert_eq!(last.status, 0x0200);
}

#[test]
fn nothing_but_login_requests_is_taken() {
    for opcode in [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x23, 0x3F] {
        let mut played = Played::new(false);
        assert!(played.send(&Bhs::new(opcode, 0x80), b"").is_err(), "{opcode:#x}");
        assert!(played.out.is_empty());
    }
}

#[test]
fn initiator_must_stay_who_it_is() {
    let mut played = Played::new(false);
    played.text(0x04, NAMES);
    let mut other = request(0x87);
    other.put(8, [0x80, 9, 9, 9, 9, 9]);
    played.send(&other, b"").unwrap();
    assert_eq!(played.replies()[0].status, 0x0200);
}

#[test]
fn stage_that_is_over_cannot_be_had_again() {
    let mut played = Played::new(false);
    played.text(0x81, &format!("{NAMES}AuthMethod=None"));
    played.text(0x04, "InitialR2T=No");
    assert_eq!(played.text(0x81, "AuthMethod=None").status, 0x020B);
}
