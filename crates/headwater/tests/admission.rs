//! A limit of booting devices, as the devices and the administrator see it.
mod harness;

use harness::{MAC, Site, target_in, wait_until};

const OTHERS: [&str; 2] = ["52:54:00:77:00:11", "52:54:00:77:00:12"];

fn site() -> Site {
    let devices = OTHERS.map(|mac| {
        format!(
            "[[device]]\nname = \"lab-{}\"\nmac = \"{mac}\"\nvdisk = \"debian\"\n",
            mac.get(15..).unwrap()
        )
    });
    let mut site = Site::new("[admission]\nat_once = 1", "", &devices.concat());
    site.start();
    site
}

#[test]
fn devices_beyond_the_limit_see_their_place_and_boot_when_the_one_before_is_ready() {
    let mut site = site();
    let [second, third] = OTHERS;
    let first = target_in(&site.script(MAC));
    let waiting = site.script(second);
    assert!(
        waiting.contains("echo Headwater: lab-11 waits: place 1 in the queue, about 30 s\n"),
        "{waiting}"
    );
    let again = format!("chain --replace /v1/boot/script?mac={}", second.replace(':', "-"));
    assert!(waiting.contains(&again), "{waiting}");
    assert!(site.script(third).contains("place 2 in the queue"));
    assert!(site.script(second).contains("place 1 in the queue"), "asking again changes nothing");
    // It is restarted: it has its place still.
    let again = target_in(&site.script(MAC));
    assert_ne!(again, first);

    let status: serde_json::Value =
        serde_json::from_str(&site.headwater(&["status", "--output", "json"])).unwrap();
    let of = |key: &str| status["admission"][key].as_u64();
    assert_eq!([of("at_once"), of("booting"), of("waiting")], [Some(1), Some(1), Some(2)], "{status}");
    let table = site.headwater(&["status"]);
    assert!(table.contains("1 booting of 1 at a time, 2 waiting"), "{table}");

    assert!(site.io(&again, &["read 0 4k"]).ok);
    assert_eq!(site.ready(&format!("{{\"mac\":\"{MAC}\"}}")), "HTTP/1.1 200 OK");
    wait_until("a place", || site.script(second).contains(":iqn."));
    assert!(site.script(third).contains("place 1 in the queue"));
    // The queue forms anew after a restart of the server, and a boot that is under way goes on.
    site.kill();
    site.start();
    assert!(site.io(&again, &["read 0 4k"]).ok);
    assert!(site.script(third).contains(":iqn."));
}
