//! An image file made of parts, with its checksums made right: the structures of VHDX and dynamic VHD, log replay.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| diskimage::fuzz::open_chain(data));
