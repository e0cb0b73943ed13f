//! The golden image: a whole Debian 12 that boots from the network by BIOS and by UEFI.
//!
//! What it does on the way up: the initramfs takes the firmware's session over from the iBFT (open-iscsi's own script),
//! `iscsid` takes it over from there, so that it survives a restart of the server; then one line that begins with
//! [`READY`] appears on the serial console, the *ready beacon* goes to the server (`POST /v1/ready` with
//! `{"mac": "52:54:00:77:00:10", "uptime_seconds": 21.53}`, to port 8080 of the iSCSI target's address or to
//! `headwater.ready=URL` of the kernel's command line), and a root shell waits on the serial line. Both
//! beacon and, later, commands are the business of the service that administrators install in their images
//! (`packaging/guest`).
//!
//! Before its init starts, the initramfs asks the server who the machine is (`golden-identity.sh`): host name, machine id
//! and the SSH keys that may log in are the device's own, and sshd makes a host key when somebody connects for the first time.
//!
//! Its initramfs can take the root from an NBD server, too (`nbdroot=`, by Debian's own script), and it has fio.
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::disk::{Disk, Partition};
use super::{INITRD_FILE, Image, KERNEL_FILE, KERNELS, SCHEMA, bootstrap, grub_configuration, sources};
use crate::cache::{self, Inputs};
use crate::progress::Progress;

/// What the line on the serial console begins with when the guest is up.
pub const READY: &str = "GOLDEN-READY";

const PACKAGES: [&str; 24] = [
    "systemd-sysv",
    "udev",
    "kmod",
    "initramfs-tools",
    "zstd",
    "xz-utils",
    "open-iscsi",
    "iproute2",
    "busybox",
    "e2fsprogs",
    "passwd",
    "login",
    "nbd-client",
    "openssh-server",
    // What fio is linked with; fio itself the customize hook unpacks, since its package wants Python.
    "libaio1",
    "libgfapi0",
    "libibverbs1",
    "libnbd0",
    "libnuma1",
    "libpmem1",
    "libpmemblk1",
    "librados2",
    "librbd1",
    "librdmacm1",
];
const KERNEL_ARGUMENTS: &str = "root=LABEL=root ro mitigations=off no_timer_check fsck.mode=skip";
const ESP_MIB: u64 = 32;
const ROOT_MIB: u64 = 1500;
const PAYLOAD_BLOCK_MIB: u64 = 16;

const SETUP: &str = include_str!("../../assets/golden-setup.sh");
const CUSTOMIZE: &str = include_str!("../../assets/golden-customize.sh");
/// What goes into /usr/local/sbin, and the last one into the initramfs.
const PROGRAMS: [(&str, &str); 5] = [
    ("golden-ready", include_str!("../../assets/golden-ready.sh")),
    ("headwater-guest.service", include_str!("../../../../packaging/guest/headwater-guest.service")),
    ("headwater-guest", super::micro::GUEST_SERVICE),
    ("iscsi-identity", super::micro::ISCSI_IDENTITY),
    ("headwater-identity", include_str!("../../assets/golden-identity.sh")),
];

/// Gives the golden image, from the cache in [`home`](crate::home) or built (one to two minutes).
///
/// # Errors
/// Where we are not root, a tool is missing or fails (its words and the last lines of the log are in the error).
pub fn golden() -> Result<Image> {
    let sources = sources::from_machine(Path::new("/etc/apt"));
    let mut inputs = Inputs::new()
        .add("schema", SCHEMA)
        .add("sources", &*sources)
        .add("packages", PACKAGES.join(" "))
        .add("kernels", KERNELS.join(" "))
        .add("grub", grub_configuration("", "", KERNEL_ARGUMENTS))
        .add("sizes", format!("{ESP_MIB} {ROOT_MIB} {PAYLOAD_BLOCK_MIB}"))
        .add("setup", SETUP)
        .add("customize", CUSTOMIZE);
    for (name, program) in PROGRAMS {
        inputs = inputs.add(name, program);
    }
    let entry = cache::entry(&crate::home().join("images"), "golden", &inputs, |workplace| {
        crate::home::require_root("building the golden image")?;
        build(workplace, &sources)
    })?;
    Ok(Image::in_entry(&entry))
}

fn build(workplace: &Path, sources: &str) -> Result<()> {
    let progress = Progress::begin("golden image");
    let setup = script(workplace, "setup", SETUP)?;
    let customize = script(workplace, "customize", CUSTOMIZE)?;
    let programs = workplace.join("programs");
    std::fs::create_dir(&programs)?;
    for (name, text) in PROGRAMS {
        script(&programs, name, text)?;
    }
    let hooks = [
        "--variant=apt".to_owned(),
        format!("--essential-hook='{}' \"$1\"", setup.display()),
        format!("--customize-hook='{}' \"$1\" '{}'", customize.display(), programs.display()),
    ];
    progress.step("installing Debian 12 with mmdebstrap (about a minute)");
    let root = bootstrap(workplace, &PACKAGES, &hooks, sources)?;
    progress.step("assembling the disk");
    std::fs::create_dir_all(root.join("boot/grub"))?;
    let configuration = grub_configuration("/boot/vmlinuz", "/boot/initrd.img", KERNEL_ARGUMENTS);
    std::fs::write(root.join("boot/grub/grub.cfg"), configuration)?;
    let partitions = [Partition { label: "root", size_mib: ROOT_MIB, content: Some(&root) }];
    let vhdx = Disk { esp_mib: ESP_MIB, partitions: &partitions }.build(workplace, PAYLOAD_BLOCK_MIB)?;
    for (file, name) in [("boot/vmlinuz", KERNEL_FILE), ("boot/initrd.img", INITRD_FILE)] {
        std::fs::copy(root.join(file), workplace.join(name))?;
    }
    cache::remove_tree(&root)?;
    progress.step(&format!("done: {} MiB", std::fs::metadata(vhdx)?.len() >> 20));
    Ok(())
}

/// Writes an executable file.
fn script(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
