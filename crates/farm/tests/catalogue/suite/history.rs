//! What is written down about changes, requests that are made once, and tasks.
use farm::catalogue::{Catalogue, CatalogueError, ListQuery};
use farm::model::{IdempotencyKey, ObjectKind, Revision, Task, TaskState};
use serde_json::json;

use super::Case;
use crate::sample::{actor, at, booting, change, site, small, text};

pub(super) const CASES: &[Case] = &[
    ("audit_tells_who_changed_what", audit_tells_who_changed_what),
    ("archived_audit_keeps_its_numbers", archived_audit_keeps_its_numbers),
    ("request_with_a_key_is_made_once", request_with_a_key_is_made_once),
    ("task_tells_how_far_it_is_and_learns_to_stop", task_tells_how_far_it_is_and_learns_to_stop),
];

fn audit(catalogue: &Catalogue, filter: &str) -> Vec<farm::model::AuditEntry> {
    let query = ListQuery { filter: filter.parse().unwrap(), ..ListQuery::default() };
    catalogue.read(|reader| reader.audit(&query)).unwrap().items
}

fn audit_tells_who_changed_what(catalogue: &Catalogue) {
    let s = small(catalogue);
    let device = change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    let mut other = device.value.clone();
    other.disabled = true;
    other.profile.kind = farm::model::DeviceKind::Test;
    let late = at(7);
    catalogue
        .change(&actor(), late, |change| {
            change.update_as("disable", device.id, device.revision, other.clone())
        })
        .unwrap();
    let all = audit(catalogue, "");
    let numbers: Vec<i64> = all.iter().map(|entry| entry.number.0).collect();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>(), "every change has the next number");
    let last = &all[7];
    assert_eq!((last.at, &last.actor, last.action.as_str()), (late, &actor(), "disable"));
    assert_eq!(
        (last.kind, last.object, last.name.as_str()),
        (ObjectKind::Device, device.id.get(), "lab-00001")
    );
    assert_eq!(last.before, Some(json!({"disabled": false, "profile": {"kind": "production"}})));
    assert_eq!(last.after, Some(json!({"disabled": true, "profile": {"kind": "test"}})));
    assert_eq!(all[6].before, None);
    assert_eq!(all[6].after.as_ref().unwrap()["macs"], json!(["52:54:00:00:00:01"]));
    change(catalogue, |change| change.delete(device.id, device.revision.next())).unwrap();
    let gone = audit(catalogue, "kind = device and action = delete and actor = ann and origin = 10.0.0.7");
    assert_eq!((gone.len(), &gone[0].after), (1, &None));
    assert_eq!(audit(catalogue, "kind = version")[0].name, "golden 0");
    assert_eq!(
        audit(
            catalogue,
            &format!("object = {} and at >= {late}", device.id)
                .replace(&late.to_string(), &format!("\"{late}\""))
        )
        .len(),
        1
    );
}

fn archived_audit_keeps_its_numbers(catalogue: &Catalogue) {
    small(catalogue);
    let gone = catalogue.change(&actor(), at(10), |change| change.archive_audit(at(5))).unwrap();
    // Six objects; the last entry stays.
    assert_eq!(gone, 5);
    let numbers: Vec<i64> = audit(catalogue, "").iter().map(|entry| entry.number.0).collect();
    assert_eq!(numbers, [6, 7]);
    assert_eq!(audit(catalogue, "")[1].action, "archive-audit");
}

fn request_with_a_key_is_made_once(catalogue: &Catalogue) {
    let key: IdempotencyKey = text("k-1");
    let make = |name: &str, fingerprint: u8| {
        change(catalogue, |change| {
            if let Some(answer) = change.answered(&key, &[fingerprint; 32])? {
                return Ok(answer);
            }
            let made = change.create(site(name))?.id.to_string();
            change.remember(&key, &[fingerprint; 32], &made)?;
            Ok(made)
        })
    };
    let first = make("Berlin", 1).unwrap();
    assert_eq!(make("Berlin", 1).unwrap(), first);
    assert!(matches!(make("Bonn", 2), Err(CatalogueError::KeyReused)));
    let mut other = actor();
    other.user = text("bob");
    let none = catalogue.change(&other, at(0), |change| change.answered(&key, &[1; 32])).unwrap();
    assert_eq!(none, None, "another user's key is another key");
    assert_eq!(change(catalogue, |change| change.forget_answers(at(1))).unwrap(), 1);
    assert!(matches!(make("Berlin", 1), Err(CatalogueError::Taken { .. })));
}

fn task_tells_how_far_it_is_and_learns_to_stop(catalogue: &Catalogue) {
    let s = small(catalogue);
    let task = Task {
        kind: text("merge"),
        vdisk: Some(s.vdisk),
        parameters: "{}".to_owned(),
        actor: text("ann"),
        server: None,
        state: TaskState::Waiting,
        made_at: at(0),
        started_at: None,
        ended_at: None,
        result: None,
    };
    let task = change(catalogue, |change| change.create(task.clone())).unwrap();
    let before = catalogue.latest_change().unwrap();
    let state = change(catalogue, |change| {
        change.log_task(task.id, "begun")?;
        change.report_progress(task.id, 5, u64::MAX)
    });
    assert_eq!(state.unwrap(), TaskState::Waiting);
    assert_eq!(catalogue.latest_change().unwrap(), before, "progress is no change of the farm");
    let mut cancelling = task.value.clone();
    cancelling.state = TaskState::Cancelling;
    change(catalogue, |change| change.update_as("cancel", task.id, Revision::FIRST, cancelling.clone()))
        .unwrap();
    assert_eq!(
        change(catalogue, |change| change.report_progress(task.id, 6, 7)).unwrap(),
        TaskState::Cancelling
    );
    change(catalogue, |change| {
        (0..1100).try_for_each(|line| change.log_task(task.id, &format!("line {line}")))
    })
    .unwrap();
    catalogue
        .read(|reader| {
            let progress = reader.progress(task.id)?;
            assert_eq!((progress.done, progress.total, progress.at), (6, 7, at(0)));
            let log = reader.task_log(task.id, 0)?;
            assert_eq!((log.len(), log[0].text.as_str()), (1000, "begun"));
            assert_eq!(log[999].text, "line 1099");
            assert_eq!(reader.task_log(task.id, 998)?.len(), 2);
            Ok(())
        })
        .unwrap();
    change(catalogue, |change| change.forget_task(task.id)).unwrap();
    assert!(catalogue.read(|reader| reader.progress(task.id)).is_err());
}
