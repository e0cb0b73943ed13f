//! `headwater backup` and `headwater restore`: a farm that comes back as it was, and what is refused.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use farm::catalogue::Catalogue;
use farm::model::{Actor, Site, Timestamp};
use tempfile::TempDir;

/// A farm with the site "here", state, and a certificate, and no server.
struct Host {
    dir: TempDir,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display();
        std::fs::create_dir_all(dir.path().join("state/devices")).unwrap();
        std::fs::create_dir_all(dir.path().join("state/write-cache")).unwrap();
        for pem in ["server.pem", "server-key.pem", "ca.pem"] {
            std::fs::write(dir.path().join(pem), pem).unwrap();
        }
        let config = format!(
            "state_dir = \"{path}/state\"\nadmin_socket = \"{path}/hw.sock\"\n[nbd]\nlisten = \"127.0.0.1:10809\"\n\
             tls = \"required\"\ncertificate = \"{path}/server.pem\"\nkey = \"{path}/server-key.pem\"\nclient_ca = \"{path}/ca.pem\"\n"
        );
        std::fs::write(dir.path().join("headwater.toml"), config).unwrap();
        std::fs::write(dir.path().join("state/devices/lab-01.json"), "{\"current\":\"b1\"}").unwrap();
        std::fs::write(dir.path().join("state/write-cache/lab-01"), "large").unwrap();
        let host = Self { dir };
        host.add_site("here");
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn add_site(&self, name: &str) {
        let text = |text: &str| text.parse().unwrap();
        let by =
            Actor { user: "system".parse().unwrap(), token: None, origin: "test".to_owned(), request: None };
        let catalogue = Catalogue::open_file(&self.path("state/farm.db")).unwrap();
        let site = || Site { name: text(name), description: "".parse().unwrap(), disabled: false };
        catalogue.change(&by, Timestamp::from_ms(0), |change| change.create(site())).unwrap();
    }

    fn sites(&self) -> Vec<String> {
        let catalogue = Catalogue::open_read_only(&self.path("state/farm.db")).unwrap();
        let name = |site: &farm::model::Stored<Site>| site.value.name.to_string();
        catalogue.read(|reader| Ok(reader.all()?.iter().map(name).collect())).unwrap()
    }

    fn backup(&self, name: &str) -> Output {
        headwater(
            "backup",
            &[self.path(name).as_path()],
            &["--config", self.path("headwater.toml").to_str().unwrap()],
        )
    }

    fn restore(&self, name: &str, more: &[&str]) -> Output {
        headwater("restore", &[self.path(name).as_path()], more)
    }
}

fn headwater(verb: &str, files: &[&Path], more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headwater")).arg(verb).args(files).args(more).output().unwrap()
}

fn errors(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn done(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn farm_comes_back_as_it_was_and_what_was_there_is_kept() {
    let host = Host::new();
    done(&host.backup("farm.tar"));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(host.path("farm.tar")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600, "it holds secrets");
    assert!(done(&host.restore("farm.tar", &["--check"])).contains("as it was written"));

    // Since then: a site more, a device more, a changed certificate, a damaged configuration.
    host.add_site("there");
    std::fs::write(host.path("state/devices/lab-02.json"), "{}").unwrap();
    std::fs::write(host.path("ca.pem"), "another").unwrap();
    std::fs::write(host.path("headwater.toml"), "nonsense").unwrap();

    let refused = errors(&host.restore("farm.tar", &[]));
    assert!(refused.contains("there is a farm here already") && refused.contains("--force"), "{refused}");
    assert_eq!(host.sites(), ["here", "there"], "nothing was touched");

    let told = done(&host.restore("farm.tar", &["--force"]));
    assert!(told.contains("Next: headwater doctor"), "{told}");
    assert_eq!(host.sites(), ["here"]);
    assert_eq!(std::fs::read_to_string(host.path("ca.pem")).unwrap(), "ca.pem");
    assert!(std::fs::read_to_string(host.path("headwater.toml")).unwrap().starts_with("state_dir"));
    assert!(
        host.path("state/devices/lab-01.json").exists() && !host.path("state/devices/lab-02.json").exists()
    );
    assert_eq!(
        std::fs::read_to_string(host.path("state/write-cache/lab-01")).unwrap(),
        "large",
        "left alone"
    );
    let aside: Vec<_> = std::fs::read_dir(host.path("state"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("restor"))
        .collect();
    let [aside] = aside.as_slice() else { panic!("{aside:?}") };
    let kept = host.path("state").join(aside);
    assert_eq!(std::fs::read_to_string(kept.join("headwater.toml")).unwrap(), "nonsense");
    assert!(kept.join("farm.db").exists() && kept.join("state/devices/lab-02.json").exists());

    // What was moved aside is not taken along into the next backup.
    done(&host.backup("second.tar"));
    let tar = Command::new("tar").arg("-tf").arg(host.path("second.tar")).output().unwrap();
    let names = String::from_utf8(tar.stdout).unwrap();
    assert!(names.starts_with("headwater.toml\nfarm.db\nstate/devices/lab-01.json\n"), "{names}");
    assert!(names.ends_with("manifest.json\n") && !names.contains("before-restore"), "{names}");
}

#[test]
fn farm_comes_back_on_an_empty_disk() {
    let host = Host::new();
    done(&host.backup("farm.tar"));
    std::fs::remove_dir_all(host.path("state")).unwrap();
    std::fs::remove_file(host.path("headwater.toml")).unwrap();
    done(&host.restore("farm.tar", &[]));
    assert_eq!(host.sites(), ["here"]);
    assert_eq!(
        std::fs::read_to_string(host.path("state/devices/lab-01.json")).unwrap(),
        "{\"current\":\"b1\"}"
    );
}

#[test]
fn backup_does_not_lie_in_what_it_saves() {
    let host = Host::new();
    let refused = errors(&host.backup("state/farm.tar"));
    assert!(refused.contains("lies in the state directory"), "{refused}");
    assert!(!host.path("state/farm.tar").exists());
}

#[test]
fn nothing_is_restored_while_a_server_runs() {
    let host = Host::new();
    done(&host.backup("farm.tar"));
    let _server = std::os::unix::net::UnixListener::bind(host.path("hw.sock")).unwrap();
    let refused = errors(&host.restore("farm.tar", &["--force"]));
    assert!(
        refused.contains("a server runs here") && refused.contains("systemctl stop headwater"),
        "{refused}"
    );
}

#[test]
fn damaged_backup_is_refused_before_anything_is_touched() {
    let host = Host::new();
    done(&host.backup("farm.tar"));
    let whole = std::fs::read(host.path("farm.tar")).unwrap();
    let refuse = |bytes: &[u8], why: &str| {
        std::fs::write(host.path("bad.tar"), bytes).unwrap();
        let told = errors(&host.restore("bad.tar", &["--force"]));
        assert!(told.contains(why), "{told}");
        assert_eq!(host.sites(), ["here"]);
    };
    refuse(&whole[..whole.len() / 2], "it was cut off");
    let at = whole.windows(7).position(|window| window == b"current").unwrap();
    let mut flipped = whole.clone();
    flipped[at] ^= 1;
    refuse(&flipped, "state/devices/lab-01.json in it is damaged");
    refuse(b"nonsense", "cut off");
    refuse(&[b'x'; 2048], "no tar archive");
    refuse(&[0; 1024], "no manifest");
}

#[test]
fn member_that_wants_to_go_elsewhere_is_refused() {
    let host = Host::new();
    done(&host.backup("farm.tar"));
    // Everything is unpacked, and packed again with a name that leads out of the state directory.
    let (unpacked, evil) = (host.path("unpacked"), host.path("evil.tar"));
    std::fs::create_dir(&unpacked).unwrap();
    let run = |words: &[&str]| {
        assert!(Command::new("tar").current_dir(&unpacked).args(words).status().unwrap().success());
    };
    run(&["-xf", host.path("farm.tar").to_str().unwrap()]);
    let manifest = std::fs::read_to_string(unpacked.join("manifest.json")).unwrap();
    let bent = manifest.replace("state/devices/lab-01.json", "state/../../lab-01.json");
    std::fs::write(unpacked.join("manifest.json"), bent).unwrap();
    run(&[
        "--format=ustar",
        "-P",
        "--transform=s,^state/devices,state/../..,",
        "-cf",
        evil.to_str().unwrap(),
        "headwater.toml",
        "farm.db",
        "state/devices/lab-01.json",
        "files/0-ca.pem",
        "files/1-server-key.pem",
        "files/2-server.pem",
        "manifest.json",
    ]);
    let told = errors(&headwater("restore", &[&evil], &["--force"]));
    assert!(told.contains("state/../../lab-01.json in it belongs nowhere"), "{told}");
}
