//! `headwater doctor` on hosts that something is wrong with: in network namespaces of their own, with a real packet filter
//! and a real DHCP server.
//!
//! Needs unshare and nsenter (Debian: util-linux), ip (iproute2), nft (nftables) and dnsmasq (dnsmasq-base), and root.
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs in a network namespace; `$1` is the program, `$2` an empty directory. `$there` is a namespace on the other end
/// of the cable.
const PREPARE: &str = r#"
set -eu
headwater=$1; cd "$2"
unshare --net sleep 50 & client=$!
# Which shows the interfaces of the namespace that it is mounted in.
mount -t sysfs sysfs /sys
mine=$(readlink /proc/self/ns/net)
until theirs=$(readlink /proc/$client/ns/net) && [ "$theirs" != "$mine" ]; do :; done
ip link set lo up
ip link add hw0 type veth peer name hw1 netns $client
ip address add 10.78.0.1/24 dev hw0
ip link set hw0 up
there() { nsenter --target $client --net timeout 40 "$@"; }
there ip link set lo up
there ip address add 10.78.0.2/24 dev hw1
there ip link set hw1 up
mkdir -p boot state images
printf 'BIOS' > boot/undionly.kpxe
printf 'state_dir = "%s/state"\nadmin_socket = "%s/hw.sock"\n[netboot]\nboot_files = "%s/boot"\n' $PWD $PWD $PWD > headwater.toml
"#;

/// Ends what the script started, by its number.
const END: &str = "\nkill $client\n";

fn findings(script: &str) -> Vec<(String, String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "bash", "-c", &format!("{PREPARE}{script}{END}"), "test"])
        .arg(env!("CARGO_BIN_EXE_headwater"))
        .arg(folder.path())
        .output()
        .expect("this test needs the program unshare (util-linux)");
    let told = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_str(&told).unwrap_or_else(|error| panic!("{error}\n{told}\n{errors}"));
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|one| (text(one, "subject"), text(one, "level"), text(one, "found"))).collect()
}

#[track_caller]
fn holds(findings: &[(String, String, String)], subject: &str, level: &str, found: &str) {
    let fits = |one: &&(String, String, String)| one.0 == subject && one.1 == level && one.2.contains(found);
    assert!(findings.iter().any(|one| fits(&one)), "no {level} of {subject} with {found:?}: {findings:#?}");
}

#[test]
fn packet_filter_that_shuts_a_port_is_found_and_one_that_opens_it_is_fine() {
    let script = r#"
nft -f - <<'END'
table inet guard {
    set disks { type inet_service; elements = { 3260, 10809 } }
    chain input {
        type filter hook input priority filter; policy drop;
        ct state vmap { established : accept, related : accept, invalid : drop }
        iifname "lo" accept
        tcp dport @disks accept
        meta l4proto udp jump boot
        ip saddr 10.0.0.0/8 tcp dport 8080 accept
    }
    chain boot { udp dport { 67-68, 4011 } accept; }
}
END
printf '[[interface]]\nname = "hw0"\nmode = "dhcp"\nrange = "10.78.0.100-10.78.0.200"\n' >> headwater.toml
"$headwater" doctor --config headwater.toml --output json --no-dhcp || [ $? = 3 ]
"#;
    let found = findings(script);
    holds(&found, "firewall", "problem", "UDP port 69 (TFTP) on hw0");
    holds(
        &found,
        "firewall",
        "warning",
        "TCP 0.0.0.0:8080 (HTTP) through depends on the rule \"ip saddr == 10.0.0.0/8 tcp dport == 8080 accept\"",
    );
    let filtered: Vec<_> = found.iter().filter(|one| one.0 == "firewall").collect();
    assert_eq!(filtered.len(), 2, "{filtered:#?}");
    holds(&found, "interfaces", "ok", "hw0 is up");
    holds(&found, "ports", "ok", "TCP 0.0.0.0:3260 (iSCSI)");
    holds(&found, "boot-files", "problem", "\"ipxe.efi\"");
}

#[test]
fn another_dhcp_server_is_found_by_its_answer() {
    let script = r#"
there dnsmasq --keep-in-foreground --log-facility=- -C /dev/stdin > dnsmasq.log 2>&1 <<END &
port=0
pid-file=
interface=hw1
bind-interfaces
no-ping
dhcp-leasefile=$PWD/leases
dhcp-range=10.78.0.100,10.78.0.200,255.255.255.0,1h
END
until there sh -c 'grep -q ":0043 " /proc/net/udp'; do :; done
printf '[[interface]]\nname = "hw0"\nmode = "dhcp"\nrange = "10.78.0.210-10.78.0.220"\n' >> headwater.toml
"$headwater" doctor --config headwater.toml --output json || [ $? = 3 ]
"#;
    holds(&findings(script), "dhcp", "problem", "hw0: the DHCP server 10.78.0.2 answers there");
    let proxy = script.replace("mode = \"dhcp\"\\nrange = \"10.78.0.210-10.78.0.220\"", "mode = \"proxy\"");
    assert_ne!(proxy, script);
    holds(&findings(&proxy), "dhcp", "ok", "hw0: the DHCP server 10.78.0.2 gives machines their addresses");
}

#[test]
fn held_port_wrong_interface_and_wrong_line_are_told_at_once() {
    let script = r#"
python3 -c '
import socket, time
s = socket.socket(); s.bind(("0.0.0.0", 3260)); s.listen(); open("held", "w").close(); time.sleep(30)' & holder=$!
until [ -e held ]; do :; done
printf '[[interface]]\nname = "hw9"\nmode = "proxy"\n' >> headwater.toml
"$headwater" doctor --config headwater.toml --output json || [ $? = 3 ]
kill $holder
"#;
    let found = findings(script);
    holds(&found, "ports", "problem", "TCP 0.0.0.0:3260 (iSCSI) is held by python3 (process ");
    holds(
        &found,
        "interfaces",
        "problem",
        "no network interface \"hw9\"; present: hw0, lo; did you mean \"hw0\"?",
    );
    let broken = "printf 'state_dri = 1\\n' > headwater.toml\n\"$headwater\" doctor --config headwater.toml --output json || [ $? = 3 ]\n";
    let found = findings(broken);
    holds(&found, "configuration", "problem", "headwater.toml:1:1: unknown key \"state_dri\"");
    holds(&found, "ports", "ok", "free: TCP 0.0.0.0:3260 (iSCSI)");
}

#[test]
fn exit_code_and_table_say_whether_there_are_problems() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("none.toml");
    let output = doctor(&absent);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    let first = format!("problem configuration   {} is not there", absent.display());
    assert!(text.starts_with(&first), "{text}");
    assert!(text.contains("to mend: headwater init makes one"), "{text}");
    assert!(text.lines().last().unwrap().contains(" findings"), "{text}");
}

fn doctor(config: &Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_headwater"));
    command.args(["doctor", "--no-dhcp", "--config"]).arg(config).output().unwrap()
}
