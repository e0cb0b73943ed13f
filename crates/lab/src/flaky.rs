//! A file on a store that fails or hangs when it is told to, and a file system on a disk that does.
//!
//! The kernels that tests run on have no device-mapper to make a disk fail. A file does as well: nbdkit serves it, with
//! its filter `error`, and nbdfuse shows it as a file again. While a trigger file is there, requests to it fail with EIO;
//! while nbdkit is stopped (SIGSTOP), they wait, as on a network store that is gone. A loop device makes a disk of it,
//! whose failures go through a real file system and the page cache: a write succeeds and is lost later, a flush hears
//! of it once.
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::command::{bound_to_us, run};
use crate::network::Network;
use crate::service::Service;

/// A file on a store that can be made to fail. Read-only, unless it is a disk's.
pub struct FlakyFile {
    path: PathBuf,
    trigger: PathBuf,
    server: Service,
    mount: Service,
    folder: PathBuf,
}

impl FlakyFile {
    /// Shows `file` in a folder of the network's. Servers that are started afterwards see it.
    ///
    /// # Errors
    /// Where nbdkit, nbdfuse or FUSE is not there.
    pub fn begin(network: &Network, file: &Path) -> Result<Self> {
        let name = file.file_name().context("the file has no name")?;
        let plugin = ["file".to_owned(), format!("file={}", file.display())];
        Self::show(network, "flaky", Path::new(name), &plugin, &["--readonly"])
    }

    /// Shows what a plugin of nbdkit serves as the file `name` in a folder of the network's.
    fn show(network: &Network, what: &str, name: &Path, plugin: &[String], options: &[&str]) -> Result<Self> {
        let folder = network.folder().join(what);
        std::fs::create_dir(&folder)?;
        let (socket, trigger) = (network.socket(what), network.folder().join(format!("{what}-fails")));
        let mut command = bound_to_us("nbdkit");
        command.args(["--foreground", "--filter=error", "--unix"]).arg(&socket).args(options).args(plugin);
        command.args(["error=EIO", "error-pread-rate=100%", "error-pwrite-rate=100%"]);
        command.arg(format!("error-file={}", trigger.display()));
        let mut server = network.service(&format!("{what}-store"), command)?;
        server.wait_for_path(&socket)?;
        // A mount lives in the machine's own namespace: one inside the network's would not reach the server.
        network.run().record_mount(&folder)?;
        let path = folder.join(name);
        let mut command = bound_to_us("nbdfuse");
        command.args(options).arg(&path).arg(format!("nbd+unix:///?socket={}", socket.display()));
        let mut mount = network.service(&format!("{what}-mount"), command)?;
        mount.wait_for_path(&path)?;
        Ok(Self { path, trigger, server, mount, folder })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes all requests fail with EIO from now on, or no longer.
    ///
    /// # Errors
    /// Where the trigger cannot be made or removed.
    pub fn fail(&self, failing: bool) -> Result<()> {
        if failing {
            File::create(&self.trigger)?;
        } else {
            std::fs::remove_file(&self.trigger)?;
        }
        Ok(())
    }

    /// Makes all requests hang from now on, or go on.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn hang(&self, hanging: bool) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.server.pid())?).context("no process number")?;
        Ok(kill_process(pid, if hanging { Signal::STOP } else { Signal::CONT })?)
    }
}

impl Drop for FlakyFile {
    fn drop(&mut self) {
        // Where one of these fails, the run's clean-up does it.
        let _ = self.hang(false);
        let _ = run("umount", &["--lazy", &self.folder.to_string_lossy()]);
        let _ = self.mount.kill();
    }
}

/// A file system on a disk that can be made to fail.
pub struct FlakyDisk {
    // Dropped after the file system is gone.
    store: FlakyFile,
    path: PathBuf,
}

impl FlakyDisk {
    /// Makes an ext4 file system of so many MiB and shows it in the network's folder under `name`. It has no journal:
    /// one that cannot be written makes the file system read-only for good, and what is wanted here is a disk that
    /// comes back.
    ///
    /// # Errors
    /// Where nbdkit, nbdfuse, FUSE or a loop device is not there.
    pub fn begin(network: &Network, name: &str, size_mib: u32) -> Result<Self> {
        let plugin = ["memory".to_owned(), format!("{size_mib}M")];
        let store = FlakyFile::show(network, &format!("{name}-disk"), Path::new("disk"), &plugin, &[])?;
        let disk = store.path().to_string_lossy();
        run("mkfs.ext4", &["-q", "-F", "-O", "^has_journal", &disk])?;
        let path = network.folder().join(name);
        std::fs::create_dir(&path)?;
        network.run().record_mount(&path)?;
        run("mount", &["-o", "loop,errors=continue", &disk, &path.to_string_lossy()])?;
        Ok(Self { store, path })
    }

    /// Where the file system is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the disk lies on, to be made to fail or hang.
    #[must_use]
    pub fn store(&self) -> &FlakyFile {
        &self.store
    }
}

impl Drop for FlakyDisk {
    fn drop(&mut self) {
        // A file system on a disk that hangs or fails cannot be taken away. What is left, the run's clean-up takes.
        let _ = self.store.hang(false);
        let _ = self.store.fail(false);
        let _ = run("umount", &["--lazy", &self.path.to_string_lossy()]);
    }
}
