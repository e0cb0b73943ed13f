//! The commands that pages show beside what they do: "same as: headwater ...".
//!
//! All of them are made here, from names as people write them on the command line. [`every_command`] gives one of each, which
//! a test of crate `headwater` reads with the parser of the command line itself: a page cannot name a flag that there is not.
use serde_json::Value;

use crate::markup::word;
use crate::pages::{FormField, form_fields};

/// How the command line makes and changes the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cli {
    /// `create NAME KEY=VALUE ...`, `set NAME KEY=VALUE ...`, `delete NAME`.
    Plain,
    /// `token create USER NAME --role ROLE --expires TIME`; there is no change.
    Token,
    /// `write-cache discard`.
    WriteCache,
    /// It looks at them alone.
    Lists,
    /// Not at all.
    Nothing,
}

/// The list of a kind.
pub(crate) fn list(noun: &str, filter: &str) -> String {
    match filter {
        "" => format!("headwater {noun} list"),
        filter => format!("headwater {noun} list --filter {}", word(filter)),
    }
}

/// What stands before the fields of a form that makes an object; `None`: the command line does not.
pub(crate) fn create(cli: Cli, noun: &str) -> Option<String> {
    matches!(cli, Cli::Plain | Cli::Token).then(|| format!("headwater {noun} create"))
}

/// What stands before the fields of a form that changes an object.
pub(crate) fn set(cli: Cli, noun: &str, name: &str) -> Option<String> {
    (cli == Cli::Plain).then(|| format!("headwater {noun} set {}", word(name)))
}

/// Takes an object away.
pub(crate) fn delete(cli: Cli, noun: &str, name: &str) -> Option<String> {
    match cli {
        Cli::Plain | Cli::Token => Some(format!("headwater {noun} delete {}", word(name))),
        Cli::WriteCache => Some(format!("headwater {noun} discard {}", word(name))),
        Cli::Lists | Cli::Nothing => None,
    }
}

/// How the command line calls an object of the API: with what it is in, where its own name may stand in several places.
pub(crate) fn name_of(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let Some(name) = text("/name") else {
        let id = object.get("id").and_then(Value::as_i64);
        return id.map(|id| format!("#{id}")).unwrap_or_default();
    };
    // A collection is in a site, a vDisk in a store, a token a user's. A server and a store have names of their own.
    let within = match object.get("newcomers").is_some() || object.get("template").is_some() {
        true => text("/site/name"),
        false if object.get("mode").is_some() => text("/store/name"),
        false => text("/user/name"),
    };
    within.map_or_else(|| name.to_owned(), |within| format!("{within}/{name}"))
}

/// A device gets another vDisk, named `STORE/VDISK`.
pub(crate) fn assign(device: &str, vdisk: &str) -> String {
    format!("headwater device set {} disks={}", word(device), word(vdisk))
}

/// A device goes into another collection, named `SITE/COLLECTION`.
pub(crate) fn move_to(device: &str, collection: &str) -> String {
    format!("headwater device set {} collection={}", word(device), word(collection))
}

/// A device boots, or does not.
pub(crate) fn enable(device: &str, enabled: bool) -> String {
    format!("headwater device set {} disabled={}", word(device), !enabled)
}

/// Something is done with a device: `wake`, `reset`, `delete`.
pub(crate) fn device(verb: &str, device: &str) -> String {
    format!("headwater device {verb} {}", word(device))
}

/// A message is shown to whoever sits before a device.
pub(crate) fn message(text: &str, device: &str) -> String {
    format!("headwater device message {} {}", word(text), word(device))
}

/// Something is done with a vDisk, named `STORE/VDISK`: `release`, `delete-obsolete`, `merge`.
pub(crate) fn vdisk(verb: &str, vdisk: &str) -> String {
    format!("headwater vdisk {verb} {}", word(vdisk))
}

/// A new vDisk with an empty disk; its name, its size and its properties follow.
pub(crate) const BLANK: &str = "headwater vdisk blank";

/// The steps of setting up a farm, where what is written stands for what a form is filled in with.
pub(crate) const NAME_FARM: &str = "headwater farm create NAME";
pub(crate) const RENAME_FARM: &str = "headwater farm set name=NAME";
pub(crate) const MAKE_STORE: &str = "headwater store create NAME paths=SERVER:FOLDER";
pub(crate) const MAKE_COLLECTION: &str = "headwater collection create NAME site=SITE";
/// A table of devices is looked at.
pub(crate) const LOOK_AT_DEVICES: &str = "headwater device import FILE.csv --dry-run";

/// Images that lie in a store become vDisks.
pub(crate) fn adopt(store: &str) -> String {
    format!("headwater store adopt {}", word(store))
}

/// All versions of a vDisk become one whole image.
pub(crate) fn merge_base(vdisk: &str) -> String {
    format!("headwater vdisk merge {} --base", word(vdisk))
}

/// A new version of a vDisk.
pub(crate) fn new_version(vdisk: &str) -> String {
    format!("headwater version create {}", word(vdisk))
}

/// A version, named `STORE/VDISK/NUMBER`, is given to test or production devices, or taken back from them.
pub(crate) fn version_to(verb: &str, version: &str, to: &str) -> String {
    format!("headwater version {verb} {} --to {to}", word(version))
}

/// The time of a release is moved.
pub(crate) fn schedule(version: &str) -> String {
    format!("headwater version schedule {} 2026-12-24T22:00:00Z", word(version))
}

/// Production is held at a version.
pub(crate) fn hold(version: &str) -> String {
    format!("headwater vdisk hold {}", word(version))
}

/// A version goes.
pub(crate) fn delete_version(version: &str) -> String {
    format!("headwater version delete {}", word(version))
}

/// What a recording shows.
pub(crate) fn trace_show(file: &str) -> String {
    format!("headwater trace show {}", word(file))
}

/// The next boot of a device is recorded.
pub(crate) const TRACE_RECORD: &str = "headwater trace record DEVICE --next-boot --until-ready --to FILE";

/// What a view shows now.
pub(crate) fn view_items(view: &str) -> String {
    format!("headwater view items {}", word(view))
}

/// A lock is taken from its owner.
pub(crate) fn break_lock(fence: i64) -> String {
    format!("headwater lock break {fence} --reason 'WHY'")
}

/// This server's host is looked at.
pub(crate) const DOCTOR: &str = "headwater doctor";

/// The way to a device is looked at.
pub(crate) fn doctor_network(device: &str) -> String {
    format!("headwater doctor network {}", word(device))
}

/// What the servers carry.
pub(crate) const SERVER_LOAD: &str = "headwater server load";

/// What one of them carries.
pub(crate) fn server_load(server: &str) -> String {
    format!("{SERVER_LOAD} {}", word(server))
}

/// Settings of this server get other values; they follow.
pub(crate) const SET_SETTINGS: &str = "headwater setting set";

/// Commands that pages show, one of each sort, as a shell takes them.
#[must_use]
pub fn every_command() -> Vec<String> {
    let (device_name, vdisk_name, version) = ("lab-01", "images/it's one", "images/it's one/2");
    let mut all = vec![
        assign(device_name, vdisk_name),
        move_to(device_name, "Main/lab"),
        enable(device_name, true),
        enable(device_name, false),
        merge_base(vdisk_name),
        new_version(vdisk_name),
        hold(version),
        schedule(version),
        delete_version(version),
        trace_show("/var/lib/headwater/traces/lab-01.csv.gz"),
        TRACE_RECORD.to_owned(),
        DOCTOR.to_owned(),
        break_lock(7),
        view_items("it's old"),
        doctor_network(device_name),
        SERVER_LOAD.to_owned(),
        server_load("one.example.org"),
        list("setting", ""),
        format!("{SET_SETTINGS} admission.at_once=20 log="),
        message("Save your work: back at 18:00", device_name),
        format!("{BLANK} {} 40GiB write_cache.limit=10GiB description=empty", word(vdisk_name)),
    ];
    all.extend(["wake", "reboot", "shutdown", "reset", "delete"].map(|verb| device(verb, device_name)));
    all.extend([NAME_FARM, RENAME_FARM, MAKE_STORE, MAKE_COLLECTION, LOOK_AT_DEVICES].map(str::to_owned));
    all.push(adopt("it's images"));
    all.extend(["merge", "release", "delete-obsolete"].map(|verb| vdisk(verb, vdisk_name)));
    for (verb, to) in
        [("promote", "test"), ("promote", "production"), ("revert", "test"), ("revert", "maintenance")]
    {
        all.push(version_to(verb, version, to));
    }
    for (cli, noun, fields) in form_fields() {
        if noun.is_empty() {
            continue;
        }
        all.push(list(noun, "name ~ \"it's*\""));
        all.extend(delete(cli, noun, "#7"));
        all.extend(create(cli, noun).map(|create| with_fields(&create, &fields, true)));
        all.extend(set(cli, noun, "#7").map(|set| with_fields(&set, &fields, false)));
    }
    all
}

/// What the page's script makes of a form in which everything is filled in.
fn with_fields(command: &str, fields: &[FormField], new: bool) -> String {
    let mut words = vec![command.to_owned()];
    for field in fields {
        match *field {
            FormField::Word(sample) if new => words.push(word(sample)),
            FormField::Word(_) => {}
            FormField::Key(key, sample) => words.push(word(&format!("{key}={sample}"))),
            FormField::Flag(flag, sample) if new => words.push(format!("{flag} {}", word(sample))),
            FormField::Flag(..) => {}
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_named_with_what_they_are_in_where_that_is_needed() {
        let of = |object: Value| name_of(&object);
        assert_eq!(of(json!({"name": "lab", "newcomers": null, "site": {"name": "Main"}})), "Main/lab");
        assert_eq!(
            of(json!({"name": "win11", "mode": "standard", "store": {"name": "images"}})),
            "images/win11"
        );
        assert_eq!(of(json!({"name": "ci", "user": {"name": "ann"}})), "ann/ci");
        assert_eq!(of(json!({"name": "one.example.org", "site": {"name": "Main"}})), "one.example.org");
        assert_eq!(of(json!({"id": 7, "device": {"name": "lab-01"}})), "#7");
    }
}
