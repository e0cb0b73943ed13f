//! What operating systems are told about themselves, asked for as cloud-init and an initramfs do.
mod harness;

use std::os::unix::fs::PermissionsExt as _;

use harness::{MAC, Site};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKj ann@desk";

fn get(site: &Site, path: &str) -> (u16, String) {
    let answer = site.http(&format!("GET {path} HTTP/1.1\r\n"), "");
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// A value of a document in YAML with one of them on each line.
fn value(document: &str, key: &str) -> Option<String> {
    let line = document.lines().find_map(|line| line.strip_prefix(&format!("{key}: ")).map(str::to_owned))?;
    Some(serde_json::from_str(&line).unwrap())
}

fn put_secret(site: &Site, place: &str, text: &str) {
    let path = site.path("secrets").join(place);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn device_is_told_who_it_is_by_the_address_that_it_uses_its_disk_from() {
    let site = Site::running();
    let target = site.new_boot();
    assert_eq!(get(&site, "/v1/cloud/self/meta-data").0, 404, "a script alone proves nothing");
    let mut session = site.session(&target);
    assert!(session.run("read 0 4k").contains("read 4096"));

    let template = site.path("user-data");
    std::fs::write(&template, "#cloud-config\nhostname: {{device}}\nroom: {{personality.Room}}\n").unwrap();
    let user_data = format!("user_data=@{}", template.display());
    site.headwater(&[
        "device",
        "set",
        "lab-01",
        &user_data,
        "personality.Room=B12",
        &format!("ssh_keys={KEY}"),
    ]);
    // A change counts from the next look of the server at the catalogue on.
    harness::wait_until("the change", || get(&site, "/v1/cloud/self/user-data").1.contains("B12"));

    let (status, meta) = get(&site, "/v1/cloud/self/meta-data");
    assert_eq!((status, value(&meta, "local-hostname").as_deref()), (200, Some("lab-01")), "{meta}");
    assert_eq!(value(&meta, "mac").as_deref(), Some(MAC));
    assert_eq!(value(&meta, "vdisk").as_deref(), Some("debian"));
    assert_eq!(value(&meta, "machine-id").unwrap().len(), 32);
    assert!(meta.ends_with(&format!("public-keys:\n- \"{KEY}\"\n")), "{meta}");
    assert_eq!(value(&meta, "secrets-url"), None, "there are none");
    let (_, user) = get(&site, "/v1/cloud/self/user-data");
    assert_eq!(user, "#cloud-config\nhostname: lab-01\nroom: B12\n");
    let (_, vendor) = get(&site, "/v1/cloud/self/vendor-data");
    assert!(
        vendor.starts_with("#cloud-config\n") && vendor.contains("/etc/headwater/device.json"),
        "{vendor}"
    );
    assert_eq!(get(&site, "/v1/cloud/self/network-config"), (200, "config: disabled\n".to_owned()));
    for (path, status) in
        [("/v1/cloud/self/nothing", 404), ("/v1/cloud/x.y.z/meta-data", 404), ("/v1/cloud/self/secrets", 404)]
    {
        assert_eq!(get(&site, path).0, status, "{path}");
    }
    session.end();
}

#[test]
fn template_without_a_value_is_an_error_that_names_it_and_one_with_an_unknown_place_is_refused() {
    let site = Site::running();
    let mut session = site.session(&site.new_boot());
    assert!(session.run("read 0 4k").contains("read 4096"));
    site.headwater(&["device", "set", "lab-01", "user_data=floor: {{personality.Floor}}"]);
    harness::wait_until("the change", || get(&site, "/v1/cloud/self/user-data").0 == 500);
    let (_, why) = get(&site, "/v1/cloud/self/user-data");
    assert!(why.contains("\"lab-01\"") && why.contains("set personality.Floor of the device"), "{why}");
    let socket = site.path("hw.sock");
    let words = ["device", "set", "lab-01", "user_data={{devise}}", "--socket", socket.to_str().unwrap()];
    let (ok, why) = harness::headwater(&words);
    assert!(!ok && why.contains("{{devise}}"), "{why}");
    session.end();
}

#[test]
fn secrets_are_told_once_in_a_boot_also_across_a_restart_of_the_server() {
    let mut site = Site::new("", "", "[cloud]\nsecrets = \"DIR/secrets\"");
    put_secret(&site, "all/join", "everybody\n");
    put_secret(&site, "device/lab-01/join", "one\n");
    site.start();
    let session = |site: &Site| {
        let mut session = site.session(&site.new_boot());
        assert!(session.run("read 0 4k").contains("read 4096"));
        let (_, meta) = get(site, "/v1/cloud/self/meta-data");
        let url = value(&meta, "secrets-url").unwrap_or_else(|| panic!("no way to secrets in\n{meta}"));
        (session, url.split_once("/v1/").map(|(_, path)| format!("/v1/{path}")).unwrap())
    };
    let (first, path) = session(&site);
    assert!(!secrets_told(&site));
    let (status, told) = get(&site, &path);
    assert_eq!(status, 200, "{told}");
    assert_eq!(serde_json::from_str::<serde_json::Value>(&told).unwrap(), serde_json::json!({"join": "one"}));
    for _ in 0..2 {
        assert_eq!(get(&site, &path).0, 410);
        assert_eq!(get(&site, "/v1/cloud/self/secrets").0, 410);
        assert_eq!(value(&get(&site, "/v1/cloud/self/meta-data").1, "secrets-url"), None);
        site.wait_for_log("asked for once more");
        assert!(secrets_told(&site), "administrators see that they are told");
        site.kill();
        site.start();
        harness::wait_until("the session", || get(&site, "/v1/cloud/self/meta-data").0 == 200);
    }
    first.end();
    // The next boot has a token of its own, and the first boot's is worth nothing.
    let (second, next) = session(&site);
    assert_ne!(next, path);
    assert!(!secrets_told(&site), "each boot has its own");
    assert_eq!(get(&site, &path).0, 410);
    let meta = path.replace("/secrets", "/meta-data");
    assert_eq!(get(&site, &meta).0, 410, "a boot that was replaced is told nothing");
    assert_eq!(get(&site, &next).0, 200);
    second.end();
}

#[test]
fn device_that_shows_its_token_is_not_held_up_by_others_behind_its_address() {
    let mut site = Site::new("", "", "[cloud]\nsecrets = \"DIR/secrets\"");
    put_secret(&site, "all/join", "everybody\n");
    site.start();
    let mut session = site.session(&site.new_boot());
    assert!(session.run("read 0 4k").contains("read 4096"));
    let (_, meta) = get(&site, "/v1/cloud/self/meta-data");
    let url = value(&meta, "secrets-url").unwrap();
    let seed = url.split_once("/v1/").unwrap().1.strip_suffix("secrets").unwrap().to_owned();
    // A room full of machines that share this address and show nothing.
    harness::wait_until("the limit", || get(&site, "/v1/cloud/self/command").0 == 429);
    assert_eq!(get(&site, &format!("/v1/{seed}command")), (200, "again 5\n".to_owned()));
    harness::wait_until("the limit", || get(&site, "/v1/cloud/x.y.z/meta-data").0 == 429);
    assert_eq!(get(&site, &format!("/v1/{seed}meta-data")).0, 200);
    // It has a limit of its own.
    harness::wait_until("the limit", || get(&site, &format!("/v1/{seed}command")).0 == 429);
    session.end();
}

/// Takes part of a device's own service: a program that is ended with the test.
struct Guest(std::process::Child);

impl Guest {
    /// The service that is shipped, on this machine, which stands for a device whose disk it uses.
    fn start(site: &Site) -> Self {
        let conf = site.path("guest.conf");
        let text = format!(
            "SERVER=http://127.0.0.1:{}\nMESSAGE='cat >{said}'\nREBOOT='echo again >{again}'\nSHUTDOWN='echo no power; exit 1'\n",
            site.http_port,
            said = site.path("said").display(),
            again = site.path("again").display(),
        );
        std::fs::write(&conf, text).unwrap();
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/guest/headwater-guest");
        let mut command = std::process::Command::new("sh");
        Self(command.arg(program).env("HEADWATER_GUEST_CONF", conf).spawn().unwrap())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn file(site: &Site, name: &str) -> String {
    std::fs::read_to_string(site.path(name)).unwrap_or_default()
}

fn status(site: &Site) -> serde_json::Value {
    let text = site.headwater(&["device", "status", "lab-01", "--output", "json"]);
    serde_json::from_str(&text).unwrap()
}

fn secrets_told(site: &Site) -> bool {
    status(site)["secrets_told"].as_bool().unwrap()
}

fn sessions(site: &Site) -> u64 {
    status(site)["sessions"].as_u64().unwrap()
}

fn presence(site: &Site) -> (String, bool) {
    let status = status(site);
    (status["presence"].as_str().unwrap().to_owned(), status["takes_commands"].as_bool().unwrap())
}

#[test]
fn service_in_a_device_does_what_it_is_told_and_the_server_knows_what_became_of_it() {
    let site = Site::running();
    let socket = site.path("hw.sock");
    let refused = |words: &[&str]| {
        let (ok, why) = harness::headwater(&[words, &["--socket", socket.to_str().unwrap()]].concat());
        assert!(!ok, "{why}");
        why
    };
    let why = refused(&["device", "reboot", "lab-01", "--wait"]);
    assert!(why.contains("does not run from this server"), "{why}");

    let mut session = site.session(&site.new_boot());
    assert!(session.run("read 0 4k").contains("read 4096"));
    let why = refused(&["device", "reboot", "--collection", "imported"]);
    assert!(why.contains("Restart device lab-01?") && why.contains("--yes"), "{why}");
    let why = refused(&["device", "message", "anybody?", "lab-01", "--wait", "--expires", "1"]);
    assert!(why.contains("headwater-guest installed"), "{why}");
    assert!(!presence(&site).1);

    // The beacon of the service names a network card of this machine, which is no device's.
    site.ready(&format!("{{\"mac\":\"{MAC}\"}}"));
    let _guest = Guest::start(&site);
    harness::wait_until("the service", || presence(&site) == ("online".to_owned(), true));
    site.headwater(&[
        "device",
        "message",
        "We close at six. $(rm -r /) `id` %s\n'Good night'",
        "lab-01",
        "--wait",
    ]);
    harness::wait_until("the message", || file(&site, "said").ends_with("'Good night'\n"));
    assert_eq!(file(&site, "said"), "We close at six. $(rm -r /) `id` %s\n'Good night'\n");

    site.headwater(&["device", "shutdown", "lab-01", "--yes"]);
    site.wait_for_log("could not do a command");
    let told = site.headwater(&["device", "commands", "lab-01"]);
    assert!(told.contains("failed") && told.contains("no power") && told.contains("root"), "{told}");
    assert_eq!(presence(&site).0, "online", "it is still there");

    site.headwater(&["device", "reboot", "--collection", "imported", "--wait", "--yes"]);
    assert_eq!(presence(&site).0, "booting");
    harness::wait_until("the restart", || file(&site, "again") == "again\n");
    let audit = site.headwater(&["audit", "list", "--output", "json"]);
    assert!(audit.contains("\"reboot\"") && audit.contains("We close at six."), "{audit}");
    session.end();
}

#[test]
fn commands_are_fetched_and_taken_by_their_own_boot_alone() {
    let site = Site::running();
    let session = |site: &Site| {
        let mut session = site.session(&site.new_boot());
        assert!(session.run("read 0 4k").contains("read 4096"));
        session
    };
    let first = session(&site);
    let take = |id: &str| {
        let answer = site.http("POST /v1/cloud/self/command HTTP/1.1\r\n", &format!("{id} taken"));
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    site.headwater(&["device", "reboot", "lab-01", "--yes"]);
    let (status, mail) = get(&site, "/v1/cloud/self/command");
    assert_eq!(status, 200);
    let id = mail.lines().nth(1).and_then(|line| line.strip_suffix(" reboot")).unwrap();
    for (path, status) in [("/v1/cloud/x.y.z/command", 404), ("/v1/cloud/lab-01/command", 404)] {
        assert_eq!(get(&site, path).0, status, "{path}");
    }
    assert_eq!((take("1"), take("x")), ("410".to_owned(), "400".to_owned()));
    first.end();
    // The initiator does not wait for what the server makes of its logout.
    harness::wait_until("the end of the session", || sessions(&site) == 0);
    assert_eq!(get(&site, "/v1/cloud/self/command").0, 404, "nobody uses the disk from here");
    let second = session(&site);
    let (status, mail) = get(&site, "/v1/cloud/self/command");
    assert_eq!((status, mail.as_str()), (200, "again 5\n"), "it has restarted by itself");
    assert_eq!(take(id), "410");
    second.end();
}
