//! What the catalogue promises, whatever database is below. Every case gets an empty catalogue.
mod history;
mod lists;
mod objects;
mod reports;
mod snapshots;
mod tables;
mod versions;

use farm::catalogue::Catalogue;

type Case = (&'static str, fn(&Catalogue));

/// Runs all cases, each on what `open` makes for it, and says which one fails.
pub(crate) fn run(open: impl Fn(&str) -> Catalogue) {
    let cases = [
        objects::CASES,
        lists::CASES,
        history::CASES,
        versions::CASES,
        snapshots::CASES,
        tables::CASES,
        reports::CASES,
    ]
    .concat();
    for (name, case) in cases {
        eprintln!("case {name}");
        case(&open(name));
    }
}
