//! Devices from and to tables.
use farm::catalogue::{Catalogue, CatalogueError, ImportOptions, Imported};
use farm::csv::devices::parse;
use farm::filter::Filter;
use farm::model::{Device, DeviceKind};

use super::Case;
use crate::sample::{booting, change, small, text};

pub(super) const CASES: &[Case] = &[
    ("table_with_one_bad_row_imports_nothing", table_with_one_bad_row_imports_nothing),
    ("exported_table_imports_to_the_same_devices", exported_table_imports_to_the_same_devices),
    ("import_fills_in_the_template", import_fills_in_the_template),
    ("import_updates_only_what_the_table_says", import_updates_only_what_the_table_says),
];

fn import(catalogue: &Catalogue, table: &str, options: ImportOptions) -> Result<Imported, CatalogueError> {
    let rows = parse(table.as_bytes()).unwrap();
    change(catalogue, |change| change.import_devices(&rows, options, &|_, _| Ok(())))
}

fn count(catalogue: &Catalogue) -> u64 {
    catalogue.read(|reader| reader.count::<Device>(&Filter::Everything)).unwrap()
}

fn table_with_one_bad_row_imports_nothing(catalogue: &Catalogue) {
    let s = small(catalogue);
    change(catalogue, |change| change.create(booting(1, &s))).unwrap();
    let table = "name,collection,site,mac,vdisks\n\
        pc-1,Lab,,52:54:00:00:01:01,golden\n\
        pc-2,Lab,,52:54:00:00:00:01,\n\
        pc-3,Nowhere,,52:54:00:00:01:03,\n\
        pc-4,New,Berlin,52:54:00:00:01:04,\n\
        pc-5,Lab,Atlantis,,\n\
        pc-6,Lab,,,silver\n\
        lab-00001,Lab,,,\n\
        pc-1,Lab,,,\n\
        pc-7,,,,\n";
    let before = catalogue.latest_change().unwrap();
    let error = import(catalogue, table, ImportOptions::default()).unwrap_err();
    let CatalogueError::BadTable(bad) = &error else { panic!("{error}") };
    let places: Vec<(usize, &str)> =
        bad.0.iter().map(|cell| (cell.line, cell.column.as_deref().unwrap())).collect();
    let expected = [
        (3, "mac"),
        (4, "collection"),
        (5, "collection"),
        (6, "site"),
        (7, "vdisks"),
        (8, "name"),
        (9, "name"),
        (10, "collection"),
    ];
    assert_eq!(places, expected);
    assert!(bad.0[0].why.contains("taken by device lab-00001"), "{}", bad.0[0].why);
    assert_eq!((count(catalogue), catalogue.latest_change().unwrap()), (1, before));
}

fn exported_table_imports_to_the_same_devices(catalogue: &Catalogue) {
    let s = small(catalogue);
    change(catalogue, |change| {
        for number in 1..=5 {
            let mut device = booting(number, &s);
            device.description = text("a, \"b\"; c");
            device.disabled = number == 3;
            device.profile.kind = DeviceKind::Test;
            if number == 4 {
                let keys = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKj ann@desk\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKk bob";
                device.profile.guest.ssh_keys = keys.parse().unwrap();
                device.profile.guest.user_data = Some("#cloud-config\nroom: \"{{device}}\"\n".parse().unwrap());
            }
            change.create(device)?;
        }
        Ok(())
    })
    .unwrap();
    let table = catalogue.read(|reader| reader.export_devices(&Filter::Everything)).unwrap();
    let before = catalogue.read(|reader| reader.all::<Device>()).unwrap();
    let again = import(catalogue, &table, ImportOptions { update: true, make_collections: false }).unwrap();
    assert_eq!(again, Imported { same: 5, ..Imported::default() });
    change(catalogue, |change| {
        before.iter().try_for_each(|device| change.delete(device.id, device.revision))
    })
    .unwrap();
    let made = import(catalogue, &table, ImportOptions::default()).unwrap();
    assert_eq!(made, Imported { made: 5, ..Imported::default() });
    let after = catalogue.read(|reader| reader.all::<Device>()).unwrap();
    let values = |devices: &[farm::model::Stored<Device>]| {
        devices.iter().map(|it| it.value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(values(&after), values(&before));
    let some = catalogue.read(|reader| reader.export_devices(&"disabled".parse().unwrap())).unwrap();
    assert_eq!(some.lines().count(), 2);
}

fn import_fills_in_the_template(catalogue: &Catalogue) {
    let s = small(catalogue);
    change(catalogue, |change| {
        let mut template = booting(1, &s);
        template.profile.kind = DeviceKind::Test;
        let template = change.create(template)?;
        let mut collection = change.get(s.collection)?;
        collection.value.template = Some(template.id);
        change.update(collection.id, collection.revision, collection.value)
    })
    .unwrap();
    let options = ImportOptions { update: false, make_collections: true };
    let table =
        "name,collection,site,kind\npc-1,lab,,\npc-2,lab,,maintenance\npc-3,New,berlin,\npc-4,new,berlin,\n";
    let made = import(catalogue, table, options).unwrap();
    assert_eq!(made, Imported { made: 4, collections: 1, ..Imported::default() });
    let device = |name: &str| catalogue.read(|reader| reader.device(&text(name))).unwrap();
    assert_eq!(
        (device("pc-1").profile.kind, device("pc-1").profile.disks.as_slice().len()),
        (DeviceKind::Test, 1)
    );
    assert_eq!(device("pc-2").profile.kind, DeviceKind::Maintenance);
    assert_eq!(device("pc-3").profile, Default::default());
    assert_eq!(device("pc-4").collection, device("pc-3").collection);
}

fn import_updates_only_what_the_table_says(catalogue: &Catalogue) {
    let s = small(catalogue);
    let mut device = booting(1, &s);
    device.description = text("kept");
    device.profile.personality = farm::model::Personality::new([(text("Room"), text("B12"))].into()).unwrap();
    change(catalogue, |change| change.create(device.clone())).unwrap();
    let options = ImportOptions { update: true, make_collections: false };
    let changed = import(catalogue, "name,disabled,description\nlab-00001,yes,\n", options).unwrap();
    assert_eq!(changed, Imported { changed: 1, ..Imported::default() });
    let after = catalogue.read(|reader| reader.device(&device.name)).unwrap();
    assert_eq!(after.value, Device { disabled: true, ..device });
}
