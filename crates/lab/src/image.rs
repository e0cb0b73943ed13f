//! The guests' disk images.
mod disk;
mod sources;

pub mod golden;
pub mod micro;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::command::{self, bound_to_us, show};

/// A built disk image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The dynamic VHDX file. It belongs to the cache: open it for reading only.
    pub vhdx: PathBuf,
    /// The kernel in it, for machines that load it some other way.
    pub kernel: PathBuf,
    /// Its initramfs.
    pub initrd: PathBuf,
}

/// What [`Image::kernel`] and [`Image::initrd`] are called in an entry of the cache.
const KERNEL_FILE: &str = "vmlinuz";
const INITRD_FILE: &str = "initrd.img";

impl Image {
    fn in_entry(entry: &Path) -> Self {
        Self {
            vhdx: entry.join("disk.vhdx"),
            kernel: entry.join(KERNEL_FILE),
            initrd: entry.join(INITRD_FILE),
        }
    }
}

/// Bumped when the code that assembles images changes what comes out.
const SCHEMA: &str = "6";

/// The kernel that guests run, newest first: the first that the archive has is taken. The cloud flavour has the
/// drivers of virtual machines only, and half the size.
const KERNELS: [&str; 2] = ["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"];

/// What every guest's GRUB does: no menu, all on the serial console.
fn grub_configuration(kernel: &str, initrd: &str, arguments: &str) -> String {
    format!(
        "serial --unit=0 --speed=115200\nterminal_output serial\nterminal_input serial\nset timeout=0\n\
         echo \"GRUB: loading kernel\"\nlinux {kernel} console=ttyS0,115200 net.ifnames=0 quiet {arguments}\n\
         echo \"GRUB: loading initrd\"\ninitrd {initrd}\nboot\n"
    )
}

/// Runs mmdebstrap for the first kernel that works, with its output in the workplace's log.
fn bootstrap(workplace: &Path, packages: &[&str], arguments: &[String], sources: &str) -> Result<PathBuf> {
    let root = workplace.join("rootfs");
    let list = workplace.join("sources");
    std::fs::write(&list, sources)?;
    let mut result = Ok(());
    for kernel in KERNELS {
        if root.exists() {
            crate::cache::remove_tree(&root)?;
        }
        // In process and mount namespaces of its own: when we are killed, nothing of it goes on or stays mounted.
        let mut command = bound_to_us("unshare");
        command
            .args(["--pid", "--mount-proc", "--fork", "--kill-child", "--", "mmdebstrap"])
            .args(["--mode=root", "--format=directory"])
            .arg(format!("--include={kernel},{}", packages.join(",")))
            // The image is thrown away when the build is cut off: no need to wait for the disk.
            .arg("--dpkgopt=force-unsafe-io")
            .args(["--aptopt=APT::Install-Recommends \"false\"", "--aptopt=Acquire::Languages \"none\""])
            .args(
                ["doc", "man", "locale", "info"]
                    .map(|kind| format!("--dpkgopt=path-exclude=/usr/share/{kind}/*")),
            )
            .args(arguments)
            .arg("bookworm")
            .arg(&root)
            .arg(&list);
        result = logged(&mut command, workplace);
        if result.is_ok() {
            break;
        }
    }
    result.map(|()| root)
}

/// Runs a command with its output at the end of the workplace's log; the end of that goes into the error.
fn logged(command: &mut Command, workplace: &Path) -> Result<()> {
    let path = workplace.join(crate::cache::BUILD_LOG);
    let log = std::fs::File::options().create(true).append(true).open(&path)?;
    let shown = show(command);
    let status = command.stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            let said = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            anyhow::bail!("`{shown}` failed ({status}):\n{}", command::tail(&said, 4000))
        }
        Err(error) => Err(anyhow::Error::new(error).context(format!("cannot start `{shown}`"))),
    }
}

/// The one file in `folder` whose name begins with `prefix`: a kernel, say, whose version we do not know.
fn only_file(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .collect();
    match (found.pop(), found.len()) {
        (Some(path), 0) => Ok(path),
        (_, others) => anyhow::bail!(
            "expected one file {prefix}* in {}, found {}",
            folder.display(),
            if others == 0 { 0 } else { others + 1 }
        ),
    }
}
