//! A qcow2 image made of parts: header, L1 and L2 tables, compressed clusters.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| diskimage::fuzz::open_qcow2_parts(data));
