//! The server on a catalogue in PostgreSQL: run with the command line, and over a database that goes and comes back.
mod harness;

use std::process::Command;

use farm::catalogue::{Catalogue, Postgres};
use farm::model::{Actor, Id, ServerId, Timestamp, UserName};
use harness::{INITIATOR, MAC, Site, target_in, wait_until};
use lab::Cluster;
use serde_json::Value;

const READS_GOLDEN: &str = "read -P 0x5a 0 1M";
const LOST: &str = "the farm's database cannot be used: devices boot from what was known last";
const FOUND: &str = "the farm's database can be used again";

/// A cluster, and a site with its catalogue there that does not run yet; `None` where PostgreSQL is not installed.
fn site() -> Option<(Cluster, Site)> {
    let cluster = Cluster::start().unwrap()?;
    let more = format!("[catalogue]\npostgres = \"{}\"", cluster.address());
    Some((cluster, Site::new("", "", &more)))
}

fn json(site: &Site, words: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_headwater"))
        .args(words)
        .args(["--output", "json", "--socket"])
        .arg(site.path("hw.sock"))
        .output()
        .unwrap();
    // What a task writes down while it is waited for goes to standard error.
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Whether a command does what it is asked to, and all that is said.
fn asks(site: &Site, words: &[&str]) -> (bool, String) {
    let socket = site.path("hw.sock");
    let words: Vec<&str> = words.iter().copied().chain(["--socket", socket.to_str().unwrap()]).collect();
    harness::headwater(&words)
}

/// Which version a device runs on.
fn runs(site: &Site) -> Option<u64> {
    let status = json(site, &["device", "status"]);
    let devices = status["items"].as_array().unwrap();
    devices.iter().find(|one| one["name"] == "lab-01").unwrap()["version"].as_u64()
}

#[test]
fn farm_is_run_on_a_database_server() {
    let Some((_cluster, mut site)) = site() else { return };
    site.start();
    assert!(site.log().contains("postgresql://farm@"), "{}", site.log());
    site.headwater(&["version", "create", "debian", "--comment", "updates"]);
    site.headwater(&["version", "promote", "debian/1"]);
    assert!(site.io(&site.new_boot(), &[READS_GOLDEN]).ok);
    assert_eq!(runs(&site), Some(1));
    let task = json(&site, &["vdisk", "merge", "debian", "--base", "--wait"]);
    assert_eq!(task["state"], "done", "{task}");
    // What was changed is there for the next process, and what ran goes on.
    site.kill();
    site.start();
    assert_eq!(json(&site, &["vdisk", "versions", "debian"])["total"], 3);
    assert!(site.io(&site.new_boot(), &[READS_GOLDEN]).ok);
    assert_eq!(runs(&site), Some(2));
    let (status, _) = site.stop();
    assert!(status.success() && !site.log().contains("panicked"), "{}", site.log());
}

#[test]
fn database_that_stops_under_a_server_stops_no_device() {
    let Some((cluster, mut site)) = site() else { return };
    site.start();
    let target = site.new_boot();
    let io = site.io(&target, &[READS_GOLDEN, "write -P 0x11 8M 1M"]);
    assert!(io.ok, "{}", io.text);
    cluster.control("stop").unwrap();
    site.wait_for_log(LOST);

    // What runs goes on, what is known boots, and whoever asks is told.
    let io = site.io(&target, &["read -P 0x11 8M 1M"]);
    assert!(io.ok, "a boot goes on: {}", io.text);
    let another = target_in(&site.script(MAC));
    let io = site.io(&another, &[READS_GOLDEN, "write -P 0x22 8M 1M"]);
    assert!(io.ok, "another begins: {}", io.text);
    assert_eq!(runs(&site), Some(0));
    assert!(site.headwater(&["status"]).contains("the farm's database cannot be used"));
    let (ok, said) = asks(&site, &["site", "create", "Bonn"]);
    assert!(!ok && said.contains("cannot be reached"), "{said}");
    let (ok, said) = asks(&site, &["vdisk", "list"]);
    assert!(!ok && said.contains("cannot be reached"), "{said}");

    // So it is for a server that starts meanwhile.
    site.kill();
    site.start();
    assert!(site.log().contains("known devices boot from the last known state"), "{}", site.log());
    let io = site.io(&another, &["read -P 0x22 8M 1M"]);
    assert!(io.ok, "a boot goes on over the restart: {}", io.text);
    let third = target_in(&site.script(MAC));
    assert!(site.io_as(&third, INITIATOR, None, &[READS_GOLDEN]).ok);

    cluster.control("start").unwrap();
    site.wait_for_log(FOUND);
    wait_until("changes are made again", || asks(&site, &["site", "create", "Bonn"]).0);
    assert!(!site.headwater(&["status"]).contains("database"));
    // The boot of the meantime gets the lease that it had to do without.
    wait_until("the boot has a lease", || json(&site, &["lock", "list"])["total"] == 1);
    let io = site.io(&third, &[READS_GOLDEN]);
    assert!(io.ok, "{}", io.text);
}

/// What a server tells of all servers of its farm, by name.
fn loads(asked: &Site) -> Vec<Value> {
    let told = json(asked, &["server", "load", "--sort", "name"]);
    told["items"].as_array().unwrap().clone()
}

fn states(asked: &Site) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    loads(asked).iter().map(|load| (word(&load["server"]["name"]), word(&load["state"]))).collect()
}

/// Has it so that a server said its last word a minute before it did.
fn let_grow_old(cluster: &Cluster, server: ServerId) {
    let catalogue = Catalogue::open(Postgres::connect(&cluster.address()).unwrap()).unwrap();
    let report = catalogue.read(|reader| Ok(reader.server_reports()?.remove(&server))).unwrap().unwrap();
    let earlier = Timestamp::from_ms(report.at.ms() - 60_000);
    let by =
        Actor { user: UserName::new("test").unwrap(), token: None, origin: String::new(), request: None };
    let load = report.load.as_deref();
    catalogue.change(&by, earlier, |change| change.report_server(server, load)).unwrap();
}

#[test]
fn servers_of_a_farm_tell_each_other_what_they_carry() {
    let Some((cluster, mut one)) = site() else { return };
    let mut two = Site::member("two", &cluster.address(), "");
    one.start();
    let name = loads(&one)[0]["server"]["name"].as_str().unwrap().to_owned();
    let mut session = one.session(&one.new_boot());
    session.run(READS_GOLDEN);
    two.start();
    let states_are = |asked: &Site, first: &str, second: &str| {
        let of = |name: &str, state: &str| (name.to_owned(), state.to_owned());
        let mut expected = [of(&name, first), of("two", second)];
        expected.sort();
        states(asked) == expected
    };
    wait_until("each is told of the other", || {
        [&one, &two].iter().all(|asked| states_are(asked, "running", "running"))
    });
    // The one has a device, the other none; whoever is asked says so.
    let load_of = |asked: &Site, name: &str| {
        loads(asked).into_iter().find(|load| load["server"]["name"] == name).unwrap()["load"].clone()
    };
    wait_until("the device is told of", || load_of(&two, &name)["devices"] == 1);
    let (busy, idle) = (load_of(&two, &name), load_of(&one, "two"));
    assert_eq!((&idle["devices"], &idle["requests_per_second"]), (&0.into(), &0.into()), "{idle}");
    for load in [&busy, &idle] {
        let positive = |key: &str| load[key].as_u64().is_some_and(|count| count > 0);
        assert!(positive("processors") && positive("memory_bytes"), "{load}");
        assert_eq!(load["version"], env!("CARGO_PKG_VERSION"));
    }
    let shown = json(&two, &["server", "load", &name]);
    let id = Id::new(shown["server"]["id"].as_i64().unwrap()).unwrap();
    assert_eq!((&shown["state"], &shown["load"]["devices"]), (&"running".into(), &1.into()), "{shown}");

    // One is killed and says nothing more; the other ends, and says so.
    session.end();
    one.kill();
    let_grow_old(&cluster, id);
    wait_until("it is missed", || states_are(&two, "silent", "running"));
    assert!(two.headwater(&["server", "load"]).contains("silent"));
    one.start();
    wait_until("it is back", || states_are(&two, "running", "running"));
    assert!(two.stop().0.success());
    wait_until("the other's end is known", || states_are(&one, "running", "stopped"));
    // Neither of them has changed the farm by what it told.
    let audit = one.headwater(&["audit", "list"]);
    assert!(!audit.contains("report"), "{audit}");
}

#[test]
fn what_devices_do_at_another_server_is_told_by_each() {
    const SECOND: &str = "iqn.2026-11.org.headwater:second:initiator";
    const SECOND_MAC: &str = "52:54:00:77:00:12";
    let Some(cluster) = Cluster::start().unwrap() else { return };
    let more = format!(
        "[[device]]\nname = \"second\"\nmac = \"{SECOND_MAC}\"\nvdisk = \"debian\"\n[catalogue]\npostgres = \"{}\"",
        cluster.address()
    );
    let mut one = Site::new("", "", &more);
    one.start();
    let server = loads(&one)[0]["server"].clone();
    let (name, id) = (server["name"].as_str().unwrap(), Id::new(server["id"].as_i64().unwrap()).unwrap());
    let mut two = Site::member("two", &cluster.address(), "");
    two.start();
    for device in ["lab-01", "second"] {
        one.headwater(&["device", "set", device, "kind=maintenance", "menu.show=never"]);
    }
    one.headwater(&["version", "create", "debian"]);
    let mut session = one.session(&one.new_boot());
    session.run(READS_GOLDEN);
    let target = target_in(&one.script(SECOND_MAC));
    let io = one.io_as(&target, SECOND, None, &[READS_GOLDEN]);
    assert!(!io.ok, "two writers: {}", io.text);

    let status = |asked: &Site, device: &str| json(asked, &["device", "status", device]);
    wait_until("the other tells who was refused", || !status(&two, "second")["kept_out"].is_null());
    assert_eq!(status(&two, "second")["kept_out"]["owner"]["name"], "lab-01");
    let locks = json(&two, &["lock", "list"]);
    assert!(locks["items"].as_array().unwrap().iter().any(|lock| lock["keeps_out"] == 1), "{locks}");
    let (here, there) = (status(&one, "lab-01"), status(&two, "lab-01"));
    assert_eq!((&here["server"], &there["server"]), (&Value::Null, &name.into()));
    for key in ["boot", "status", "presence", "sessions", "vdisk", "version", "mac", "initiator"] {
        assert_eq!(here[key], there[key], "{key}: {there}");
    }
    assert_eq!(there["sessions"], 1);
    let said = two.headwater(&["device", "reboot", "lab-01", "--yes"]);
    assert!(said.contains(&format!("it runs from server {name}: ask for it there")), "{said}");

    let (ok, said) = asks(&two, &["device", "reset", "lab-01", "--yes"]);
    assert!(!ok && said.contains(&format!("runs from server {name}: ask for it there")), "{said}");

    // It goes, and is told so; it comes back, and its server is killed, which says nothing more of it.
    session.end();
    one.headwater(&["device", "reset", "lab-01", "--yes"]);
    let is_off = || status(&two, "lab-01")["status"] == "off";
    wait_until("it is told that it went", is_off);
    let mut session = one.session(&one.new_boot());
    session.run(READS_GOLDEN);
    wait_until("it is told that it came", || status(&two, "lab-01")["sessions"] == 1);
    one.kill();
    let_grow_old(&cluster, id);
    wait_until("nothing is told of it any more", is_off);
    session.end();
    // A server that ends takes back what it told.
    one.start();
    let mut session = one.session(&one.new_boot());
    session.run(READS_GOLDEN);
    wait_until("it is told that it came back", || status(&two, "lab-01")["sessions"] == 1);
    assert!(one.stop().0.success());
    wait_until("its server has ended", is_off);
    session.end();
}
