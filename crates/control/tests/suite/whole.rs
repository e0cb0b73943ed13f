//! Changes through [`Control`]: all or nothing, in the snapshot when they return, told to who listens.
use std::sync::Arc;

use control::{Caller, Code, Control, ControlError, Notice, Options};
use farm::catalogue::Catalogue;
use farm::model::{Actor, ObjectKind, Site, Text, Timestamp};
use farm::rules::permission::{Action, Place};
use farm::snapshot::{SharedSnapshot, Snapshot};

const NOW: Timestamp = Timestamp::from_ms(1_795_000_000_000);

fn site(name: &str) -> Site {
    Site { name: Text::new(name).unwrap(), description: Text::new("").unwrap(), disabled: false }
}

fn control(folder: &tempfile::TempDir) -> Arc<Control> {
    let catalogue = Catalogue::open_file(&folder.path().join("farm.db")).unwrap();
    let snapshot = Snapshot::load(&catalogue).unwrap();
    let options = Options { clock: Arc::new(|| NOW), ..Options::of(farm::model::Id::new(1).unwrap()) };
    Control::open(catalogue, Arc::new(SharedSnapshot::new(snapshot)), options)
}

fn root() -> Caller {
    Caller::local_root(Some("r-1".to_owned()), NOW)
}

#[test]
fn change_is_in_the_snapshot_and_told_when_it_returns() {
    let folder = tempfile::tempdir().unwrap();
    let control = control(&folder);
    let mut notices = control.changes();
    let before = control.snapshot().change();
    let made = control.change(&root(), |change| Ok(change.create(site("Berlin"))?)).unwrap();
    let after = control.snapshot().change();
    assert!(after > before);
    assert_eq!(notices.try_recv(), Ok(Notice::Changed(after)));
    let audit = control.read(|reader| Ok(reader.audit(&farm::catalogue::ListQuery::default())?)).unwrap();
    let Actor { user, origin, request, .. } = &audit.items[0].actor;
    assert_eq!((user.as_str(), origin.as_str(), request.as_deref()), ("root", "local", Some("r-1")));
    assert_eq!(control.read(|reader| Ok(reader.get(made.id)?)).unwrap(), made);
}

#[test]
fn change_that_fails_leaves_nothing_and_keeps_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let control = control(&folder);
    let mut notices = control.changes();
    let error = control
        .change(&root(), |change| {
            change.create(site("Berlin"))?;
            Err::<(), _>(ControlError::bad_value("name", "not this one").hint("another"))
        })
        .unwrap_err();
    assert_eq!((error.code, error.field.as_deref()), (Code::BadValue, Some("name")));
    assert_eq!(error.hint.as_deref(), Some("another"));
    assert_eq!(control.read(|reader| Ok(reader.all::<Site>()?.len())).unwrap(), 0);
    assert!(notices.try_recv().is_err());
}

#[test]
fn rehearsed_change_tells_what_it_would_do_and_does_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let control = control(&folder);
    let made = control.rehearse(&root(), |change| Ok(change.create(site("Berlin"))?)).unwrap();
    assert_eq!(made.name.as_str(), "Berlin");
    let taken = control.rehearse(&root(), |change| {
        change.create(site("Berlin"))?;
        Ok(change.create(site("berlin"))?)
    });
    assert_eq!(taken.unwrap_err().code, Code::Conflict);
    assert_eq!(control.read(|reader| Ok(reader.all::<Site>()?.len())).unwrap(), 0);
}

#[test]
fn change_of_another_server_arrives_by_a_refresh() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (control(&folder), control(&folder));
    one.change(&root(), |change| Ok(change.create(site("Berlin"))?)).unwrap();
    assert!(other.snapshot().change() < one.snapshot().change());
    assert!(other.refresh().unwrap());
    assert_eq!(other.snapshot().change(), one.snapshot().change());
    assert!(!other.refresh().unwrap());
}

#[test]
fn permission_is_asked_inside_the_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let control = control(&folder);
    let user = farm::model::User {
        name: Text::new("eve").unwrap(),
        description: Text::new("").unwrap(),
        password: None,
        must_change_password: false,
        disabled: false,
    };
    let eve = Caller::user(user, &[], None, "10.0.0.9".to_owned(), None, NOW);
    let error = control
        .change(&eve, |change| {
            eve.may(Action::Change, ObjectKind::Site, Place::Farm)?;
            Ok(change.create(site("Berlin"))?)
        })
        .unwrap_err();
    assert_eq!(error.code, Code::Denied);
    assert!(error.message.contains("user eve"), "{error}");
}
