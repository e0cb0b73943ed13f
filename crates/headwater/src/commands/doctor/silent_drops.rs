//! Does TCP go on where a switch drops packets that are too large for it, and says nothing?
use super::finding::{Finding, Subject};
use crate::path::survives_silent_drops;

/// Nothing where it cannot be told.
pub(super) fn examine() -> Option<Finding> {
    Some(match survives_silent_drops()? {
        true => Finding::ok(
            Subject::Interfaces,
            "connections go on where a switch drops large packets without a word (net.ipv4.tcp_mtu_probing)",
        ),
        false => Finding::warning(
            Subject::Interfaces,
            "net.ipv4.tcp_mtu_probing is 0",
            "A device behind a switch that drops large packets without a word hangs while it boots. The server sets this when it \
             starts, where it may.",
            "echo net.ipv4.tcp_mtu_probing = 1 >/etc/sysctl.d/60-headwater.conf; sysctl --system",
        ),
    })
}
