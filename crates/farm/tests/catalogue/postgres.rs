//! PostgreSQL: the suite, and what only a server can show. A cluster of our own is made in a folder, started on a Unix
//! socket in it as an unprivileged user, and stopped at the end.
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farm::catalogue::{Catalogue, CatalogueError, DatabaseError, Postgres};
use farm::filter::Filter;
use farm::model::Site;

use crate::sample::{change, site};
use crate::suite;

/// A running cluster.
struct Cluster {
    folder: tempfile::TempDir,
    programs: PathBuf,
}

impl Cluster {
    /// `None`, with a word about it, where the programs are not installed.
    fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            println!("skipped: PostgreSQL is not installed (Debian package postgresql)");
            return None;
        };
        let folder = tempfile::Builder::new().prefix("hwpg").tempdir().unwrap();
        // PostgreSQL does not run as root: the folder becomes its user's.
        if rustix::process::geteuid().is_root() {
            run(Command::new("chown").arg("postgres").arg(folder.path()));
        }
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let cluster = Self { folder, programs };
        let data = cluster.data();
        run(cluster
            .program("initdb")
            .args(["--username=farm", "--auth=trust", "--no-sync", "--pgdata"])
            .arg(&data));
        let settings = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nfsync = off\nmax_connections = 20\n",
            cluster.folder.path().display()
        );
        let written = cluster.folder.path().join("ours.conf");
        std::fs::write(&written, settings).unwrap();
        let included = format!("include '{}'", written.display());
        run(cluster
            .as_user("sh")
            .args(["-c", "printf '%s\\n' \"$1\" >> \"$2\"/postgresql.conf", "sh", &included])
            .arg(&data));
        cluster.control("start");
        Some(cluster)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        self.as_user(self.programs.join(name).to_str().unwrap())
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

    /// Waits until it is done.
    fn control(&self, action: &str) {
        let log = self.folder.path().join("data/log.txt");
        let mut command = self.program("pg_ctl");
        command
            .args([action, "--wait", "--mode=immediate", "--pgdata"])
            .arg(self.data())
            .arg("--log")
            .arg(log);
        run(&mut command);
    }

    fn address(&self) -> String {
        format!("host={} user=farm dbname=postgres", self.folder.path().display())
    }

    /// An empty catalogue of its own.
    fn catalogue(&self, name: &str) -> Catalogue {
        let mut client = postgres::Client::connect(&self.address(), postgres::NoTls).unwrap();
        client.batch_execute(&format!("CREATE SCHEMA {name}")).unwrap();
        self.open(name)
    }

    fn open(&self, name: &str) -> Catalogue {
        let address = format!("{} options='-c search_path={name}'", self.address());
        Catalogue::open(Postgres::connect(&address).unwrap()).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut stop = self.program("pg_ctl");
        let _ = stop
            .args(["stop", "--mode=immediate", "--pgdata"])
            .arg(self.data())
            .stdout(Stdio::null())
            .status();
    }
}

/// The folder with `initdb` of the newest installed version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut folders: Vec<_> = versions.flatten().map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.into_iter().rev().find(|folder| folder.join("initdb").exists())
}

fn run(command: &mut Command) {
    let output = command.stdout(Stdio::null()).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn catalogue_on_a_server_keeps_every_promise() {
    let Some(cluster) = Cluster::start() else { return };
    suite::run(|case| cluster.catalogue(case));
}

#[test]
fn server_that_goes_and_comes_back_is_found_again() {
    let Some(cluster) = Cluster::start() else { return };
    let catalogue = cluster.catalogue("here");
    change(&catalogue, |change| change.create(site("one"))).unwrap();
    cluster.control("stop");
    let count = || catalogue.read(|reader| reader.count::<Site>(&Filter::Everything));
    let gone = count().unwrap_err();
    assert!(matches!(gone, CatalogueError::Database(DatabaseError::Unavailable { .. })), "{gone}");
    let gone = change(&catalogue, |change| change.create(site("two"))).unwrap_err();
    assert!(gone.to_string().contains("cannot be reached"), "{gone}");
    cluster.control("start");
    assert_eq!(count().unwrap(), 1);
    // In the middle of a transaction: that one fails, the next goes on.
    let lost = change(&catalogue, |change| {
        change.create(site("three"))?;
        cluster.control("restart");
        change.create(site("four"))
    })
    .unwrap_err();
    assert!(matches!(lost, CatalogueError::Database(DatabaseError::Unavailable { .. })), "{lost}");
    assert_eq!(count().unwrap(), 1);
    change(&catalogue, |change| change.create(site("two"))).unwrap();
    assert_eq!(count().unwrap(), 2);
}

#[test]
fn connection_that_is_lost_at_the_commit_leaves_the_outcome_open() {
    let Some(cluster) = Cluster::start() else { return };
    let catalogue = cluster.catalogue("here");
    let lost = change(&catalogue, |change| {
        change.create(site("one"))?;
        cluster.control("stop");
        Ok(())
    })
    .unwrap_err();
    // The head is written behind the last statement of the work, and may be what finds out.
    let told = matches!(
        lost,
        CatalogueError::Database(DatabaseError::Unavailable { .. } | DatabaseError::OutcomeUnknown { .. })
    );
    assert!(told, "{lost}");
}

#[test]
fn backup_of_a_server_names_the_program_for_it() {
    let Some(cluster) = Cluster::start() else { return };
    let error = cluster.catalogue("here").backup(Path::new("/nowhere")).unwrap_err();
    assert!(error.to_string().contains("pg_dump"), "{error}");
}

#[test]
fn two_programs_change_one_catalogue_in_turns() {
    let Some(cluster) = Cluster::start() else { return };
    let catalogues = [cluster.catalogue("here"), cluster.open("here")];
    std::thread::scope(|scope| {
        for (who, catalogue) in ["a", "b"].into_iter().zip(&catalogues) {
            scope.spawn(move || {
                for number in 0..25 {
                    change(catalogue, |change| change.create(site(&format!("{who}{number}")))).unwrap();
                }
            });
        }
    });
    for catalogue in &catalogues {
        assert_eq!(catalogue.latest_change().unwrap().0, 50);
        assert_eq!(catalogue.read(|reader| reader.count::<Site>(&Filter::Everything)).unwrap(), 50);
    }
}
