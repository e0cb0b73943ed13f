//! The server from the outside: real program, real initiator (QEMU's libiscsi), loopback.
mod harness;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use harness::{INITIATOR, MAC, PATIENCE, Site, contents, headwater, target_in, wait_until};

const READS_GOLDEN: &str = "read -P 0x5a 0 1M";

#[test]
fn boot_goes_from_script_to_ready_and_its_successor_finds_a_clean_disk() {
    let site = Site::running();
    let golden = contents(&site.path("golden.vhdx"));
    let first = site.new_boot();
    let io = site.io(&first, &[READS_GOLDEN, "write -P 0x77 1M 64k", "read -P 0x77 1M 64k"]);
    assert!(io.ok, "{}", io.text);
    // The operating system's own initiator goes on with the same disk.
    let io = site.io(&first, &["read -P 0x77 1M 64k", "write -P 0x78 2M 4k", "flush"]);
    assert!(io.ok, "{}", io.text);
    assert_eq!(site.ready(&format!("{{\"mac\":\"{MAC}\"}}")), "HTTP/1.1 200 OK");

    let timeline = site.headwater(&["boots", "show", "lab-01"]);
    for part in
        ["vDisk debian", "login, first stage", "hand-over", "login, second stage", "ready  ", "Request sizes"]
    {
        assert!(timeline.contains(part), "{part:?} is missing in:\n{timeline}");
    }

    // A script that is fetched and not used harms nobody.
    let unused = site.new_boot();
    assert!(site.io(&first, &["read -P 0x77 1M 64k"]).ok);
    // The next boot that is used begins with the image alone, and its predecessors are refused from then on.
    let second = site.new_boot();
    let io = site.io(&second, &["read -P 0x5a 1M 64k", "read -P 0x5a 2M 4k"]);
    assert!(io.ok, "{}", io.text);
    for stale in [&first, &unused] {
        let io = site.io(stale, &[READS_GOLDEN]);
        // 0x0204: target removed.
        assert!(!io.ok && io.text.contains("516"), "{}", io.text);
    }
    assert!(site.io(&second, &[READS_GOLDEN]).ok);
    assert_eq!(contents(&site.path("golden.vhdx")), golden, "the golden image changed");

    let list = site.headwater(&["boots", "list", "lab-01"]);
    assert_eq!(list.lines().count(), 4, "{list}");
    // Timelines are written soon, not at once.
    let state = site.path("state");
    wait_until("the stored timelines", || {
        headwater(&["boots", "list", "lab-01", "--state", state.to_str().unwrap()]).1.contains("debian")
    });
}

#[test]
fn running_boot_survives_a_killed_server() {
    let mut site = Site::running();
    let target = site.new_boot();
    let mut session = site.session(&target);
    assert!(session.run("write -P 0x31 0 1M").contains("wrote 1048576"));
    // Timelines are written soon, not at once.
    let state = site.path("state");
    wait_until("the stored timeline", || {
        headwater(&["boots", "show", "lab-01", "--state", state.to_str().unwrap()])
            .1
            .contains("writes: 1.0 MiB in")
    });
    site.kill();
    site.start();
    // The same session's client reconnects by itself and finds what it wrote.
    let read = session.run("read -P 0x31 0 1M");
    assert!(read.contains("read 1048576"), "{read}");
    let read = session.run("read -P 0x5a 1M 1M");
    assert!(read.contains("read 1048576"), "{read}");
    session.end();
    let timeline = site.headwater(&["boots", "show", "lab-01"]);
    assert!(timeline.contains("server restart"), "{timeline}");
    assert!(timeline.contains("1.0 MiB in"), "{timeline}");
}

#[test]
fn script_handed_out_before_a_restart_can_be_used_after_it() {
    let mut site = Site::running();
    let target = site.new_boot();
    let (status, took) = site.stop();
    assert!(status.success() && took.as_secs() < 10, "{status} after {took:?}");
    site.start();
    let io = site.io(&target, &[READS_GOLDEN]);
    assert!(io.ok, "{}", io.text);
}

#[test]
fn stopped_server_keeps_write_caches_and_lets_sessions_go() {
    let mut site = Site::running();
    let target = site.new_boot();
    let mut session = site.session(&target);
    assert!(session.run("write -P 0x42 0 64k").contains("wrote 65536"));
    let (status, took) = site.stop();
    assert!(status.success() && took.as_secs() < 10, "{status} after {took:?}");
    assert!(!site.path("hw.sock").exists());
    site.start();
    let read = session.run("read -P 0x42 0 64k");
    assert!(read.contains("read 65536"), "{read}");
    session.end();
}

#[test]
fn full_write_cache_is_a_clean_error_and_is_said_everywhere() {
    let site = Site::running();
    let target = site.new_boot();
    let io = site.io(&target, &["write -P 1 0 6M", "write -P 2 8M 4M"]);
    assert!(io.text.contains("wrote 6291456") && io.text.contains("No space left"), "{}", io.text);
    let io = site.io(&target, &["read -P 1 0 6M", "write -P 3 0 1M", "read -P 3 0 1M"]);
    assert!(io.ok, "what is in the write cache can still be written: {}", io.text);
    site.io(&target, &["write -P 2 8M 2M", "write -P 2 16M 4k"]);
    let devices = site.headwater(&["device", "status"]);
    assert!(devices.contains("8.0 MiB  8.0 MiB  full"), "{devices}");
    site.wait_for_log("write cache nearly full");
    site.wait_for_log("write cache full");
}

#[test]
fn initiator_that_does_not_own_the_device_is_refused() {
    let site = Site::running();
    let target = site.new_boot();
    let io = site.io_as(&target, "iqn.2026-11.org.headwater:lab-02:initiator", None, &[READS_GOLDEN]);
    // 0x0202: authorization failure.
    assert!(!io.ok && io.text.contains("514"), "{}", io.text);
    site.wait_for_log("belongs to initiator iqn.2026-11.org.headwater:lab-01:initiator, not");
    let io = site.io("iqn.2026-11.org.headwater:lab-09", &[READS_GOLDEN]);
    // 0x0203: not found.
    assert!(!io.ok && io.text.contains("515"), "{}", io.text);
    assert!(site.io(&target, &[READS_GOLDEN]).ok);
}

#[test]
fn chap_is_demanded_where_it_is_configured() {
    let mut site = Site::new("", "chap_user = \"lab\"\nchap_secret = \"a-good-secret\"", "");
    site.start();
    let script = site.script(MAC);
    assert!(script.contains("612d676f6f642d736563726574"), "the secret, in hexadecimal: {script}");
    let target = target_in(&script);
    let io = |chap| site.io_as(&target, INITIATOR, chap, &[READS_GOLDEN]);
    let right = io(Some(("lab", "a-good-secret")));
    assert!(right.ok, "{}", right.text);
    for wrong in [None, Some(("lab", "a-wrong-secret")), Some(("bal", "a-good-secret"))] {
        let refused = io(wrong);
        // 0x0201: authentication failure.
        assert!(!refused.ok && refused.text.contains("513"), "{}", refused.text);
    }
    assert!(iscsi_ls(&site, "lab%a-good-secret@").contains(":lab-01"));
    assert!(!iscsi_ls(&site, "lab%a-wrong-secret@").contains(":lab-01"));
}

#[test]
fn plain_name_goes_on_with_the_current_boot_until_it_is_reset() {
    let site = Site::running();
    let plain = "iqn.2026-11.org.headwater:lab-01";
    assert!(site.io(plain, &[READS_GOLDEN, "write -P 0x11 0 4k"]).ok);
    assert!(site.io(plain, &["read -P 0x11 0 4k"]).ok);
    site.headwater(&["device", "reset", "lab-01"]);
    let io = site.io(plain, &["read -P 0x5a 0 4k"]);
    assert!(io.ok, "{}", io.text);
    let boots = site.headwater(&["boots", "list", "lab-01"]);
    assert_eq!(boots.lines().count(), 3, "{boots}");
}

#[test]
fn unknown_machine_is_ignored_or_given_a_disk_of_its_own() {
    let site = Site::running();
    let script = site.script("52:54:00:00:00:99");
    assert!(!script.contains("sanboot") && script.contains("does not know"), "{script}");
    site.wait_for_log("no device has this MAC address");

    let mut site = Site::new("unknown_devices = { vdisk = \"debian\" }", "", "");
    site.start();
    let target = target_in(&site.script("52:54:00:00:00:99"));
    assert!(target.starts_with("iqn.2026-11.org.headwater:mac-525400000099:b"), "{target}");
    let initiator = "iqn.2026-11.org.headwater:mac-525400000099:initiator";
    let io = site.io_as(&target, initiator, None, &[READS_GOLDEN, "write -P 0x99 0 4k"]);
    assert!(io.ok, "{}", io.text);
    assert!(site.io(&site.new_boot(), &[READS_GOLDEN]).ok);
    // It is known again after a restart.
    site.kill();
    site.start();
    let io = site.io_as(&target, initiator, None, &["read -P 0x99 0 4k"]);
    assert!(io.ok, "{}", io.text);
}

#[test]
fn followers_see_steps_as_they_happen() {
    let site = Site::running();
    let text = site.follow(&["boots", "--follow"]);
    let json = site.follow(&["boots", "follow", "--output", "json"]);
    // Followers that come late see less: hand out scripts until both are there.
    wait_until("the scripts", || {
        site.new_boot();
        text.has_printed("iPXE script handed out") && json.has_printed("\"status\":\"waiting\"")
    });
    let target = site.new_boot();
    assert!(site.io(&target, &[READS_GOLDEN]).ok);
    wait_until("the login", || text.has_printed("login, first stage"));
    wait_until("the end of the session", || json.has_printed("\"status\":\"disconnected\""));
    wait_until("the end of an earlier boot", || text.has_printed("never used"));
}

#[test]
fn second_server_on_the_same_ports_says_what_is_in_use() {
    let site = Site::running();
    let other = Site::new("", "", "");
    let text = std::fs::read_to_string(other.path("headwater.toml")).unwrap();
    let text =
        text.replace(&format!("127.0.0.1:{}", other.iscsi_port), &format!("127.0.0.1:{}", site.iscsi_port));
    std::fs::write(other.path("headwater.toml"), text).unwrap();
    let (ok, said) = headwater(&["serve", "--config", other.path("headwater.toml").to_str().unwrap()]);
    assert!(!ok);
    let port = site.iscsi_port;
    assert!(said.contains(&format!("port {port} is in use by another program")), "{said}");
    assert!(said.contains(&format!("ss -ltnp 'sport = :{port}'")), "{said}");
}

#[test]
fn damaged_image_and_absent_interface_are_named() {
    let site = Site::new("", "", "[[interface]]\nname = \"nonesuch0\"\nmode = \"proxy\"");
    let config = site.path("headwater.toml");
    let (ok, said) = headwater(&["serve", "--config", config.to_str().unwrap()]);
    assert!(!ok && said.contains("no network interface \"nonesuch0\"; present: "), "{said}");
    let (ok, said) = headwater(&["serve", "--check-config", "--config", config.to_str().unwrap()]);
    assert!(ok, "{said}");
    std::fs::write(site.path("golden.vhdx"), vec![b'v'; 1 << 20]).unwrap();
    let text = std::fs::read_to_string(&config)
        .unwrap()
        .replace("golden.vhdx\"", "golden.vhdx\"\nformat = \"vhdx\"");
    std::fs::write(&config, text).unwrap();
    let (ok, said) = headwater(&["serve", "--check-config", "--config", config.to_str().unwrap()]);
    assert!(!ok && said.contains("vDisk \"debian\": its image") && said.contains("golden.vhdx"), "{said}");
}

#[test]
fn printed_default_configuration_is_accepted() {
    let (ok, text) = headwater(&["serve", "--print-default-config"]);
    assert!(ok);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("headwater.toml");
    std::fs::write(&path, text).unwrap();
    let (ok, said) = headwater(&["serve", "--check-config", "--config", path.to_str().unwrap()]);
    assert!(ok, "{said}");
    std::fs::write(&path, "isci.listen = 1\n").unwrap();
    let (ok, said) = headwater(&["serve", "--check-config", "--config", path.to_str().unwrap()]);
    assert!(
        !ok && said
            .contains("headwater.toml:1:1: unknown key \"isci\" at the top level; did you mean \"iscsi\"?"),
        "{said}"
    );
}

#[test]
fn beacons_that_are_wrong_large_or_too_many_are_refused_quickly() {
    let site = Site::running();
    assert_eq!(site.ready(""), "HTTP/1.1 404 Not Found");
    assert_eq!(site.ready("nonsense"), "HTTP/1.1 400 Bad Request");
    assert_eq!(site.ready(&"x".repeat(5000)), "HTTP/1.1 413 Payload Too Large");
    wait_until("the rate limit", || site.ready("") == "HTTP/1.1 429 Too Many Requests");
    assert!(site.script(MAC).contains(INITIATOR));
}

/// The targets that discovery with these credentials shows.
#[test]
fn address_that_holds_many_http_connections_does_not_lock_others_out() {
    let site = Site::running();
    // Each is served until the address has its share: then a connection ends without an answer.
    let mut held = Vec::new();
    let refused = (0..200).any(|_| {
        let mut stream = TcpStream::connect(("127.0.0.1", site.http_port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // A refused connection may be reset before the request is written.
        let asked = stream.write_all(b"GET /v1/boot/script HTTP/1.1\r\nhost: x\r\n\r\n");
        let answered = asked.and_then(|()| stream.read(&mut [0; 64]));
        held.push(stream);
        !matches!(answered, Ok(1..))
    });
    assert!(refused, "one address may hold {} connections", held.len());
    let mut other = from_another_address(site.http_port);
    other.write_all(b"GET /v1/boot/script HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(held);
    wait_until("the share to be free again", || {
        let mut again = TcpStream::connect(("127.0.0.1", site.http_port)).unwrap();
        again.set_read_timeout(Some(PATIENCE)).unwrap();
        let asked = again.write_all(b"GET /v1/boot/script HTTP/1.1\r\nhost: x\r\n\r\n");
        matches!(asked.and_then(|()| again.read(&mut [0; 64])), Ok(1..))
    });
}

/// A connection from another address of the loopback.
fn from_another_address(port: u16) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn iscsi_ls(site: &Site, credentials: &str) -> String {
    let url = format!("iscsi://{credentials}127.0.0.1:{}", site.iscsi_port);
    let output = std::process::Command::new("timeout")
        .args(["20", "iscsi-ls", "-i", INITIATOR, &url])
        .output()
        .unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
