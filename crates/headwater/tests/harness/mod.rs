//! A headwater server of one test: the real program on loopback, in a directory of its own, with unprivileged ports.
//!
//! Needs qemu-img and qemu-io (Debian: qemu-utils, qemu-block-extra) and iscsi-ls (libiscsi-bin).
#![allow(dead_code, reason = "each test program uses a part of it")]
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lab::free_port;
use tempfile::TempDir;

/// How long anything may take before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

const HEADWATER: &str = env!("CARGO_BIN_EXE_headwater");

/// The first device's MAC address.
pub(crate) const MAC: &str = "52:54:00:77:00:10";
/// The first device's initiator.
pub(crate) const INITIATOR: &str = "iqn.2026-11.org.headwater:lab-01:initiator";

/// A directory with an image and a configuration; the server, while it runs.
pub(crate) struct Site {
    pub(crate) dir: TempDir,
    pub(crate) iscsi_port: u16,
    pub(crate) http_port: u16,
    pub(crate) nbd_port: u16,
    server: Option<Child>,
    log: Arc<Mutex<String>>,
}

/// What `qemu-io` said.
pub(crate) struct Io {
    pub(crate) ok: bool,
    pub(crate) text: String,
}

impl Site {
    /// A site with the vDisk "debian" (VHDX, 64 MiB, 4 MiB of 0x5a) and the device "lab-01"; `top` and `more` go to the
    /// start and end of the configuration, `device` into the device's table. In them, NBD_PORT is a free port and DIR the
    /// site's directory.
    pub(crate) fn new(top: &str, device: &str, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display();
        std::fs::create_dir(dir.path().join("boot")).unwrap();
        for name in ["undionly.kpxe", "ipxe.efi"] {
            std::fs::write(dir.path().join("boot").join(name), name).unwrap();
        }
        let image = dir.path().join("golden.vhdx");
        run("qemu-img", &["create", "-q", "-f", "vhdx", image.to_str().unwrap(), "64M"]);
        run("qemu-io", &["-f", "vhdx", "-c", "write -P 0x5a 0 4M", image.to_str().unwrap()]);
        let (iscsi_port, http_port, nbd_port) = (free_port(), free_port(), free_port());
        let fill =
            |text: &str| text.replace("NBD_PORT", &nbd_port.to_string()).replace("DIR", &path.to_string());
        let (top, device, more) = (fill(top), fill(device), fill(more));
        let config = format!(
            "state_dir = \"{path}/state\"\nadmin_socket = \"{path}/hw.sock\"\n{top}\n\
             [iscsi]\nlisten = \"127.0.0.1:{iscsi_port}\"\n[http]\nlisten = \"127.0.0.1:{http_port}\"\n\
             [netboot]\nboot_files = \"{path}/boot\"\n[write_cache]\nlimit = \"8 MiB\"\n\
             [stores]\nimages = \"{path}\"\n[[vdisk]]\nname = \"debian\"\nfile = \"golden.vhdx\"\n\
             [[device]]\nname = \"lab-01\"\nmac = \"{MAC}\"\nvdisk = \"debian\"\n{device}\n{more}\n"
        );
        std::fs::write(dir.path().join("headwater.toml"), config).unwrap();
        Self { dir, iscsi_port, http_port, nbd_port, server: None, log: Arc::default() }
    }

    /// One server of several on a database, with `more` behind its configuration; it has no images of its own.
    pub(crate) fn member(name: &str, database: &str, more: &str) -> Self {
        let server = format!("[server]\nname = \"{name}\"\n[catalogue]\npostgres = \"{database}\"\n{more}");
        let site = Self::new("", "", &server);
        let file = site.path("headwater.toml");
        let config = std::fs::read_to_string(&file).unwrap();
        let (before, rest) = config.split_once("[stores]").unwrap();
        std::fs::write(&file, format!("{before}[server]{}", rest.split_once("[server]").unwrap().1)).unwrap();
        site
    }

    /// A plain site whose server runs.
    pub(crate) fn running() -> Self {
        let mut site = Self::new("", "", "");
        site.start();
        site
    }

    /// Starts the server and waits until it says that it is ready.
    pub(crate) fn start(&mut self) {
        let socket = self.path("notify.sock");
        let _ = std::fs::remove_file(&socket);
        let ready = UnixDatagram::bind(&socket).unwrap();
        ready.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut server = Command::new(HEADWATER)
            .args(["serve", "--log", "info", "--config"])
            .arg(self.path("headwater.toml"))
            .env("NOTIFY_SOCKET", &socket)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.log = collect(server.stderr.take().unwrap());
        self.server = Some(server);
        let mut state = [0; 64];
        let length =
            ready.recv(&mut state).unwrap_or_else(|error| panic!("not ready: {error}\n{}", self.log()));
        assert_eq!(&state[..length], b"READY=1");
    }

    /// Kills the server without warning.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Asks the server to stop; how it ended and how long it took.
    pub(crate) fn stop(&mut self) -> (std::process::ExitStatus, Duration) {
        let mut server = self.server.take().unwrap();
        let begun = Instant::now();
        run("kill", &["-TERM", &server.id().to_string()]);
        let status = server.wait().unwrap();
        (status, begun.elapsed())
    }

    /// What the server has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log holds `text`.
    pub(crate) fn wait_for_log(&self, text: &str) {
        wait_until(&format!("{text:?} in the log"), || self.log().contains(text));
    }

    /// A file of the site.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Fetches the script of a MAC address.
    pub(crate) fn script(&self, mac: &str) -> String {
        self.http(&format!("GET /v1/boot/script?mac={mac}&platform=pcbios HTTP/1.1\r\n"), "")
    }

    /// Fetches the first device's script; the target in it.
    pub(crate) fn new_boot(&self) -> String {
        target_in(&self.script(MAC))
    }

    /// Sends a ready beacon; the answer's first line.
    pub(crate) fn ready(&self, body: &str) -> String {
        self.http("POST /v1/ready HTTP/1.1\r\n", body).lines().next().unwrap().to_owned()
    }

    /// One HTTP request; all of the answer.
    pub(crate) fn http(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http_port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        write!(stream, "{head}host: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Runs `headwater` with this site's socket.
    pub(crate) fn headwater(&self, words: &[&str]) -> String {
        let output =
            Command::new(HEADWATER).args(words).arg("--socket").arg(self.path("hw.sock")).output().unwrap();
        text_of(&output, true)
    }

    /// Starts `headwater` with this site's socket.
    pub(crate) fn follow(&self, words: &[&str]) -> Follower {
        let mut command = Command::new(HEADWATER);
        command.args(words).arg("--socket").arg(self.path("hw.sock")).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let text = collect(child.stdout.take().unwrap());
        Follower { child, text }
    }

    /// Runs qemu-io on a target.
    pub(crate) fn io(&self, target: &str, commands: &[&str]) -> Io {
        self.io_as(target, INITIATOR, None, commands)
    }

    /// Runs qemu-io on a target under an initiator's name, with a CHAP user and secret.
    pub(crate) fn io_as(
        &self,
        target: &str,
        initiator: &str,
        chap: Option<(&str, &str)>,
        commands: &[&str],
    ) -> Io {
        let mut command = Command::new("timeout");
        command.args(["20", "qemu-io"]);
        let mut image = self.image(target, initiator);
        if let Some((user, secret)) = chap {
            image += &format!(",file.user={user},file.password-secret=chap");
            command.args(["--object", &format!("secret,id=chap,data={secret}")]);
        }
        command.args(["--image-opts", &image]);
        for text in commands {
            command.args(["-c", text]);
        }
        let output = command.output().unwrap();
        Io { ok: output.status.success(), text: text_of(&output, false) }
    }

    /// A qemu-io that stays logged in and takes commands on its standard input.
    pub(crate) fn session(&self, target: &str) -> Session {
        Session::of(&self.image(target, INITIATOR))
    }

    fn image(&self, target: &str, initiator: &str) -> String {
        let port = self.iscsi_port;
        format!(
            "driver=raw,file.driver=iscsi,file.transport=tcp,file.portal=127.0.0.1:{port},file.target={target},\
             file.lun=0,file.initiator-name={initiator}"
        )
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        }
    }
}

/// A program that prints until it is dropped.
pub(crate) struct Follower {
    child: Child,
    text: Arc<Mutex<String>>,
}

impl Follower {
    /// Whether it has printed this.
    pub(crate) fn has_printed(&self, text: &str) -> bool {
        self.text.lock().unwrap().contains(text)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Gathers what a program prints.
fn collect(from: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let shared = Arc::clone(&text);
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut text = shared.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
        }
    });
    text
}

/// A qemu-io that stays logged in.
pub(crate) struct Session {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Session {
    /// One on an image, in qemu's `--image-opts`.
    pub(crate) fn of(image: &str) -> Self {
        let mut child = Command::new("timeout")
            .args(["60", "qemu-io", "--image-opts", image])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// Runs one command; what it prints, up to the second line.
    pub(crate) fn run(&mut self, command: &str) -> String {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{command}").unwrap();
        let mut text = String::new();
        self.out.read_line(&mut text).unwrap();
        self.out.read_line(&mut text).unwrap();
        text
    }

    /// Logs out.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// Runs a program to its end, within a bound.
pub(crate) fn outcome(program: &str, words: &[&str]) -> Io {
    let output = Command::new("timeout").arg("30").arg(program).args(words).output().unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Io { ok: output.status.success(), text }
}

/// The target's name in a script.
pub(crate) fn target_in(script: &str) -> String {
    let start = script.find(":iqn.").unwrap_or_else(|| panic!("no target in:\n{script}")) + 1;
    script[start..].split_whitespace().next().unwrap().to_owned()
}

/// Runs `headwater`; standard output and error.
pub(crate) fn headwater(words: &[&str]) -> (bool, String) {
    let output = Command::new(HEADWATER).args(words).output().unwrap();
    (output.status.success(), text_of(&output, false))
}

/// Waits for a condition, with a bound.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Bytes of a file, for comparison.
pub(crate) fn contents(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

pub(crate) fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output();
    let output = output.unwrap_or_else(|error| panic!("{program} is needed (Debian: qemu-utils): {error}"));
    assert!(output.status.success(), "{program} {words:?}: {}", text_of(&output, false));
}

fn text_of(output: &Output, must_succeed: bool) -> String {
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!must_succeed || output.status.success(), "{text}");
    text
}
