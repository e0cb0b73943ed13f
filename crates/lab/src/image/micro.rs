//! The micro guest: Debian's kernel and an initramfs of a few programs, for the many quick boots of tests.
//!
//! It goes the same way as the golden image (firmware, iPXE, GRUB from the disk, kernel, iBFT, the initiator of
//! open-iscsi), and is up in about a third of the time. Its user space is busybox, `iscsistart` and `iscsid` in
//! memory; the disk holds the kernel (partition `root`, not mounted) and an empty ext4 file system (partition `data`,
//! mounted at `/data`). `iscsid` keeps the session over a restart of the server, as in the golden image. When it is
//! up it prints a line that begins with [`READY`], sends the same ready beacon, and offers a root shell on the serial line.
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::disk::{Disk, Partition};
use super::{
    INITRD_FILE, Image, KERNEL_FILE, KERNELS, SCHEMA, bootstrap, grub_configuration, only_file, sources,
};
use crate::cache::{self, Inputs};
use crate::command::output;
use crate::progress::Progress;

/// What the line on the serial console begins with when the guest is up.
pub const READY: &str = "MICRO-READY";

/// What administrators install in their images; here, only its ready beacon is sent.
pub(super) const GUEST_SERVICE: &str = include_str!("../../../../packaging/guest/headwater-guest");
pub(super) const ISCSI_IDENTITY: &str = include_str!("../../assets/iscsi-identity.sh");
const INIT: &str = include_str!("../../assets/micro-init.sh");

const PACKAGES: [&str; 2] = ["open-iscsi", "busybox-static"];
/// In the order of loading; what they depend on comes before them.
const MODULES: [&str; 8] = [
    "virtio_pci",
    "virtio_net",
    "crc32c_intel",
    "crc32c_generic",
    "iscsi_ibft",
    "iscsi_tcp",
    "sd_mod",
    "ext4",
];
/// With the libraries that they need.
const PROGRAMS: [&str; 2] = ["sbin/iscsistart", "sbin/iscsid"];
const ISCSID_CONFIGURATION: &str = "node.session.timeo.replacement_timeout = 86400\n";
/// On a machine under load, an emulated timer can be too late for the kernel's check of it, which then panics.
const KERNEL_ARGUMENTS: &str = "mitigations=off no_timer_check";
const ESP_MIB: u64 = 4;
const ROOT_MIB: u64 = 40;
const DATA_MIB: u64 = 256;
const PAYLOAD_BLOCK_MIB: u64 = 2;

/// Gives the micro guest's image, from the cache in [`home`](crate::home) or built (about 20 seconds).
///
/// # Errors
/// Where we are not root, a tool is missing or fails (its words and the last lines of the log are in the error).
pub fn micro() -> Result<Image> {
    let sources = sources::from_machine(Path::new("/etc/apt"));
    let inputs = Inputs::new()
        .add("schema", SCHEMA)
        .add("sources", &*sources)
        .add("packages", PACKAGES.join(" "))
        .add("kernels", KERNELS.join(" "))
        .add("modules", MODULES.join(" "))
        .add("programs", PROGRAMS.join(" "))
        .add("grub", grub_configuration("", "", KERNEL_ARGUMENTS))
        .add("sizes", format!("{ESP_MIB} {ROOT_MIB} {DATA_MIB} {PAYLOAD_BLOCK_MIB}"))
        .add("iscsid.conf", ISCSID_CONFIGURATION)
        .add("init", INIT)
        .add("headwater-guest", GUEST_SERVICE)
        .add("iscsi-identity", ISCSI_IDENTITY);
    let entry = cache::entry(&crate::home().join("images"), "micro", &inputs, |workplace| {
        crate::home::require_root("building the micro guest's image")?;
        build(workplace, &sources)
    })?;
    Ok(Image::in_entry(&entry))
}

fn build(workplace: &Path, sources: &str) -> Result<()> {
    let progress = Progress::begin("micro guest");
    progress.step("unpacking kernel and programs with mmdebstrap");
    let root = bootstrap(workplace, &PACKAGES, &["--variant=extract".to_owned()], sources)?;
    progress.step("packing the initramfs");
    let tree = initramfs(workplace, &root)?;
    let boot = workplace.join("boot-partition");
    fs::create_dir_all(boot.join("boot/grub"))?;
    pack(&tree, &boot.join("boot/initrd.img"))?;
    fs::copy(only_file(&root.join("boot"), "vmlinuz-")?, boot.join("boot/vmlinuz"))?;
    let configuration = grub_configuration("/boot/vmlinuz", "/boot/initrd.img", KERNEL_ARGUMENTS);
    fs::write(boot.join("boot/grub/grub.cfg"), configuration)?;
    progress.step("assembling the disk");
    let partitions = [
        Partition { label: "root", size_mib: ROOT_MIB, content: Some(&boot) },
        Partition { label: "data", size_mib: DATA_MIB, content: None },
    ];
    let vhdx = Disk { esp_mib: ESP_MIB, partitions: &partitions }.build(workplace, PAYLOAD_BLOCK_MIB)?;
    for (file, name) in [("boot/vmlinuz", KERNEL_FILE), ("boot/initrd.img", INITRD_FILE)] {
        fs::copy(boot.join(file), workplace.join(name))?;
    }
    for folder in [&root, &tree, &boot] {
        cache::remove_tree(folder)?;
    }
    progress.step(&format!("done: {} MiB", fs::metadata(vhdx)?.len() >> 20));
    Ok(())
}

/// Lays out the initramfs as a folder.
fn initramfs(workplace: &Path, root: &Path) -> Result<PathBuf> {
    let tree = workplace.join("initramfs");
    for folder in [
        "bin",
        "sbin",
        "proc",
        "sys",
        "dev",
        "run",
        "tmp",
        "data",
        "etc/iscsi",
        "var/lib/iscsi",
        "lib/modules",
    ] {
        fs::create_dir_all(tree.join(folder))?;
    }
    fs::copy(root.join("bin/busybox"), tree.join("bin/busybox"))?;
    for applet in output(Command::new(root.join("bin/busybox")).arg("--list"))?.lines() {
        if applet != "busybox" {
            symlink("busybox", tree.join("bin").join(applet))?;
        }
    }
    copy_modules(root, &tree.join("lib/modules"))?;
    for program in PROGRAMS {
        copy_with_libraries(root, program, &tree)?;
    }
    fs::write(tree.join("etc/iscsi/iscsid.conf"), ISCSID_CONFIGURATION)?;
    fs::write(tree.join("etc/passwd"), "root::0:0:root:/:/bin/sh\n")?;
    let scripts =
        [("init", INIT), ("bin/headwater-guest", GUEST_SERVICE), ("bin/iscsi-identity.sh", ISCSI_IDENTITY)];
    for (name, script) in scripts {
        fs::write(tree.join(name), script)?;
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o755))?;
    }
    Ok(tree)
}

/// Copies the modules, unpacked, with names that sort in the order of loading.
fn copy_modules(root: &Path, to: &Path) -> Result<()> {
    let version_folder = only_file(&root.join("lib/modules"), "")?;
    let version = version_folder.file_name().context("no kernel version")?;
    output(Command::new("depmod").arg("-b").arg(root).arg(version))?;
    let mut order: Vec<PathBuf> = Vec::new();
    for module in MODULES {
        let mut command = Command::new("modprobe");
        command.arg("-d").arg(root).arg("-S").arg(version).args(["--show-depends", module]);
        for line in output(&mut command)?.lines() {
            // A line is `insmod PATH` or `builtin NAME`.
            let Some(path) = line.strip_prefix("insmod ").map(|path| PathBuf::from(path.trim())) else {
                continue;
            };
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    ensure!(!order.is_empty(), "the kernel's package has none of the modules {MODULES:?}");
    for (number, path) in order.iter().enumerate() {
        let name = path.file_name().context("a module without a name")?.to_string_lossy().into_owned();
        let target = to.join(format!("{number:02}-{name}"));
        fs::copy(path, &target).with_context(|| format!("cannot copy {}", path.display()))?;
        if name.ends_with(".xz") {
            output(Command::new("xz").arg("-d").arg(&target))?;
        }
    }
    Ok(())
}

/// Copies a program and the libraries that the loader of its own root folder finds for it.
fn copy_with_libraries(root: &Path, program: &str, tree: &Path) -> Result<()> {
    const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
    let mut command = Command::new("chroot");
    command.arg(root).args([LOADER, "--list", &format!("/{program}")]);
    let list = output(&mut command)?;
    // Lines are `name => /path (address)`, and the loader itself: `/path (address)`.
    let libraries = list.split_whitespace().filter(|word| word.starts_with('/'));
    for path in libraries.chain([LOADER, program]) {
        let path = path.trim_start_matches('/');
        let target = tree.join(path);
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(root.join(path), &target).with_context(|| format!("cannot copy {path}"))?;
    }
    Ok(())
}

/// Packs a folder as a compressed cpio archive, as the kernel wants it.
fn pack(tree: &Path, archive: &Path) -> Result<()> {
    let script = "set -e; cd \"$1\"; find . | cpio --quiet -o -H newc -R 0:0 >\"$2.cpio\"; \
                  zstd -q -T0 -12 --rm -f -o \"$2\" \"$2.cpio\"";
    output(Command::new("sh").args(["-c", script, "sh"]).arg(tree).arg(archive)).map(|_| ())
}
