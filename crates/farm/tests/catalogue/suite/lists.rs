//! Lists: filters, orders and pages, held against a plain model of what they mean.
use farm::catalogue::{Catalogue, CatalogueError, ListQuery};
use farm::model::{Device, DeviceKind, Disks, Personality, Version};

use super::Case;
use crate::sample::{Small, booting, change, collection, device, site, small, text};

pub(super) const CASES: &[Case] = &[
    ("filter_leaves_what_it_says", filter_leaves_what_it_says),
    ("pages_together_are_the_list", pages_together_are_the_list),
    ("cursor_of_another_order_is_refused", cursor_of_another_order_is_refused),
    ("page_after_a_deletion_goes_on_where_it_was", page_after_a_deletion_goes_on_where_it_was),
    ("filter_or_order_without_meaning_is_refused", filter_or_order_without_meaning_is_refused),
];

fn ten_devices(catalogue: &Catalogue) -> Small {
    let s = small(catalogue);
    change(catalogue, |change| {
        let bonn = change.create(site("Bonn"))?.id;
        let rooms = change.create(collection("Büro 1", bonn))?.id;
        for number in 1..=10 {
            let mut device = if number <= 6 { booting(number, &s) } else { device(number, rooms) };
            device.disabled = number % 2 == 0;
            device.description = text(if number == 3 { "100%_\\ Sure" } else { "" });
            if number == 4 {
                device.profile.kind = DeviceKind::Test;
                device.uuid = Some("4c4c4544-0042-3510-8051-b4c04f4d3132".parse().unwrap());
                device.profile.personality = Personality::new([(text("Room"), text("B12"))].into()).unwrap();
            }
            if number == 5 {
                device.profile.disks = Disks::default();
            }
            change.create(device)?;
        }
        Ok(())
    })
    .unwrap();
    s
}

fn fitting(catalogue: &Catalogue, filter: &str) -> Vec<u32> {
    let query = ListQuery { filter: filter.parse().unwrap(), ..ListQuery::default() };
    let page = catalogue.read(|reader| reader.list::<Device>(&query)).unwrap();
    assert_eq!(page.total, page.items.len() as u64, "{filter}");
    assert_eq!(catalogue.read(|reader| reader.count::<Device>(&query.filter)).unwrap(), page.total);
    page.items.iter().map(|device| device.name.as_str()[4..].parse().unwrap()).collect()
}

fn filter_leaves_what_it_says(catalogue: &Catalogue) {
    ten_devices(catalogue);
    let all: Vec<u32> = (1..=10).collect();
    let cases: &[(&str, &[u32])] = &[
        ("", &all),
        ("not not disabled", &[2, 4, 6, 8, 10]),
        ("disabled = no", &[1, 3, 5, 7, 9]),
        ("name = LAB-00003", &[3]),
        ("name ~ LAB-0000?", &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("name ~ *10 or name ~ *-00001", &[1, 10]),
        ("name > lab-00008", &[9, 10]),
        ("collection = \"büro 1\" and not disabled", &[7, 9]),
        ("collection = \"BÜRO 1\" and disabled", &[8, 10]),
        ("site = berlin", &[1, 2, 3, 4, 5, 6]),
        ("site != berlin and name != lab-00007", &[8, 9, 10]),
        ("kind = test", &[4]),
        ("vdisk = Golden", &[1, 2, 3, 4, 6]),
        ("vdisk != golden", &[5, 7, 8, 9, 10]),
        ("mac = 5254.0000.0002", &[2]),
        ("mac ~ *:0?", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        ("mac != 52:54:00:00:00:02 and name < lab-00004", &[1, 3]),
        ("uuid = 4C4C4544-0042-3510-8051-b4c04f4d3132", &[4]),
        ("not uuid = 4C4C4544-0042-3510-8051-b4c04f4d3132 and name < lab-00005", &[1, 2, 3]),
        ("personality = \"room=b12\"", &[4]),
        ("personality ~ \"room=*\"", &[4]),
        ("description ~ \"*%*\"", &[3]),
        ("description ~ \"*_\\\\ sure\"", &[3]),
        ("description ~ \"*x_*\"", &[]),
        ("write-cache = server-disk", &[]),
        ("write-cache != server-disk and name < lab-00002", &[1]),
        ("id > 0", &all),
    ];
    for (filter, expected) in cases {
        assert_eq!(fitting(catalogue, filter), *expected, "{filter}");
    }
    let number =
        |filter: &str| catalogue.read(|reader| reader.count::<Version>(&filter.parse().unwrap())).unwrap();
    // A size that is not known is neither small nor large, and it differs from every size.
    assert_eq!((number("size < 1T"), number("size >= 1T"), number("size != 1T")), (0, 0, 1));
    assert_eq!((number("released < 2100-01-01"), number("made > 2100-01-01")), (1, 0));
}

fn pages_together_are_the_list(catalogue: &Catalogue) {
    ten_devices(catalogue);
    for (order, descending) in [
        (None, false),
        (Some("name"), true),
        (Some("disabled"), false),
        (Some("site"), true),
        (Some("uuid"), false),
    ] {
        let mut query =
            ListQuery { order: order.map(str::to_owned), descending, limit: 3, ..ListQuery::default() };
        let mut names = Vec::new();
        loop {
            let page = catalogue.read(|reader| reader.list::<Device>(&query)).unwrap();
            assert!(page.items.len() <= 3 && page.total == 10);
            names.extend(page.items.iter().map(|device| device.name.as_str().to_owned()));
            // As a client hands it back.
            query.after = page.next.map(|cursor| cursor.to_string().parse().unwrap());
            if query.after.is_none() {
                break;
            }
        }
        if order.is_none_or(|order| order == "name") {
            let mut sorted = names.clone();
            sorted.sort();
            if descending {
                sorted.reverse();
            }
            assert_eq!(names, sorted);
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 10, "{order:?}");
    }
}

fn cursor_of_another_order_is_refused(catalogue: &Catalogue) {
    ten_devices(catalogue);
    let first = ListQuery { limit: 3, ..ListQuery::default() };
    let page = catalogue.read(|reader| reader.list::<Device>(&first)).unwrap();
    let wrong = ListQuery { order: Some("disabled".to_owned()), after: page.next.clone(), ..first.clone() };
    let error = catalogue.read(|reader| reader.list::<Device>(&wrong)).unwrap_err();
    assert!(matches!(error, CatalogueError::BadCursor), "{error}");
    let wrong = ListQuery { descending: true, after: page.next, ..first };
    assert!(catalogue.read(|reader| reader.list::<Device>(&wrong)).is_err());
}

fn page_after_a_deletion_goes_on_where_it_was(catalogue: &Catalogue) {
    ten_devices(catalogue);
    let mut query = ListQuery { limit: 3, ..ListQuery::default() };
    let page = catalogue.read(|reader| reader.list::<Device>(&query)).unwrap();
    for device in &page.items {
        change(catalogue, |change| change.delete(device.id, device.revision)).unwrap();
    }
    query.after = page.next;
    let page = catalogue.read(|reader| reader.list::<Device>(&query)).unwrap();
    assert_eq!(page.items[0].name.as_str(), "lab-00004");
}

fn filter_or_order_without_meaning_is_refused(catalogue: &Catalogue) {
    let query = ListQuery { filter: "colour = red".parse().unwrap(), ..ListQuery::default() };
    let error = catalogue.read(|reader| reader.list::<Device>(&query)).unwrap_err();
    assert!(matches!(error, CatalogueError::BadFilter(_)), "{error}");
    for order in ["mac", "colour"] {
        let query = ListQuery { order: Some(order.to_owned()), ..ListQuery::default() };
        let error = catalogue.read(|reader| reader.list::<Device>(&query)).unwrap_err();
        assert!(matches!(error, CatalogueError::BadOrder { .. }), "{error}");
    }
}
