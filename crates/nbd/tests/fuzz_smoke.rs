//! A minute of what the fuzz targets do for hours, on the stable toolchain.
use mutate::{Mutator, Rng};
use nbd::TlsPolicy;
use nbd::fuzzing::{client, negotiation, server};

const GREETING: [u8; 4] = [0, 0, 0, 3];

fn option(kind: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT".as_slice(), &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn name(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn contexts() -> Vec<u8> {
    [name("disk"), vec![0, 0, 0, 1], name("base:allocation")].concat()
}

fn go() -> Vec<u8> {
    [name("disk"), vec![0, 1, 0, 3]].concat()
}

fn request(extended: bool, flags: u16, kind: u16, offset: u64, length: u64, payload: &[u8]) -> Vec<u8> {
    let magic: u32 = if extended { 0x21e4_1c71 } else { 0x2560_9513 };
    let mut bytes = magic.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    if extended {
        bytes.extend(length.to_be_bytes());
    } else {
        bytes.extend((length as u32).to_be_bytes());
    }
    bytes.extend(payload);
    bytes
}

fn seeds() -> Vec<Vec<u8>> {
    let requests = |extended: bool| {
        let write_flag = if extended { 0x20 } else { 0 };
        [
            request(extended, 0, 0, 4096, 8192, &[]),
            request(extended, write_flag | 1, 1, 512, 512, &[9; 512]),
            request(extended, 0, 3, 0, 0, &[]),
            request(extended, 2, 6, 0, 65536, &[]),
            request(extended, 8, 7, 0, 1 << 20, &[]),
            request(extended, 0, 2, 0, 0, &[]),
        ]
        .concat()
    };
    vec![
        [&GREETING[..], &option(8, &[]), &option(10, &contexts()), &option(7, &go()), &requests(false)]
            .concat(),
        [&GREETING[..], &option(11, &[]), &option(7, &go()), &requests(true)].concat(),
        [&GREETING[..], &option(1, b"disk"), &requests(false)].concat(),
        [&GREETING[..], &option(3, &[]), &option(6, &go()), &option(9, &contexts()), &option(2, &[])]
            .concat(),
        [&GREETING[..], &option(5, &[]), &option(8, &[]), &option(7, &go()), &requests(false)].concat(),
    ]
}

#[test]
fn unchanged_seeds_get_where_they_should() {
    let seen: Vec<_> = seeds().iter().map(|seed| server(seed, TlsPolicy::Allowed)).collect();
    let facts: Vec<_> = seen.iter().map(|seen| (seen.began, seen.legal, seen.refused, seen.tls)).collect();
    assert_eq!(
        facts,
        [
            (true, 5, 0, false),
            (true, 4, 1, false),
            (true, 4, 1, false),
            (false, 0, 0, false),
            (true, 4, 1, true)
        ]
    );
}

#[test]
fn mutated_clients_never_panic_the_server_and_learn_nothing_without_tls() {
    let mutator = Mutator::new(seeds(), 20_000).seeding("nbd_connection");
    mutator.run(15_000, |bytes| {
        let _ = server(bytes, TlsPolicy::Off);
        let _ = server(bytes, TlsPolicy::Allowed);
        let forced = server(bytes, TlsPolicy::Required);
        assert!(!forced.told_in_the_clear, "told without TLS");
        assert!(!forced.began || forced.tls, "begun without TLS");
        assert!(forced.most_output_bytes < 20_000);
    });
}

/// Random options and requests, mostly legal, against an oracle of what must have been agreed on.
#[test]
fn random_option_sequences_agree_with_the_oracle() {
    for seed in 0..5000 {
        let mut rng = Rng::new(seed);
        let (mut bytes, mut extended, mut tls) = (GREETING.to_vec(), false, false);
        for _ in 0..rng.below(10) {
            match rng.below(8) {
                0 => bytes.extend(option(8, &[])),
                1 => {
                    bytes.extend(option(11, &[]));
                    extended = true;
                }
                2 => bytes.extend(option(10, &contexts())),
                3 => bytes.extend(option(3, &[])),
                4 => bytes.extend(option(6, &go())),
                5 => {
                    bytes.extend(option(5, &[]));
                    // What was agreed on before TLS is void (CVE-2021-3716); a second wish for TLS is refused.
                    extended &= tls;
                    tls = true;
                }
                6 => bytes.extend(option(rng.next() as u32 | 0x100, &[1, 2, 3])),
                _ => bytes.extend(option(9, &contexts())),
            }
        }
        bytes.extend(option(7, &go()));
        let seen = server(&bytes, TlsPolicy::Allowed);
        assert!(seen.began && !seen.violation, "seed {seed}: {seen:?}");
        assert_eq!(seen.extended, extended, "seed {seed}");
        assert_eq!(seen.tls, tls, "seed {seed}");
    }
}

#[test]
fn random_negotiations_and_requests_get_what_the_specification_has_for_them() {
    let seed = |seed: u64| {
        let mut rng = Rng::new(seed);
        let options = (0..1 + rng.below(12)).map(|_| rng.next() as u8 | 1).collect::<Vec<u8>>();
        let requests = (0..rng.below(200)).map(|_| rng.next() as u8);
        // A wish for the export stands between the two.
        options.into_iter().chain([0, 0xFF]).chain(requests).collect::<Vec<u8>>()
    };
    let mutator = Mutator::new((0..64).map(seed).collect(), 600).seeding("nbd_negotiation");
    let mut judged = 0;
    mutator.run(1500, |bytes| judged += negotiation(bytes).unwrap_or(0));
    assert!(judged > 2000, "too few requests to tell anything: {judged}");
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let magic = 0x0003_e889_0455_65a9_u64.to_be_bytes();
    [&magic[..], &option.to_be_bytes(), &kind.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data]
        .concat()
}

/// What a server says: the handshake, then answers with the cookies that [`client`] uses.
fn server_seeds() -> Vec<Vec<u8>> {
    let cookie = |number: u64| ((number + 1) << 32 | number).to_be_bytes();
    let export = reply(7, 3, b"\0\0\0\0\0\0\0\x10\0\0\x0d\xed");
    let start = |extended: bool| {
        let refusal = reply(11, 0x8000_0001, b"no");
        [
            b"NBDMAGICIHAVEOPT\0\x03".to_vec(),
            if extended { reply(11, 1, &[]) } else { [refusal, reply(8, 1, &[])].concat() },
            reply(10, 4, b"\0\0\0\x01base:allocation"),
            reply(10, 1, &[]),
            export.clone(),
            reply(7, 1, &[]),
        ]
        .concat()
    };
    let chunk = |extended: bool, flags: u16, kind: u16, number: u64, offset: u64, payload: &[u8]| {
        let magic: u32 = if extended { 0x6e8a_278c } else { 0x668e_33ef };
        let mut bytes = magic.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(cookie(number));
        if extended {
            bytes.extend(offset.to_be_bytes());
            bytes.extend((payload.len() as u64).to_be_bytes());
        } else {
            bytes.extend((payload.len() as u32).to_be_bytes());
        }
        bytes.extend(payload);
        bytes
    };
    let data = |at: u64, length: usize| [&at.to_be_bytes()[..], &vec![5; length]].concat();
    let hole = |at: u64, length: u32| [&at.to_be_bytes()[..], &length.to_be_bytes()].concat();
    let structured = [
        start(false),
        chunk(false, 0, 1, 0, 0, &data(0, 4096)),
        chunk(false, 0, 2, 0, 0, &hole(4096, 57344)),
        [&0x6744_6698_u32.to_be_bytes()[..], &[0; 4], &cookie(1)].concat(),
        chunk(false, 1, 1, 0, 0, &data(61440, 4096)),
        chunk(false, 1, 5, 2, 0, b"\0\0\0\x01\0\0\x10\0\0\0\0\x03\0\x10\0\0\0\0\0\0"),
    ];
    let extended = [
        start(true),
        chunk(true, 1, 0, 1, 4096, &[]),
        chunk(true, 1, 6, 2, 0, b"\0\0\0\x01\0\0\0\x01\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\x03"),
        chunk(true, 1, 0x8002, 0, 0, b"\0\0\0\x05\0\x02io\0\0\0\0\0\0\0\0"),
    ];
    vec![structured.concat(), extended.concat()]
}

#[test]
fn client_understands_whole_answers_of_both_kinds() {
    let answered: Vec<_> = server_seeds().iter().map(|seed| client(seed)).collect();
    assert_eq!(answered, [Some(3), Some(3)]);
}

#[test]
fn mutated_servers_never_panic_the_client() {
    Mutator::new(server_seeds(), 80_000).seeding("nbd_client").run(20_000, |bytes| {
        let _ = client(bytes);
    });
}
