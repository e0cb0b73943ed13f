//! An iSCSI connection: a PDU and negotiation text by themselves, then everything as login and session.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    iscsi::fuzzing::decode(data);
    let seen = iscsi::fuzzing::connection(data, false);
    assert!(seen.logged_in || seen.commands == 0);
    assert!(!iscsi::fuzzing::connection(data, true).logged_in);
});
