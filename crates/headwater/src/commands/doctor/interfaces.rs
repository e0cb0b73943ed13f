//! Are the interfaces there that machines boot on, and do they have the networks that the configuration gives to them?
use super::finding::{Finding, Subject};
use crate::config::Config;

pub(super) fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = crate::serve::check_interfaces(config) {
        findings.push(Finding::problem(
            Subject::Interfaces,
            format!("{error:#}"),
            "The server does not start.",
            "\"ip -brief address\" shows the interfaces and their networks: give the configuration the right name, or the \
             interface its address",
        ));
    }
    for interface in &config.interfaces {
        let state = std::fs::read_to_string(format!("/sys/class/net/{}/operstate", interface.name));
        match state.as_deref().map(str::trim) {
            Ok(state @ ("down" | "lowerlayerdown" | "notpresent")) => findings.push(Finding::problem(
                Subject::Interfaces,
                format!("{} is {state}", interface.name),
                "No machine can be heard on it.",
                format!("ip link set {} up; if it is: look at the cable and the switch", interface.name),
            )),
            // That of virtual interfaces is often "unknown", and they carry all the same.
            Ok(_) => findings.push(Finding::ok(Subject::Interfaces, format!("{} is up", interface.name))),
            // Told above.
            Err(_) => {}
        }
    }
    if config.interfaces.is_empty() {
        findings.push(Finding::warning(
            Subject::Interfaces,
            "no [[interface]] is configured",
            "Another DHCP server must name the boot file; this one answers neither DHCP nor TFTP.",
            "add an [[interface]] for the network that machines boot on (headwater init writes one)",
        ));
    }
    findings
}
