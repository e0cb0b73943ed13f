//! Any bytes into the decoders and the state machines: they return, make a bounded output, and let nothing through
//! before the login is done.
use iscsi::fuzzing::{Seen, connection, decode, session};
use mutate::{Mutator, Rng};

/// Recorded from the programs that the files are named after.
const RECORDED: [&[u8]; 4] = [
    include_bytes!("../testdata/ipxe-1.0-2019.bin"),
    include_bytes!("../testdata/qemu-7.2.bin"),
    include_bytes!("../testdata/libiscsi-1.19-discovery.bin"),
    include_bytes!("../testdata/libiscsi-1.19-header-digest.bin"),
];

/// What one step may leave in the output: the largest piece of Data-In that the player sends, and small change.
const OUTPUT_LIMIT: usize = (1 << 20) + (512 << 10);

fn seeds() -> Vec<Vec<u8>> {
    RECORDED.iter().map(|bytes| bytes.to_vec()).collect()
}

fn check(seen: Seen, chap: bool) {
    assert!(seen.most_output_bytes <= OUTPUT_LIMIT, "{} bytes of output", seen.most_output_bytes);
    assert!(!(chap && seen.logged_in), "in without a proof");
    assert!(seen.logged_in || seen.commands == 0, "a command before the login");
}

#[test]
fn recorded_sessions_are_understood_to_their_end() {
    let commands: Vec<(bool, usize)> = RECORDED
        .iter()
        .map(|bytes| connection(bytes, false))
        .map(|seen| (seen.logged_in, seen.commands))
        .collect();
    assert_eq!(commands, [(true, 5), (true, 13), (true, 0), (true, 3)]);
    for bytes in RECORDED {
        check(connection(bytes, true), true);
    }
}

#[test]
fn mutated_pdus_never_panic() {
    let mut seeds = seeds();
    seeds.extend(RECORDED.iter().map(|bytes| bytes[48..].to_vec()));
    Mutator::new(seeds, 20_000).run(40_000, decode);
}

#[test]
fn mutated_sessions_never_panic() {
    let mutator = Mutator::new(seeds(), 20_000).seeding("iscsi_connection");
    mutator.run(30_000, |bytes| check(connection(bytes, false), false));
    mutator.run(10_000, |bytes| check(connection(bytes, true), true));
}

#[test]
fn random_plays_of_initiator_and_disk_keep_to_the_rules() {
    let play = |seed: u64| {
        let mut rng = Rng::new(seed);
        (0..8 + rng.below(600)).map(|_| rng.next() as u8).collect::<Vec<u8>>()
    };
    let mutator = Mutator::new((0..64).map(play).collect(), 1000).seeding("iscsi_session");
    let (mut answered, mut violated) = (0, 0);
    mutator.run(1200, |bytes| {
        let played = session(bytes);
        answered += played.answered;
        violated += usize::from(played.violated);
    });
    assert!(answered > 5000, "the plays end too early to tell anything: {answered} answers in all");
    assert!(violated > 100, "hardly a rule is broken: {violated}");
}

#[test]
fn random_request_sequences_never_panic() {
    let mut commands = 0;
    for seed in 0..6000 {
        let mut rng = Rng::new(seed);
        let agreed = Agreed { initial_r2t: rng.below(2) == 0, immediate_data: rng.below(2) == 0 };
        let mut bytes = login(&mut rng, agreed);
        let mut cmd_sn = 1000;
        for _ in 0..rng.below(90) {
            request(&mut rng, agreed, &mut cmd_sn, &mut bytes);
        }
        let seen = connection(&bytes, false);
        assert!(seen.logged_in, "seed {seed}");
        check(seen, false);
        commands += seen.commands;
    }
    // A sequence ends with its first violation; most should get somewhere before that.
    assert!(commands > 30_000, "the sequences end too early to tell anything: {commands} commands in all");
}

#[derive(Clone, Copy)]
struct Agreed {
    initial_r2t: bool,
    immediate_data: bool,
}

/// A login with random, legal parameters.
fn login(rng: &mut Rng, agreed: Agreed) -> Vec<u8> {
    let pick = |rng: &mut Rng, choices: &[&str]| choices[rng.below(choices.len() as u64) as usize].to_owned();
    let lengths = ["512", "4096", "8192", "65536", "1048576"];
    let yes_no = |yes| if yes { "Yes" } else { "No" };
    let text = [
        "InitiatorName=iqn.2026-01.lab:a".to_owned(),
        "TargetName=iqn.2026-01.lab:disk".to_owned(),
        format!("InitialR2T={}", yes_no(agreed.initial_r2t)),
        format!("ImmediateData={}", yes_no(agreed.immediate_data)),
        format!("MaxRecvDataSegmentLength={}", pick(rng, &lengths)),
        format!("MaxBurstLength={}", pick(rng, &lengths)),
        format!("FirstBurstLength={}", pick(rng, &lengths)),
        format!("MaxOutstandingR2T={}", 1 + rng.below(6)),
        String::new(),
    ]
    .join("\0");
    let mut header = [0; 48];
    header[0] = 0x43;
    header[1] = 0x87;
    header[24..28].copy_from_slice(&1000_u32.to_be_bytes());
    let mut bytes = Vec::new();
    put(&mut bytes, header, text.as_bytes());
    bytes
}

/// A request that is mostly legal, about the last few tags.
fn request(rng: &mut Rng, agreed: Agreed, cmd_sn: &mut u32, bytes: &mut Vec<u8>) {
    let mut header = [0_u8; 48];
    let kinds = [0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x05, 0x02, 0x00, 0x10, 0x04];
    let opcode = kinds[rng.below(12) as usize];
    let immediate = opcode != 0x05 && rng.below(8) == 0;
    header[0] = opcode | if immediate { 0x40 } else { 0 };
    header[1] = [0x80, 0xC0, 0xC0, 0xA0, 0xA0, 0x20][rng.below(6) as usize];
    let wrong = rng.below(60) == 0;
    if agreed.initial_r2t && !wrong {
        header[1] |= 0x80;
    }
    let is_command = opcode == 0x01;
    let age = if is_command && !wrong { 0 } else { rng.below(6) as u32 };
    header[16..20].copy_from_slice(&(*cmd_sn - age).to_be_bytes());
    let sizes = [0, 512, 1024, 4096, 8192, 100_000];
    let expected = sizes[rng.below(6) as usize] as u32;
    let tag = if opcode == 0x04 || rng.below(2) == 0 { u32::MAX } else { rng.below(6) as u32 };
    header[20..24].copy_from_slice(&if is_command { expected } else { tag }.to_be_bytes());
    if opcode == 0x05 {
        header[40..44].copy_from_slice(&(sizes[rng.below(3) as usize] as u32).to_be_bytes());
    } else {
        header[24..28].copy_from_slice(&cmd_sn.to_be_bytes());
        *cmd_sn += u32::from(!immediate && opcode != 0x10);
    }
    header[32] = rng.next() as u8;
    header[33] = rng.next() as u8;
    let writes = header[1] & 0x20 != 0;
    let data = match opcode {
        0x01 if writes && (agreed.immediate_data || wrong) => {
            sizes[rng.below(2) as usize].min(u64::from(expected))
        }
        0x05 => sizes[rng.below(4) as usize],
        _ => 0,
    };
    put(bytes, header, &vec![0xDA; data as usize]);
}

fn put(bytes: &mut Vec<u8>, mut header: [u8; 48], data: &[u8]) {
    header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}
