//! The Debian packages that the lab, the tests and the benches use: which, what for, and how they get here.
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A package, known by a file of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name in Debian 12.
    pub name: &'static str,
    /// A file that is there when it is installed.
    pub file: &'static str,
    /// What we use it for.
    pub purpose: &'static str,
}

const fn package(name: &'static str, file: &'static str, purpose: &'static str) -> Package {
    Package { name, file, purpose }
}

const MMDEBSTRAP: Package = package("mmdebstrap", "/usr/bin/mmdebstrap", "builds Debian root folders");
const FDISK: Package = package("fdisk", "/usr/sbin/sfdisk", "writes partition tables");
const E2FSPROGS: Package = package("e2fsprogs", "/usr/sbin/mkfs.ext4", "makes and fills root file systems");
const DOSFSTOOLS: Package = package("dosfstools", "/usr/sbin/mkfs.vfat", "makes EFI system partitions");
const MTOOLS: Package = package("mtools", "/usr/bin/mcopy", "fills EFI system partitions");
const GRUB: Package = package("grub-common", "/usr/bin/grub-mkimage", "builds boot loaders");
const GRUB_BIOS: Package = package("grub-pc-bin", "/usr/lib/grub/i386-pc/boot.img", "boots images on BIOS");
const GRUB_UEFI: Package =
    package("grub-efi-amd64-bin", "/usr/lib/grub/x86_64-efi/linux.mod", "boots images on UEFI");
const ZSTD: Package = package("zstd", "/usr/bin/zstd", "compresses the micro guest's initramfs");
const XZ: Package = package("xz-utils", "/usr/bin/xz", "unpacks kernel modules");
const KMOD: Package = package("kmod", "/sbin/depmod", "finds out which modules a guest needs");
const CPIO: Package = package("cpio", "/bin/cpio", "packs the micro guest's initramfs");
const QEMU_UTILS: Package = package("qemu-utils", "/usr/bin/qemu-img", "converts and checks disk images");
const QEMU: Package = package("qemu-system-x86", "/usr/bin/qemu-system-x86_64", "runs target devices");
const OVMF: Package = package("ovmf", "/usr/share/OVMF/OVMF_CODE_4M.fd", "is the devices' UEFI firmware");
const IPXE_ROMS: Package =
    package("ipxe-qemu", "/usr/lib/ipxe/qemu/pxe-virtio.rom", "is the devices' BIOS network boot ROM");
const IPXE: Package = package("ipxe", "/usr/lib/ipxe/undionly.kpxe", "is the boot file that devices load");
const IPROUTE: Package = package("iproute2", "/sbin/ip", "makes network namespaces, bridges and taps");
const UTIL_LINUX: Package = package("util-linux", "/usr/bin/setpriv", "ends guests with the lab");
const DNSMASQ: Package =
    package("dnsmasq-base", "/usr/sbin/dnsmasq", "is the site's DHCP server, for proxy mode");
const OPEN_ISCSI: Package = package("open-iscsi", "/sbin/iscsistart", "is Linux's iSCSI initiator");
const LIBISCSI: Package =
    package("libiscsi-bin", "/usr/bin/iscsi-test-cu", "tests the iSCSI target and measures it (iscsi-perf)");
const QEMU_ISCSI: Package = package(
    "qemu-block-extra",
    "/usr/lib/x86_64-linux-gnu/qemu/block-iscsi.so",
    "lets qemu-img reach iSCSI targets",
);
const SEVEN_ZIP: Package = package("p7zip-full", "/usr/bin/7z", "is a second opinion on VHD and VHDX images");
const LIBVHDI: Package =
    package("libvhdi-utils", "/usr/bin/vhdiinfo", "is a third opinion on differencing VHDX images");
const BUSYBOX: Package =
    package("busybox-static", "/bin/busybox", "is a DHCP client (udhcpc) to test against");
const TFTP: Package = package("tftp-hpa", "/usr/bin/tftp", "is a TFTP client to test against");
const CURL: Package = package("curl", "/usr/bin/curl", "is a TFTP and HTTP client to test against");
const PYTHON: Package = package("python3", "/usr/bin/python3", "runs independent generators of disk images");
const TGT: Package = package("tgt", "/usr/sbin/tgtd", "is the iSCSI target that we compare ourselves with");
const NBDKIT: Package = package(
    "nbdkit",
    "/usr/bin/nbdkit",
    "is an NBD server: we compare ourselves with it, and it makes stores fail",
);
const NBD_SERVER: Package =
    package("nbd-server", "/usr/bin/nbd-server", "is an NBD server that we compare ourselves with");
const LIBNBD: Package = package("libnbd-bin", "/usr/bin/nbdinfo", "tests the NBD server (nbdinfo, nbdcopy)");
const NBDSH: Package = package(
    "python3-libnbd",
    "/usr/lib/python3/dist-packages/nbdsh.py",
    "tests the NBD server, command by command",
);
const GNUTLS: Package = package("gnutls-bin", "/usr/bin/certtool", "makes certificates for tests of TLS");
const FIO: Package = package("fio", "/usr/bin/fio", "writes to disks and verifies, and measures them");
const IPERF3: Package = package("iperf3", "/usr/bin/iperf3", "shows what one TCP stream can do here");
const XFSPROGS: Package = package("xfsprogs", "/sbin/mkfs.xfs", "makes file systems that can clone");
const BTRFS: Package =
    package("btrfs-progs", "/sbin/mkfs.btrfs", "makes another kind of file systems that can clone");
const POSTGRESQL: Package =
    package("postgresql", "/usr/lib/postgresql/15/bin/initdb", "is the farm catalogue's other database");
const NFTABLES: Package = package("nftables", "/usr/sbin/nft", "is the packet filter that doctor looks at");
const OPENSSH: Package =
    package("openssh-client", "/usr/bin/ssh-keyscan", "asks guests for their host keys and logs in to them");
const BINUTILS: Package = package("binutils", "/usr/bin/as", "assembles the loaders of boot media anew");
const CHROMIUM: Package = package("chromium", "/usr/bin/chromium", "shows the console's pages in tests");
const CHROMEDRIVER: Package =
    package("chromium-driver", "/usr/bin/chromedriver", "lets tests drive the browser (WebDriver)");
const SYSTEMD_STUB: Package = package(
    "systemd-boot-efi",
    "/usr/lib/systemd/boot/efi/linuxx64.efi.stub",
    "is the program that unified kernel images are made with",
);
const TIME: Package = package("time", "/usr/bin/time", "measures the memory of programs");

/// What `cargo xtask demo` needs: images, a lab network and target devices.
pub const DEMO: &[Package] = &[
    MMDEBSTRAP, FDISK, E2FSPROGS, DOSFSTOOLS, MTOOLS, GRUB, GRUB_BIOS, GRUB_UEFI, ZSTD, XZ, KMOD, CPIO,
    QEMU_UTILS, QEMU, OVMF, IPXE_ROMS, IPXE, IPROUTE, UTIL_LINUX,
];

/// What `cargo xtask test` needs.
pub const TEST: &[Package] = &[
    MMDEBSTRAP,
    FDISK,
    E2FSPROGS,
    DOSFSTOOLS,
    MTOOLS,
    GRUB,
    GRUB_BIOS,
    GRUB_UEFI,
    ZSTD,
    XZ,
    KMOD,
    CPIO,
    QEMU_UTILS,
    QEMU,
    OVMF,
    IPXE_ROMS,
    IPXE,
    IPROUTE,
    UTIL_LINUX,
    DNSMASQ,
    OPEN_ISCSI,
    LIBISCSI,
    QEMU_ISCSI,
    SEVEN_ZIP,
    LIBVHDI,
    TGT,
    BUSYBOX,
    TFTP,
    CURL,
    PYTHON,
    LIBNBD,
    NBDKIT,
    NBDSH,
    GNUTLS,
    FIO,
    XFSPROGS,
    BTRFS,
    POSTGRESQL,
    NFTABLES,
    BINUTILS,
    SYSTEMD_STUB,
    OPENSSH,
    CHROMIUM,
    CHROMEDRIVER,
];

/// What `cargo xtask bench` needs.
pub const BENCH: &[Package] = &[
    QEMU_UTILS, QEMU_ISCSI, LIBISCSI, TGT, NBDKIT, NBD_SERVER, LIBNBD, FIO, IPERF3, IPROUTE, UTIL_LINUX,
    XFSPROGS, TIME, CURL,
];

/// What `cargo xtask screenshots` needs.
pub const SCREENSHOTS: &[Package] = &[CHROMIUM, CHROMEDRIVER, QEMU_UTILS, QEMU_ISCSI];

/// Those of the packages whose file is not here.
#[must_use]
pub fn missing(packages: &[Package]) -> Vec<Package> {
    packages.iter().filter(|package| !Path::new(package.file).exists()).copied().collect()
}

/// Sees to it that the packages are installed: says what is missing and why, and installs it when we are root.
///
/// # Errors
/// Where something is missing and we are not root (with the command to type), or apt-get fails.
pub fn ensure(packages: &[Package]) -> Result<()> {
    let wanted = missing(packages);
    if wanted.is_empty() {
        return Ok(());
    }
    eprintln!("missing here:");
    for package in &wanted {
        eprintln!("  {:<20} {}", package.name, package.purpose);
    }
    let install = install_command(&wanted);
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("there is no apt-get here to install it with: get these programs by the means of your system");
    }
    if !rustix::process::geteuid().is_root() {
        bail!("to install it, run: sudo {}", install.join(" "));
    }
    if lists_are_missing(Path::new("/var/lib/apt/lists")) {
        apt(&update_command())?;
    }
    // Lists that are there can be too old for the archive: one update and one more try.
    if apt(&install).is_err() {
        apt(&update_command())?;
        apt(&install)?;
    }
    let still: Vec<_> = missing(packages).iter().map(|package| package.file).collect();
    if !still.is_empty() {
        bail!(
            "apt-get says that it installed everything, but these files are not there: {}",
            still.join(", ")
        );
    }
    Ok(())
}

/// Other package work may be going on: wait for it rather than fail.
const LOCK_WAIT: &str = "DPkg::Lock::Timeout=600";

fn install_command(packages: &[Package]) -> Vec<&'static str> {
    let mut words = vec!["apt-get", "install", "--yes", "--no-install-recommends", "-o", LOCK_WAIT];
    words.extend(packages.iter().map(|package| package.name));
    words
}

fn update_command() -> Vec<&'static str> {
    vec!["apt-get", "update", "-o", LOCK_WAIT]
}

fn apt(words: &[&str]) -> Result<()> {
    let line = words.join(" ");
    eprintln!("> {line}");
    let status = Command::new(words[0])
        .args(&words[1..])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Package lists are files named after their source; a fresh machine has only `lock` and folders.
fn lists_are_missing(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return true };
    !entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_names_exactly_what_is_not_there() {
        let here = package("here", "/proc/self/stat", "is here");
        let gone = package("gone", "/nonexistent/file", "is gone");
        assert_eq!(missing(&[here, gone]), [gone]);
    }

    #[test]
    fn install_command_can_be_typed() {
        let line = install_command(&[TGT, QEMU]).join(" ");
        assert_eq!(
            line,
            "apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=600 tgt qemu-system-x86"
        );
    }

    #[test]
    fn lists_with_only_a_lock_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("lock"), "").unwrap();
        assert!(lists_are_missing(folder.path()));
        std::fs::write(folder.path().join("deb.debian.org_dists_bookworm_main_binary-amd64_Packages"), "")
            .unwrap();
        assert!(!lists_are_missing(folder.path()));
    }

    #[test]
    fn everything_the_demo_needs_is_among_what_the_tests_need() {
        assert!(DEMO.iter().all(|package| TEST.contains(package)));
    }
}
