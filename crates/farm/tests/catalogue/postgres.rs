//! PostgreSQL: the suite, and what only a server can show.
use std::path::Path;

use farm::catalogue::{Catalogue, CatalogueError, DatabaseError, Postgres};
use farm::filter::Filter;
use farm::model::Site;

use crate::sample::{change, site};
use crate::suite;

/// A running cluster.
struct Cluster(lab::Cluster);

impl Cluster {
    fn start() -> Option<Self> {
        lab::Cluster::start().unwrap().map(Self)
    }

    fn control(&self, action: &str) {
        self.0.control(action).unwrap();
    }

    /// An empty catalogue of its own.
    fn catalogue(&self, name: &str) -> Catalogue {
        let mut client = postgres::Client::connect(&self.0.address(), postgres::NoTls).unwrap();
        client.batch_execute(&format!("CREATE SCHEMA {name}")).unwrap();
        self.open(name)
    }

    fn open(&self, name: &str) -> Catalogue {
        let address = format!("{} options='-c search_path={name}'", self.0.address());
        Catalogue::open(Postgres::connect(&address).unwrap()).unwrap()
    }
}

#[test]
fn catalogue_on_a_server_keeps_every_promise() {
    let Some(cluster) = Cluster::start() else { return };
    suite::run(|case| cluster.catalogue(case));
}

#[test]
fn server_that_goes_and_comes_back_is_found_again() {
    let Some(cluster) = Cluster::start() else { return };
    let catalogue = cluster.catalogue("here");
    change(&catalogue, |change| change.create(site("one"))).unwrap();
    cluster.control("stop");
    let count = || catalogue.read(|reader| reader.count::<Site>(&Filter::Everything));
    let gone = count().unwrap_err();
    assert!(matches!(gone, CatalogueError::Database(DatabaseError::Unavailable { .. })), "{gone}");
    let gone = change(&catalogue, |change| change.create(site("two"))).unwrap_err();
    assert!(gone.to_string().contains("cannot be reached"), "{gone}");
    cluster.control("start");
    assert_eq!(count().unwrap(), 1);
    // In the middle of a transaction: that one fails, the next goes on.
    let lost = change(&catalogue, |change| {
        change.create(site("three"))?;
        cluster.control("restart");
        change.create(site("four"))
    })
    .unwrap_err();
    assert!(matches!(lost, CatalogueError::Database(DatabaseError::Unavailable { .. })), "{lost}");
    assert_eq!(count().unwrap(), 1);
    change(&catalogue, |change| change.create(site("two"))).unwrap();
    assert_eq!(count().unwrap(), 2);
}

#[test]
fn connection_that_is_lost_at_the_commit_leaves_the_outcome_open() {
    let Some(cluster) = Cluster::start() else { return };
    let catalogue = cluster.catalogue("here");
    let lost = change(&catalogue, |change| {
        change.create(site("one"))?;
        cluster.control("stop");
        Ok(())
    })
    .unwrap_err();
    // The head is written behind the last statement of the work, and may be what finds out.
    let told = matches!(
        lost,
        CatalogueError::Database(DatabaseError::Unavailable { .. } | DatabaseError::OutcomeUnknown { .. })
    );
    assert!(told, "{lost}");
}

#[test]
fn backup_of_a_server_names_the_program_for_it() {
    let Some(cluster) = Cluster::start() else { return };
    let error = cluster.catalogue("here").backup(Path::new("/nowhere")).unwrap_err();
    assert!(error.to_string().contains("pg_dump"), "{error}");
}

#[test]
fn two_programs_change_one_catalogue_in_turns() {
    let Some(cluster) = Cluster::start() else { return };
    let catalogues = [cluster.catalogue("here"), cluster.open("here")];
    std::thread::scope(|scope| {
        for (who, catalogue) in ["a", "b"].into_iter().zip(&catalogues) {
            scope.spawn(move || {
                for number in 0..25 {
                    change(catalogue, |change| change.create(site(&format!("{who}{number}")))).unwrap();
                }
            });
        }
    });
    for catalogue in &catalogues {
        assert_eq!(catalogue.latest_change().unwrap().0, 50);
        assert_eq!(catalogue.read(|reader| reader.count::<Site>(&Filter::Everything)).unwrap(), 50);
    }
}
