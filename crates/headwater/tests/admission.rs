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

#[test]
fn setting_that_is_changed_while_the_server_runs_counts_at_once_and_after_a_restart() {
    let mut site = site();
    site.script(MAC);
    let second = OTHERS[0];
    assert!(site.script(second).contains("place 1 in the queue"));
    let told = site.headwater(&[
        "setting",
        "set",
        "admission.at_once=2",
        "log=info,headwater=debug",
        "boots_kept=7",
    ]);
    let line = |key: &str| told.lines().find(|line| line.starts_with(key)).unwrap().split_whitespace();
    assert_eq!(line("admission.at_once").collect::<Vec<_>>(), ["admission.at_once", "2", "1", "2", "now"]);
    assert_eq!(line("boots_kept").collect::<Vec<_>>(), ["boots_kept", "7", "50", "50", "next-start"]);
    assert!(site.script(second).contains(":iqn."), "nobody restarted the server");
    site.kill();
    site.start();
    let kept = site.headwater(&["setting", "list"]);
    assert!(
        kept.lines().any(|line| line.split_whitespace().eq(["boots_kept", "7", "50", "7", "next-start"])),
        "{kept}"
    );
    site.headwater(&["setting", "set", "admission.at_once="]);
    assert!(site.headwater(&["status"]).contains("of 1 at a time"));
    let audit =
        site.headwater(&["audit", "list", "--filter", "action = change-settings", "--output", "json"]);
    let audit: serde_json::Value = serde_json::from_str(&audit).unwrap();
    assert_eq!((&audit["total"], &audit["items"][0]["after"]["boots_kept"]["to"]), (&2.into(), &"7".into()));
}
