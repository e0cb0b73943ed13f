//! A farm of two servers, looked at from one of them.
use lab::Cluster;

use crate::harness::Site;
use crate::place::Place;

#[test]
fn device_that_boots_at_another_server_comes_and_goes_by_itself() {
    let Some(cluster) = Cluster::start().unwrap() else { return };
    let database = cluster.address();
    let mut one = Site::new("", "", &format!("[catalogue]\npostgres = \"{database}\"\n"));
    one.start();
    let two = Place::beside("two", &database);
    let admin = two.admin();
    admin.go("/devices");
    let row = "document.querySelector('main tbody tr td:nth-child(2)').innerText";
    admin.until(&format!("{row} == 'off'"));
    let mut session = one.session(&one.new_boot());
    session.run("read -P 0x5a 0 1M");
    // Nobody touches the page.
    admin.until(&format!("/^(first|second) stage at .+/.test({row})"));
    let name = admin.script(&format!("return {row}.split(' at ')[1];"), &[]);
    let name = name.as_str().unwrap();
    admin.go("/");
    admin.sees(&["1 first stage", "whichever server they run from", "those of this server, two"]);
    admin.press("1 first stage");
    admin.press("lab-01");
    admin.sees(&[&format!("It runs from server {name}")]);
    admin.go("/devices");
    session.end();
    one.headwater(&["device", "reset", "lab-01", "--yes"]);
    admin.until(&format!("{row} == 'off'"));
}
