//! SQLite: the suite, and what only a file can show.
use farm::catalogue::Catalogue;

use crate::suite;

#[test]
fn catalogue_in_a_file_keeps_every_promise() {
    let folder = tempfile::tempdir().unwrap();
    suite::run(|case| Catalogue::open_file(&folder.path().join(format!("{case}.db"))).unwrap());
}
