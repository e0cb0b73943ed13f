//! `figures [DEVICES] [ROUNDS] [FOLDER]`: how long the catalogue and the snapshot take at the size of a large farm (10,000 devices,
//! 500 versions), one line of JSON for each figure; the catalogue stays in FOLDER, if one is given. `cargo xtask bench farm`
//! runs it.
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Instant, SystemTime};

use farm::catalogue::{Catalogue, Change, ImportOptions, ListQuery};
use farm::csv::devices::parse;
use farm::filter::Filter;
use farm::model::{
    Access, AccessMode, Actor, ByteSize, Collection, Description, Device, Farm, Lineage, Mac, Percent,
    Server, ServerId, Site, Store, SubnetAffinity, Text, Timestamp, Vdisk, Version, VersionNumber,
    VersionState, Weight, WriteCache, WriteCacheKind,
};
use farm::rules::files::{ImageFormat, file_name};
use farm::snapshot::{Answer, SharedSnapshot, Snapshot, stored};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

struct Arguments {
    devices: u32,
    rounds: usize,
}

const VDISKS: u32 = 50;
const VERSIONS_EACH: u32 = 10;
const COLLECTIONS: u32 = 20;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let devices = words.next().map_or(Ok(10_000), |word| word.parse())?;
    let rounds = words.next().map_or(Ok(40), |word| word.parse())?;
    let arguments = Arguments { devices, rounds };
    match words.next() {
        Some(folder) => measure_in(&arguments, Path::new(&folder)),
        None => measure_in(&arguments, tempfile::tempdir()?.path()),
    }
}

fn measure_in(arguments: &Arguments, folder: &Path) -> Result<()> {
    let catalogue = Catalogue::open_file(&folder.join("farm.db"))?;
    let server = change(&catalogue, places)?;
    let table = table(arguments.devices);
    let (rows, parsing) = timed(|| parse(table.as_bytes()));
    let rows = rows.map_err(|errors| format!("the table has {} errors", errors.len()))?;
    let (imported, importing) = timed(|| {
        change(&catalogue, |change| change.import_devices(&rows, ImportOptions::default(), &|_, _| Ok(())))
    });
    let count = imported?.made;
    figure(format!("import of a table of {count} devices"), (parsing + importing) / 1e6, "s");
    lists(&catalogue, arguments)?;
    snapshots(&catalogue, server, folder, arguments)
}

fn lists(catalogue: &Catalogue, arguments: &Arguments) -> Result<()> {
    let middle = {
        let half = ListQuery { limit: 1000, ..ListQuery::default() };
        catalogue.read(|reader| reader.list::<Device>(&half))?.next
    };
    let page = |filter: &str| -> Result<ListQuery> {
        Ok(ListQuery { filter: filter.parse()?, limit: 100, ..ListQuery::default() })
    };
    let cases = [
        ("first page of 100 devices by name", page("")?),
        ("page of 100 devices behind the first 1000", ListQuery { after: middle, ..page("")? }),
        ("100 devices by collection name", ListQuery { order: Some("collection".to_owned()), ..page("")? }),
        ("search: name ~ \"*077*\"", page("name ~ \"*077*\"")?),
        ("search: mac ~ \"*:0a:1?\"", page("mac ~ \"*:0a:1?\"")?),
        ("search: vdisk = golden-07 and not disabled", page("vdisk = golden-07 and not disabled")?),
        (
            "search: (kind = test or site = berlin) and collection != \"room 03\"",
            page("(kind = test or site = berlin) and collection != \"room 03\"")?,
        ),
    ];
    for (name, query) in cases {
        let mut times = Vec::new();
        for _ in 0..arguments.rounds {
            let (found, time) = timed(|| catalogue.read(|reader| reader.list::<Device>(&query)));
            found?;
            times.push(time / 1e3);
        }
        let slowest = times.iter().copied().fold(0.0, f64::max);
        figure(format!("{name}: slowest of {}", arguments.rounds), slowest, "ms");
        figure(format!("{name}: median"), median(times), "ms");
    }
    let (found, time) = timed(|| catalogue.read(|reader| reader.export_devices(&Filter::Everything)));
    found?;
    figure("export of all devices as a table", time / 1e6, "s");
    Ok(())
}

fn snapshots(catalogue: &Catalogue, server: ServerId, folder: &Path, arguments: &Arguments) -> Result<()> {
    let (snapshot, loading) = timed(|| Snapshot::load(catalogue));
    let shared = SharedSnapshot::new(snapshot?);
    figure("snapshot: read whole", loading / 1e3, "ms");
    let mut times = Vec::new();
    for round in 0..arguments.rounds {
        let name = Text::new(&format!("pc-{:05}", round + 1))?;
        change(catalogue, |change| {
            let mut device = change.device(&name)?;
            device.value.disabled = !device.value.disabled;
            change.update(device.id, device.revision, device.value)
        })?;
        let (next, time) = timed(|| shared.get().refreshed(catalogue));
        shared.put(std::sync::Arc::new(next?.ok_or("a change was missed")?));
        times.push(time / 1e3);
    }
    figure("snapshot: kept current after one change: median", median(times), "ms");
    let path = folder.join("last");
    let (saved, saving) = timed(|| stored::save(&shared.get(), &path));
    saved?;
    figure("last known state: written to disk", saving / 1e3, "ms");
    let (read, reading) = timed(|| stored::load(&path));
    if read? != *shared.get() {
        return Err("the last known state reads back differently".into());
    }
    figure("last known state: read from disk", reading / 1e3, "ms");
    decisions(&shared, server, arguments.devices)
}

fn decisions(shared: &SharedSnapshot, server: ServerId, devices: u32) -> Result<()> {
    let now = now();
    let mut times = Vec::new();
    for round in 0..100_000u32 {
        // Neighbours in memory are not neighbours in time when machines boot.
        let device = (round.wrapping_mul(2_654_435_761) % devices) + 1;
        let mac = mac(device);
        let begun = Instant::now();
        let answer = shared.get().decide(mac, None, server, now);
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        if !matches!(answer, Answer::Known(_)) {
            return Err(format!("device {device} is not known").into());
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times.get(times.len() * share / 1000).copied().unwrap_or(f64::NAN);
    figure("boot decision: p99", at(990), "us");
    figure("boot decision: p99.9", at(999), "us");
    figure("boot decision: median", at(500), "us");
    Ok(())
}

fn figure(measure: impl AsRef<str>, value: f64, unit: &str) {
    let measure = measure.as_ref();
    println!("{}", serde_json::json!({ "measure": measure, "value": value, "unit": unit }));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The result, and the time in microseconds.
fn timed<R>(work: impl FnOnce() -> R) -> (R, f64) {
    let begun = Instant::now();
    let result = work();
    (result, begun.elapsed().as_secs_f64() * 1e6)
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

fn change<R>(
    catalogue: &Catalogue,
    work: impl FnMut(&mut Change<'_>) -> Result<R, farm::catalogue::CatalogueError>,
) -> Result<R> {
    let actor = Actor { user: Text::new("bench")?, token: None, origin: "local".to_owned(), request: None };
    Ok(catalogue.change(&actor, now(), work)?)
}

fn mac(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    // Its first byte is even: no group's.
    Mac::new([0x52, 0x54, a, b, c, d]).unwrap_or_else(|error| panic!("{error}"))
}

/// Every device with a vDisk, as an administrator would have them in a table.
fn table(devices: u32) -> String {
    let mut table = "name,site,collection,mac,kind,vdisks,description\n".to_owned();
    for number in 1..=devices {
        let kind = if number % 50 == 0 { "test" } else { "production" };
        let (collection, vdisk) = (number % COLLECTIONS, number % VDISKS);
        let site = if collection < COLLECTIONS / 2 { "Berlin" } else { "Bonn" };
        table.push_str(&format!(
            "pc-{number:05},{site},Room {collection:02},{},{kind},golden-{vdisk:02},seat {number}\n",
            mac(number)
        ));
    }
    table
}

/// The farm, sites, one server, a store, collections, and vDisks with all their versions.
fn places(change: &mut Change<'_>) -> Result<ServerId, farm::catalogue::CatalogueError> {
    let none = || Description::new("");
    change.create(Farm { name: Text::new("Figures")?, description: none()?, auto_merge: None })?;
    let site = |change: &mut Change<'_>, name: &str| {
        let site = Site { name: Text::new(name)?, description: Description::new("")?, disabled: false };
        Ok::<_, farm::catalogue::CatalogueError>(change.create(site)?.id)
    };
    let (berlin, bonn) = (site(change, "Berlin")?, site(change, "Bonn")?);
    let server = change.create(Server {
        name: Text::new("one")?,
        site: berlin,
        description: none()?,
        addresses: Vec::new(),
        weight: Weight::DEFAULT,
        max_devices: None,
        disabled: false,
    })?;
    let paths = BTreeMap::from([(server.id, Text::new("/srv/vdisks")?)]);
    let store = change.create(Store {
        name: Text::new("local")?,
        description: none()?,
        site: None,
        disabled: false,
        paths,
    })?;
    for number in 0..COLLECTIONS {
        change.create(Collection::plain(
            Text::new(&format!("Room {number:02}"))?,
            if number < COLLECTIONS / 2 { berlin } else { bonn },
            none()?,
        ))?;
    }
    for number in 0..VDISKS {
        let cache = WriteCache {
            kind: WriteCacheKind::ServerDisk,
            limit: ByteSize::new(10 << 30)?,
            warn_at: Percent::new(80)?,
        };
        let vdisk = change.create(Vdisk {
            name: Text::new(&format!("golden-{number:02}"))?,
            store: store.id,
            description: none()?,
            menu_text: None,
            asks_login: false,
            mode: AccessMode::Standard(cache),
            override_version: None,
            server: None,
            affinity: SubnetAffinity::None,
            disabled: false,
        })?;
        for version in 0..VERSIONS_EACH {
            change.create(version_of(&vdisk, version)?)?;
        }
    }
    Ok(server.id)
}

fn version_of(vdisk: &farm::model::Stored<Vdisk>, number: u32) -> Result<Version, farm::model::BadValue> {
    let lineage = match number.checked_sub(1) {
        None => Lineage::Base,
        Some(parent) => Lineage::Difference { parent: VersionNumber::new(parent)? },
    };
    let number = VersionNumber::new(number)?;
    Ok(Version {
        vdisk: vdisk.id,
        number,
        lineage,
        access: Access::Production { released: Timestamp::from_ms(0) },
        file: file_name(&vdisk.name, number, lineage, ImageFormat::Vhdx)?,
        mark: None,
        state: VersionState::Ready,
        comment: Description::new("")?,
        made_at: Timestamp::from_ms(0),
    })
}
