//! What moves: differences of counters that are read every few seconds, of all disks together and device by device.
//!
//! A device has a history only while something moves: ten thousand of them that rest cost nothing, and as many that all
//! work cost 24 MB.
use std::collections::{HashMap, VecDeque};

use api::live::{ProcessStatus, Stats};
use api::rates::{Counters, Rates, Totals, a_second};
use serde_json::{Value, json};

use crate::markup::now_us;

/// How many rates of all together are kept: ten minutes at one every three seconds.
const MAX_RATES: usize = 200;
/// How many are kept of a device: five minutes.
const MAX_DEVICE_RATES: usize = 100;
/// Of how many devices rates are kept: as many as a server is made for, twice.
const MAX_DEVICES: usize = 20_000;

/// What moved on one device, as [`Rates`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct DeviceRates {
    pub(crate) at_us: u64,
    pub(crate) read_bytes: f32,
    pub(crate) written_bytes: f32,
    pub(crate) requests: f32,
}

/// The rates of the last minutes.
#[derive(Default)]
pub(crate) struct History {
    before: Option<Look>,
    all: VecDeque<Rates>,
    devices: HashMap<String, VecDeque<DeviceRates>>,
}

/// The counters at one moment.
struct Look {
    all: Counters,
    devices: HashMap<String, Totals>,
}

impl History {
    /// Takes a look at the counters in.
    pub(crate) fn take(&mut self, stats: &Stats, process: ProcessStatus) {
        let at_us = now_us();
        let mut now = Look { all: Counters::of(at_us, stats, process), devices: HashMap::new() };
        for account in &stats.accounts {
            if let Some(device) = &account.device {
                now.devices.entry(device.clone()).or_default().add(account);
            }
        }
        if let Some(before) = self.before.take()
            && let Some(us) = now.all.us_since(&before.all)
        {
            now.all.since(&before.all).into_iter().for_each(|rates| push(&mut self.all, MAX_RATES, rates));
            self.take_devices(at_us, &now, &before, us);
        }
        self.before = Some(now);
    }

    fn take_devices(&mut self, at_us: u64, now: &Look, before: &Look, us: u64) {
        for (name, totals) in &now.devices {
            let old = before.devices.get(name).copied().unwrap_or_default();
            if *totals == old && !self.devices.contains_key(name) {
                continue;
            }
            if self.devices.len() >= MAX_DEVICES && !self.devices.contains_key(name) {
                continue;
            }
            #[allow(clippy::cast_possible_truncation, reason = "a chart shows three digits")]
            let short = |now: u64, before: u64| a_second(now, before, us) as f32;
            let rates = DeviceRates {
                at_us,
                read_bytes: short(totals.read_bytes, old.read_bytes),
                written_bytes: short(totals.written_bytes, old.written_bytes),
                requests: short(totals.requests, old.requests),
            };
            push(self.devices.entry(name.clone()).or_default(), MAX_DEVICE_RATES, rates);
        }
        // What has rested for as long as is shown, is forgotten; so is what is no more.
        self.devices.retain(|name, rates| {
            now.devices.contains_key(name) && rates.iter().any(|rates| rates.requests > 0.0)
        });
    }

    /// Of all disks, oldest first.
    pub(crate) fn all(&self) -> Vec<Rates> {
        self.all.iter().copied().collect()
    }

    /// Of a device, oldest first.
    pub(crate) fn of_device(&self, name: &str) -> Vec<DeviceRates> {
        self.devices.get(name).into_iter().flatten().copied().collect()
    }

    /// What these devices moved together, oldest first.
    pub(crate) fn of_devices<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<Rates> {
        let mut sums: Vec<Rates> =
            self.all.iter().map(|rates| Rates { at_us: rates.at_us, ..Rates::default() }).collect();
        for rates in names.filter_map(|name| self.devices.get(name)).flatten() {
            if let Ok(place) = sums.binary_search_by_key(&rates.at_us, |sum| sum.at_us)
                && let Some(sum) = sums.get_mut(place)
            {
                sum.read_bytes += f64::from(rates.read_bytes);
                sum.written_bytes += f64::from(rates.written_bytes);
                sum.requests += f64::from(rates.requests);
            }
        }
        sums
    }
}

fn push<T>(rates: &mut VecDeque<T>, most: usize, new: T) {
    if rates.len() >= most {
        rates.pop_front();
    }
    rates.push_back(new);
}

/// Columns as a chart takes them: the moment, bytes read and written, requests.
pub(crate) fn series(rows: &[(u64, f64, f64, f64)]) -> Value {
    let column = |of: fn(&(u64, f64, f64, f64)) -> f64| rows.iter().map(of).collect::<Vec<f64>>();
    #[allow(clippy::cast_precision_loss, reason = "the axis shows seconds")]
    let at = column(|row| row.0 as f64 / 1e6);
    json!({
        "at": at,
        "series": [
            { "label": "read MiB/s", "values": column(|row| row.1 / 1_048_576.0) },
            { "label": "written MiB/s", "values": column(|row| row.2 / 1_048_576.0) },
            { "label": "requests/s", "values": column(|row| row.3), "scale": "requests" },
        ],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use api::live::{Account, KindCounts};

    use super::*;

    fn account(device: Option<&str>, requests: u64, bytes: u64, waited: u64) -> Account {
        let counts =
            KindCounts { requests, errors: 0, bytes, waited, latency_ns: 0, latency_buckets: Vec::new() };
        Account {
            device: device.map(str::to_owned),
            vdisk: "debian".to_owned(),
            protocol: "iscsi".to_owned(),
            connections: 1,
            reconnects: 0,
            connections_open: 1,
            in_flight: 0,
            unanswered: 0,
            held_back: 0,
            kinds: BTreeMap::from([("read".to_owned(), counts)]),
        }
    }

    fn take(history: &mut History, uptime_s: u64, cpu_us: u64, accounts: Vec<Account>) {
        let process = ProcessStatus { cpu_us, ..ProcessStatus::default() };
        history.take(&Stats { uptime_us: uptime_s * 1_000_000, accounts }, process);
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let mut history = History::default();
        take(&mut history, 1, 0, vec![account(Some("a"), 10, 100, 0), account(None, 0, 0, 0)]);
        take(&mut history, 3, 1_000_000, vec![account(Some("a"), 30, 2100, 5), account(None, 20, 20, 0)]);
        let [rates] = history.all()[..] else { panic!() };
        assert_eq!((rates.read_bytes, rates.requests, rates.processors), (1010.0, 20.0, 0.5));
        assert_eq!(rates.hit_share, Some(0.875));
        let [own] = history.of_device("a")[..] else { panic!() };
        assert_eq!((own.read_bytes, own.requests), (1000.0, 10.0));
        let sum = history.of_devices(["a", "b"].into_iter());
        assert_eq!((sum.len(), sum[0].read_bytes), (1, 1000.0));
        take(&mut history, 3, 0, Vec::new());
        assert_eq!(history.all().len(), 1, "no time has passed");
    }

    #[test]
    fn device_that_rests_or_is_gone_has_no_history() {
        let mut history = History::default();
        let both =
            |requests: u64| vec![account(Some("rests"), 7, 7, 0), account(Some("works"), requests, 1, 0)];
        take(&mut history, 1, 0, both(1));
        take(&mut history, 2, 0, both(2));
        assert_eq!((history.of_device("rests").len(), history.of_device("works").len()), (0, 1));
        for second in 3..200 {
            take(&mut history, second, 0, both(second));
        }
        assert_eq!((history.of_device("works").len(), history.all().len()), (MAX_DEVICE_RATES, 198));
        for second in 200..200 + MAX_DEVICE_RATES as u64 {
            take(&mut history, second, 0, both(199));
        }
        assert_eq!(history.devices.len(), 0, "it has rested since the chart's left edge");
        take(&mut history, 400, 0, both(400));
        take(&mut history, 401, 0, Vec::new());
        assert_eq!(history.devices.len(), 0);
    }
}
