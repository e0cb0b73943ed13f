//! The program on a folder of images, and what other programs make of them.
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::conformance::pattern;
use block::{BlockDevice, ByteOffset, Patience};
use diskimage::{Childless, Image, MutableImage, OpenOptions};
use rustix::fs::SeekFrom;
use serde_json::Value;

pub(crate) const MIB: usize = 1 << 20;
const WINDOW_BYTES: u64 = 1 << 20;

/// A folder of images, and the program.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
        command.arg("image").args(words).current_dir(self.folder.path());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (status.code(), text(&stdout), text(&stderr))
    }

    /// Runs a command that must succeed; its standard output.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let (code, out, err) = self.run(words);
        assert_eq!(code, Some(0), "{words:?}: {out}{err}");
        assert!(err.is_empty(), "{words:?} says on standard error: {err}");
        out
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let out = self.ok(&[words, &["--output", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{words:?}: {error} in {out}"))
    }

    /// Runs a command that must fail; what it says.
    pub(crate) fn refused(&self, words: &[&str]) -> String {
        let (code, out, err) = self.run(words);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{words:?}: {err}");
        assert_eq!(err.lines().count(), 1, "one line: {err}");
        err
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// A raw image of 12 MiB: data, then nothing, then data.
pub(crate) fn raw(bench: &Bench) -> Vec<u8> {
    let mut bytes = vec![0; 12 * MIB];
    bytes[..3 * MIB].copy_from_slice(&pattern(3 * MIB));
    bytes[9 * MIB..10 * MIB].copy_from_slice(&pattern(MIB));
    let file = File::create(bench.path("disk.raw")).unwrap();
    for part in [0..3 * MIB, 9 * MIB..10 * MIB] {
        file.write_all_at(&bytes[part.clone()], part.start as u64).unwrap();
    }
    file.set_len(12 * MIB as u64).unwrap();
    bytes
}

/// Writes into a differencing image, as its device does.
pub(crate) fn write(child: &Path, parent: &Path, at: usize, bytes: &[u8]) {
    let parent: Arc<dyn BlockDevice> = Arc::new(Image::open(parent, OpenOptions::default()).unwrap());
    let image = MutableImage::open(child, None, Some(parent), &Childless).unwrap();
    image.write(ByteOffset::new(at as u64), bytes, Patience::Blocking).unwrap();
    image.close().unwrap();
}

pub(crate) fn qemu_img(words: &[&str], folder: &Path) -> bool {
    let output = Command::new("qemu-img").args(words).current_dir(folder).output();
    output.unwrap_or_else(|error| panic!("qemu-img is needed (Debian: qemu-utils): {error}")).status.success()
}

/// Runs a program of the Debian package `package`, which must succeed; its standard output.
pub(crate) fn run(program: &mut Command, package: &str) -> String {
    let output = program.output();
    let output = output.unwrap_or_else(|error| panic!("{program:?} is needed (Debian: {package}): {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Where the reference material lies, if it is there.
pub(crate) fn shared(folder: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared").join(folder);
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}

/// A range of a file: where it begins, and how long it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) file: &'a File,
    pub(crate) at: u64,
}

/// Holds `length` bytes of two files against each other; what is a hole in both is not read. Nothing of ours reads.
pub(crate) fn assert_same_parts(one: Part<'_>, other: Part<'_>, length: u64) {
    let (mut ours, mut theirs) = (vec![0; WINDOW_BYTES as usize], vec![0; WINDOW_BYTES as usize]);
    for from in (0..length).step_by(WINDOW_BYTES as usize) {
        let window = WINDOW_BYTES.min(length - from);
        if ![one, other].iter().any(|part| has_data(part.file, part.at + from, window)) {
            continue;
        }
        let (ours, theirs) = (&mut ours[..window as usize], &mut theirs[..window as usize]);
        one.file.read_exact_at(ours, one.at + from).unwrap();
        other.file.read_exact_at(theirs, other.at + from).unwrap();
        if let Some(place) = ours.iter().zip(&*theirs).position(|(one, other)| one != other) {
            panic!(
                "byte {:#x} of the one and {:#x} of the other differ",
                one.at + from,
                other.at + from + place as u64
            );
        }
    }
}

/// Holds two raw files against each other.
pub(crate) fn assert_same_files(one: &Path, other: &Path) {
    let (first, second) = (File::open(one).unwrap(), File::open(other).unwrap());
    let length = first.metadata().unwrap().len();
    assert_eq!(length, second.metadata().unwrap().len(), "{one:?} and {other:?}");
    assert_same_parts(Part { file: &first, at: 0 }, Part { file: &second, at: 0 }, length);
}

/// Holds what 7-Zip extracts of an image against a raw file.
pub(crate) fn assert_same_as_7z(image: &Path, raw: &Path) {
    let kind = if image.extension().is_some_and(|ending| ending.to_string_lossy().ends_with("vhd")) {
        "-tVHD"
    } else {
        "-tVHDX"
    };
    let extracted = raw.with_extension("7z");
    let output = File::create(&extracted).unwrap();
    let mut command = Command::new("7z");
    command.args(["x", "-so", kind]).arg(image).stdin(Stdio::null()).stdout(output);
    run(&mut command, "p7zip-full");
    assert_same_files(&extracted, raw);
    std::fs::remove_file(extracted).unwrap();
}

/// Waits for something that another process does soon.
pub(crate) fn wait_for(happened: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

pub(crate) fn has_data(file: &File, at: u64, length: u64) -> bool {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data < at + length,
        Err(rustix::io::Errno::NXIO) => false,
        Err(error) => panic!("{error}"),
    }
}
