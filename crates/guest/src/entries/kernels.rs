//! Kernels that lie in `/boot`, or in the root of a partition that is mounted there, with the initramfs of their version:
//! what is left where no loader's menu can be read.
use super::{BootEntry, Source, Volume, version};
use crate::error::GuestError;

/// The names of an initramfs of the version `{}`: Debian's, Fedora's, Arch's and others'.
const INITRAMFS: [&str; 4] = ["initrd.img-{}", "initramfs-{}.img", "initrd-{}", "initramfs-{}"];

/// The kernels of a volume, newest first.
pub(super) fn find(volume: &Volume) -> Result<Vec<BootEntry>, GuestError> {
    let mut entries = Vec::new();
    for directory in ["/boot", ""] {
        for name in volume.files(if directory.is_empty() { "/" } else { directory }, "")? {
            let Some(version) =
                name.name.strip_prefix("vmlinuz-").filter(|version| !version.contains("rescue"))
            else {
                continue;
            };
            let initramfs = INITRAMFS
                .iter()
                .map(|pattern| format!("{directory}/{}", pattern.replace("{}", version)))
                .find(|path| volume.holds(path));
            entries.push((
                version.to_owned(),
                BootEntry {
                    id: name.name.clone(),
                    title: format!("Linux {version}"),
                    source: Source::Kernel,
                    kernel: volume.file(&format!("{directory}/{}", name.name)),
                    initrds: initramfs.iter().map(|path| volume.file(path)).collect(),
                    // The file system that the kernel lies in is the root, unless the kernel lies in a `/boot` of its own.
                    options: if directory.is_empty() {
                        String::new()
                    } else {
                        format!("root=UUID={} ro", volume.system.uuid())
                    },
                    default: false,
                },
            ));
        }
    }
    entries.sort_by(|(a, _), (b, _)| version::compare(b, a));
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}
