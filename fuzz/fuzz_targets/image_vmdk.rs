//! A VMDK image made of parts of up to four files: descriptor, sparse headers, grain tables, compressed grains.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| diskimage::fuzz::open_vmdk_parts(data));
