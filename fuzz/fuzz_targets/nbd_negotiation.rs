//! Options and requests of an NBD client against an oracle of the specification's rules: the one final reply that each
//! option must get, what is agreed on after it, and which requests are legal then.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = nbd::fuzzing::negotiation(data);
});
