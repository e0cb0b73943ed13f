//! Private images from the outside: a device that writes its vDisk itself, real clients, and a server that is killed.
//!
//! Needs qemu-utils and python3-libnbd (Debian).
mod harness;

use std::io::BufRead as _;
use std::process::{Command, Stdio};

use harness::{Site, headwater, outcome};

const PRIVATE: &str = "write_cache = \"none\"";
const NBD: &str = "[nbd]\nlisten = \"127.0.0.1:NBD_PORT\"\nunix_socket = \"DIR/nbd.sock\"";

fn check_is_clean(site: &Site) {
    let (ok, said) = headwater(&["image", "check", site.path("golden.vhdx").to_str().unwrap()]);
    assert!(ok, "{said}");
}

#[test]
fn private_image_keeps_what_its_device_writes_and_has_no_other_user() {
    let mut site = Site::new("", PRIVATE, NBD);
    site.start();
    let first = site.new_boot();
    let io = site.io(&first, &["read -P 0x5a 0 1M", "write -P 0x11 8M 1M", "discard 0 1M", "flush"]);
    assert!(io.ok, "{}", io.text);
    // A stop stores what was not flushed either, and the boot goes on after it.
    assert!(site.io(&first, &["write -P 0x22 9M 1M"]).ok);
    let (status, _) = site.stop();
    assert!(status.success());
    check_is_clean(&site);
    site.start();
    let io = site.io(&first, &["read -P 0x11 8M 1M", "read -P 0x22 9M 1M"]);
    assert!(io.ok, "{}", io.text);
    // So does the next boot; the first is refused from then on.
    let second = site.new_boot();
    let io = site.io(&second, &["read -P 0x22 9M 1M", "write -P 0x33 10M 1M"]);
    assert!(io.ok, "{}", io.text);
    assert!(!site.io(&first, &["write -P 0x44 10M 1M"]).ok);
    // Nobody else has it.
    let golden = site.path("golden.vhdx");
    let (ok, said) = headwater(&["image", "resize", golden.to_str().unwrap(), "128M"]);
    assert!(!ok && said.contains("a server serves it"), "{said}");
    let list =
        outcome("nbdinfo", &["--list", &format!("nbd+unix:///?socket={}", site.path("nbd.sock").display())]);
    assert!(list.text.contains("vDisk debian, written by lab-01 itself"), "{}", list.text);
    assert!(!list.text.contains("vdisk/debian"), "{}", list.text);
    let (ok, said) =
        headwater(&["serve", "--check-config", "--config", site.path("headwater.toml").to_str().unwrap()]);
    assert!(ok, "beside a server that runs: {said}");
    assert!(site.stop().0.success());
    check_is_clean(&site);
    // Its disk is the file, for other programs too.
    let io = outcome("qemu-io", &["-r", "-f", "vhdx", golden.to_str().unwrap(), "-c", "read -P 0x33 10M 1M"]);
    assert!(io.ok && !io.text.contains("failed"), "{}", io.text);
}

#[test]
fn private_image_of_a_killed_server_holds_all_that_was_flushed() {
    let mut site = Site::new("", PRIVATE, NBD);
    let golden = site.path("golden.vhdx");
    std::fs::remove_file(&golden).unwrap();
    let (ok, said) =
        headwater(&["image", "create", golden.to_str().unwrap(), "--size", "64M", "--block-size", "1M"]);
    assert!(ok, "{said}");
    site.start();
    let boot = site.new_boot();
    let export = format!("device/lab-01@{}", boot.rsplit_once(":b").unwrap().1);
    let uri = format!("nbd://127.0.0.1:{}/{export}", site.nbd_port);
    // Pieces of 64 KiB all over the disk, a flush after each three, and a word about it.
    let python = "import nbd,sys\nh=nbd.NBD()\nh.connect_uri(sys.argv[1])\ni=0\n\
                  while True:\n for _ in range(3):\n  h.pwrite(bytes([i%251+1])*65536,i*37%1024*65536)\n  i+=1\n \
                  h.flush()\n print(i,flush=True)\n";
    let mut client = Command::new("timeout")
        .args(["60", "/usr/bin/python3", "-c", python, &uri])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufReader::new(client.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut flushed: usize = 0;
    while flushed < 300 {
        flushed = lines.next().expect("the client goes on writing").parse().unwrap();
    }
    site.kill();
    flushed = lines.last().map_or(flushed, |line| line.parse().unwrap());
    client.wait().unwrap();
    site.start();
    // The boot that ran has lost what it had not flushed, and must not go on.
    let stale = outcome("qemu-io", &["-f", "raw", &uri, "-c", "read 0 64k"]);
    assert!(!stale.ok && stale.text.contains("before it had stored all"), "{}", stale.text);
    let boot = site.new_boot();
    let export = format!("device/lab-01@{}", boot.rsplit_once(":b").unwrap().1);
    let python = "import nbd,sys\nh=nbd.NBD()\nh.connect_uri(sys.argv[1])\nn=int(sys.argv[2])\nlast={}\n\
                  for i in range(n): last[i*37%1024]=i\n\
                  for at,i in last.items():\n b=h.pread(65536,at*65536)\n \
                  assert any(b==bytes([j%251+1])*65536 for j in (i,i+1024)),(at,i,b[:4])\nprint(len(last))\n";
    let uri = format!("nbd://127.0.0.1:{}/{export}", site.nbd_port);
    let read = outcome("/usr/bin/python3", &["-c", python, &uri, &flushed.to_string()]);
    assert!(read.ok, "{}", read.text);
    assert!(site.stop().0.success());
    check_is_clean(&site);
}
