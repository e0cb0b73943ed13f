//! Our NBD client, fed with what a server may send.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = nbd::fuzzing::client(data);
});
