//! What servers say of themselves and of devices.
use farm::catalogue::{Catalogue, CatalogueError};
use farm::model::{DeviceId, DeviceReport, Id, MAX_REPORT_BYTES, ServerId, ServerReport, ServerState};
use farm::rules::reports::state;
use farm::snapshot::Snapshot;

use super::Case;
use crate::sample::{actor, at, change, device, server, small};

pub(super) const CASES: &[Case] = &[
    ("latest_report_of_each_server_is_kept", latest_report_of_each_server_is_kept),
    ("reports_are_no_change_of_the_farm", reports_are_no_change_of_the_farm),
    ("report_goes_with_its_server", report_goes_with_its_server),
    (
        "servers_say_what_devices_do_until_they_say_no_more",
        servers_say_what_devices_do_until_they_say_no_more,
    ),
];

fn report(
    catalogue: &Catalogue,
    server: ServerId,
    ms: i64,
    load: Option<&str>,
) -> Result<(), CatalogueError> {
    catalogue.change(&actor(), at(ms), |change| change.report_server(server, load))
}

fn told(catalogue: &Catalogue, server: ServerId) -> Option<ServerReport> {
    catalogue.read(|reader| reader.server_reports()).unwrap().remove(&server)
}

fn latest_report_of_each_server_is_kept(catalogue: &Catalogue) {
    let s = small(catalogue);
    let two = change(catalogue, |change| change.create(server("two", s.site))).unwrap().id;
    assert_eq!(told(catalogue, s.server), None);
    report(catalogue, s.server, 0, Some("{\"devices\":1}")).unwrap();
    report(catalogue, two, 1, Some("{}")).unwrap();
    report(catalogue, s.server, 10_000, Some("{\"devices\":2}")).unwrap();
    let one = ServerReport { at: at(10_000), load: Some("{\"devices\":2}".to_owned()) };
    assert_eq!(told(catalogue, s.server), Some(one.clone()));
    assert_eq!(told(catalogue, two).unwrap().at, at(1));
    assert_eq!(state(Some(&one), at(20_000)), ServerState::Running);
    // One of them stops and the other says nothing more.
    report(catalogue, two, 20_000, None).unwrap();
    let states = [s.server, two].map(|server| state(told(catalogue, server).as_ref(), at(60_000)));
    assert_eq!(states, [ServerState::Silent, ServerState::Stopped]);
    let long = "x".repeat(MAX_REPORT_BYTES + 1);
    let refused = report(catalogue, s.server, 30_000, Some(&long)).unwrap_err();
    assert!(matches!(refused, CatalogueError::BadValue(_)), "{refused}");
    assert_eq!(told(catalogue, s.server), Some(one));
}

fn reports_are_no_change_of_the_farm(catalogue: &Catalogue) {
    let s = small(catalogue);
    let before = catalogue.latest_change().unwrap();
    let snapshot = Snapshot::load(catalogue).unwrap();
    let known = catalogue.read(|reader| reader.get(s.server)).unwrap();
    report(catalogue, s.server, 0, Some("{}")).unwrap();
    assert_eq!(catalogue.latest_change().unwrap(), before, "it is not in the audit");
    assert!(snapshot.refreshed(catalogue).unwrap().is_none(), "whoever follows has nothing to read");
    assert_eq!(catalogue.read(|reader| reader.get(s.server)).unwrap(), known, "nor has it a new revision");
}

fn report_goes_with_its_server(catalogue: &Catalogue) {
    let s = small(catalogue);
    let two = change(catalogue, |change| change.create(server("two", s.site))).unwrap();
    report(catalogue, two.id, 0, Some("{}")).unwrap();
    change(catalogue, |change| change.delete(two.id, two.revision)).unwrap();
    assert_eq!(told(catalogue, two.id), None);
    // It may still run, and go on to say so.
    for gone in [two.id, Id::new(9999).unwrap()] {
        let refused = report(catalogue, gone, 1, Some("{}")).unwrap_err();
        assert!(matches!(refused, CatalogueError::NotFound { .. }), "{refused}");
    }
}

fn servers_say_what_devices_do_until_they_say_no_more(catalogue: &Catalogue) {
    let s = small(catalogue);
    let two = change(catalogue, |change| change.create(server("two", s.site))).unwrap();
    let lab = change(catalogue, |change| change.create(device(1, s.collection))).unwrap().id;
    let before = catalogue.latest_change().unwrap();
    let report = |server: ServerId, told: &[(DeviceId, Option<&str>)]| {
        let told: Vec<_> = told.iter().map(|(id, told)| (*id, told.map(str::to_owned))).collect();
        catalogue.change(&actor(), at(0), |change| change.report_devices(server, &told))
    };
    let heard = |by: ServerId| {
        let mut heard = catalogue.read(|reader| reader.device_reports_but(by)).unwrap();
        heard.sort_by_key(|report| (report.server, report.device));
        heard
    };
    let said = |server: ServerId, told: &str| DeviceReport { server, device: lab, told: told.to_owned() };
    // One that is gone meanwhile is no reason to tell nothing of the others.
    report(s.server, &[(Id::new(9999).unwrap(), Some("{}")), (lab, Some("{\"a\":1}"))]).unwrap();
    report(s.server, &[(lab, Some("{\"a\":2}"))]).unwrap();
    report(two.id, &[(lab, Some("{}"))]).unwrap();
    assert_eq!(heard(two.id), [said(s.server, "{\"a\":2}")]);
    assert_eq!(heard(s.server), [said(two.id, "{}")]);
    let long = "x".repeat(MAX_REPORT_BYTES + 1);
    let refused = report(s.server, &[(lab, Some(&long))]).unwrap_err();
    assert!(matches!(refused, CatalogueError::BadValue(_)), "{refused}");
    report(s.server, &[(lab, None)]).unwrap();
    assert_eq!(heard(two.id), []);
    report(s.server, &[(lab, Some("{}"))]).unwrap();
    catalogue.change(&actor(), at(1), |change| change.forget_device_reports(s.server)).unwrap();
    assert_eq!(heard(two.id), []);
    assert_eq!(catalogue.latest_change().unwrap(), before, "it is not in the audit");
    change(catalogue, |change| change.delete(two.id, two.revision)).unwrap();
    assert_eq!(heard(s.server), [], "it goes with its server");
}
