//! Merges that do not come to their end: killed, asked to stop, out of space. The sources stay as they were, and the
//! next merge says what it found.
use std::process::{Child, Command, Output, Stdio};

use block::conformance::pattern;
use rustix::process::{Pid, Signal, kill_process};

use crate::bench::{Bench, MIB, raw, wait_for, write};

/// A base and a version of it whose sectors cannot be shared with a new file, since they lie between pages.
fn version(bench: &Bench) -> Vec<u8> {
    let mut bytes = raw(bench);
    bench.ok(&["convert", "disk.raw", "a.vhdx", "--block-size", "1M"]);
    bench.ok(&["snapshot", "a.vhdx", "b.avhdx"]);
    write(&bench.path("b.avhdx"), &bench.path("a.vhdx"), 4 * MIB + 512, &pattern(3 * MIB));
    bytes[4 * MIB + 512..7 * MIB + 512].copy_from_slice(&pattern(3 * MIB));
    std::fs::write(bench.path("expected.raw"), bytes).unwrap();
    sources(bench)
}

/// All that the sources hold.
fn sources(bench: &Bench) -> Vec<u8> {
    ["a.vhdx", "b.avhdx"].map(|name| std::fs::read(bench.path(name)).unwrap()).concat()
}

/// A merge that would take minutes, once it has begun to write.
fn slow_merge(bench: &Bench) -> Child {
    let words = ["merge", "b.avhdx", "--into", "new.vhdx", "--rate-limit", "16K", "--quiet"];
    let merge = bench.command(&words).stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait_for(|| bench.path("new.vhdx.partial").metadata().is_ok_and(|there| there.len() > MIB as u64));
    merge
}

fn end_with(merge: Child, signal: Signal) -> Output {
    kill_process(Pid::from_child(&merge), signal).unwrap();
    merge.wait_with_output().unwrap()
}

#[test]
fn killed_merge_leaves_its_sources_alone_and_the_next_one_says_what_it_found() {
    let bench = Bench::new();
    let before = version(&bench);
    let merge = slow_merge(&bench);
    let busy = bench.refused(&["merge", "b.avhdx", "--into", "new.vhdx"]);
    assert!(busy.contains("another process"), "{busy}");
    assert_eq!(end_with(merge, Signal::KILL).status.code(), None);
    assert_eq!(bench.names(), ["a.vhdx", "b.avhdx", "disk.raw", "expected.raw", "new.vhdx.partial"]);
    assert!(sources(&bench) == before);
    // What is left is never taken for an image.
    let left = bench.refused(&["info", "new.vhdx.partial"]);
    assert!(left.contains("incomplete") && left.contains("make the image again"), "{left}");
    let said = bench.ok(&["merge", "b.avhdx", "--into", "new.vhdx"]);
    assert!(said.contains("what an attempt that was killed had left was removed"), "{said}");
    bench.ok(&["compare", "new.vhdx", "expected.raw"]);
    assert_eq!(bench.names(), ["a.vhdx", "b.avhdx", "disk.raw", "expected.raw", "new.vhdx"]);
    assert!(sources(&bench) == before);
    let again = bench.json(&["merge", "b.avhdx", "--into", "new.vhdx", "--force"]);
    assert_eq!(again["removed_leftover"], false);
}

#[test]
fn merge_that_is_asked_to_stop_leaves_nothing() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let bench = Bench::new();
        let before = version(&bench);
        let names = bench.names();
        let output = end_with(slow_merge(&bench), signal);
        assert_eq!(output.status.code(), Some(1), "{signal:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("cancelled"), "{output:?}");
        assert_eq!(bench.names(), names, "{signal:?}");
        assert!(sources(&bench) == before);
    }
}

#[test]
fn merge_into_a_full_file_system_is_a_clean_error_and_leaves_nothing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can mount a small file system");
        return;
    }
    let bench = Bench::new();
    let before = version(&bench);
    std::fs::create_dir(bench.path("small")).unwrap();
    let script = r#"
        truncate -s 8M small.ext4 && mkfs.ext4 -q small.ext4 && mount -o loop small.ext4 small || exit 99
        "$1" image merge b.avhdx --into small/new.vhdx; echo "code $?"; ls small"#;
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_headwater")]);
    let output = shell.current_dir(bench.folder.path()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(out, "code 1\nlost+found\n", "{err}");
    assert!(err.contains("No space left on device") && err.contains("nothing is left of it"), "{err}");
    assert!(sources(&bench) == before);
}
