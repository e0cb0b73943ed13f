//! Persistent reservations, request by request.
use super::*;
use crate::cdb::Cdb;

const KINDS: [Kind; 6] = [
    Kind::WriteExclusive,
    Kind::ExclusiveAccess,
    Kind::WriteExclusiveRegistrantsOnly,
    Kind::ExclusiveAccessRegistrantsOnly,
    Kind::WriteExclusiveAllRegistrants,
    Kind::ExclusiveAccessAllRegistrants,
];

fn port(number: u8) -> InitiatorPort {
    InitiatorPort::iscsi("iqn.2026-01.lab:a", [0, 0, 0, 0, 0, number])
}

/// Ports 1 to 3 are registered with ten times their number as key; port 1 reserves.
fn reserved(kind: Kind) -> Reservations {
    let mut state = Reservations::default();
    for number in 1..=3 {
        register(&mut state, number, u64::from(number) * 10);
    }
    state.change(&port(1), Action::Reserve { key: 10, kind }).unwrap();
    state
}

fn register(state: &mut Reservations, number: u8, new_key: Key) {
    state.change(&port(number), Action::Register { key: 0, new_key }).unwrap();
}

fn told(attention: UnitAttention, numbers: &[u8]) -> Effects {
    Effects { attentions: numbers.iter().map(|number| (port(*number), attention)).collect(), aborted: vec![] }
}

#[test]
fn registration_is_proved_with_the_key_before() {
    let mut state = Reservations::default();
    let one = port(1);
    let register = |key, new_key| Action::Register { key, new_key };
    assert_eq!(state.change(&one, register(5, 10)), Err(CONFLICT));
    state.change(&one, register(0, 10)).unwrap();
    assert_eq!(state.change(&one, register(0, 11)), Err(CONFLICT));
    state.change(&one, register(10, 11)).unwrap();
    assert_eq!((state.key_of(&one), state.generation()), (Some(11), 2));
    state.change(&one, Action::RegisterAndIgnore { new_key: 12 }).unwrap();
    state.change(&one, register(12, 0)).unwrap();
    assert_eq!((state.registrations(), state.generation()), (&[][..], 4));
}

#[test]
fn nothing_is_done_without_a_registration() {
    for action in [
        Action::Reserve { key: 0, kind: Kind::WriteExclusive },
        Action::Release { key: 0, kind: Kind::WriteExclusive },
        Action::Clear { key: 0 },
        Action::Preempt { key: 0, victim: 1, kind: Kind::WriteExclusive, abort: false },
    ] {
        assert_eq!(Reservations::default().change(&port(1), action), Err(CONFLICT));
    }
}

#[test]
fn second_reservation_conflicts_unless_it_is_the_holder_s_own() {
    for kind in KINDS {
        let mut state = reserved(kind);
        state.change(&port(1), Action::Reserve { key: 10, kind }).unwrap();
        let other = if kind == Kind::WriteExclusive { Kind::ExclusiveAccess } else { Kind::WriteExclusive };
        assert_eq!(state.change(&port(1), Action::Reserve { key: 10, kind: other }), Err(CONFLICT));
        let second = state.change(&port(2), Action::Reserve { key: 20, kind });
        assert_eq!(second.is_ok(), kind.is_all_registrants(), "{kind:?}");
    }
}

#[test]
fn release_tells_registrants_where_they_took_part() {
    for kind in KINDS {
        let mut state = reserved(kind);
        let other = if kind == Kind::WriteExclusive { Kind::ExclusiveAccess } else { Kind::WriteExclusive };
        let wrong = state.change(&port(1), Action::Release { key: 10, kind: other });
        assert_eq!(wrong, Err(CheckCondition::illegal(AdditionalSense::INVALID_RELEASE).into()));
        if !kind.is_all_registrants() {
            assert_eq!(state.change(&port(2), Action::Release { key: 20, kind }), Ok(Effects::default()));
            assert!(state.held().is_some(), "released by one who does not hold it");
        }
        let effects = state.change(&port(1), Action::Release { key: 10, kind }).unwrap();
        let expected: &[u8] = if kind.admits_registrants() { &[2, 3] } else { &[] };
        assert_eq!(effects, told(UnitAttention::ReservationsReleased, expected));
        assert_eq!((state.held(), state.generation()), (None, 3));
    }
}

#[test]
fn reservation_goes_with_its_last_holder() {
    for kind in KINDS {
        let mut state = reserved(kind);
        let effects = state.change(&port(1), Action::Register { key: 10, new_key: 0 }).unwrap();
        if kind.is_all_registrants() {
            assert_eq!(effects, Effects::default());
            state.change(&port(2), Action::Register { key: 20, new_key: 0 }).unwrap();
            assert!(state.held().is_some());
            state.change(&port(3), Action::Register { key: 30, new_key: 0 }).unwrap();
        } else {
            let expected: &[u8] = if kind.admits_registrants() { &[2, 3] } else { &[] };
            assert_eq!(effects, told(UnitAttention::ReservationsReleased, expected));
        }
        assert_eq!(state.held(), None, "{kind:?}");
    }
}

#[test]
fn clear_removes_everything_and_tells_the_others() {
    let mut state = reserved(Kind::WriteExclusive);
    let effects = state.change(&port(2), Action::Clear { key: 20 }).unwrap();
    assert_eq!(effects, told(UnitAttention::ReservationsPreempted, &[1, 3]));
    assert_eq!((state.held(), state.registrations(), state.generation()), (None, &[][..], 4));
}

#[test]
fn preempting_the_holder_takes_its_reservation() {
    let mut state = reserved(Kind::WriteExclusiveRegistrantsOnly);
    let preempt = Action::Preempt { key: 20, victim: 10, kind: Kind::ExclusiveAccess, abort: true };
    let effects = state.change(&port(2), preempt).unwrap();
    assert_eq!(
        effects.attentions,
        [(port(1), UnitAttention::RegistrationsPreempted), (port(3), UnitAttention::ReservationsReleased)]
    );
    assert_eq!(effects.aborted, [port(1)]);
    assert_eq!(state.held(), Some(&Held { kind: Kind::ExclusiveAccess, holder: Some(port(2)) }));
    assert_eq!(state.registrations().len(), 2);
}

#[test]
fn preempting_another_key_only_removes_registrations() {
    let mut state = reserved(Kind::WriteExclusive);
    let preempt = |victim| Action::Preempt { key: 20, victim, kind: Kind::ExclusiveAccess, abort: false };
    assert_eq!(state.change(&port(2), preempt(99)), Err(CONFLICT));
    assert_eq!(state.change(&port(2), preempt(0)), Err(CheckCondition::parameter_field(8).into()));
    let effects = state.change(&port(2), preempt(30)).unwrap();
    assert_eq!(effects, told(UnitAttention::RegistrationsPreempted, &[3]));
    assert_eq!(state.held(), Some(&Held { kind: Kind::WriteExclusive, holder: Some(port(1)) }));
}

#[test]
fn key_0_preempts_all_registrants_of_a_shared_reservation() {
    let mut state = reserved(Kind::ExclusiveAccessAllRegistrants);
    let preempt = Action::Preempt { key: 30, victim: 0, kind: Kind::WriteExclusive, abort: true };
    let effects = state.change(&port(3), preempt).unwrap();
    assert_eq!(effects.aborted, [port(1), port(2)]);
    assert_eq!(state.held(), Some(&Held { kind: Kind::WriteExclusive, holder: Some(port(3)) }));
    assert_eq!(state.registrations(), [Registration { port: port(3), key: 30 }]);
}

#[test]
fn registrations_are_limited() {
    let mut state = Reservations::default();
    let action = Action::RegisterAndIgnore { new_key: 1 };
    let many = |number: usize| InitiatorPort::iscsi(&format!("iqn.2026-01.lab:{number}"), [0; 6]);
    for number in 0..MAX_REGISTRATIONS {
        state.change(&many(number), action).unwrap();
    }
    let full = CheckCondition::illegal(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES);
    assert_eq!(state.change(&many(MAX_REGISTRATIONS), action), Err(full.into()));
}

#[test]
fn commands_are_kept_out_as_the_tables_say() {
    let read = Touches::Reads;
    let write = Touches::Changes;
    for (kind, registered_may, stranger_may) in [
        (Kind::WriteExclusive, [true, false], [true, false]),
        (Kind::ExclusiveAccess, [false, false], [false, false]),
        (Kind::WriteExclusiveRegistrantsOnly, [true, true], [true, false]),
        (Kind::ExclusiveAccessRegistrantsOnly, [true, true], [false, false]),
        (Kind::WriteExclusiveAllRegistrants, [true, true], [true, false]),
        (Kind::ExclusiveAccessAllRegistrants, [true, true], [false, false]),
    ] {
        let state = reserved(kind);
        let may = |number| [read, write].map(|touches| !state.keep_out(&port(number), touches));
        assert_eq!((may(1), may(2), may(9)), ([true; 2], registered_may, stranger_may), "{kind:?}");
        for always in [Touches::Nothing, Touches::Readiness, Touches::Persistent, Touches::Reserves] {
            assert!(!state.keep_out(&port(9), always));
        }
    }
}

#[test]
fn older_reservation_keeps_out_all_but_its_owner() {
    let mut state = Reservations::default();
    state.reserve_classic(&port(1)).unwrap();
    state.reserve_classic(&port(1)).unwrap();
    assert_eq!(state.reserve_classic(&port(2)), Err(CONFLICT));
    state.release_classic(&port(2));
    for touches in [Touches::Readiness, Touches::Reads, Touches::Changes] {
        assert!(state.keep_out(&port(2), touches) && !state.keep_out(&port(1), touches));
    }
    assert!(!state.keep_out(&port(2), Touches::Nothing));
    assert!(state.keep_out(&port(1), Touches::Persistent), "the two kinds do not mix");
    state.reset();
    assert!(!state.keep_out(&port(2), Touches::Changes));
}

#[test]
fn older_reservation_changes_nothing_beside_registrations() {
    let mut state = reserved(Kind::WriteExclusive);
    state.reserve_classic(&port(2)).unwrap();
    assert_eq!(state.reserve_classic(&port(9)), Err(CONFLICT));
    assert!(!state.keep_out(&port(1), Touches::Changes));
}

fn answer(state: &Reservations, action: u8) -> Vec<u8> {
    PersistentIn::decode(&Cdb::new(&[0x5E, action, 0, 0, 0, 0, 0, 1, 0, 0]).unwrap()).unwrap().answer(state)
}

#[test]
fn parameter_data_is_golden() {
    let mut state = Reservations::default();
    register(&mut state, 1, 0x0102_0304_0506_0708);
    assert_eq!(answer(&state, 0), [0, 0, 0, 1, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(answer(&state, 1), [0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(answer(&state, 2), [0, 8, 0x10, 0x80, 0xEA, 1, 0, 0]);
    let kind = Kind::ExclusiveAccessRegistrantsOnly;
    state.change(&port(1), Action::Reserve { key: 0x0102_0304_0506_0708, kind }).unwrap();
    let held = [0, 0, 0, 1, 0, 0, 0, 16, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 6, 0, 0];
    assert_eq!(answer(&state, 1), held);
    let mut full = vec![0, 0, 0, 1, 0, 0, 0, 64, 1, 2, 3, 4, 5, 6, 7, 8];
    full.extend_from_slice(&[0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 1, 0, 0, 0, 40]);
    full.extend_from_slice(b"\x45\0\0\x24iqn.2026-01.lab:a,i,0x000000000001\0\0");
    assert_eq!(answer(&state, 3), full);
    let shared = reserved(Kind::WriteExclusiveAllRegistrants);
    assert_eq!(answer(&shared, 1)[8..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0], "no one's key");
    assert!(PersistentIn::decode(&Cdb::new(&[0x5E, 4, 0, 0, 0, 0, 0, 1, 0, 0]).unwrap()).is_err());
}

#[test]
fn parameter_list_must_be_whole_and_ask_for_nothing_unsupported() {
    let decode = |action, kind, length| {
        PersistentOut::decode(&Cdb::new(&[0x5F, action, kind, 0, 0, 0, 0, 0, length, 0]).unwrap())
    };
    let length_error = CheckCondition::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(decode(0, 0, 23), Err(length_error));
    assert_eq!(decode(7, 1, 24), Err(CheckCondition::cdb_bit(1, 4)));
    for kind in [0, 2, 4, 9, 0x11] {
        assert_eq!(decode(1, kind, 24), Err(CheckCondition::cdb_field(2)), "{kind}");
    }
    let out = decode(0, 0, 24).unwrap();
    let mut list = [0; 24];
    list[7] = 1;
    list[15] = 2;
    assert_eq!(out.action(&list), Ok(Action::Register { key: 1, new_key: 2 }));
    assert_eq!(out.action(&list[..23]), Err(length_error));
    for flag in [0x01, 0x04, 0x08] {
        list[20] = flag; // APTPL, ALL_TG_PT, SPEC_I_PT
        assert_eq!(out.action(&list), Err(CheckCondition::parameter_field(20)));
    }
}
