//! An image file of any bytes: probing, raw, fixed VHD, the ends of things.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| diskimage::fuzz::open_bytes(data));
