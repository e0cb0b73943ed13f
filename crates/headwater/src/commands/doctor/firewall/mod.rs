//! Does this machine's packet filter let devices reach the server?
//!
//! The rules are read as the kernel's tools print them, `nft` (which also shows what `iptables` and firewalld have made
//! with it) and `iptables-save` (for tables of the older kind), into the little that matters here ([`ruleset`]). Then a
//! new connection to each port is followed through them. A rule that asks for more than protocol, port, interface and
//! connection state may fit or not: where that decides, the answer is that it cannot be told.
mod iptables;
mod nft;
mod ruleset;

use std::io::ErrorKind;
use std::process::Command;

use ruleset::{Packet, Protocol, Ruleset, Verdict};

use super::finding::{Finding, Subject};
use super::needs::Listener;
use crate::serve::explain::Transport;

/// What a tool printed.
enum Printed {
    Text(String),
    NotInstalled,
    Failed(String),
}

pub(super) fn examine(listeners: &[Listener]) -> Vec<Finding> {
    let reachable: Vec<&Listener> = listeners.iter().filter(|listener| listener.is_reachable()).collect();
    if reachable.is_empty() {
        return vec![Finding::ok(
            Subject::Firewall,
            "only this machine itself is served: no packet filter matters",
        )];
    }
    let mut rulesets = Vec::new();
    let mut findings = Vec::new();
    match run("nft", &["-j", "list", "ruleset"]) {
        Printed::Text(text) => match nft::parse(&text) {
            Ok(ruleset) => rulesets.push(ruleset),
            Err(why) => findings.push(cannot_tell(&format!("nft's answer cannot be read: {why}"))),
        },
        Printed::NotInstalled if kernel_filters() => {
            findings.push(cannot_tell("the kernel has packet filters, and nft is not there to show them"));
        }
        Printed::NotInstalled => {}
        Printed::Failed(why) => findings.push(cannot_tell(&format!("nft does not show the rules: {why}"))),
    }
    // The older kind of tables, beside those of nft.
    let older = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
    if older.lines().any(|table| table == "filter") {
        let mut printed = run("iptables-legacy-save", &["-t", "filter"]);
        if matches!(printed, Printed::NotInstalled) {
            printed = run("iptables-save", &["-t", "filter"]);
        }
        match printed {
            Printed::Text(text) => rulesets.push(iptables::parse(&text)),
            Printed::NotInstalled => {
                findings.push(cannot_tell(
                    "there are iptables rules, and iptables-save is not there to show them",
                ));
            }
            Printed::Failed(why) => {
                findings.push(cannot_tell(&format!("iptables-save shows no rules: {why}")));
            }
        }
    }
    findings.extend(judge(&rulesets, &reachable));
    findings
}

/// Whether modules that filter packets are loaded: their names are all that is shown without a tool.
fn kernel_filters() -> bool {
    let modules = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    modules.lines().any(|line| line.starts_with("nf_tables "))
}

fn run(program: &str, words: &[&str]) -> Printed {
    match Command::new(program).args(words).output() {
        Ok(answer) if answer.status.success() => {
            Printed::Text(String::from_utf8_lossy(&answer.stdout).into_owned())
        }
        Ok(answer) => {
            let why = String::from_utf8_lossy(&answer.stderr);
            Printed::Failed(why.lines().next().unwrap_or("it says nothing").to_owned())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Printed::NotInstalled,
        Err(error) => Printed::Failed(error.to_string()),
    }
}

fn cannot_tell(why: &str) -> Finding {
    Finding::warning(
        Subject::Firewall,
        why,
        "A packet filter may keep devices from the server.",
        "run as root, with nftables installed; or see that the ports above are open",
    )
}

fn judge(rulesets: &[Ruleset], listeners: &[&Listener]) -> Vec<Finding> {
    let mut open = Vec::new();
    let mut findings = Vec::new();
    for listener in listeners {
        let (protocol, word) = match listener.transport {
            Transport::Tcp => (Protocol::Tcp, "tcp"),
            Transport::Udp => (Protocol::Udp, "udp"),
        };
        let packet = Packet {
            protocol,
            port: listener.address.port(),
            interface: listener.interface.clone(),
            ipv6: listener.address.is_ipv6() && !listener.address.ip().is_unspecified(),
        };
        // Of several packet filters, each must let it through.
        let verdict = rulesets.iter().map(|ruleset| ruleset.verdict(&packet)).max();
        let (label, port) = (listener.label(), packet.port);
        let mend = format!(
            "nft add rule inet filter input {word} dport {port} accept; firewall-cmd --permanent --add-port={port}/{word}; \
             ufw allow {port}/{word}: whichever of them keeps your rules"
        );
        match verdict {
            None | Some(Verdict::Accept) => open.push(label),
            Some(Verdict::Unclear(rule)) => findings.push(Finding::warning(
                Subject::Firewall,
                format!("whether the packet filter lets {label} through depends on {rule}"),
                "Devices for which it does not get no answer.",
                mend,
            )),
            Some(Verdict::Drop(rule)) => findings.push(Finding::problem(
                Subject::Firewall,
                format!("the packet filter lets nothing through to {label}: {rule}"),
                "Devices get no answer.",
                mend,
            )),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(Subject::Firewall, "no packet filter keeps devices from the ports"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn listener(port: u16) -> Listener {
        Listener {
            service: "iSCSI",
            transport: Transport::Tcp,
            address: ([0, 0, 0, 0], port).into(),
            interface: None,
        }
    }

    #[test]
    fn port_that_one_filter_drops_is_a_problem_however_many_accept_it() {
        let accepting = iptables::parse("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n");
        let dropping = iptables::parse(
            "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp -m tcp --dport 3260 -j ACCEPT\nCOMMIT\n",
        );
        let (open, shut) = (listener(3260), listener(8080));
        let findings = judge(&[accepting, dropping], &[&open, &shut]);
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert!(finding.level == Level::Problem && finding.found.contains("8080"), "{finding:?}");
        assert_eq!(judge(&[], &[&open])[0].level, Level::Ok);
    }
}
