//! What the verbs say where an administrator has to act on it.
use std::process::Command;

use crate::bench::{Bench, MIB, raw};

#[test]
fn name_that_is_taken_is_told_with_what_the_verb_can_do_about_it() {
    let bench = Bench::new();
    raw(&bench);
    bench.ok(&["create", "a.vhdx", "--size", "1M"]);
    bench.ok(&["create", "b.vhdx", "--size", "1M"]);
    let says = |words: &[&str]| {
        let refused = bench.refused(words);
        assert!(refused.contains("\"a.vhdx\" is there already; choose another name"), "{refused}");
        refused.contains("--force")
    };
    assert!(!says(&["create", "a.vhdx", "--size", "1M"]));
    assert!(!says(&["snapshot", "b.vhdx", "a.vhdx"]));
    assert!(says(&["convert", "disk.raw", "a.vhdx"]));
}

#[test]
fn difference_whose_ending_says_another_format_is_refused() {
    let bench = Bench::new();
    bench.ok(&["create", "a.vhdx", "--size", "1M"]);
    bench.ok(&["snapshot", "a.vhdx", "b.avhdx"]);
    bench.ok(&["snapshot", "b.avhdx", "c"]);
    for words in [&["snapshot", "a.vhdx", "d.avhd"][..], &["merge", "c", "--into", "d.vhd", "--updates"]] {
        let refused = bench.refused(words);
        assert!(refused.contains("would be VHDX") && refused.contains("ending says VHD:"), "{refused}");
    }
    assert_eq!(bench.names(), ["a.vhdx", "b.avhdx", "c"]);
}

#[test]
fn comparison_counts_one_and_many_and_names_the_image_that_cannot_be_read() {
    let bench = Bench::new();
    let mut bytes = raw(&bench);
    for range in 0..11 {
        bytes[range * 100_000] ^= 1;
    }
    bytes.resize(13 * MIB, 0);
    std::fs::write(bench.path("other.raw"), &bytes).unwrap();
    let (code, out, _) = bench.run(&["compare", "disk.raw", "other.raw"]);
    assert_eq!(code, Some(3), "{out}");
    for part in [
        "sizes: 12.0 MiB and 13.0 MiB (12582912 and 13631488 bytes)",
        "and 1 range more\n",
        "11 bytes differ",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    let (_, out, _) = bench.run(&["compare", "disk.raw", "other.raw", "--first"]);
    assert!(out.ends_with("first at byte 0 (0x0)\n"), "nothing is counted: {out}");

    let mut convert = Command::new("qemu-img");
    convert
        .args(["convert", "-f", "raw", "-O", "qcow2"])
        .args([bench.path("disk.raw"), bench.path("cut.qcow2")]);
    assert!(convert.status().unwrap().success());
    let cut = std::fs::File::options().write(true).open(bench.path("cut.qcow2")).unwrap();
    cut.set_len(2 * MIB as u64).unwrap();
    let unreadable = bench.refused(&["compare", "disk.raw", "cut.qcow2"]);
    assert!(unreadable.contains("image \"cut.qcow2\" cannot be read"), "{unreadable}");
    let unchecked = bench.refused(&["check", "cut.qcow2"]);
    assert!(unchecked.contains("it is qcow2") && unchecked.contains("--verify"), "{unchecked}");
}

#[test]
fn sizes_before_and_after_are_told_exactly_and_with_what_the_file_takes() {
    let bench = Bench::new();
    raw(&bench);
    bench.ok(&["convert", "disk.raw", "a.vhdx"]);
    assert_eq!(bench.ok(&["resize", "a.vhdx", "1G"]), "a.vhdx: 12 MiB before, 1 GiB now\n");
    assert_eq!(bench.ok(&["resize", "a.vhdx", "+1M"]), "a.vhdx: 1 GiB before, 1025 MiB now\n");
    let compacted = bench.ok(&["compact", "a.vhdx"]);
    assert!(compacted.contains("\nfile size: ") && compacted.contains("\nallocated: "), "{compacted}");
}
