//! A session in full feature phase, move by move: an initiator that keeps to the rules, or breaks one on purpose, holds
//! everything that the target sends against what is legal then.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = iscsi::fuzzing::session(data);
});
