//! Is the catalogue whole and of the right schema, and are the files of its versions what they were?
use std::collections::BTreeSet;
use std::path::Path;

use diskimage::Format;
use farm::catalogue::{Catalogue, Look, SCHEMA, look};
use farm::model::{FileName, ServerId, Store, Stored, Vdisk, Version, VersionState};
use farm::rules::files::compare;

use super::finding::{Finding, Subject};
use super::storage::{Holds, Place};

/// How many objects of a kind one message names.
const MOST_NAMED: usize = 10;

/// What of a catalogue matters here.
pub(super) struct Contents {
    stores: Vec<Stored<Store>>,
    vdisks: Vec<Stored<Vdisk>>,
    versions: Vec<Stored<Version>>,
    /// Which server this machine is; `None`: it is none of them.
    server: Option<ServerId>,
}

/// Looks at the database in a file; its contents, where it can be read.
pub(super) fn examine(path: &Path, server: &str) -> (Vec<Finding>, Option<Contents>) {
    let shown = path.display();
    if !path.exists() {
        let absent = Finding::ok(
            Subject::Catalogue,
            format!("{shown} is not there yet: the server makes it when it starts"),
        );
        return (vec![absent], None);
    }
    let looked = match look(path) {
        Ok(looked) => looked,
        Err(error) => {
            let found = Finding::problem(
                Subject::Catalogue,
                error.to_string(),
                "The server serves the last known state, and nothing can be changed.",
                "run as the server's user; if that is so already: stop the server, and headwater restore FILE",
            );
            return (vec![found], None);
        }
    };
    let mut findings = vec![judge(&shown.to_string(), &looked)];
    if looked.schema != SCHEMA || !looked.faults.is_empty() {
        return (findings, None);
    }
    match contents(path, server) {
        Ok(contents) => (findings, Some(contents)),
        Err(error) => {
            findings.push(Finding::problem(
                Subject::Catalogue,
                error.to_string(),
                "The server cannot use it either.",
                "stop the server, and headwater restore FILE",
            ));
            (findings, None)
        }
    }
}

fn judge(path: &str, looked: &Look) -> Finding {
    if let Some(first) = looked.faults.first() {
        return Finding::problem(
            Subject::Catalogue,
            format!("{path} is damaged: {first}"),
            "Changes fail or get lost.",
            "stop the server, look at the disk below (dmesg), and headwater restore FILE",
        );
    }
    let schema = looked.schema;
    match schema.cmp(&SCHEMA) {
        std::cmp::Ordering::Equal => {
            Finding::ok(Subject::Catalogue, format!("{path} is whole, with schema {schema}"))
        }
        std::cmp::Ordering::Less => Finding::ok(
            Subject::Catalogue,
            format!(
                "{path} is whole; its schema {schema} is brought to {SCHEMA} when this version of the server starts"
            ),
        ),
        std::cmp::Ordering::Greater => Finding::problem(
            Subject::Catalogue,
            format!("{path} has schema {schema}, and this program knows schemas up to {SCHEMA}"),
            "This version of the server does not start on it.",
            "run the newer version that has used it, or restore a backup that was made before it",
        ),
    }
}

fn contents(path: &Path, server: &str) -> Result<Contents, farm::catalogue::CatalogueError> {
    Catalogue::open_read_only(path)?.read(|reader| {
        let servers = reader.all::<farm::model::Server>()?;
        let own = servers.iter().find(|other| other.value.name.as_str() == server).map(|own| own.id);
        Ok(Contents { stores: reader.all()?, vdisks: reader.all()?, versions: reader.all()?, server: own })
    })
}

impl Contents {
    /// The stores that lie on this server.
    pub(super) fn places(&self) -> Vec<Place> {
        let place = |store: &Stored<Store>| {
            let path = store.value.paths.get(&self.server?)?;
            Some(Place { holds: Holds::Store(store.value.name.to_string()), path: path.as_str().into() })
        };
        self.stores.iter().filter_map(place).collect()
    }

    /// Whether the versions' files lie in their stores as long as they were, and what else lies there that looks like a
    /// version.
    pub(super) fn versions(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut whole = 0_usize;
        for store in &self.stores {
            let Some(path) = self.server.and_then(|server| store.value.paths.get(&server)) else { continue };
            let folder = Path::new(path.as_str());
            if !folder.is_dir() {
                // Told with the storage.
                continue;
            }
            let name = &store.value.name;
            let mut known = BTreeSet::new();
            for vdisk in self.vdisks.iter().filter(|vdisk| vdisk.value.store == store.id) {
                for version in self.versions.iter().filter(|version| version.value.vdisk == vdisk.id) {
                    known.insert(version.value.file.as_str());
                    match fault(folder, &version.value) {
                        None => whole = whole.saturating_add(1),
                        Some(why) => findings.push(changed(&vdisk.value, &version.value, &why)),
                    }
                }
            }
            findings.extend(strangers(folder, &name.to_string(), &known));
        }
        if whole > 0 {
            findings.insert(
                0,
                Finding::ok(
                    Subject::Versions,
                    format!("files of versions that lie where they should: {whole}"),
                ),
            );
        }
        findings
    }
}

fn changed(vdisk: &Vdisk, version: &Version, why: &str) -> Finding {
    let (name, number) = (&vdisk.name, version.number);
    Finding::problem(
        Subject::Versions,
        format!("vDisk \"{name}\", version {number}: {why}"),
        "Devices that are to boot it, or a version that stands on it, are refused.",
        format!(
            "bring the file {} back as it was, from a backup or another server of the store; or take it for what it is now \
             (headwater version accept {name}/{number})",
            version.file
        ),
    )
}

/// What is wrong with a version's file, as the server sees it when it is about to serve it: its length, its disk's size, and
/// the ids in its headers, of which each write makes a new one.
fn fault(folder: &Path, version: &Version) -> Option<String> {
    if matches!(version.state, VersionState::Making | VersionState::Leaving) {
        return None;
    }
    let path = folder.join(version.file.as_str());
    if let Err(error) = std::fs::File::open(&path) {
        return Some(format!("{} cannot be opened: {error}", path.display()));
    }
    // What a device writes to has no mark, and changes while it is looked at.
    let mark = version.mark?;
    match control::marks::look(&path) {
        Ok(found) => {
            let (state, differences) = compare(&mark, found.as_ref());
            let why = || format!("{} is not what was published: {}", path.display(), differences.join(", "));
            (state != VersionState::Ready).then(why)
        }
        // Of other formats, what is in a file may have to be told by the configuration.
        Err(_) if !matches!(Format::of_ending(&path), Some(Format::Vhd | Format::Vhdx)) => {
            let length = std::fs::metadata(&path).map(|facts| facts.len()).ok()?;
            let expected = mark.length.bytes();
            let why =
                || format!("{} has {length} bytes, and had {expected} when it was published", path.display());
            (length != expected).then(why)
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Files in a store that are called like versions, and that no vDisk has.
fn strangers(folder: &Path, store: &str, known: &BTreeSet<&str>) -> Option<Finding> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !known.contains(name.as_str()))
        .filter(|name| FileName::new(name).is_ok_and(|name| farm::rules::files::version_of(&name).is_some()))
        .collect();
    names.sort_unstable();
    let first = names.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if names.len() > MOST_NAMED { ", ..." } else { "" };
    (!names.is_empty()).then(|| {
        Finding::warning(
            Subject::Versions,
            format!("{} files in the store \"{store}\" belong to no vDisk: {first}{more}", names.len()),
            "Nobody boots them; they take room.",
            format!("headwater store adopt {store} --dry-run tells of each whether it can be taken over; else delete it"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use block::{BlockDevice as _, ByteLength, ByteOffset, LogicalBlockSize, Patience};
    use diskimage::storage::FileStorage;
    use diskimage::{Childless, MutableImage, NewImageSpec, Subtype};
    use farm::model::{
        Access, AccessMode, Actor, ByteSize, FileMark, Lineage, Site, SubnetAffinity, Timestamp,
        VersionNumber, WriteCache, WriteCacheKind,
    };

    fn text<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().unwrap()
    }

    /// An empty disk.
    fn image(path: &Path) {
        let spec = NewImageSpec {
            format: Format::Vhdx,
            subtype: Subtype::Dynamic,
            virtual_size: ByteLength::new(4 << 20),
            logical_block: LogicalBlockSize::B512,
            physical_block: 4096,
            payload_block: Some(ByteLength::new(1 << 20)),
            identity: None,
            linkage: None,
            parent: None,
            carried: Vec::new(),
        };
        let storage = FileStorage::create_new(path).unwrap();
        diskimage::create(Box::new(storage), &spec).unwrap().finish().unwrap();
    }

    /// A farm with the server "one", a store in `folder`, and "golden" in one version with a file that looks so.
    fn farm(database: &Path, folder: &Path, mark: FileMark) {
        let by = Actor { user: text("system"), token: None, origin: "test".to_owned(), request: None };
        let catalogue = Catalogue::open_file(database).unwrap();
        let made = catalogue.change(&by, Timestamp::from_ms(0), |change| {
            let site = change.create(Site { name: text("here"), description: text(""), disabled: false })?;
            let server = change.create(farm::model::Server {
                name: text("one"),
                site: site.id,
                description: text(""),
                addresses: Vec::new(),
                weight: farm::model::Weight::new(100).unwrap(),
                max_devices: None,
                disabled: false,
            })?;
            let paths = [(server.id, text(folder.to_str().unwrap()))].into();
            let store = change.create(Store {
                name: text("images"),
                description: text(""),
                site: None,
                disabled: false,
                paths,
            })?;
            let cache = WriteCache {
                kind: WriteCacheKind::ServerDisk,
                limit: ByteSize::new(1 << 30)?,
                warn_at: farm::model::Percent::new(80)?,
            };
            let vdisk = change.create(Vdisk {
                name: text("golden"),
                store: store.id,
                description: text(""),
                menu_text: None,
                asks_login: false,
                mode: AccessMode::Standard(cache),
                override_version: None,
                server: None,
                affinity: SubnetAffinity::None,
                disabled: false,
            })?;
            change.create(Version {
                vdisk: vdisk.id,
                number: VersionNumber::BASE,
                lineage: Lineage::Base,
                access: Access::Production { released: Timestamp::from_ms(0) },
                file: text("golden.vhdx"),
                mark: Some(mark),
                state: VersionState::Ready,
                comment: text(""),
                made_at: Timestamp::from_ms(0),
            })
        });
        made.unwrap();
    }

    #[test]
    fn version_whose_file_changed_or_went_is_a_problem_and_strangers_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let (database, store) = (folder.path().join("farm.db"), folder.path().join("images"));
        std::fs::create_dir(&store).unwrap();
        let golden = store.join("golden.vhdx");
        image(&golden);
        farm(&database, &store, control::marks::of_file(&golden).unwrap());
        let versions = || {
            let (findings, contents) = examine(&database, "one");
            assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
            contents.unwrap().versions()
        };
        let levels = |findings: &[Finding]| findings.iter().map(|finding| finding.level).collect::<Vec<_>>();
        assert_eq!(levels(&versions()), [Level::Ok]);
        let as_published = std::fs::read(&golden).unwrap();
        std::fs::remove_file(&golden).unwrap();
        assert_eq!(levels(&versions()), [Level::Problem], "missing");
        std::fs::write(&golden, "abcd").unwrap();
        assert_eq!(levels(&versions()), [Level::Problem], "no image");
        // A write behind the farm's back need not change the length; it changes the id of what was written.
        std::fs::write(&golden, &as_published).unwrap();
        let written = MutableImage::open(&golden, None, None, &Childless).unwrap();
        written.write(ByteOffset::new(0), &[0; 512], Patience::Blocking).unwrap();
        written.close().unwrap();
        let written = versions();
        assert!(written[0].found.contains("its DataWriteGuid is"), "{written:?}");
        std::fs::write(&golden, &as_published).unwrap();
        std::fs::write(store.join("golden.1.avhdx"), "").unwrap();
        std::fs::write(store.join("notes.txt"), "").unwrap();
        let strange = versions();
        assert_eq!(levels(&strange), [Level::Ok, Level::Warning]);
        assert!(
            strange[1].found.contains("golden.1.avhdx") && !strange[1].found.contains("notes"),
            "{strange:?}"
        );
        let (_, other) = examine(&database, "two");
        assert!(other.unwrap().places().is_empty(), "another server's paths are not this one's");
    }

    #[test]
    fn database_that_is_none_or_too_new_is_a_problem() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("farm.db");
        let level = |path: &Path| examine(path, "one").0.iter().map(|finding| finding.level).max();
        assert_eq!(level(&path), Some(Level::Ok), "none yet");
        std::fs::write(&path, "this is a text and not a database at all").unwrap();
        assert_eq!(level(&path), Some(Level::Problem));
        let newer = judge("x", &Look { schema: SCHEMA + 1, faults: Vec::new() });
        assert_eq!(newer.level, Level::Problem);
        let older = judge("x", &Look { schema: SCHEMA - 1, faults: Vec::new() });
        assert_eq!(older.level, Level::Ok);
        let damaged = judge("x", &Look { schema: SCHEMA, faults: vec!["row 1 missing".to_owned()] });
        assert!(damaged.level == Level::Problem && damaged.found.contains("row 1 missing"));
    }
}
