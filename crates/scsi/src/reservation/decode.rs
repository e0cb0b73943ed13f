//! PERSISTENT RESERVE IN and OUT (SPC-4 §6.15, §6.16), RESERVE and RELEASE (SPC-2 §7.19 to §7.22): their fields.
use super::{Action, Kind, Reservations};
use crate::cdb::{Cdb, CdbLength};
use crate::sense::{AdditionalSense, CheckCondition};

/// The parameter list of PERSISTENT RESERVE OUT without further TransportIDs.
const LIST_BYTES: usize = 24;
/// The one target port that there is, as RELATIVE TARGET PORT IDENTIFIER.
const TARGET_PORT: u8 = 1;

/// PERSISTENT RESERVE IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PersistentIn {
    asked: Asked,
    pub(crate) allocation_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Keys,
    Reservation,
    Capabilities,
    FullStatus,
}

impl PersistentIn {
    pub(crate) fn decode(cdb: &Cdb) -> Result<Self, CheckCondition> {
        let asked = match cdb.byte(1) & 0x1F {
            0 => Asked::Keys,
            1 => Asked::Reservation,
            2 => Asked::Capabilities,
            3 => Asked::FullStatus,
            _ => return Err(CheckCondition::cdb_bit(1, 4)),
        };
        Ok(Self { asked, allocation_bytes: usize::from(cdb.be16(7)) })
    }

    pub(crate) fn answer(&self, state: &Reservations) -> Vec<u8> {
        match self.asked {
            Asked::Keys => {
                let keys = state.registrations().iter().flat_map(|found| found.key.to_be_bytes());
                with_header(state, keys.collect())
            }
            Asked::Reservation => with_header(state, reservation(state)),
            Asked::Capabilities => capabilities(),
            Asked::FullStatus => with_header(state, full_status(state)),
        }
    }
}

/// PRGENERATION and ADDITIONAL LENGTH, then `body`.
fn with_header(state: &Reservations, body: Vec<u8>) -> Vec<u8> {
    let mut data = state.generation().to_be_bytes().to_vec();
    data.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    data.extend(body);
    data
}

/// SPC-4 §6.15.3: SCOPE is the logical unit, the only one there is.
fn reservation(state: &Reservations) -> Vec<u8> {
    let Some(held) = state.held() else { return Vec::new() };
    let mut data = state.holder_key().to_be_bytes().to_vec();
    data.extend_from_slice(&[0, 0, 0, 0, 0, held.kind as u8, 0, 0]);
    data
}

/// SPC-4 §6.15.4.
fn capabilities() -> Vec<u8> {
    let crh = 0x10; // RESERVE is compatible; no SPEC_I_PT, no ALL_TG_PT, no APTPL
    let type_mask_valid = 0x80;
    // WR_EX_AR, EX_AC_RO, WR_EX_RO, EX_AC, WR_EX, and in the next byte EX_AC_AR.
    vec![0, 8, crh, type_mask_valid, 0xEA, 0x01, 0, 0]
}

/// SPC-4 §6.15.5: a descriptor for every registration.
fn full_status(state: &Reservations) -> Vec<u8> {
    let mut data = Vec::new();
    for registration in state.registrations() {
        let holds = state.is_holder(&registration.port);
        let kind = state.held().filter(|_| holds).map_or(0, |held| held.kind as u8);
        let id = registration.port.transport_id();
        data.extend_from_slice(&registration.key.to_be_bytes());
        data.extend_from_slice(&[0, 0, 0, 0, u8::from(holds), kind, 0, 0, 0, 0, 0, TARGET_PORT]);
        data.extend_from_slice(&u32::try_from(id.len()).unwrap_or(u32::MAX).to_be_bytes());
        data.extend(id);
    }
    data
}

/// PERSISTENT RESERVE OUT, before its parameter list is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PersistentOut {
    action: u8,
    kind: Option<Kind>,
    pub(crate) list_bytes: usize,
}

impl PersistentOut {
    pub(crate) fn decode(cdb: &Cdb) -> Result<Self, CheckCondition> {
        let action = cdb.byte(1) & 0x1F;
        if action > 6 {
            return Err(CheckCondition::cdb_bit(1, 4)); // REGISTER AND MOVE, REPLACE LOST RESERVATION
        }
        let kind = Kind::parse(cdb.byte(2));
        let names_kind = matches!(action, 1 | 2 | 4 | 5);
        if names_kind && kind.is_none() {
            return Err(CheckCondition::cdb_field(2));
        }
        let list_bytes = usize::try_from(cdb.be32(5)).unwrap_or(usize::MAX);
        if list_bytes != LIST_BYTES {
            return Err(CheckCondition::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR)); // SPC-4 §6.16.1
        }
        Ok(Self { action, kind, list_bytes })
    }

    /// What is asked for, once the parameter list is there.
    pub(crate) fn action(&self, list: &[u8]) -> Result<Action, CheckCondition> {
        let list: &[u8; LIST_BYTES] = list
            .first_chunk()
            .ok_or(CheckCondition::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR))?;
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, _, _, _, _, flags, ..] = *list;
        let key = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let new_key = u64::from_be_bytes([i, j, k, l, m, n, o, p]);
        // SPEC_I_PT, ALL_TG_PT and APTPL: REPORT CAPABILITIES says that there are none.
        if flags & 0x0D != 0 {
            return Err(CheckCondition::parameter_field(20));
        }
        let kind = self.kind.ok_or(CheckCondition::cdb_field(2));
        Ok(match self.action {
            0 => Action::Register { key, new_key },
            1 => Action::Reserve { key, kind: kind? },
            2 => Action::Release { key, kind: kind? },
            3 => Action::Clear { key },
            4 => Action::Preempt { key, victim: new_key, kind: kind?, abort: false },
            5 => Action::Preempt { key, victim: new_key, kind: kind?, abort: true },
            _ => Action::RegisterAndIgnore { new_key },
        })
    }
}

impl Kind {
    /// SCOPE and TYPE; the scope must be the logical unit.
    fn parse(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::WriteExclusive),
            3 => Some(Self::ExclusiveAccess),
            5 => Some(Self::WriteExclusiveRegistrantsOnly),
            6 => Some(Self::ExclusiveAccessRegistrantsOnly),
            7 => Some(Self::WriteExclusiveAllRegistrants),
            8 => Some(Self::ExclusiveAccessAllRegistrants),
            _ => None,
        }
    }
}

/// RESERVE and RELEASE (6) and (10): of the whole unit and for oneself, or not at all.
pub(crate) fn decode_classic(cdb: &Cdb) -> Result<(), CheckCondition> {
    // 3RDPTY and, in the long ones, LONGID; EXTENT, obsolete.
    let unsupported = if cdb.length() == CdbLength::Ten { 0x13 } else { 0x11 };
    if cdb.byte(1) & unsupported != 0 {
        return Err(CheckCondition::cdb_bit(1, 4));
    }
    Ok(())
}
