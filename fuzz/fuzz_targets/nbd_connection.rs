//! An NBD server fed with what a client may send.
#![no_main]
use nbd::TlsPolicy;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = nbd::fuzzing::server(data, TlsPolicy::Off);
    let _ = nbd::fuzzing::server(data, TlsPolicy::Allowed);
    let forced = nbd::fuzzing::server(data, TlsPolicy::Required);
    assert!(!forced.told_in_the_clear && (!forced.began || forced.tls));
});
