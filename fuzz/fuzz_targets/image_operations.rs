//! Operations on images opened for writing, against a flat model.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| diskimage::fuzz::operations(data));
