//! Versions of a disk: snapshots, merges, compactions, conversions and other sizes, against a flat model.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let folder = std::env::temp_dir().join(format!("headwater-fuzz-{}", std::process::id()));
    if std::fs::create_dir_all(&folder).is_ok() {
        diskimage::fuzz::versions(data, &folder);
    }
});
