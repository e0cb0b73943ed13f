//! A log replayed in memory and into the file: both must give the same disk.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| diskimage::fuzz::replay_parts(data));
