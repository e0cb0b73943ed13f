//! Each verb on small images, held against qemu-img.
use std::fs::File;
use std::process::Command;

use block::conformance::pattern;
use block::{BlockDevice, ByteOffset, Patience};
use diskimage::{Childless, MutableImage};
use serde_json::Value;

use crate::bench::{Bench, MIB, qemu_img, raw, wait_for, write};

#[test]
fn raw_image_goes_round_all_formats_and_stays_the_same() {
    let bench = Bench::new();
    let bytes = raw(&bench);
    let steps = [
        ("disk.raw", "a.vhdx", &["--verify"][..]),
        ("a.vhdx", "b.vhd", &[]),
        ("b.vhd", "c.vhdx", &["--subformat", "fixed"]),
        ("c.vhdx", "d.vhd", &["--subformat", "fixed"]),
        ("d.vhd", "e.vhdx", &["--block-size", "1M"]),
        ("e.vhdx", "f.raw", &["--find-zeros"]),
    ];
    for (from, to, flags) in steps {
        bench.ok(&[&["convert", from, to], flags].concat());
        assert_eq!(bench.ok(&["compare", "disk.raw", to]), "the images hold the same\n", "{to}");
        assert!(bench.ok(&["check", to]).ends_with("sound\n"), "{to}");
    }
    assert!(std::fs::read(bench.path("f.raw")).unwrap() == bytes);
    for (name, format) in [("a.vhdx", "vhdx"), ("c.vhdx", "vhdx"), ("b.vhd", "vpc"), ("d.vhd", "vpc")] {
        assert!(qemu_img(&["compare", "-f", "raw", "-F", format, "disk.raw", name], bench.folder.path()));
    }
}

#[test]
fn images_of_qemu_are_taken_over() {
    let bench = Bench::new();
    raw(&bench);
    let folder = bench.folder.path();
    assert!(qemu_img(&["convert", "-c", "-O", "qcow2", "disk.raw", "disk.qcow2"], folder));
    assert!(qemu_img(
        &["convert", "-O", "vmdk", "-o", "subformat=streamOptimized", "disk.raw", "disk.vmdk"],
        folder
    ));
    for name in ["disk.qcow2", "disk.vmdk"] {
        let target = format!("{name}.vhdx");
        bench.ok(&["convert", name, &target, "--verify"]);
        bench.ok(&["compare", "disk.raw", &target, "--strict"]);
    }
    let refused = bench.refused(&["convert", "disk.raw", "new.qcow2"]);
    assert!(refused.contains("qcow2"), "{refused}");
}

#[test]
fn versions_are_made_merged_and_told_as_a_tree() {
    let bench = Bench::new();
    let mut bytes = raw(&bench);
    bench.ok(&["convert", "disk.raw", "win.vhdx", "--block-size", "2M"]);
    bench.ok(&["snapshot", "win.vhdx", "win.1.avhdx"]);
    write(&bench.path("win.1.avhdx"), &bench.path("win.vhdx"), 4 * MIB, &pattern(2 * MIB));
    bytes[4 * MIB..6 * MIB].copy_from_slice(&pattern(2 * MIB));
    bench.ok(&["snapshot", "win.1.avhdx", "win.2.avhdx"]);
    write(&bench.path("win.2.avhdx"), &bench.path("win.1.avhdx"), 512, &[7; 4096]);
    bytes[512..4608].fill(7);
    std::fs::write(bench.path("expected.raw"), &bytes).unwrap();

    let info = bench.ok(&["info", "win.2.avhdx"]);
    for part in ["VHDX, differencing", "12.0 MiB", "win.vhdx", "└─ win.1.avhdx", "   └─ win.2.avhdx"]
    {
        assert!(info.contains(part), "{part:?} is missing in:\n{info}");
    }
    let chain = bench.json(&["info", "win.2.avhdx"]);
    assert_eq!(chain["chain"].as_array().unwrap().len(), 3);
    assert_eq!(chain["identity"], bench.json(&["info", "win.vhdx"])["identity"]);

    let before = bench.names();
    let plan = bench.json(&["merge", "win.2.avhdx", "--into", "merged.vhdx", "--dry-run"]);
    assert_eq!((&plan["blocks_whole"], &plan["blocks_zero"]), (&4.into(), &2.into()), "{plan}");
    assert_eq!(plan["sources"].as_array().unwrap().len(), 3, "{plan}");
    let shown = bench.ok(&["merge", "win.2.avhdx", "--into", "merged.vhdx", "--dry-run"]);
    for part in [
        "out of        win.vhdx, win.1.avhdx, win.2.avhdx\n",
        "blocks        4 whole, 2 zero, of 2.0 MiB each\n",
    ] {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    assert_eq!(bench.names(), before, "a dry run makes nothing");

    bench.ok(&["merge", "win.2.avhdx", "--into", "merged.vhdx", "--verify"]);
    bench.ok(&["compare", "expected.raw", "merged.vhdx"]);
    assert!(qemu_img(&["compare", "-F", "vhdx", "expected.raw", "merged.vhdx"], bench.folder.path()));
    bench.ok(&["merge", "win.2.avhdx", "--into", "updates.avhdx", "--updates"]);
    bench.ok(&["compare", "expected.raw", "updates.avhdx"]);
    assert_eq!(bench.json(&["info", "updates.avhdx"])["chain"].as_array().unwrap().len(), 2);
    let alone = bench.refused(&["merge", "win.1.avhdx", "--into", "x.avhdx", "--updates"]);
    assert!(alone.contains("--base"), "{alone}");
}

#[test]
fn parent_that_moved_is_found_again_by_a_rebase() {
    let bench = Bench::new();
    raw(&bench);
    for ending in ["vhdx", "vhd"] {
        let (base, child, moved) =
            (format!("base.{ending}"), format!("child.{ending}"), format!("moved.{ending}"));
        bench.ok(&["convert", "disk.raw", &base]);
        bench.ok(&["snapshot", &base, &child]);
        std::fs::rename(bench.path(&base), bench.path(&moved)).unwrap();
        let refused = bench.refused(&["info", &child]);
        assert!(refused.contains("rebase"), "says what to do: {refused}");
        bench.ok(&["rebase", &child, &moved]);
        bench.ok(&["compare", "disk.raw", &child]);
        bench.ok(&["convert", "disk.raw", &base]);
        let refused = bench.refused(&["rebase", &child, &base]);
        assert!(refused.contains(&base), "another image, though it holds the same: {refused}");
        bench.ok(&["rebase", &child, &base, "--compare"]);
        std::fs::remove_file(bench.path(&moved)).unwrap();
        bench.ok(&["compare", "disk.raw", &child]);
    }
}

/// A child of either format is led to its parent in another folder of the store, and to nothing outside it.
#[test]
fn rebase_leads_to_another_folder_of_the_store() {
    for ending in ["vhdx", "vhd"] {
        let bench = Bench::new();
        raw(&bench);
        let (base, child) = (format!("base.{ending}"), format!("versions/child.{ending}"));
        bench.ok(&["convert", "disk.raw", &base]);
        for folder in ["versions", "golden"] {
            std::fs::create_dir(bench.path(folder)).unwrap();
        }
        bench.ok(&["snapshot", &base, &child, "--store", "."]);
        write(&bench.path(&child), &bench.path(&base), 5 * MIB, &pattern(4096));
        bench.ok(&["convert", &child, "expected.raw", "--store", "."]);
        let moved = format!("golden/base.{ending}");
        std::fs::rename(bench.path(&base), bench.path(&moved)).unwrap();
        assert!(bench.refused(&["info", &child, "--store", "."]).contains("rebase"));
        bench.ok(&["rebase", &child, &moved, "--store", "."]);
        bench.ok(&["compare", &child, "expected.raw", "--store", "."]);
        let outside = bench.refused(&["info", &child]);
        assert!(outside.contains("store"), "{outside}");
        assert!(bench.ok(&["check", &child]).ends_with("sound\n"));
    }
}

#[test]
fn files_of_a_chain_are_named_to_people_as_seen_from_the_store() {
    let bench = Bench::new();
    raw(&bench);
    std::fs::create_dir_all(bench.path("store/versions")).unwrap();
    bench.ok(&["convert", "disk.raw", "store/win.vhdx"]);
    let (child, store) = ("store/versions/win.1.avhdx", ["--store", "store"]);
    bench.ok(&[&["snapshot", "store/win.vhdx", child], &store[..]].concat());
    write(&bench.path(child), &bench.path("store/win.vhdx"), 4 * MIB, &[7; 4096]);
    let map = bench.ok(&[&["map", child], &store[..]].concat());
    let files: Vec<_> = map.lines().skip(1).filter_map(|line| line.split_whitespace().nth(4)).collect();
    assert_eq!(files, ["win.vhdx", "versions/win.1.avhdx", "win.vhdx"], "{map}");
    let info = bench.ok(&[&["info", child], &store[..]].concat());
    assert!(info.contains("\nwin.vhdx ") && info.contains("└─ versions/win.1.avhdx "), "{info}");
    // Programs open what they are told.
    for line in
        bench.ok(&[&["map", child, "--only", "data", "--output", "json"], &store[..]].concat()).lines()
    {
        let run: Value = serde_json::from_str(line).unwrap();
        assert!(bench.path(run["file"].as_str().unwrap()).is_file(), "{run}");
    }
}

#[test]
fn disk_of_large_sectors_gets_small_ones_only_where_that_is_said() {
    let bench = Bench::new();
    bench.ok(&["create", "a.vhdx", "--size", "12M", "--sector-size", "4096"]);
    let image = MutableImage::open(&bench.path("a.vhdx"), None, None, &Childless).unwrap();
    image.write(ByteOffset::new(4096), &pattern(8192), Patience::Blocking).unwrap();
    image.close().unwrap();
    bench.ok(&["snapshot", "a.vhdx", "b.avhdx"]);
    let before = bench.names();
    for words in [
        &["convert", "a.vhdx", "c.raw"][..],
        &["convert", "a.vhdx", "c.vhd"],
        &["merge", "b.avhdx", "--into", "c.raw"],
    ] {
        let refused = bench.refused(words);
        assert!(refused.contains("4096") && refused.contains("--sector-size 512"), "{refused}");
    }
    let unsaid = bench.refused(&["convert", "a.vhdx", "c.raw", "--sector-size", "4096"]);
    assert!(unsaid.contains("raw image says how large its sectors are"), "{unsaid}");
    assert_eq!(bench.names(), before);
    for (target, sector) in [("c.raw", 512), ("c.vhd", 512), ("c.vhdx", 512), ("d.vhdx", 4096)] {
        let flags: &[&str] = if sector == 512 { &["--sector-size", "512"] } else { &[] };
        bench.ok(&[&["convert", "a.vhdx", target, "--verify"], flags].concat());
        assert_eq!(bench.json(&["info", target])["logical_sector_bytes"], sector, "{target}");
        bench.ok(&["compare", "a.vhdx", target, "--strict"]);
        assert!(bench.ok(&["check", target]).ends_with("sound\n"), "{target}");
    }
    bench.ok(&["convert", "c.raw", "e.vhdx", "--sector-size", "4096"]);
    bench.ok(&["compare", "a.vhdx", "e.vhdx", "--strict"]);
    std::fs::write(bench.path("odd.raw"), vec![1; 4096 + 512]).unwrap();
    let odd = bench.refused(&["convert", "odd.raw", "f.vhdx", "--sector-size", "4096"]);
    assert!(odd.contains("whole sectors of 4096"), "{odd}");
}

#[test]
fn parent_in_another_folder_keeps_its_size() {
    let bench = Bench::new();
    for folder in ["golden", "versions"] {
        std::fs::create_dir(bench.path(folder)).unwrap();
    }
    let (base, child) = ("golden/base.vhdx", "versions/child.avhdx");
    bench.ok(&["create", base, "--size", "12M"]);
    bench.ok(&["snapshot", base, child, "--store", "."]);
    for store in [&[][..], &["--store", "."]] {
        let refused = bench.refused(&[&["resize", base, "+1M"], store].concat());
        assert!(refused.contains("child.avhdx") && refused.contains("write into a new child"), "{refused}");
    }
    // Who names a store means that one.
    bench.ok(&["resize", base, "+1M", "--store", "golden"]);
    assert!(bench.refused(&["info", child, "--store", "."]).contains("rebase"));
    bench.ok(&["rebase", child, base, "--unsafe", "--store", "."]);
    bench.ok(&["info", child, "--store", "."]);
}

#[test]
fn disk_grows_and_shrinks_where_its_end_is_unused() {
    let bench = Bench::new();
    raw(&bench);
    for (name, subformat) in [
        ("a.vhdx", "dynamic"),
        ("f.vhdx", "fixed"),
        ("a.vhd", "dynamic"),
        ("f.vhd", "fixed"),
        ("a.raw", "fixed"),
    ] {
        bench.ok(&["convert", "disk.raw", name, "--subformat", subformat]);
        bench.ok(&["resize", name, "+20M"]);
        assert_eq!(bench.json(&["info", name])["virtual_size_bytes"], 32 << 20, "{name}");
        bench.ok(&["compare", "disk.raw", name]);
        let refused = bench.refused(&["resize", name, "12M"]);
        assert!(refused.contains("--shrink"), "{refused}");
        bench.ok(&["resize", name, "12M", "--shrink"]);
        bench.ok(&["compare", "disk.raw", name, "--strict"]);
        assert!(bench.ok(&["check", name]).ends_with("sound\n"), "{name}");
    }
    let refused = bench.refused(&["resize", "a.vhdx", "8M", "--shrink"]);
    assert!(refused.contains("a.vhdx"), "{refused}");
    bench.ok(&["compare", "disk.raw", "a.vhdx", "--strict"]);
}

#[test]
fn compact_gives_back_what_holds_only_zeros() {
    let bench = Bench::new();
    std::fs::write(bench.path("zeros.raw"), vec![0_u8; 8 * MIB]).unwrap();
    bench.ok(&["create", "a.vhdx", "--size", "8M", "--block-size", "1M"]);
    let image = MutableImage::open(&bench.path("a.vhdx"), None, None, &Childless).unwrap();
    image.write(ByteOffset::ZERO, &vec![0; 8 * MIB], Patience::Blocking).unwrap();
    image.close().unwrap();
    let answer = bench.json(&["compact", "a.vhdx", "--verify"]);
    let size = |name: &str| answer[name].as_u64().unwrap();
    assert!(size("file_bytes_before") >= size("file_bytes_after") + 8 * MIB as u64, "{answer}");
    bench.ok(&["compare", "zeros.raw", "a.vhdx"]);
}

#[test]
fn map_covers_the_disk_and_names_files() {
    let bench = Bench::new();
    raw(&bench);
    bench.ok(&["convert", "disk.raw", "a.vhdx", "--block-size", "1M"]);
    let lines = bench.ok(&["map", "a.vhdx", "--output", "json"]);
    let runs: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = runs.iter().map(|run| run["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["data", "zero", "data", "zero"], "{lines}");
    let lengths: Vec<_> = runs.iter().map(|run| run["length"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [3, 6, 1, 2].map(|mib| mib * MIB as u64));
    let image = std::fs::read(bench.path("a.vhdx")).unwrap();
    let at = usize::try_from(runs[2]["offset"].as_u64().unwrap()).unwrap();
    assert_eq!(image[at..at + MIB], pattern(MIB));
    assert_eq!(bench.ok(&["map", "a.vhdx", "--only", "zero"]).lines().count(), 3);
}

#[test]
fn exit_codes_tell_no_from_cannot() {
    let bench = Bench::new();
    raw(&bench);
    bench.ok(&["convert", "disk.raw", "a.vhdx"]);
    let mut bytes = std::fs::read(bench.path("disk.raw")).unwrap();
    bytes[5 * MIB] = 1;
    std::fs::write(bench.path("other.raw"), &bytes).unwrap();
    let (code, out, _) = bench.run(&["compare", "a.vhdx", "other.raw"]);
    assert_eq!(code, Some(3));
    assert!(out.contains("first at byte 5242880"), "{out}");
    assert_eq!(bench.run(&["compare", "a.vhdx", "absent.raw"]).0, Some(1));
    assert_eq!(bench.run(&["compare", "a.vhdx"]).0, Some(2));

    let mut image = std::fs::read(bench.path("a.vhdx")).unwrap();
    image[0x10010] ^= 1;
    std::fs::write(bench.path("a.vhdx"), &image).unwrap();
    let (code, out, _) = bench.run(&["check", "a.vhdx"]);
    assert!(out.contains("--repair mends this"), "{code:?}: {out}");
    assert!(out.ends_with("a.vhdx: VHDX, 0 errors, 1 warning\n"), "{out}");
    let repaired = bench.ok(&["check", "a.vhdx", "--repair"]);
    assert!(repaired.contains("1 repaired"), "{repaired}");
    assert!(bench.ok(&["check", "a.vhdx"]).ends_with("sound\n"));
    bench.ok(&["compare", "disk.raw", "a.vhdx"]);
}

#[test]
fn target_that_is_there_is_kept_unless_it_may_go() {
    let bench = Bench::new();
    raw(&bench);
    std::fs::write(bench.path("a.vhdx"), "precious").unwrap();
    for words in [
        &["convert", "disk.raw", "a.vhdx"][..],
        &["create", "a.vhdx", "--size", "1M"],
        &["snapshot", "disk.raw", "a.vhdx"],
    ] {
        bench.refused(words);
        assert_eq!(std::fs::read(bench.path("a.vhdx")).unwrap(), b"precious", "{words:?}");
    }
    bench.refused(&["convert", "absent.raw", "b.vhdx"]);
    bench.refused(&["create", "b.vhdx", "--size", "65T"]);
    assert_eq!(bench.names(), ["a.vhdx", "disk.raw"], "a refused command leaves something");
    bench.ok(&["convert", "disk.raw", "a.vhdx", "--force"]);
    bench.ok(&["compare", "disk.raw", "a.vhdx"]);
    let inside = bench.refused(&["convert", "disk.raw", "disk.raw", "--force"]);
    assert!(inside.contains("choose another name"), "{inside}");
}

#[test]
fn link_to_an_image_goes_on_leading_to_it_and_what_is_no_file_is_never_replaced() {
    let bench = Bench::new();
    raw(&bench);
    std::fs::create_dir(bench.path("store")).unwrap();
    bench.ok(&["create", "store/a.vhdx", "--size", "12M"]);
    bench.ok(&["snapshot", "store/a.vhdx", "store/b.avhdx"]);
    for (link, file) in [("a.vhdx", "store/a.vhdx"), ("b.avhdx", "store/b.avhdx")] {
        std::os::unix::fs::symlink(file, bench.path(link)).unwrap();
        bench.ok(&["compact", link]);
    }
    bench.ok(&["info", "store/b.avhdx"]);
    bench.ok(&["convert", "disk.raw", "a.vhdx", "--force"]);
    bench.ok(&["compare", "disk.raw", "store/a.vhdx"]);
    for link in ["a.vhdx", "b.avhdx"] {
        assert!(bench.path(link).symlink_metadata().unwrap().is_symlink(), "{link}");
    }
    assert_eq!(bench.names(), ["a.vhdx", "b.avhdx", "disk.raw", "store"]);
    let made = Command::new("mkfifo").arg(bench.path("pipe.raw")).status().unwrap();
    assert!(made.success());
    for target in ["pipe.raw", "store", "/dev/null"] {
        let refused = bench.refused(&["convert", "a.vhdx", target, "--format", "raw", "--force"]);
        assert!(refused.contains("is no file"), "{refused}");
    }
}

#[test]
fn image_that_another_program_writes_into_is_left_alone() {
    let bench = Bench::new();
    bench.ok(&["create", "a.vhdx", "--size", "12M"]);
    let writer = MutableImage::open(&bench.path("a.vhdx"), None, None, &Childless).unwrap();
    for words in [&["resize", "a.vhdx", "+1M"][..], &["compact", "a.vhdx"], &["check", "a.vhdx", "--repair"]]
    {
        let refused = bench.refused(words);
        assert!(refused.contains("another process"), "{refused}");
    }
    bench.ok(&["check", "a.vhdx"]);
    writer.close().unwrap();
    bench.ok(&["compact", "a.vhdx"]);
}

#[test]
fn every_command_answers_programs_in_json() {
    let bench = Bench::new();
    raw(&bench);
    for words in [
        &["create", "a.vhdx", "--size", "12M"][..],
        &["info", "a.vhdx"],
        &["check", "a.vhdx"],
        &["resize", "a.vhdx", "+1M"],
        &["compact", "a.vhdx"],
        &["snapshot", "a.vhdx", "b.avhdx"],
        &["rebase", "b.avhdx", "a.vhdx"],
        &["merge", "b.avhdx", "--into", "c.vhdx", "--dry-run"],
        &["merge", "b.avhdx", "--into", "c.vhdx"],
        &["convert", "disk.raw", "d.vhdx"],
        &["compare", "d.vhdx", "disk.raw"],
    ] {
        assert!(bench.json(words).is_object(), "{words:?}");
    }
}

#[test]
fn answer_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    bench.ok(&["create", "a.vhdx", "--size", "12M"]);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = bench.command(&["info", "a.vhdx"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("standard output"), "{output:?}");
}

#[test]
fn interrupted_work_leaves_nothing_behind() {
    let bench = Bench::new();
    raw(&bench);
    // So slow that it would take minutes.
    let words = ["convert", "disk.raw", "a.vhdx", "--rate-limit", "32K", "--quiet", "--find-zeros"];
    let child = bench.command(&words).stderr(std::process::Stdio::piped()).spawn().unwrap();
    wait_for(|| bench.names().iter().any(|name| name.ends_with(".partial")));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cancelled"), "{output:?}");
    assert_eq!(bench.names(), ["disk.raw"]);
}

#[test]
fn completions_and_man_pages_are_made() {
    let bench = Bench::new();
    let program = env!("CARGO_BIN_EXE_headwater");
    let script = Command::new(program).args(["generate", "completions", "bash"]).output().unwrap();
    let script = String::from_utf8(script.stdout).unwrap();
    assert!(script.contains("--rate-limit"), "{} bytes", script.len());
    let pages = Command::new(program).args(["generate", "man-pages"]).arg(bench.folder.path()).status();
    assert!(pages.unwrap().success());
    let page = std::fs::read_to_string(bench.path("headwater-image-merge.1")).unwrap();
    assert!(page.contains("dry"), "{} bytes", page.len());
    assert!(bench.names().len() > 10, "{:?}", bench.names());
}

#[test]
fn create_makes_what_the_format_can_be_and_says_what_it_cannot() {
    let bench = Bench::new();
    for (name, subformat) in [("a.raw", "fixed"), ("a.vhd", "dynamic"), ("a.vhdx", "dynamic")] {
        bench.ok(&["create", name, "--size", "12M"]);
        let info = bench.json(&["info", name]);
        assert_eq!(
            (&info["subformat"], &info["virtual_size_bytes"]),
            (&subformat.into(), &(12 << 20).into())
        );
    }
    bench.ok(&["create", "b.vhdx", "--size", "12M", "--sector-size", "4096"]);
    assert_eq!(bench.json(&["info", "b.vhdx"])["logical_sector_bytes"], 4096);
    let before = bench.names();
    for (name, flag, value, says) in [
        ("c.raw", "--sector-size", "4096", "a raw image says how large its sectors are"),
        ("c.vhd", "--sector-size", "4096", "a VHD image says how large its sectors are"),
        ("c.raw", "--physical-sector-size", "512", "make a VHDX"),
        ("c.raw", "--block-size", "1M", "leave --block-size out"),
        ("c.raw", "--subformat", "dynamic", "leave --subformat out"),
        ("c.vhd", "--block-size", "3M", "a VHD image cannot have payload blocks of 3145728 bytes"),
        ("c.vhdx", "--block-size", "3M", "a VHDX image cannot have payload blocks of 3145728 bytes"),
    ] {
        let refused = bench.refused(&["create", name, "--size", "12M", flag, value]);
        assert!(refused.contains(says), "{refused}");
    }
    let words = ["create", "c.vhd", "--size", "1M", "--subformat", "fixed", "--block-size", "1M"];
    assert!(bench.refused(&words).contains("a fixed VHD image has no blocks"));
    assert_eq!(bench.names(), before);
}

#[test]
fn formats_are_called_the_same_everywhere() {
    let bench = Bench::new();
    for (file, name) in [("a.raw", "raw"), ("a.vhd", "VHD"), ("a.vhdx", "VHDX")] {
        bench.ok(&["create", file, "--size", "12M"]);
        let (info, check) = (bench.ok(&["info", file]), bench.ok(&["check", file]));
        assert!(info.contains(&format!(" {name}, ")), "{info}");
        assert_eq!(check, format!("{file}: {name}, sound\n"));
        // For programs it is the name that --format takes.
        let lower = name.to_lowercase();
        for verb in ["info", "check"] {
            assert_eq!(bench.json(&[verb, file, "--format", &lower])["format"], lower);
        }
    }
    assert!(bench.refused(&["snapshot", "a.raw", "b.raw"]).contains("a raw image cannot have children"));
    assert!(bench.refused(&["info", "a.vhd", "--format", "vhdx"]).contains("not a VHDX image"));
}

/// Neither a file's own name nor one that another file holds moves the cursor or begins another line.
#[test]
fn names_with_control_characters_are_shown_escaped() {
    let bench = Bench::new();
    let (base, child) = ("base\nsound\u{1b}[2J.vhdx", "child\u{202e}\n.vhdx");
    bench.ok(&["create", base, "--size", "12M"]);
    bench.ok(&["snapshot", base, child]);
    write(&bench.path(child), &bench.path(base), 0, &[7; 4096]);
    let outputs = [
        bench.ok(&["info", child]),
        bench.ok(&["map", child]),
        bench.ok(&["check", base]),
        bench.ok(&["resize", child, "+1M"]),
        bench.ok(&["compact", child]),
        bench.ok(&["convert", child, "\u{7}.raw"]),
        bench.ok(&["merge", child, "--into", "new\u{9b}.vhdx", "--dry-run"]),
        bench.ok(&["merge", child, "--into", "new\u{9b}.vhdx"]),
        bench.refused(&["info", "absent\n\u{1b}"]),
        bench.refused(&["create", base, "--size", "1M"]),
        bench.refused(&["rebase", child, "absent\n\u{1b}"]),
    ];
    std::fs::remove_file(bench.path(base)).unwrap();
    for output in outputs.into_iter().chain([bench.refused(&["info", child])]) {
        let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!output.contains(odd), "{output:?}");
        assert!(!output.lines().any(|line| line.starts_with("sound")), "{output:?}");
    }
}

#[test]
fn damage_that_many_blocks_share_is_told_once_and_in_few_lines() {
    let bench = Bench::new();
    std::fs::write(bench.path("full.raw"), pattern(40 * MIB)).unwrap();
    bench.ok(&["convert", "full.raw", "a.vhdx", "--block-size", "1M"]);
    File::options().write(true).open(bench.path("a.vhdx")).unwrap().set_len(10 << 20).unwrap();
    let (code, out, _) = bench.run(&["check", "a.vhdx"]);
    assert_eq!(code, Some(3));
    assert!(out.lines().count() < 50 && out.contains("findings more"), "{out}");
    let refused = bench.refused(&["info", "a.vhdx"]);
    assert_eq!(refused.matches("behind the end of the file").count(), 1, "{refused}");
}
