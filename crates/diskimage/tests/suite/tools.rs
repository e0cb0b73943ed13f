//! Other programs, and the comparison of an image with what they make of it.
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use block::{BlockDevice, ByteLength, ByteOffset, ByteRange, Patience};
use diskimage::storage::{MemoryStorage, Storage};
use diskimage::{Extent, Format, Image, OpenOptions, Source};
use rustix::fs::SeekFrom;

const WINDOW_BYTES: u64 = 1 << 20;

/// The program `name`, which the Debian package `package` holds.
pub(crate) fn program(name: &str, package: &str) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    assert!(found, "{name} is missing: apt-get install {package}");
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    command
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?} failed ({}):\n{out}{err}", output.status);
    out
}

pub(crate) fn qemu_img(arguments: &[&str], files: &[&Path]) -> String {
    run(program("qemu-img", "qemu-utils").args(arguments).args(files))
}

/// Makes `commands` of qemu-io on an image.
pub(crate) fn qemu_io(format: &str, file: &Path, commands: &[&str]) {
    let mut qemu_io = program("qemu-io", "qemu-utils");
    qemu_io.args(["-f", format]);
    for command in commands {
        qemu_io.args(["-c", command]);
    }
    let output = run(qemu_io.arg(file));
    assert!(!output.contains("failed"), "{output}");
}

/// What qemu-img makes of an image, as a raw file.
pub(crate) fn qemu_raw(format: &str, image: &Path) -> PathBuf {
    let raw = image.with_extension("qemu-raw");
    qemu_img(&["convert", "-f", format, "-O", "raw"], &[image, &raw]);
    raw
}

/// The size that qemu-img gives.
pub(crate) fn qemu_size(format: &str, image: &Path) -> u64 {
    let info = qemu_img(&["info", "--output=json", "-f", format], &[image]);
    let (_, value) = info.split_once("\"virtual-size\": ").unwrap();
    value.split_once(',').unwrap().0.trim().parse().unwrap()
}

pub(crate) fn open(path: &Path) -> Image {
    open_as(path, None)
}

pub(crate) fn open_as(path: &Path, format: Option<Format>) -> Image {
    Image::open(path, OpenOptions { format, ..OpenOptions::default() })
        .unwrap_or_else(|error| panic!("{error}: {}", error.refusal))
}

/// Holds all of an image against a raw file. Runs that are holes in the raw file and zeros in the image are not read.
pub(crate) fn assert_same(image: &Image, raw: &Path) {
    assert_same_but(image, raw, &|extent| extent.source == Source::Zero);
}

/// As [`assert_same`], of an image in the file at `path`: runs that are holes in both files are not read either.
pub(crate) fn assert_same_sparse(image: &Image, path: &Path, raw: &Path) {
    let stored = File::open(path).unwrap();
    assert_same_but(image, raw, &|extent| match extent.source {
        Source::Zero => true,
        Source::File { at, .. } => !has_data(&stored, at.get(), extent.range.length().get()),
        Source::Replayed { .. } | Source::Encoded { .. } => false,
    });
}

fn assert_same_but(image: &Image, raw: &Path, is_zero: &dyn Fn(&Extent) -> bool) {
    let file = File::open(raw).unwrap();
    let size = image.virtual_size().get();
    assert_eq!(file.metadata().unwrap().len(), size, "size");
    let (mut ours, mut theirs) = (vec![0; WINDOW_BYTES as usize], vec![0; WINDOW_BYTES as usize]);
    let mut at = 0;
    while at < size {
        let length = WINDOW_BYTES.min(size - at);
        if !has_data(&file, at, length) && extents(image, at, length).iter().all(is_zero) {
            at += length;
            continue;
        }
        let (ours, theirs) = (&mut ours[..length as usize], &mut theirs[..length as usize]);
        read(image, at, ours);
        rustix::io::pread(&file, &mut *theirs, at).unwrap();
        assert_windows(ours, theirs, at);
        at += length;
    }
}

/// Holds all of an image against what 7-Zip extracts of it.
pub(crate) fn assert_same_as_7z(image: &Image, path: &Path) {
    let kind = match image.format() {
        Format::Vhd => "-tVHD",
        Format::Vhdx => "-tVHDX",
        Format::Qcow2 => "-tQCOW",
        Format::Vmdk => "-tVMDK",
        Format::Raw => panic!("7-Zip reads no raw images"),
    };
    let mut child = program("7z", "p7zip-full")
        .args(["x", "-so", kind])
        .arg(path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let size = image.virtual_size().get();
    let mut stream = child.stdout.take().unwrap();
    let (mut ours, mut theirs) = (vec![0; WINDOW_BYTES as usize], vec![0; WINDOW_BYTES as usize]);
    let mut at = 0;
    while at < size {
        let length = WINDOW_BYTES.min(size - at) as usize;
        stream
            .read_exact(&mut theirs[..length])
            .unwrap_or_else(|error| panic!("7z ends at {at:#x}: {error}"));
        read(image, at, &mut ours[..length]);
        assert_windows(&ours[..length], &theirs[..length], at);
        at += length as u64;
    }
    assert_eq!(stream.read(&mut theirs).unwrap(), 0, "7z gives more than {size} bytes");
    assert!(child.wait().unwrap().success(), "7z failed on {path:?}");
}

/// The SHA-256 of all that the disk holds, computed by python3 (whose hashing is fast in a debug build, too).
pub(crate) fn sha256(image: &Image) -> String {
    let mut child = program("python3", "python3")
        .args(["-c", "import hashlib,sys\nprint(hashlib.file_digest(sys.stdin.buffer,'sha256').hexdigest())"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    feed(image, &mut child);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn feed(image: &Image, child: &mut Child) {
    use std::io::Write;
    let mut stream = child.stdin.take().unwrap();
    let size = image.virtual_size().get();
    let mut buffer = vec![0; WINDOW_BYTES as usize];
    for at in (0..size).step_by(WINDOW_BYTES as usize) {
        let piece = &mut buffer[..WINDOW_BYTES.min(size - at) as usize];
        read(image, at, piece);
        stream.write_all(piece).unwrap();
    }
}

/// As a front end reads: at once if that goes, else with patience.
pub(crate) fn read(image: &Image, at: u64, buffer: &mut [u8]) {
    let at = ByteOffset::new(at);
    match image.read(at, buffer, Patience::Now) {
        Err(block::BlockError::WouldBlock) => image.read(at, buffer, Patience::Blocking).unwrap(),
        result => result.unwrap(),
    }
}

/// All extents of a range.
pub(crate) fn extents(image: &Image, at: u64, length: u64) -> Vec<Extent> {
    let (mut at, mut left, mut extents) = (at, length, Vec::new());
    while left > 0 {
        let range = ByteRange::new(ByteOffset::new(at), ByteLength::new(left)).unwrap();
        let extent = image.extent(range, Patience::Blocking).unwrap();
        assert_eq!(extent.range.start().get(), at);
        let length = extent.range.length().get();
        assert!(length > 0 && length <= left);
        at += length;
        left -= length;
        extents.push(extent);
    }
    extents
}

/// Writes a file in memory to `path`, with holes where it holds zeros.
pub(crate) fn save(storage: &MemoryStorage, path: &Path) {
    let file = File::create(path).unwrap();
    let len = storage.len().get();
    file.set_len(len).unwrap();
    let mut buffer = vec![0; 64 << 10];
    for at in (0..len).step_by(buffer.len()) {
        let piece = &mut buffer[..(64 << 10).min((len - at) as usize)];
        storage.read_at(ByteOffset::new(at), piece, Patience::Blocking).unwrap();
        if piece.iter().any(|&byte| byte != 0) {
            rustix::io::pwrite(&file, piece, at).unwrap();
        }
    }
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

fn assert_windows(ours: &[u8], theirs: &[u8], at: u64) {
    if ours != theirs {
        let place = ours.iter().zip(theirs).position(|(one, other)| one != other).unwrap();
        panic!("byte {:#x} is {:#x} here, {:#x} there", at + place as u64, ours[place], theirs[place]);
    }
}

fn has_data(file: &File, at: u64, length: u64) -> bool {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data < at + length,
        Err(rustix::io::Errno::NXIO) => false,
        Err(error) => panic!("{error}"),
    }
}
