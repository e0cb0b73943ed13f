//! Initiator ports: by what the unit knows initiators apart, beyond the life of a session.

/// The most bytes of a port's name: an iSCSI name of 223 bytes and its session id.
const MAX_NAME_BYTES: usize = 223 + ISID_BYTES;
/// `,i,0x` and twelve hexadecimal digits.
const ISID_BYTES: usize = 17;
/// The shortest ADDITIONAL LENGTH of an iSCSI TransportID (SPC-4 §7.6.4.6).
const MIN_NAME_FIELD_BYTES: usize = 20;

/// An initiator port by its name (SAM-5 §4.6.7): registrations of persistent reservations belong to it, and outlive
/// its sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InitiatorPort(String);

impl InitiatorPort {
    /// The port of an iSCSI initiator: its name and the ISID of its session (RFC 7143 §4.4.2).
    #[must_use]
    pub fn iscsi(initiator_name: &str, isid: [u8; 6]) -> Self {
        use std::fmt::Write as _;
        let mut name = initiator_name.to_owned();
        name.push_str(",i,0x");
        for byte in isid {
            let _ = write!(name, "{byte:02x}");
        }
        let cut = (0..=MAX_NAME_BYTES).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name.truncate(cut);
        Self(name)
    }

    /// The name, as RFC 7143 writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The TransportID that names it in parameter data (SPC-4 §7.6.4.6), with the session id: format 01b.
    pub(crate) fn transport_id(&self) -> Vec<u8> {
        const FORMAT_AND_PROTOCOL: u8 = 0x45;
        let mut name = self.0.clone().into_bytes();
        name.push(0);
        let length = name.len().next_multiple_of(4).max(MIN_NAME_FIELD_BYTES);
        name.resize(length, 0);
        let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
        let mut id = vec![FORMAT_AND_PROTOCOL, 0, high, low];
        id.append(&mut name);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_id_is_golden() {
        let port = InitiatorPort::iscsi("iqn.2026-01.lab:a", [0x80, 0, 0, 0, 0, 7]);
        assert_eq!(port.as_str(), "iqn.2026-01.lab:a,i,0x800000000007");
        let mut golden = vec![0x45, 0, 0, 36];
        golden.extend_from_slice(b"iqn.2026-01.lab:a,i,0x800000000007\0\0");
        assert_eq!(port.transport_id(), golden);
        assert_eq!(InitiatorPort::iscsi("", [0; 6]).transport_id().len(), 4 + 20);
    }

    #[test]
    fn name_beyond_the_limit_is_cut() {
        let port = InitiatorPort::iscsi(&"é".repeat(200), [0; 6]);
        assert!(port.as_str().len() <= MAX_NAME_BYTES);
    }
}
