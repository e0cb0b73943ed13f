//! NBD from the outside: the real program, QEMU's and libnbd's clients, certificates of GnuTLS's certtool.
//!
//! Needs qemu-utils, libnbd-bin and gnutls-bin (Debian).
mod harness;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::{INITIATOR, Io, MAC, Site, contents, headwater, outcome, run, target_in, wait_until};

const PLAIN: &str = "[nbd]\nlisten = \"127.0.0.1:NBD_PORT\"\nunix_socket = \"DIR/nbd.sock\"";
const READS_GOLDEN: &str = "read -P 0x5a 0 1M";

/// The export of the boot that a script has handed out.
fn new_export(site: &Site) -> String {
    let target = site.new_boot();
    let (_, boot) = target.rsplit_once(":b").unwrap();
    format!("device/lab-01@{boot}")
}

fn uri(site: &Site, export: &str) -> String {
    format!("nbd://127.0.0.1:{}/{export}", site.nbd_port)
}

fn unix_uri(site: &Site, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", site.path("nbd.sock").display())
}

/// Runs qemu-io's commands on an NBD URI.
fn io(uri: &str, commands: &[&str]) -> Io {
    let mut words = vec!["-f", "raw", uri];
    for command in commands {
        words.extend(["-c", command]);
    }
    outcome("qemu-io", &words)
}

#[test]
fn boot_over_nbd_has_the_rules_of_one_over_iscsi_and_its_timeline() {
    let mut site = Site::new("", "", PLAIN);
    site.start();
    let golden = contents(&site.path("golden.vhdx"));
    let first = new_export(&site);
    let used =
        io(&uri(&site, &first), &[READS_GOLDEN, "write -P 0x77 1M 64k", "flush", "read -P 0x77 1M 64k"]);
    assert!(used.ok, "{}", used.text);
    assert_eq!(site.ready(&format!("{{\"mac\":\"{MAC}\"}}")), "HTTP/1.1 200 OK");
    wait_until("the end of the use", || {
        site.headwater(&["boots", "show", "lab-01"]).contains("disconnected")
    });
    let timeline = site.headwater(&["boots", "show", "lab-01"]);
    for part in ["vDisk debian", "login, second stage", ", over NBD", "hand-over", "ready  ", "Request sizes"]
    {
        assert!(timeline.contains(part), "{part:?} is missing in:\n{timeline}");
    }
    // The same disk, after a crash of the server, and over the other protocol.
    site.kill();
    site.start();
    assert!(io(&uri(&site, &first), &["read -P 0x77 1M 64k"]).ok);
    let target = first.replace("device/lab-01@", "iqn.2026-11.org.headwater:lab-01:b");
    assert!(site.io(&target, &["read -P 0x77 1M 64k"]).ok);
    // A look at the next boot's export begins nothing; its use does, and ends the first for good.
    let second = new_export(&site);
    let look = format!(
        "h.set_opt_mode(True); h.connect_uri('nbd://127.0.0.1:{}/'); h.set_export_name('{second}'); h.opt_info(); \
         print(h.get_size(), h.is_read_only(), h.can_multi_conn(), h.can_fast_zero()); h.opt_abort()",
        site.nbd_port
    );
    let look = outcome("env", &["PATH=/usr/bin:/bin", "nbdsh", "-c", &look]);
    assert!(look.ok && look.text.contains("67108864 False True True"), "{}", look.text);
    assert!(io(&uri(&site, &first), &["read -P 0x77 1M 64k"]).ok);
    let used = io(&uri(&site, &second), &["read -P 0x5a 1M 64k"]);
    assert!(used.ok, "{}", used.text);
    let stale = io(&uri(&site, &first), &[READS_GOLDEN]);
    assert!(!stale.ok && stale.text.contains("has replaced it"), "{}", stale.text);
    assert_eq!(contents(&site.path("golden.vhdx")), golden, "the golden image changed");
}

#[test]
fn use_over_nbd_ends_the_sessions_of_the_firmware() {
    let mut site = Site::new("", "", PLAIN);
    site.start();
    let export = new_export(&site);
    let target = export.replace("device/lab-01@", "iqn.2026-11.org.headwater:lab-01:b");
    let mut firmware = site.session(&target);
    assert!(firmware.run(READS_GOLDEN).contains("read 1048576"));
    assert!(io(&uri(&site, &export), &[READS_GOLDEN]).ok);
    wait_until("the end of the firmware's session", || {
        site.headwater(&["boots", "show", "lab-01"]).contains("ended by the server")
    });
    let timeline = site.headwater(&["boots", "show", "lab-01"]);
    assert!(timeline.contains("login, first stage") && timeline.contains(", over NBD"), "{timeline}");
    firmware.end();
}

#[test]
fn newer_boot_ends_the_connections_of_the_older_one_that_say_nothing() {
    let mut site = Site::new("", "", PLAIN);
    site.start();
    let (first, second) = (new_export(&site), new_export(&site));
    let mut idle = TcpStream::connect(("127.0.0.1", site.nbd_port)).unwrap();
    idle.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // proto.md, NBD_OPT_EXPORT_NAME: no answer but the export's size and flags.
    let length = u32::try_from(first.len()).unwrap().to_be_bytes();
    let choice = [&[0, 0, 0, 3], b"IHAVEOPT".as_slice(), &[0, 0, 0, 1], &length, first.as_bytes()].concat();
    idle.write_all(&choice).unwrap();
    idle.read_exact(&mut [0; 18 + 10]).unwrap();
    assert!(io(&uri(&site, &second), &[READS_GOLDEN]).ok);
    assert_eq!(idle.read(&mut [0; 1]).unwrap(), 0, "the end of the connection");
}

#[test]
fn strangers_are_told_the_same_of_what_is_there_and_what_is_not() {
    let mut site = Site::new("", "address = \"127.9.9.9\"", PLAIN);
    site.start();
    let export = new_export(&site);
    for export in [&export, "device/lab-01", "device/lab-99", "vdisk/debian", "vdisk/none", "", "x"] {
        let used = io(&uri(&site, export), &[READS_GOLDEN]);
        let told = "server reported: there is no such export for this client; the server's log says more";
        assert!(!used.ok && used.text.contains(told), "{export}: {}", used.text);
    }
    site.wait_for_log("NBD export refused: the device has the address 127.9.9.9");
    assert!(!outcome("nbdinfo", &["--list", &uri(&site, "")]).text.contains("lab-01"));
    let devices = site.headwater(&["device", "status"]);
    assert!(devices.contains("waiting") || devices.contains("off"), "nothing began: {devices}");
}

#[test]
fn administrators_socket_shows_all_devices_and_vdisks() {
    let mut site = Site::new("", "", PLAIN);
    site.start();
    let list = outcome("nbdinfo", &["--list", &unix_uri(&site, "")]);
    assert!(list.ok, "{}", list.text);
    for name in ["export=\"device/lab-01\"", "export=\"vdisk/debian\""] {
        assert!(list.text.contains(name), "{name} is missing in:\n{}", list.text);
    }
    assert!(list.text.contains("vDisk debian with the write cache of lab-01"), "{}", list.text);
    // The vDisk as it is: copied, compared, and not to be written.
    let vdisk = unix_uri(&site, "vdisk/debian");
    let copy = site.path("copy.raw");
    let copied = outcome("nbdcopy", &[&vdisk, copy.to_str().unwrap()]);
    assert!(copied.ok, "{}", copied.text);
    let golden = site.path("golden.vhdx");
    let golden = format!("driver=vhdx,file.filename={}", golden.display());
    let raw = format!("driver=raw,file.filename={}", copy.display());
    let same = outcome("qemu-img", &["compare", "--image-opts", &golden, &raw]);
    assert!(same.ok, "{}", same.text);
    let same = outcome("qemu-img", &["compare", "-f", "raw", "-F", "raw", copy.to_str().unwrap(), &vdisk]);
    assert!(same.ok, "{}", same.text);
    assert!(!io(&vdisk, &["write 0 4k"]).ok);
    let missing = io(&unix_uri(&site, "vdisk/debain"), &[READS_GOLDEN]);
    assert!(missing.text.contains("there is no vDisk \"debain\""), "{}", missing.text);
    // The plain name begins a boot and goes on with it.
    let device = unix_uri(&site, "device/lab-01");
    assert!(io(&device, &["write -P 0x11 0 64k", "discard 1M 1M", "read -P 0 1M 1M"]).ok);
    assert!(io(&device, &["read -P 0x11 0 64k", "read -P 0 1M 1M", "read -P 0x5a 2M 1M"]).ok);
    let (status, _) = site.stop();
    assert!(status.success() && !site.path("nbd.sock").exists());
}

#[test]
fn client_goes_on_after_a_restart_of_the_server() {
    let mut site = Site::new("", "", PLAIN);
    site.start();
    let export = new_export(&site);
    let image = format!(
        "driver=raw,file.driver=nbd,file.server.type=inet,file.server.host=127.0.0.1,file.server.port={},\
         file.export={export},file.reconnect-delay=30",
        site.nbd_port
    );
    let mut session = harness::Session::of(&image);
    assert!(session.run("write -P 0x31 0 1M").contains("wrote 1048576"));
    site.kill();
    site.start();
    let read = session.run("read -P 0x31 0 1M");
    assert!(read.contains("read 1048576"), "{read}");
    let (status, took) = site.stop();
    assert!(status.success() && took.as_secs() < 10, "{status} after {took:?}");
    site.start();
    let read = session.run("read -P 0x31 0 1M");
    assert!(read.contains("read 1048576"), "{read}");
    session.end();
}

#[test]
fn kernel_of_a_vdisk_is_handed_out_with_the_export_of_its_boot() {
    let mut site = Site::new("", "", PLAIN);
    let text = std::fs::read_to_string(site.path("headwater.toml")).unwrap().replace(
        "file = \"golden.vhdx\"\n",
        "file = \"golden.vhdx\"\nkernel = \"vmlinuz\"\ninitrd = \"initrd.img\"\n\
         command_line = \"nbdroot={server}:{nbd_port}/{export} root=/dev/nbd0p1 hw={device},{mac}\"\n",
    );
    std::fs::write(site.path("headwater.toml"), text).unwrap();
    for name in ["vmlinuz", "initrd.img"] {
        std::fs::write(site.path(name), name).unwrap();
    }
    site.start();
    let script = site.script(MAC);
    let line = script.lines().find(|line| line.starts_with("kernel ")).unwrap();
    let port = site.nbd_port;
    assert!(
        line.contains(&format!("kernel /boot/debian.kernel nbdroot=127.0.0.1:{port}/device/lab-01@")),
        "{line}"
    );
    assert!(
        line.contains(&format!("root=/dev/nbd0p1 hw=lab-01,{MAC} initrd=initrd && initrd --name initrd")),
        "{line}"
    );
    let export = line.split_once(&format!(":{port}/")).unwrap().1.split(' ').next().unwrap();
    let used = io(&uri(&site, export), &[READS_GOLDEN]);
    assert!(used.ok, "{}", used.text);
    for (name, file) in [("debian.kernel", "vmlinuz"), ("debian.initrd", "initrd.img")] {
        let answer = site.http(&format!("GET /boot/{name} HTTP/1.1\r\n"), "");
        assert!(answer.ends_with(&format!("\r\n\r\n{file}")), "{answer}");
    }
}

#[test]
fn certificates_decide_who_may_use_what() {
    let mut site = Site::new("", "", TLS);
    let made = [("clients", "lab-01"), ("second", "lab-02"), ("backup", "backup"), ("farm", "farm")];
    certificates(&site.path("tls"), "authority", &made);
    certificates(&site.path("foreign"), "another authority", &[("clients", "lab-01")]);
    std::fs::copy(site.path("tls/ca-cert.pem"), site.path("foreign/clients/ca-cert.pem")).unwrap();
    site.start();
    let boot = new_export(&site);
    let port = site.nbd_port;
    let tls = |who: &str, export: &str| {
        let folder = site.path(who);
        let uri = format!("nbds://localhost:{port}/{export}?tls-certificates={}", folder.display());
        outcome("nbdinfo", &["--size", &uri])
    };
    let (own, vdisk) = ("device/lab-01", "vdisk/debian");
    let expected = [
        ("tls/clients", boot.as_str(), true),
        ("tls/clients", own, true),
        ("tls/clients", vdisk, false),
        ("tls/second", own, false),
        ("tls/second", boot.as_str(), false),
        ("tls/farm", own, false),
        ("tls/farm", boot.as_str(), true),
        ("tls/backup", vdisk, true),
        ("tls/backup", boot.as_str(), false),
        ("foreign/clients", own, false),
    ];
    for (who, export, may) in expected {
        let answer = tls(who, export);
        assert_eq!(answer.ok, may, "{who} {export}: {}", answer.text);
    }
    let clear = outcome("nbdinfo", &["--size", &uri(&site, &boot)]);
    assert!(!clear.ok, "{}", clear.text);
    // Through the administrators' socket, without TLS.
    assert!(outcome("nbdinfo", &["--size", &unix_uri(&site, vdisk)]).ok);
    // A used disk is used over TLS, too.
    let image = format!(
        "driver=raw,file.driver=nbd,file.server.type=inet,file.server.host=localhost,file.server.port={port},\
         file.export={boot},file.tls-creds=tls0"
    );
    let object = format!("tls-creds-x509,id=tls0,endpoint=client,dir={}", site.path("tls/clients").display());
    let used = outcome(
        "qemu-io",
        &["--object", &object, "--image-opts", &image, "-c", "write -P 9 0 1M", "-c", "read -P 9 0 1M"],
    );
    assert!(used.ok, "{}", used.text);
    site.wait_for_log("NBD export refused: nbd.vdisk_readers does not name it");
}

const TLS: &str = "[nbd]\nlisten = \"127.0.0.1:NBD_PORT\"\nunix_socket = \"DIR/nbd.sock\"\n\
    certificate = \"DIR/tls/server-cert.pem\"\nkey = \"DIR/tls/server-key.pem\"\nclient_ca = \"DIR/tls/ca-cert.pem\"\n\
    shared_certificates = \"farm\"\nvdisk_readers = [\"backup\"]";

#[test]
fn chap_device_is_not_to_be_had_over_nbd_without_a_certificate() {
    let mut site = Site::new("", "chap_user = \"lab\"\nchap_secret = \"a-good-secret\"", PLAIN);
    site.start();
    let export = new_export(&site);
    let used = io(&uri(&site, &export), &[READS_GOLDEN]);
    assert!(!used.ok && used.text.contains("no such export for this client"), "{}", used.text);
    site.wait_for_log("the device has a CHAP secret");
}

#[test]
fn server_without_tls_where_others_reach_it_does_not_start() {
    let site = Site::new("", "", "[nbd]\nlisten = \"0.0.0.0:NBD_PORT\"");
    let config = site.path("headwater.toml");
    let (ok, said) = headwater(&["serve", "--config", config.to_str().unwrap()]);
    assert!(!ok && said.contains("without TLS whoever does may read and change"), "{said}");
    let mut site = Site::new("", "", "[nbd]\nlisten = \"0.0.0.0:NBD_PORT\"\ntls = \"off\"");
    site.start();
    site.wait_for_log("NBD without TLS: whoever can reach it");
    let mut damaged = Site::new("", "", TLS);
    certificates(&damaged.path("tls"), "authority", &[]);
    std::fs::write(damaged.path("tls/server-key.pem"), "no key").unwrap();
    let config = damaged.path("headwater.toml");
    let (ok, said) = headwater(&["serve", "--check-config", "--config", config.to_str().unwrap()]);
    assert!(
        !ok && said.contains("cannot read the server's key from") && said.contains("server-key.pem"),
        "{said}"
    );
    certificates(&damaged.path("tls"), "authority", &[]);
    damaged.start();
}

#[test]
fn sockets_of_the_service_manager_are_taken() {
    let site = Site::new("", "", "[nbd]\nsystemd_sockets = true");
    let config = site.path("headwater.toml");
    let (ok, said) = headwater(&["serve", "--config", config.to_str().unwrap()]);
    assert!(!ok && said.contains("the service manager has handed over none"), "{said}");
    // What systemd does, in the shell: a listening socket as descriptor 3, and two variables.
    let python = "import os,socket,sys\ns=socket.socket();s.bind(('127.0.0.1',int(sys.argv[1])));s.listen()\n\
                  os.dup2(s.fileno(),3)\nos.set_inheritable(3,True)\nos.environ.update(LISTEN_PID=str(os.getpid()),LISTEN_FDS='1')\n\
                  os.execv(sys.argv[2],sys.argv[2:])";
    let mut server = Command::new("python3")
        .args([
            "-c",
            python,
            &site.nbd_port.to_string(),
            env!("CARGO_BIN_EXE_headwater"),
            "serve",
            "--config",
        ])
        .arg(&config)
        .stderr(std::process::Stdio::null())
        .spawn()
        .map(Killed)
        .unwrap();
    let export = uri(&site, "device/lab-01@never");
    wait_until("the server behind the inherited socket", || {
        io(&export, &[READS_GOLDEN]).text.contains("no such export")
    });
    server.0.kill().unwrap();
}

#[test]
fn scripts_still_send_firmware_to_iscsi_where_the_vdisk_has_no_kernel() {
    let mut site = Site::new("", "", PLAIN);
    site.start();
    let script = site.script(MAC);
    assert!(
        script.contains("sanboot") && target_in(&script).contains("lab-01") && script.contains(INITIATOR)
    );
}

/// A program that ends with its test.
struct Killed(std::process::Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder with an authority, a server's certificate, and folders with clients' (with these DNS names), as libnbd and
/// QEMU want them.
fn certificates(folder: &Path, authority: &str, clients: &[(&str, &str)]) {
    std::fs::create_dir_all(folder).unwrap();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let make = |name: &str, template: &str| {
        let (info, key, certificate) = (
            path(&format!("{name}.info")),
            path(&format!("{name}-key.pem")),
            path(&format!("{name}-cert.pem")),
        );
        std::fs::write(&info, format!("expiration_days = 30\n{template}")).unwrap();
        run("certtool", &["--generate-privkey", "--key-type=ed25519", "--outfile", &key]);
        let how = if name == "ca" { "--generate-self-signed" } else { "--generate-certificate" };
        let (ca, ca_key) = (path("ca-cert.pem"), path("ca-key.pem"));
        let mut words = vec![how, "--template", &info, "--load-privkey", &key, "--outfile", &certificate];
        if name != "ca" {
            words.extend(["--load-ca-certificate", &ca, "--load-ca-privkey", &ca_key]);
        }
        run("certtool", &words);
    };
    make("ca", &format!("cn = \"{authority}\"\nca\ncert_signing_key\n"));
    make("server", "cn = \"server\"\ndns_name = \"localhost\"\ntls_www_server\nsigning_key\n");
    for (name, dns) in clients {
        make(name, &format!("cn = \"client\"\ndns_name = \"{dns}\"\ntls_www_client\nsigning_key\n"));
        let own = folder.join(name);
        std::fs::create_dir_all(&own).unwrap();
        std::fs::copy(path("ca-cert.pem"), own.join("ca-cert.pem")).unwrap();
        for part in ["cert", "key"] {
            std::fs::copy(path(&format!("{name}-{part}.pem")), own.join(format!("client-{part}.pem")))
                .unwrap();
        }
    }
}

/// A short trace: the firmware's reads, one of which the disk does not have, and the system's, with a write.
const TRACE: &str = "# headwater block trace 1
time_us,operation,offset,length,stage,latency_us,ok
0,read,0,512,1,50,1
100,read,512,2048,1,50,1
20000,read,1048576,131072,2,90,1
20010,read,8388608,65536,2,90,1
20500,write,16777216,4096,2,90,1
30000,read,68719476736,4096,2,90,1
40000,flush,0,0,2,90,1
";

#[test]
fn trace_is_replayed_on_a_running_server_over_nbd_and_over_iscsi() {
    let mut site = Site::new("", "", PLAIN);
    site.start();
    let file = site.path("boot.csv");
    std::fs::write(&file, TRACE).unwrap();
    let replay = |server: &str, options: &[&str]| {
        let words = ["trace", "replay", file.to_str().unwrap(), server, "--output", "json"];
        let (ok, text) = headwater(&[&words, options].concat());
        assert!(ok, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let counts = |report: &serde_json::Value| {
        let kinds = report["kinds"].as_array().unwrap().iter();
        let count = |kind: &serde_json::Value| {
            assert_eq!(kind["failed"], 0, "{report}");
            (kind["kind"].as_str().unwrap().to_owned(), kind["count"].as_u64().unwrap())
        };
        kinds.map(count).collect::<Vec<_>>()
    };
    let (reads, flushes) = (("read".to_owned(), 5), ("flush".to_owned(), 1));
    let report = replay(&uri(&site, &new_export(&site)), &[]);
    assert_eq!(counts(&report), [reads.clone(), flushes.clone()], "writes are left out");
    let export = new_export(&site);
    let report = replay(&unix_uri(&site, &export), &["--write", "--think"]);
    assert_eq!(counts(&report), [reads.clone(), ("write".to_owned(), 1), flushes.clone()]);
    // It thought as long as the machine did: 20 ms to the system, and 9 ms and 10 ms later on, without the answers' times.
    assert!(report["took_us"]["max"].as_u64().unwrap() >= 30_000, "{report}");
    assert!(io(&uri(&site, &export), &["read -P 0x5a 16M 4k"]).ok, "what is written is of any bytes");

    let target = site.new_boot();
    let disk = format!("iscsi://127.0.0.1:{}/{target}/0", site.iscsi_port);
    let (ok, why) = headwater(&["trace", "replay", file.to_str().unwrap(), &disk]);
    assert!(!ok && why.contains("this initiator may not use it"), "{why}");
    let report = replay(&disk, &["--initiator", INITIATOR, "--stage", "second"]);
    assert_eq!(counts(&report), [("read".to_owned(), 3), flushes]);
    assert_eq!(report["recorded_us"].as_u64(), Some(20_090), "{report}");
}
