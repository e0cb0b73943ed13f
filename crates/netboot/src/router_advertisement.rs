//! An answer to IPv6 router solicitations: "no router here".
//!
//! iPXE does IPv6 beside IPv4 and, in a network without routers, waits some 13 s for an advertisement before it goes on. An
//! advertisement with router lifetime 0 and without a prefix ends the wait and configures nothing: no default router
//! (RFC 4861 §6.3.4), no address. The kernel adds the checksum and the IPv6 header.
use std::net::Ipv6Addr;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
/// The longest solicitation that we look at. Its one usual option has 8 bytes.
pub const MAX_SOLICITATION_BYTES: usize = 1280;

/// All routers on the link: where solicitations go (RFC 4861 §2.3).
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// All nodes on the link: where an answer to a solicitation without a source goes.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Where to send an advertisement, if `message` from `source` is a router solicitation that deserves one.
#[must_use]
pub fn answer_to(message: &[u8], source: Ipv6Addr) -> Option<Ipv6Addr> {
    // RFC 4861 §6.1.1: type, code 0, 8 bytes or more, no option of length 0. The hop limit of 255 that it asks for proves
    // that the sender is on the link; so does a source that no router would forward.
    let [ROUTER_SOLICITATION, 0, _, _, _, _, _, _, options @ ..] = message else { return None };
    let mut rest = options;
    while let [_, length, ..] = rest {
        let bytes = usize::from(*length).saturating_mul(8);
        if bytes == 0 {
            return None;
        }
        rest = rest.get(bytes..)?;
    }
    if source.is_unspecified() {
        Some(ALL_NODES)
    } else {
        // RFC 4861 §6.2.6: an answer may go to the solicitor alone.
        source.is_unicast_link_local().then_some(source)
    }
}

/// The advertisement: hop limit unspecified, no flags, router lifetime 0, timers unspecified, no options
/// (RFC 4861 §4.2).
#[must_use]
pub fn advertisement() -> [u8; 16] {
    [ROUTER_ADVERTISEMENT, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x5054, 0xff, 0xfe77, 0x10);

    #[test]
    fn solicitation_is_answered_to_its_sender_or_to_all() {
        let plain = [133, 0, 9, 9, 0, 0, 0, 0];
        let with_option = [&plain[..], &[1, 1, 0x52, 0x54, 0, 0x77, 0, 0x10]].concat();
        assert_eq!(answer_to(&plain, CLIENT), Some(CLIENT));
        assert_eq!(answer_to(&with_option, CLIENT), Some(CLIENT));
        assert_eq!(answer_to(&plain, Ipv6Addr::UNSPECIFIED), Some(ALL_NODES));
    }

    #[test]
    fn foreign_and_malformed_messages_are_not_answered() {
        let plain = [133, 0, 9, 9, 0, 0, 0, 0];
        assert_eq!(answer_to(&plain[..7], CLIENT), None);
        assert_eq!(answer_to(&[134, 0, 9, 9, 0, 0, 0, 0], CLIENT), None);
        assert_eq!(answer_to(&[&plain[..], &[1, 0]].concat(), CLIENT), None);
        assert_eq!(answer_to(&[&plain[..], &[1, 9, 0, 0]].concat(), CLIENT), None);
        assert_eq!(answer_to(&plain, "2001:db8::1".parse().unwrap()), None);
        assert_eq!(answer_to(&[], CLIENT), None);
    }
}
