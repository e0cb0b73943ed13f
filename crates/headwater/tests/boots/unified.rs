//! A disk whose loader is systemd-boot: beside the micro guest's own partitions an EFI system partition with a unified kernel image.
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::Image;

/// What the kernel is told, whichever loader tells it: as the micro guest's own menu does.
pub(crate) const COMMAND_LINE: &str =
    "console=ttyS0,115200 net.ifnames=0 quiet mitigations=off no_timer_check";
/// The number of the partition: it comes behind those that the micro guest has.
pub(crate) const PARTITION: u32 = 5;

const STUB: &str = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub";
const TYPE_ESP: &str = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B";
const PARTITION_MIB: u64 = 64;
/// For the spare copy of the partition table.
const TAIL_MIB: u64 = 1;
const SECTORS_PER_MIB: u64 = (1 << 20) / 512;

/// The image with one more partition, in this folder. Its unified kernel image is what `loader.conf` names, and says `option`.
pub(crate) fn disk(image: &Image, folder: &Path, option: &str) -> PathBuf {
    let (raw, vhdx) = (folder.join("unified.raw"), folder.join("unified.vhdx"));
    run("qemu-img", &["convert", "-O", "raw", text(&image.vhdx), text(&raw)]);
    let file = File::options().write(true).open(&raw).unwrap();
    let begins_mib = file.metadata().unwrap().len() >> 20;
    file.set_len((begins_mib + PARTITION_MIB + TAIL_MIB) << 20).unwrap();
    let (start, size) = (begins_mib * SECTORS_PER_MIB, PARTITION_MIB * SECTORS_PER_MIB);
    let table = format!("start={start}, size={size}, type={TYPE_ESP}, name=unified");
    let script =
        "sfdisk --quiet --relocate gpt-bak-std \"$1\" && echo \"$2\" | sfdisk --quiet --append \"$1\"";
    run("sh", &["-c", script, "sh", text(&raw), &table]);
    let partition = system_partition(image, folder, option);
    file.write_all_at(&fs::read(partition).unwrap(), begins_mib << 20).unwrap();
    run(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "vhdx", "-o", "subformat=dynamic", text(&raw), text(&vhdx)],
    );
    fs::remove_file(raw).unwrap();
    vhdx
}

fn system_partition(image: &Image, folder: &Path, option: &str) -> PathBuf {
    let partition = folder.join("esp");
    File::create(&partition).unwrap().set_len(PARTITION_MIB << 20).unwrap();
    run("mkfs.vfat", &[text(&partition)]);
    let settings = folder.join("loader.conf");
    fs::write(&settings, "timeout 3\ndefault micro*\n").unwrap();
    run("mmd", &["-i", text(&partition), "::/EFI", "::/EFI/Linux", "::/loader"]);
    for (file, place) in [
        (unified_kernel_image(image, folder, option), "::/EFI/Linux/micro-1.efi"),
        (settings, "::/loader/loader.conf"),
    ] {
        run("mcopy", &["-i", text(&partition), text(&file), place]);
    }
    partition
}

/// As systemd-stub(7) says how one is made by hand.
fn unified_kernel_image(image: &Image, folder: &Path, option: &str) -> PathBuf {
    let command_line = folder.join("cmdline");
    fs::write(&command_line, format!("{COMMAND_LINE} {option}")).unwrap();
    let unified = folder.join("micro-1.efi");
    let mut words = Vec::new();
    for (name, file, at) in [
        (".cmdline", &command_line, "0x30000"),
        (".linux", &image.kernel, "0x2000000"),
        (".initrd", &image.initrd, "0x3000000"),
    ] {
        words.push(format!("--add-section={name}={}", file.display()));
        words.push(format!("--change-section-vma={name}={at}"));
    }
    words.extend([STUB.to_owned(), unified.display().to_string()]);
    run("objcopy", &words.iter().map(String::as_str).collect::<Vec<_>>());
    unified
}

fn run(program: &str, arguments: &[&str]) {
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let output = Command::new(program).args(arguments).env("PATH", path).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
