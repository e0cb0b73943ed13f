//! A TFTP transfer whose client sends the input, a datagram for each length prefix: it neither floods nor outlives its limits.
#![no_main]
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use netboot::tftp::packet::{ClientPacket, RequestedOptions};
use netboot::tftp::transfer::{MAX_WINDOW, Transfer};

fuzz_target!(|input: &[u8]| {
    let [first, input @ ..] = input else { return };
    let file = vec![7; usize::from(*first) * 40];
    let (mut rest, mut now, mut out) = (input, Instant::now(), Vec::new());
    let mut transfer: Option<Transfer> = None;
    while let [length, tail @ ..] = rest {
        let (datagram, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        now += Duration::from_millis(300);
        out.clear();
        match &mut transfer {
            None => {
                let options = match ClientPacket::decode(datagram) {
                    Ok(ClientPacket::Read(request)) => request.options,
                    _ => RequestedOptions::default(),
                };
                transfer = Some(Transfer::start(file.clone().into(), options, now, &mut out));
            }
            Some(running) => {
                running.on_datagram(datagram, now, &mut out);
                running.on_time(now, &mut out);
            }
        }
        assert!(out.len() <= 2 * usize::from(MAX_WINDOW));
        if transfer.as_ref().is_some_and(|running| running.end().is_some()) {
            transfer = None;
        }
    }
});
