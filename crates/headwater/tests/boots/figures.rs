//! The measured way of one boot, as a row of the table in `docs/boot.md`.
//!
//! Every test that proves a path prints its row; with `HEADWATER_PATHS=FILE` the rows are added to that file, too.
use std::io::Write as _;
use std::time::Duration;

use serde_json::Value;

use crate::site::{Device, Site};

/// The beacon comes a little after the machine has said on its console that it is up.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// Waits for the beacon of a device that is up, tells the row of its boot, and gives its record. `firmware` and `dhcp` are what the
/// table calls them.
pub(crate) fn tell(site: &mut Site, device: &Device, firmware: &str, dhcp: &str) -> Value {
    let is_ready = |service: &lab::Service| {
        let log = service.log();
        let mut lines = log.lines().filter(|line| line.contains("device ready"));
        lines.any(|line| line.contains(device.name)).then_some(())
    };
    site.server.service().wait_until("no ready beacon", TOLD_WITHIN, is_ready).unwrap();
    let record = site.boot_record(device);
    let row = row(&record, firmware, dhcp);
    eprintln!("{row}");
    if let Some(file) = std::env::var_os("HEADWATER_PATHS") {
        let mut file = std::fs::File::options().create(true).append(true).open(file).unwrap();
        writeln!(file, "{row}").unwrap();
    }
    record
}

/// Path, DHCP situation, test; then, in milliseconds: first DHCP exchange; boot file; from there to the script; to the end of the first
/// stage; hand-over gap; second stage; all of it, from the first packet to the beacon.
fn row(record: &Value, firmware: &str, dhcp: &str) -> String {
    let steps = record["steps"].as_array().unwrap();
    let find = |kind: &str| steps.iter().find(|step| step["step"] == kind);
    let at = |step: &Value| step["at_ms"].as_f64().unwrap();
    let script = find("script").map(at);
    let iso = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}"));
    // Of a kernel that came over HTTP there are more of them, behind the script.
    let file = find("boot-file").filter(|file| script.is_some_and(|script| at(file) < script));
    let file_ended = file.map(|file| at(file) + file["took_ms"].as_f64().unwrap());
    let login = find("login").map(at);
    let handed_over = record["hand_over"]["at_ms"].as_f64();
    let gap = record["hand_over"]["gap_ms"].as_f64();
    let ready = record["ready_at_ms"].as_f64();
    let spans = [
        file.map(at).or(script),
        file.map(|file| file["took_ms"].as_f64().unwrap()),
        file_ended.zip(script).map(|(ended, script)| script - ended),
        script.or(login).zip(handed_over).zip(gap).map(|((from, to), gap)| to - from - gap),
        gap,
        handed_over.zip(ready).map(|(from, ready)| ready - from),
        ready,
    ];
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let cells = spans.map(iso).join(" | ");
    format!("| {firmware} | {dhcp} | `{test}` | {cells} |")
}
