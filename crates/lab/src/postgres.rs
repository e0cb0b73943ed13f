//! A PostgreSQL server for one test: a cluster of its own in a folder, on a Unix socket in it, run as an unprivileged user,
//! and stopped at the end.
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A cluster.
pub struct Cluster {
    folder: tempfile::TempDir,
    programs: PathBuf,
}

impl Cluster {
    /// Makes one and starts it; `None`, with a word about it, where the programs are not installed.
    ///
    /// # Errors
    /// What a program said that failed.
    pub fn start() -> Result<Option<Self>> {
        let Some(programs) = programs() else {
            println!("skipped: PostgreSQL is not installed (Debian package postgresql)");
            return Ok(None);
        };
        let folder = tempfile::Builder::new().prefix("hwpg").tempdir()?;
        // PostgreSQL does not run as root: the folder becomes its user's.
        if rustix::process::geteuid().is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path()))?;
        }
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let cluster = Self { folder, programs };
        let data = cluster.data();
        let arguments = ["--username=farm", "--auth=trust", "--no-sync", "--pgdata"];
        run(cluster.program("initdb").args(arguments).arg(&data))?;
        let settings = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nfsync = off\nmax_connections = 20\n",
            cluster.folder.path().display()
        );
        let written = cluster.folder.path().join("ours.conf");
        std::fs::write(&written, settings)?;
        let included = format!("include '{}'", written.display());
        let script = "printf '%s\\n' \"$1\" >> \"$2\"/postgresql.conf";
        run(cluster.as_user("sh").args(["-c", script, "sh", &included]).arg(&data))?;
        cluster.control("start")?;
        Ok(Some(cluster))
    }

    /// Has `pg_ctl` do something (`start`, `stop`, `restart`), and waits until it is done. A stop is one without grace:
    /// connections are cut.
    ///
    /// # Errors
    /// What it said.
    pub fn control(&self, action: &str) -> Result<()> {
        let log = self.folder.path().join("data/log.txt");
        let mut command = self.program("pg_ctl");
        command.args([action, "--wait", "--mode=immediate", "--pgdata"]).arg(self.data());
        run(command.arg("--log").arg(log))
    }

    /// The address of its database.
    #[must_use]
    pub fn address(&self) -> String {
        format!("host={} user=farm dbname=postgres", self.folder.path().display())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        self.as_user(&self.programs.join(name).to_string_lossy())
    }

    fn as_user(&self, program: &str) -> Command {
        if !rustix::process::geteuid().is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--", program]);
        command.current_dir(self.folder.path());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut stop = self.program("pg_ctl");
        stop.args(["stop", "--mode=immediate", "--pgdata"]).arg(self.data());
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// The folder with `initdb` of the newest installed version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<_> = versions.flatten().map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.into_iter().rev().find(|folder| folder.join("initdb").exists())
}

/// Its output goes nowhere: what it starts in the background would keep a pipe open.
fn run(command: &mut Command) -> Result<()> {
    let output = command.stdout(Stdio::null()).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?} cannot be started"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
