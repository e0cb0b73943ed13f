//! `[limits]`, and what a `[[device]]` says of its own: how fast disks may be read and written.
use std::time::Duration;

use meter::Rates;

use super::reader::Section;
use super::values::ByteSize;

/// The lowest bandwidth: below it a request of the usual size outlasts the patience of operating systems.
const MIN_BYTES_PER_SECOND: u64 = 64 << 10;

/// The most requests in a second that a limit may say: more than a device can ask for is no limit.
pub(super) const MAX_IOPS: u64 = 100_000_000;

/// The longest burst.
pub(super) const MAX_BURST_MS: u64 = 600_000;

const DEFAULT_BURST_MS: u64 = 1000;

/// `[limits]`: what each device may have that says nothing else.
pub(super) fn read_limits(root: &mut Section<'_>) -> Rates {
    let usual = Rates { burst: Duration::from_millis(DEFAULT_BURST_MS), ..Rates::UNLIMITED };
    let Some(mut section) = root.section("limits") else { return usual };
    let rates = read(&mut section, usual, ["bandwidth", "iops", "burst_ms"]).unwrap_or(usual);
    section.finish();
    rates
}

/// What a device says of its own; `None`: nothing.
pub(super) fn read_device(section: &mut Section<'_>, usual: Rates) -> Option<Rates> {
    read(section, usual, ["bandwidth_limit", "iops_limit", "limit_burst_ms"])
}

fn read(section: &mut Section<'_>, usual: Rates, keys: [&'static str; 3]) -> Option<Rates> {
    let [bandwidth, iops, burst_ms] = keys;
    let bandwidth = section.string_as(bandwidth, bytes_per_second);
    let iops = section.integer(iops, 0..=MAX_IOPS);
    let burst_ms = section.integer(burst_ms, 0..=MAX_BURST_MS);
    let says_something = bandwidth.is_some() || iops.is_some() || burst_ms.is_some();
    says_something.then(|| Rates {
        bytes_per_second: bandwidth.unwrap_or(usual.bytes_per_second),
        requests_per_second: iops.map_or(usual.requests_per_second, |iops| (iops > 0).then_some(iops)),
        burst: burst_ms.map_or(usual.burst, Duration::from_millis),
    })
}

/// `"100 MiB"`, or `"none"`.
pub(super) fn bytes_per_second(text: &str) -> Result<Option<u64>, String> {
    if text == "none" {
        return Ok(None);
    }
    match ByteSize::parse(text)? {
        ByteSize(bytes) if bytes >= MIN_BYTES_PER_SECOND => Ok(Some(bytes)),
        size => Err(format!(
            "{size} a second is less than {} (\"none\" for no limit)",
            ByteSize(MIN_BYTES_PER_SECOND)
        )),
    }
}
