//! SQLite: the suite, and what only a file can show: what is left by a killed program, a full disk, other programs.
use std::io::BufRead;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use farm::catalogue::{Catalogue, CatalogueError, DatabaseError, Look, SCHEMA, Sqlite, look};
use farm::filter::Filter;
use farm::model::Site;
use rusqlite::Connection;

use crate::sample::{change, site, small};
use crate::suite;

/// Names the database of the child that is to be killed.
const CHILD: &str = "FARM_TEST_CHILD_DATABASE";

#[test]
fn catalogue_in_a_file_keeps_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    suite::run(|case| Catalogue::open_file(&folder.path().join(format!("{case}.db"))).unwrap());
}

fn sites(catalogue: &Catalogue) -> u64 {
    catalogue.read(|reader| reader.count::<Site>(&Filter::Everything)).unwrap()
}

/// Not a test of its own: what `killed_program_leaves_whole_changes` starts and kills.
#[test]
fn child_that_changes_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let catalogue = Catalogue::open_file(Path::new(&path)).unwrap();
    for number in sites(&catalogue)..1_000_000 {
        change(&catalogue, |change| {
            change.create(site(&format!("a{number}")))?;
            change.create(site(&format!("b{number}")))
        })
        .unwrap();
        println!("made {number}");
    }
}

#[test]
fn killed_program_leaves_whole_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    let mut acknowledged = 0;
    for changes in [1, 7, 40] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::child_that_changes_until_it_is_killed", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        acknowledged += lines.by_ref().filter(|line| line.contains("made ")).take(changes).count() as u64;
        // SIGKILL, in the middle of whatever it does.
        child.kill().unwrap();
        child.wait().unwrap();
        let more = lines.filter(|line| line.contains("made ")).count() as u64;
        acknowledged += more;
        let catalogue = Catalogue::open_file(&path).unwrap();
        let found = sites(&catalogue);
        assert!(found.is_multiple_of(2), "half a change was left: {found}");
        assert!(found / 2 >= acknowledged, "{found} sites, {acknowledged} changes were acknowledged");
        assert_eq!(
            catalogue.latest_change().unwrap().0.unsigned_abs(),
            found,
            "every change was written down"
        );
        let raw = Connection::open(&path).unwrap();
        let sound: String = raw.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        // A change may have become true that nobody heard of.
        acknowledged = found / 2;
    }
}

#[test]
fn full_disk_is_told_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    drop(Catalogue::open_file(&path).unwrap());
    let sqlite = Sqlite::open(&path).unwrap();
    let pages: u32 =
        Connection::open(&path).unwrap().query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    sqlite.limit_pages(pages + 10).unwrap();
    let catalogue = Catalogue::open(sqlite).unwrap();
    let mut made = 0;
    let error = loop {
        match change(&catalogue, |change| change.create(site(&format!("site {made}")))) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, CatalogueError::Database(DatabaseError::Full { .. })), "{error}");
    assert!(error.to_string().contains("is full: nothing was changed; make room"), "{error}");
    assert_eq!(sites(&catalogue), made);
    // There is room again.
    let roomy = Catalogue::open_file(&path).unwrap();
    change(&roomy, |change| change.create(site("more"))).unwrap();
    assert_eq!(sites(&catalogue), made + 1);
}

#[test]
fn database_that_another_program_has_locked_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    let catalogue = Catalogue::open(Sqlite::open_with(&path, Duration::from_millis(20)).unwrap()).unwrap();
    small(&catalogue);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = change(&catalogue, |change| change.create(site("x"))).unwrap_err();
    assert!(error.to_string().contains("locked by another program for 20 ms"), "{error}");
    assert_eq!(sites(&catalogue), 1, "reading goes on");
    other.execute_batch("ROLLBACK").unwrap();
    change(&catalogue, |change| change.create(site("x"))).unwrap();
}

#[test]
fn database_of_an_older_program_is_brought_to_the_present_schema() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    let server = small(&Catalogue::open_file(&path).unwrap()).server;
    let old = Connection::open(&path).unwrap();
    // What the last steps made.
    old.execute_batch(
        "DROP TABLE device_report; DROP TABLE server_report; DELETE FROM schema_step WHERE step > 3",
    )
    .unwrap();
    drop(old);
    let catalogue = Catalogue::open_file(&path).unwrap();
    change(&catalogue, |change| change.report_server(server, Some("{}"))).unwrap();
    assert_eq!((look(&path).unwrap().schema, sites(&catalogue)), (SCHEMA, 1));
}

#[test]
fn database_of_a_newer_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    drop(Catalogue::open_file(&path).unwrap());
    Connection::open(&path)
        .unwrap()
        .execute("INSERT INTO schema_step (step) VALUES (?1)", [SCHEMA + 1])
        .unwrap();
    let error = Catalogue::open_file(&path).unwrap_err();
    assert!(
        matches!(error, CatalogueError::Database(DatabaseError::Newer { found, .. }) if found == SCHEMA + 1),
        "{error}"
    );
    assert!(error.to_string().contains("a newer version of the program has used it"), "{error}");
}

#[test]
fn file_of_another_program_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.db");
    std::fs::write(
        &text,
        "not a database, but long enough to be taken for the header of one, were it one at all",
    )
    .unwrap();
    let other = folder.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE mine (x)").unwrap();
    for path in [&text, &other] {
        let error = Sqlite::open(path).unwrap_err();
        assert!(matches!(error, DatabaseError::NotOurs { .. }), "{error}");
    }
    let error = Sqlite::open(&folder.path().join("no/such/folder.db")).unwrap_err();
    assert!(matches!(error, DatabaseError::Unavailable { .. }), "{error}");
}

#[test]
fn row_that_we_do_not_write_is_damage_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    let catalogue = Catalogue::open_file(&path).unwrap();
    let s = small(&catalogue);
    Connection::open(&path).unwrap().execute("UPDATE vdisk SET name = 'a/b'", []).unwrap();
    let error = catalogue.read(|reader| reader.get(s.vdisk)).unwrap_err();
    assert!(matches!(error, CatalogueError::Database(DatabaseError::Damaged { .. })), "{error}");
    assert!(error.to_string().contains("\"a/b\" is not a vDisk name"), "{error}");
}

#[test]
fn backup_holds_one_state_while_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::open_file(&folder.path().join("farm.db")).unwrap();
    let copy = folder.path().join("copy.db");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..100 {
                change(&catalogue, |change| {
                    change.create(site(&format!("a{number}")))?;
                    change.create(site(&format!("b{number}")))
                })
                .unwrap();
            }
        });
        catalogue.backup(&copy).unwrap();
        writer.join().unwrap();
    });
    let error = catalogue.backup(&copy).unwrap_err();
    assert!(error.to_string().contains("a backup needs a new file"), "{error}");
    let restored = Catalogue::open_file(&copy).unwrap();
    let found = sites(&restored);
    assert!(found.is_multiple_of(2) && restored.latest_change().unwrap().0.unsigned_abs() == found);
    assert_eq!(sites(&catalogue), 200);
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("part")), "{left:?}");
}

#[test]
fn rehearsed_change_tells_its_outcome_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::open_file(&folder.path().join("farm.db")).unwrap();
    let actor = crate::sample::actor();
    let made = catalogue.rehearse(&actor, crate::sample::at(0), |change| change.create(site("x"))).unwrap();
    assert_eq!(made.id.get(), 1);
    assert_eq!((sites(&catalogue), catalogue.latest_change().unwrap().0), (0, 0));
}

#[test]
fn look_at_a_catalogue_in_use_tells_its_schema_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    assert!(look(&path).is_err() && !path.exists(), "looking makes no file");
    let catalogue = Catalogue::open_file(&path).unwrap();
    change(&catalogue, |change| change.create(site("a"))).unwrap();
    assert_eq!(look(&path).unwrap(), Look { schema: SCHEMA, faults: Vec::new() });
    let reading = Catalogue::open_read_only(&path).unwrap();
    assert_eq!(sites(&reading), 1);
    change(&catalogue, |change| change.create(site("b"))).unwrap();
    assert_eq!(sites(&reading), 2);
    let refused = change(&reading, |change| change.create(site("c"))).unwrap_err();
    assert!(matches!(refused, CatalogueError::Database(DatabaseError::ReadOnly { .. })), "{refused}");
    // A copy is good as it is, too: it has no log beside it.
    let copy = folder.path().join("copy.db");
    reading.backup(&copy).unwrap();
    assert_eq!(look(&copy).unwrap().schema, SCHEMA);
}

#[test]
fn look_tells_damage_and_files_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("farm.db");
    small(&Catalogue::open_file(&path).unwrap());
    let copy = folder.path().join("copy.db");
    Catalogue::open_read_only(&path).unwrap().backup(&copy).unwrap();
    let mut bytes = std::fs::read(&copy).unwrap();
    let last = bytes.len() - 4096;
    bytes[last..].fill(0xA5);
    std::fs::write(&copy, bytes).unwrap();
    assert!(look(&copy).map_or(true, |look| !look.faults.is_empty()));
    let other = folder.path().join("other.db");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
    assert!(matches!(look(&other), Err(DatabaseError::NotOurs { .. })));
    std::fs::write(&other, "no database at all, but a text of some length").unwrap();
    assert!(matches!(look(&other), Err(DatabaseError::NotOurs { .. })));
}

#[test]
fn catalogue_and_its_copy_are_readable_by_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("farm.db"), folder.path().join("copy.db"));
    let catalogue = Catalogue::open_file(&path).unwrap();
    change(&catalogue, |change| change.create(site("Berlin"))).unwrap();
    catalogue.backup(&copy).unwrap();
    for entry in folder.path().read_dir().unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.file_name());
    }
}
