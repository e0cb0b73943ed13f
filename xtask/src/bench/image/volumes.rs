//! Where the images lie: the file system of the build folder, and an XFS of our own.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::run::{output, run};

/// A folder on a file system.
pub(super) struct Volume {
    /// What it is, for the name of a measure.
    pub(super) name: String,
    /// Whether the file system can clone.
    pub(super) clones: bool,
    folder: PathBuf,
    mounted: bool,
}

impl Volume {
    /// The build folder.
    pub(super) fn here(folder: &Path) -> Result<Self> {
        let folder = folder.join("here");
        std::fs::create_dir_all(&folder)?;
        let kind = output(Command::new("stat").args(["-f", "-c", "%T"]).arg(&folder))?;
        // stat(1) cannot tell the three ext file systems apart.
        let name = kind.trim().replace("ext2/ext3", "ext4");
        let clones = matches!(name.as_str(), "xfs" | "btrfs" | "bcachefs");
        Ok(Self { name, clones, folder, mounted: false })
    }

    /// A fresh XFS with reflink, in a file.
    pub(super) fn xfs(folder: &Path, filled_gib: u64) -> Result<Self> {
        let (image, mount) = (folder.join("xfs.img"), folder.join("xfs"));
        std::fs::create_dir_all(&mount)?;
        // A run that was killed may have left its mount.
        unmount(&mount);
        if image.exists() {
            std::fs::remove_file(&image)?;
        }
        let file = std::fs::File::create(&image)?;
        file.set_len((filled_gib * 5 + 16) << 30)?;
        run(Command::new("mkfs.xfs").args(["-q", "-m", "reflink=1"]).arg(&image))?;
        if run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount)).is_err() {
            bail!("the XFS of the bench cannot be mounted: that takes root and loop devices");
        }
        Ok(Self { name: "xfs".into(), clones: true, folder: mount, mounted: true })
    }

    /// A file on it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.mounted {
            unmount(&self.folder);
            let _ = std::fs::remove_file(self.folder.with_extension("img"));
        }
    }
}

fn unmount(mount: &Path) {
    let _ = Command::new("umount").arg(mount).stderr(Stdio::null()).status();
}
