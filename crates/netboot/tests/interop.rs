//! The running services against other people's clients: busybox's udhcpc, tftp-hpa's tftp, curl.
//!
//! The services are the example `boot_services`, which `cargo test` builds beside this test. They and the clients run in two
//! network namespaces of their own, joined by a cable, made by an unprivileged user's or root's `unshare`; all of it ends with
//! its processes.
use std::path::{Path, PathBuf};
use std::process::Command;

/// What it takes: program, Debian package.
const NEEDED: [(&str, &str); 8] = [
    ("bash", "bash"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("timeout", "coreutils"),
    ("ip", "iproute2"),
    ("busybox", "busybox-static"),
    ("tftp", "tftp-hpa"),
    ("curl", "curl"),
];

/// Runs in the server's namespace; `$1` is the example, `$2` an empty directory. Prints what the checks below look for.
const SCRIPT: &str = r#"
set -eu
example=$1; cd "$2"
unshare --net sleep 50 & client=$!
mine=$(readlink /proc/self/ns/net)
until theirs=$(readlink /proc/$client/ns/net) && [ "$theirs" != "$mine" ]; do :; done
ip link set lo up
ip link add hw0 type veth peer name hw1 netns $client
ip address add 10.78.0.1/24 dev hw0
ip link set hw0 up
there() { nsenter --target $client --net timeout 20 "$@"; }
there ip link set lo up
there ip link set hw1 address 52:54:00:78:00:42 up
head -c 300000 /dev/urandom > undionly.kpxe
head -c 900001 /dev/urandom > ipxe.efi
mkdir leases
there ip address add 10.78.0.9/24 dev hw1
LEASES=$PWD/leases BOOT_FILES=$PWD "$example" hw0 dhcp 10.78.0.1 8080 > server.log 2>&1 & server=$!
until there curl -s -m 5 -o empty http://10.78.0.1:8080/v1/boot/script; do
    kill -0 $server || { cat server.log; exit 1; }
done
there ip address del 10.78.0.9/24 dev hw1
echo '#!/bin/sh
[ "$1" = bound ] && ip address replace $ip/24 dev $interface && echo "UDHCPC $ip $subnet $lease ${siaddr:-} ${boot_file:-}"
exit 0' > bound.sh
chmod +x bound.sh
there busybox udhcpc -f -n -q -i hw1 -s "$PWD/bound.sh" -V PXEClient:Arch:00000:UNDI:002001 -x 0x5d:0000
there tftp -m octet 10.78.0.1 -c get undionly.kpxe one
cmp one undionly.kpxe && echo "TFTP-HPA same"
there curl -s --tftp-blksize 1468 -o two tftp://10.78.0.1/ipxe.efi
cmp two ipxe.efi && echo "CURL-TFTP same"
there curl -s -o three http://10.78.0.1:8080/boot/ipxe.efi
cmp three ipxe.efi && echo "CURL-HTTP same"
there tftp -m octet 10.78.0.1 -c get ../../etc/passwd stolen && true
there tftp -m octet 10.78.0.1 -c put undionly.kpxe && true
there bash -c 'exec 3<>/dev/udp/10.78.0.1/4011; cat pxe-request >&3; timeout 5 dd bs=2000 count=1 of=pxe-answer <&3'
grep -a -q undionly.kpxe pxe-answer && echo "PORT-4011 answers"
there curl -s http://10.78.0.1:8080/v1/boot/script?mac=52:54:00:78:00:42 | sed 's/^/SCRIPT /'
echo "SECOND $("$example" hw0 dhcp 10.78.0.1 8081 2>&1)" && true
kill -INT $server; wait $server && echo "ENDED clean"
sed 's/^/LEASES /' leases/*
sed 's/^/LOG /' server.log
kill $client
"#;

fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/boot_services")
}

/// The bytes of a golden packet.
fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.hex"));
    let text = std::fs::read_to_string(path).unwrap();
    let digits: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}

#[test]
fn other_peoples_clients_get_address_files_and_script() {
    for (program, package) in NEEDED {
        let found =
            std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|dir| dir.join(program).exists());
        assert!(found, "this test needs {program}: apt-get install {package}");
    }
    let example = example();
    assert!(example.exists(), "{} is missing: cargo build -p netboot --examples", example.display());
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("pxe-request"), golden("bios-pxe-discover")).unwrap();
    let output = Command::new("timeout")
        .args([
            "--kill-after=5",
            "60",
            "unshare",
            "--user",
            "--map-root-user",
            "--net",
            "--mount",
            "sh",
            "-c",
            SCRIPT,
            "sh",
        ])
        .arg(&example)
        .arg(directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let has = |what: &str| assert!(text.contains(what), "no {what:?} in:\n{text}");
    has("255.255.255.0 3600 10.78.0.1 undionly.kpxe");
    has("TFTP-HPA same");
    has("CURL-TFTP same");
    has("CURL-HTTP same");
    has("PORT-4011 answers");
    has("no such boot file");
    has("for reading only");
    has("SCRIPT sanboot --drive 0x80 iscsi:10.78.0.1::3260:1:iqn.2026-01.io.headwater:lab");
    has("UDP port 67 (DHCP) on interface \"hw0\" is in use by another program");
    has("ENDED clean");
    has("52:54:00:78:00:42 ");
    has("LOG 52:54:00:78:00:42");
    has("BootFile { name: \"undionly.kpxe\", protocol: \"tftp\", size_bytes: 300000");
    has("BootFile { name: \"ipxe.efi\", protocol: \"http\", size_bytes: 900001");
    assert!(!directory.path().join("stolen").metadata().is_ok_and(|file| file.len() > 0), "{text}");
}
