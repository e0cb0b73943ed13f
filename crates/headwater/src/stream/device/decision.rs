//! Which boot a login belongs to.
use vdisk::BootId;

use crate::state::DeviceState;

/// What is to be done about a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Go on with the current boot.
    Continue(BootId),
    /// Begin this boot.
    Begin(BootId),
    /// The boot has been replaced by this later one.
    Removed(String),
    /// There never was such a boot, or it has been forgotten.
    Unknown,
}

/// Decides about a login from what is remembered. `fresh` is the id of a boot that may begin now.
pub(super) fn decide(state: &DeviceState, wanted: Option<&BootId>, fresh: &BootId) -> Decision {
    let current = state.current.as_deref();
    let Some(wanted) = wanted else {
        let current = current.and_then(|id| BootId::new(id).ok());
        return current.map_or_else(|| Decision::Begin(fresh.clone()), Decision::Continue);
    };
    if current == Some(wanted.as_str()) {
        return Decision::Continue(wanted.clone());
    }
    if state.handed_out.iter().any(|id| id == wanted.as_str()) {
        return Decision::Begin(wanted.clone());
    }
    match current {
        Some(current) if wanted.as_str() < current => Decision::Removed(current.to_owned()),
        _ => Decision::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn id(text: &str) -> BootId {
        BootId::new(text).unwrap()
    }

    fn state(current: Option<&str>, handed_out: &[&str]) -> DeviceState {
        DeviceState {
            current: current.map(str::to_owned),
            handed_out: handed_out.iter().map(|id| (*id).to_owned()).collect(),
            picked: BTreeMap::new(),
            disk: None,
            unsettled: false,
            secrets_told: None,
        }
    }

    #[test]
    fn first_login_to_a_handed_out_name_begins_its_boot() {
        let state = state(Some("b1"), &["b2", "b3"]);
        assert_eq!(decide(&state, Some(&id("b2")), &id("b9")), Decision::Begin(id("b2")));
        assert_eq!(decide(&state, Some(&id("b3")), &id("b9")), Decision::Begin(id("b3")));
    }

    #[test]
    fn later_login_to_the_same_name_goes_on() {
        assert_eq!(decide(&state(Some("b1"), &[]), Some(&id("b1")), &id("b9")), Decision::Continue(id("b1")));
    }

    #[test]
    fn name_of_a_replaced_boot_is_removed_and_one_never_handed_out_is_unknown() {
        let state = state(Some("b5"), &["b6"]);
        assert_eq!(decide(&state, Some(&id("b4")), &id("b9")), Decision::Removed("b5".into()));
        assert_eq!(decide(&state, Some(&id("b7")), &id("b9")), Decision::Unknown);
    }

    #[test]
    fn plain_name_goes_on_with_the_current_boot_or_begins_one() {
        assert_eq!(decide(&state(Some("b5"), &["b6"]), None, &id("b9")), Decision::Continue(id("b5")));
        assert_eq!(decide(&state(None, &["b6"]), None, &id("b9")), Decision::Begin(id("b9")));
    }
}
