//! Letting administrators in, on a real catalogue: passwords, sessions, tokens and the first run.
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use farm::catalogue::Catalogue;
use farm::model::{Id, ObjectKind, Site};
use farm::rules::permission::{Action, Place};
use farm::snapshot::{SharedSnapshot, Snapshot};

use super::*;
use crate::whole::Options;

const PASSWORD: &str = "three walnut boats";

struct Farm {
    control: Arc<Control>,
    people: People,
    ms: Arc<AtomicI64>,
    _folder: tempfile::TempDir,
}

impl Farm {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::open_file(&folder.path().join("farm.db")).unwrap();
        let snapshot = Arc::new(SharedSnapshot::new(Snapshot::load(&catalogue).unwrap()));
        let ms = Arc::new(AtomicI64::new(1_795_000_000_000));
        let told = Arc::clone(&ms);
        let clock: crate::whole::Clock = Arc::new(move || Timestamp::from_ms(told.load(Ordering::Relaxed)));
        let options = Options { clock, ..Options::of(Id::new(1).unwrap()) };
        let control = Control::open(catalogue, snapshot, options);
        Self { control, people: People::default(), ms, _folder: folder }
    }

    /// With an administrator.
    fn claimed() -> (Self, Session) {
        let farm = Self::new();
        let first = farm.people.first_run(&farm.control).unwrap().unwrap();
        let session = farm.people.claim_first_run(&farm.control, first.token.reveal(), PASSWORD).unwrap();
        (farm, session)
    }

    fn wait(&self, seconds: i64) {
        self.ms.fetch_add(seconds * 1000, Ordering::Relaxed);
    }

    fn log_in(&self, user: &str, password: &str) -> Result<Session, LogInError> {
        self.people.log_in(&self.control, user, password, &from())
    }

    fn identify(&self, secret: &str) -> Option<Identity> {
        self.people.identify(&self.control, secret, &from()).unwrap()
    }
}

fn from() -> Origin {
    Origin { address: IpAddr::from([10, 0, 0, 7]), request: Some("r-1".to_owned()) }
}

#[test]
fn first_run_gives_one_token_that_sets_one_password() {
    let farm = Farm::new();
    let lost = farm.people.first_run(&farm.control).unwrap().unwrap();
    let first = farm.people.first_run(&farm.control).unwrap().unwrap();
    assert_eq!(first.user.as_str(), "admin");
    assert!(farm.identify(first.token.reveal()).is_none(), "it is good for nothing else");
    let claim =
        |secret: &Secret, password| farm.people.claim_first_run(&farm.control, secret.reveal(), password);
    assert!(matches!(claim(&lost.token, PASSWORD), Err(LogInError::NoFirstRun)));
    assert!(matches!(claim(&first.token, "short"), Err(LogInError::Password(PasswordError::TooShort))));
    let session = claim(&first.token, PASSWORD).unwrap();
    assert!(matches!(claim(&first.token, PASSWORD), Err(LogInError::NoFirstRun)));
    let admin = farm.identify(session.secret.reveal()).unwrap();
    assert_eq!(admin.caller.may(Action::Change, ObjectKind::User, Place::Farm), Ok(()));
    assert!(farm.people.first_run(&farm.control).unwrap().is_none());
    assert!(farm.log_in("admin", PASSWORD).is_ok());
}

#[test]
fn token_of_the_first_run_ends_after_a_day() {
    let farm = Farm::new();
    let first = farm.people.first_run(&farm.control).unwrap().unwrap();
    farm.wait(24 * 60 * 60);
    let claimed = farm.people.claim_first_run(&farm.control, first.token.reveal(), PASSWORD);
    assert!(matches!(claimed, Err(LogInError::NoFirstRun)));
    assert!(farm.people.first_run(&farm.control).unwrap().is_some());
}

#[test]
fn log_in_takes_user_and_password_and_tells_not_which_was_wrong() {
    let (farm, _) = Farm::claimed();
    let errors = [("admin", "three walnut boat"), ("nobody", PASSWORD), ("No Name", PASSWORD)]
        .map(|(user, password)| farm.log_in(user, password).unwrap_err().to_string());
    assert!(errors.iter().all(|error| error == &errors[0]), "{errors:?}");
    let session = farm.log_in("admin", PASSWORD).unwrap();
    let identity = farm.identify(session.secret.reveal()).unwrap();
    assert_eq!(identity.user.name.as_str(), "admin");
    assert_eq!(identity.caller.actor().origin, "10.0.0.7");
    farm.people.log_out(session.secret.reveal());
    assert!(farm.identify(session.secret.reveal()).is_none());
}

#[test]
fn guessing_is_held_back_even_when_the_last_guess_is_right() {
    let (farm, _) = Farm::claimed();
    for _ in 0..6 {
        assert!(matches!(farm.log_in("admin", "wrong wrong wrong"), Err(LogInError::Wrong)));
    }
    let wait = match farm.log_in("admin", PASSWORD) {
        Err(LogInError::Wait(wait)) => wait,
        other => panic!("let in: {other:?}"),
    };
    farm.wait(i64::try_from(wait.as_secs()).unwrap());
    assert!(farm.log_in("admin", PASSWORD).is_ok());
}

#[test]
fn new_password_ends_the_other_sessions() {
    let (farm, mine) = Farm::claimed();
    let other = farm.log_in("admin", PASSWORD).unwrap();
    let me = farm.identify(mine.secret.reveal()).unwrap();
    let change = |old, new| {
        farm.people.change_own_password(&farm.control, &me, mine.secret.reveal(), old, new, &from())
    };
    assert!(matches!(change("wrong", "four walnut boats"), Err(LogInError::Wrong)));
    assert!(matches!(change(PASSWORD, "short"), Err(LogInError::Password(_))));
    change(PASSWORD, "four walnut boats").unwrap();
    assert!(farm.identify(mine.secret.reveal()).is_some());
    assert!(farm.identify(other.secret.reveal()).is_none());
    assert!(farm.log_in("admin", PASSWORD).is_err());
    assert!(farm.log_in("admin", "four walnut boats").is_ok());
}

#[test]
fn token_lets_in_within_its_role_until_it_ends() {
    let (farm, session) = Farm::claimed();
    let admin = farm.identify(session.secret.reveal()).unwrap();
    let ends = farm.control.now().after(Duration::from_secs(60));
    let new = NewToken {
        user: admin.user.id,
        name: Name::new("ci").unwrap(),
        role: Role::ReadOnly,
        scope: Scope::Farm,
        expires_at: Some(ends),
    };
    let (token, secret) =
        farm.control.change(&admin.caller, |change| make_token(change, new.clone())).unwrap();
    let known = farm.identify(secret.reveal()).unwrap();
    assert_eq!(known.token.map(|token| token.id), Some(token.id));
    assert_eq!(known.caller.actor().token, Some(token.id));
    assert_eq!(known.caller.may(Action::See, ObjectKind::Vdisk, Place::Farm), Ok(()));
    assert!(known.caller.may(Action::Change, ObjectKind::Vdisk, Place::Farm).is_err());
    // The catalogue has the digest alone.
    let file = std::fs::read(farm._folder.path().join("farm.db")).unwrap();
    let wal = std::fs::read(farm._folder.path().join("farm.db-wal")).unwrap_or_default();
    let random = &secret.reveal().as_bytes()[4..];
    for bytes in [file, wal] {
        assert!(!bytes.windows(random.len()).any(|window| window == random));
    }
    farm.wait(60);
    assert!(farm.identify(secret.reveal()).is_none());
    let late = NewToken { name: Name::new("late").unwrap(), ..new };
    let error = farm.control.change(&admin.caller, |change| make_token(change, late.clone())).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("expires_at"));
}

#[test]
fn disabled_user_is_let_in_by_nothing() {
    let (farm, session) = Farm::claimed();
    let admin = farm.identify(session.secret.reveal()).unwrap();
    farm.control
        .change(&admin.caller, |change| {
            let user = change.get(admin.user.id)?;
            let disabled = User { disabled: true, ..user.value };
            Ok(change.update(user.id, user.revision, disabled)?)
        })
        .unwrap();
    assert!(farm.identify(session.secret.reveal()).is_none());
    assert!(matches!(farm.log_in("admin", PASSWORD), Err(LogInError::Disabled(_))));
}

#[test]
fn user_who_must_change_the_password_can_do_nothing_else() {
    let (farm, session) = Farm::claimed();
    let admin = farm.identify(session.secret.reveal()).unwrap();
    let hash = farm.people.hash(&admin.user.name, "given by the admin").unwrap();
    farm.control
        .change(&admin.caller, |change| {
            let user = change.get(admin.user.id)?;
            put_password(change, user.id, user.revision, hash.clone(), true)
        })
        .unwrap();
    let session = farm.log_in("admin", "given by the admin").unwrap();
    let me = farm.identify(session.secret.reveal()).unwrap();
    assert!(me.caller.may(Action::See, ObjectKind::Vdisk, Place::Farm).is_err());
    farm.people
        .change_own_password(
            &farm.control,
            &me,
            session.secret.reveal(),
            "given by the admin",
            PASSWORD,
            &from(),
        )
        .unwrap();
    let me = farm.identify(session.secret.reveal()).unwrap();
    assert_eq!(me.caller.may(Action::See, ObjectKind::Vdisk, Place::Farm), Ok(()));
    let made = farm.control.change(&me.caller, |change| {
        let (name, description) = (Name::new("Main")?, farm::model::Description::new("")?);
        Ok(change.create(Site { name, description, disabled: false })?)
    });
    assert!(made.is_ok());
}

#[test]
fn who_came_to_the_door_stands_in_the_audit() {
    let (farm, _) = Farm::claimed();
    assert!(farm.log_in("admin", "wrong wrong wrong").is_err());
    assert!(farm.log_in("nobody", PASSWORD).is_err());
    farm.log_in("admin", PASSWORD).unwrap();
    let query = farm::catalogue::ListQuery {
        filter: "action ~ \"log-in*\"".parse().unwrap(),
        order: Some("number".to_owned()),
        ..farm::catalogue::ListQuery::default()
    };
    let entries = farm.control.read(|reader| Ok(reader.audit(&query)?.items)).unwrap();
    let told: Vec<_> = entries
        .iter()
        .map(|entry| {
            (entry.action.as_str(), entry.name.as_str(), entry.object > 0, entry.actor.origin.as_str())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("log-in-failed", "admin", true, "10.0.0.7"),
            ("log-in-failed", "nobody", false, "10.0.0.7"),
            ("log-in", "admin", true, "10.0.0.7")
        ]
    );
}
