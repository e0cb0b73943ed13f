//! A disk of any bytes: partition tables, FAT, ext4, boot entries, and the files that they name.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = guest::fuzzing::disk(data);
});
