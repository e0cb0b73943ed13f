//! May a server that is started as this user open what it needs: low ports, single interfaces, many files?
//!
//! Capabilities are read as the kernel tells them of this process (`CapEff` in `/proc/self/status`, a bit mask,
//! capabilities(7)); a service manager may give the server others.
use super::finding::{Finding, Subject};
use super::needs::Listener;
use crate::config::Config;

/// `CAP_NET_BIND_SERVICE`, by its bit in the mask (`linux/capability.h`).
const NET_BIND_SERVICE: u32 = 10;
/// `CAP_NET_RAW`.
const NET_RAW: u32 = 13;

/// The first port that everybody may bind to, where the system says nothing else.
const FIRST_FREE_PORT: u16 = 1024;

pub(super) fn examine(listeners: &[Listener]) -> Finding {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let first_free =
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    let first_free = first_free.trim().parse().unwrap_or(FIRST_FREE_PORT);
    match effective(&status) {
        Some(mask) => judge(mask, first_free, listeners),
        None => Finding::warning(
            Subject::Privileges,
            "the capabilities of this process cannot be told: /proc/self/status has no CapEff",
            "Whether the server may open its ports shows when it starts.",
            "mount /proc",
        ),
    }
}

fn effective(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

fn judge(mask: u64, first_free: u16, listeners: &[Listener]) -> Finding {
    let has = |bit: u32| mask & 1_u64.checked_shl(bit).unwrap_or(0) != 0;
    let low: Vec<String> = listeners
        .iter()
        .filter(|listener| (1..first_free).contains(&listener.address.port()))
        .map(Listener::label)
        .collect();
    let bound: Vec<String> =
        listeners.iter().filter(|listener| listener.interface.is_some()).map(Listener::label).collect();
    let mut missing = Vec::new();
    let mut needing: Vec<String> = Vec::new();
    if !low.is_empty() && !has(NET_BIND_SERVICE) {
        missing.push("CAP_NET_BIND_SERVICE");
        needing.extend(low);
    }
    if !bound.is_empty() && !has(NET_RAW) {
        missing.push("CAP_NET_RAW");
        needing.extend(bound);
    }
    if missing.is_empty() {
        return Finding::ok(
            Subject::Privileges,
            "this user may open every socket that the configuration names",
        );
    }
    needing.dedup();
    Finding::problem(
        Subject::Privileges,
        format!("this user lacks {}, which is needed for {}", missing.join(" and "), needing.join(", ")),
        "A server that is started as this user does not start; the service of the package has what it needs.",
        format!(
            "start it as root or with the package's service (systemctl start headwater), or give the service \
             AmbientCapabilities={}",
            missing.join(" ")
        ),
    )
}

/// Whether there is room for all connections and write caches.
pub(super) fn open_files(config: &Config) -> Finding {
    let wanted = crate::serve::open_files_wanted(config, config.devices.len());
    match connections::allow_open_files(wanted) {
        Ok(()) => Finding::ok(
            Subject::OpenFiles,
            format!("{wanted} connections and write caches can be open at a time"),
        ),
        Err(too_few) => Finding::warning(
            Subject::OpenFiles,
            format!(
                "a process of this user may have {} files open; {wanted} connections and write caches would need more",
                too_few.allowed
            ),
            "Devices that come when none is left are turned away.",
            "raise the hard limit: LimitNOFILE= of the service (the package's has 65536), or ulimit -Hn",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::serve::explain::Transport;

    #[test]
    fn missing_capability_is_named_with_what_needs_it() {
        let tftp = Listener {
            service: "TFTP",
            transport: Transport::Udp,
            address: "0.0.0.0:69".parse().unwrap(),
            interface: Some("eth1".to_owned()),
        };
        let iscsi = Listener {
            service: "iSCSI",
            transport: Transport::Tcp,
            address: "0.0.0.0:3260".parse().unwrap(),
            interface: None,
        };
        let both = [iscsi.clone(), tftp];
        let all = effective("Name:\tx\nCapEff:\t000001ffffffffff\n").unwrap();
        assert_eq!(judge(all, 1024, &both).level, Level::Ok);
        assert_eq!(judge(0, 1024, std::slice::from_ref(&iscsi)).level, Level::Ok);
        let none = judge(0, 1024, &both);
        assert_eq!(none.level, Level::Problem);
        assert!(none.found.contains("CAP_NET_BIND_SERVICE and CAP_NET_RAW"), "{none:?}");
        assert!(!none.found.contains("iSCSI"), "{none:?}");
        // The system may have set the low ports free (sysctl net.ipv4.ip_unprivileged_port_start).
        let raw = judge(0, 0, &both);
        assert!(!raw.found.contains("BIND_SERVICE") && raw.found.contains("CAP_NET_RAW"), "{raw:?}");
        assert_eq!(effective("Name:\tx\n"), None);
    }
}
