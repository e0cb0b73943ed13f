//! A boot as `docs/timeline.md` describes it, and where its time went: bars on one axis of time.
use serde::Deserialize;

/// One boot.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Boot {
    pub(crate) id: String,
    pub(crate) device: String,
    pub(crate) vdisk: String,
    pub(crate) started_unix_us: u64,
    pub(crate) status: String,
    pub(crate) steps: Vec<Step>,
    #[serde(default)]
    pub(crate) steps_dropped: u64,
    pub(crate) first_stage: Option<Stage>,
    pub(crate) hand_over: Option<HandOver>,
    pub(crate) second_stage: Option<Stage>,
    /// Of the stage in which the system was ready, what it had asked for by then.
    #[serde(default)]
    pub(crate) until_ready: Option<Stage>,
    pub(crate) ready_at_ms: Option<f64>,
    pub(crate) end: Option<End>,
    /// What stands out, and what helps.
    #[serde(default)]
    pub(crate) findings: Vec<Finding>,
}

/// What was slow about a boot, or is worth knowing beside that, in words.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Finding {
    #[serde(default)]
    pub(crate) percent: Option<u64>,
    pub(crate) what: String,
    #[serde(default)]
    pub(crate) advice: Option<String>,
}

/// Something that happened, with what it says of itself.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Step {
    pub(crate) at_ms: f64,
    pub(crate) step: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    client: Option<String>,
    #[serde(default)]
    address: Option<String>,
    #[serde(default)]
    protocol: Option<String>,
    #[serde(default)]
    size_bytes: Option<u64>,
    #[serde(default)]
    took_ms: Option<f64>,
    #[serde(default)]
    stage: Option<String>,
    #[serde(default)]
    peer: Option<String>,
    #[serde(default)]
    how: Option<String>,
}

/// The requests of one stage.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Stage {
    pub(crate) first_request_at_ms: Option<f64>,
    pub(crate) last_request_at_ms: Option<f64>,
    pub(crate) reads: Io,
    pub(crate) writes: Io,
    #[serde(default)]
    pub(crate) read_bytes_per_second: u64,
}

/// What is counted of reads or of writes.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct Io {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    #[serde(default)]
    pub(crate) errors: u64,
    #[serde(default)]
    pub(crate) latency_us_average: u64,
    #[serde(default)]
    pub(crate) latency_us_max: u64,
    #[serde(default)]
    pub(crate) sizes: Vec<SizeCount>,
}

/// How many requests of one size.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct SizeCount {
    pub(crate) up_to_bytes: u64,
    pub(crate) count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub(crate) struct HandOver {
    pub(crate) at_ms: f64,
    pub(crate) gap_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct End {
    pub(crate) at_ms: f64,
    pub(crate) why: String,
}

/// What a bar stands for, which gives it its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Network,
    File,
    First,
    Gap,
    Second,
    Mark,
    Bad,
}

impl Tone {
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::File => "file",
            Self::First => "first",
            Self::Gap => "gap",
            Self::Second => "second",
            Self::Mark => "mark",
            Self::Bad => "bad",
        }
    }
}

/// One row of the waterfall. A bar whose ends are the same is a moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) from_ms: f64,
    pub(crate) to_ms: f64,
    pub(crate) tone: Tone,
    pub(crate) detail: String,
}

/// A phase of a boot, one behind the other without gaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Phase {
    pub(crate) label: &'static str,
    pub(crate) ms: f64,
    pub(crate) tone: Tone,
}

/// What a boot goes through, in this order.
pub(crate) const PHASES: [(&str, Tone); 5] = [
    ("firmware, DHCP, boot file", Tone::Network),
    ("script to log-in", Tone::File),
    ("first stage", Tone::First),
    ("hand-over", Tone::Gap),
    ("second stage", Tone::Second),
];

impl Boot {
    /// Whether a machine has come so far that it uses a disk.
    pub(crate) fn has_login(&self) -> bool {
        self.first_login_ms().is_some()
    }

    fn first_login_ms(&self) -> Option<f64> {
        self.steps.iter().find(|step| step.step == "login").map(|step| step.at_ms)
    }

    /// Bytes that were read in both stages, until the system was ready: what it reads then is its work.
    pub(crate) fn read_bytes(&self) -> u64 {
        let second = match &self.until_ready {
            Some(until_ready) if self.hand_over.is_none() => return until_ready.reads.bytes,
            Some(until_ready) => Some(until_ready),
            None => self.second_stage.as_ref(),
        };
        let bytes = |stage: Option<&Stage>| stage.map_or(0, |stage| stage.reads.bytes);
        bytes(self.first_stage.as_ref()).saturating_add(bytes(second))
    }

    /// When it said that it is ready, in microseconds since 1970.
    pub(crate) fn ready_us(&self) -> Option<u64> {
        self.ready_at_ms.map(|ms| self.at_us(ms))
    }

    /// Until when the machine is known to have been there: its end, now while it is, or else the last thing that was heard.
    pub(crate) fn last_known_us(&self, now_us: u64) -> u64 {
        let gone = ["disconnected", "waiting", "ended"].contains(&self.status.as_str());
        match &self.end {
            Some(end) => self.at_us(end.at_ms),
            None if gone => self.at_us(self.span_ms()),
            None => now_us,
        }
    }

    fn at_us(&self, ms: f64) -> u64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
        let us = (ms * 1000.0) as u64;
        self.started_unix_us.saturating_add(us)
    }

    /// Requests that failed.
    pub(crate) fn errors(&self) -> u64 {
        self.stages()
            .map(|stage| stage.reads.errors.saturating_add(stage.writes.errors))
            .fold(0, u64::saturating_add)
    }

    fn stages(&self) -> impl Iterator<Item = &Stage> {
        [&self.first_stage, &self.second_stage].into_iter().flatten()
    }

    /// Where the axis of time ends: at ready, or else at the last thing that is known.
    pub(crate) fn span_ms(&self) -> f64 {
        if let Some(ready) = self.ready_at_ms {
            return ready;
        }
        let requests = self.stages().filter_map(|stage| stage.last_request_at_ms);
        let steps = self.steps.iter().map(|step| step.at_ms + step.took_ms.unwrap_or(0.0));
        requests.chain(steps).fold(1.0, f64::max)
    }

    /// Whether it came to an end without having become what it was to be: a machine that logged in and was gone for good
    /// before it read its operating system.
    pub(crate) fn failed(&self) -> Option<String> {
        if self.errors() > 0 {
            let requests = if self.errors() == 1 { "request" } else { "requests" };
            return Some(format!("{} {requests} failed", self.errors()));
        }
        let ended = self.end.as_ref()?;
        let got_on = self.ready_at_ms.is_some() || self.second_stage.is_some();
        (!got_on && self.has_login()).then(|| format!("ended in the first stage: {}", ended.why))
    }

    /// The rows of the waterfall, in the order in which they begin.
    pub(crate) fn bars(&self) -> Vec<Bar> {
        let mut bars: Vec<Bar> = Vec::new();
        let mut asked: Option<(f64, String)> = None;
        for step in &self.steps {
            let answer = ["dhcp-offer", "dhcp-ack"].contains(&step.step.as_str());
            match (step.step.as_str(), answer.then(|| asked.take()).flatten()) {
                (word, Some((from, client))) => {
                    let label = if word == "dhcp-offer" { "DHCP discover" } else { "DHCP request" };
                    let address = step.address.clone().unwrap_or_else(|| "no address (proxyDHCP)".to_owned());
                    bars.push(bar(label, from, step.at_ms, Tone::Network, format!("{client}: {address}")));
                }
                ("dhcp-discover" | "dhcp-request", None) => {
                    asked = Some((step.at_ms, step.client.clone().unwrap_or_default()));
                }
                _ => bars.extend(step.bar()),
            }
        }
        if let Some((at, client)) = asked {
            bars.push(bar("DHCP, not answered", at, at, Tone::Bad, client));
        }
        let end = self.span_ms();
        for (label, stage, tone) in [
            ("first stage reads", &self.first_stage, Tone::First),
            ("second stage reads", &self.second_stage, Tone::Second),
        ] {
            let Some(stage) = stage else { continue };
            let Some((from, to)) = stage.first_request_at_ms.zip(stage.last_request_at_ms) else { continue };
            bars.push(bar(label, from, to.min(end.max(from)), tone, stage.detail()));
        }
        if let Some(over) = self.hand_over {
            let detail = "the operating system starts, and asks for nothing".to_owned();
            bars.push(bar("hand-over", over.at_ms - over.gap_ms, over.at_ms, Tone::Gap, detail));
        }
        bars.retain(|bar| bar.from_ms <= end);
        bars.sort_by(|a, b| a.from_ms.total_cmp(&b.from_ms));
        bars
    }

    /// Where the time went, up to ready.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        let script = self.steps.iter().find(|step| step.step == "script").map(|step| step.at_ms);
        let login = self.first_login_ms();
        let first_last = self.first_stage.as_ref().and_then(|stage| stage.last_request_at_ms);
        let over = self.hand_over.map(|over| over.at_ms);
        let ends = [script, login, first_last, over, Some(self.span_ms())];
        let mut from = 0.0;
        let mut phases = Vec::new();
        for ((label, tone), to) in PHASES.into_iter().zip(ends) {
            let Some(to) = to.filter(|to| *to >= from) else { continue };
            if label == "second stage" && over.is_none() && self.second_stage.is_none() {
                continue;
            }
            phases.push(Phase { label, ms: to - from, tone });
            from = to;
        }
        phases
    }
}

impl Stage {
    fn detail(&self) -> String {
        let average = self.reads.bytes.checked_div(self.reads.count).unwrap_or(0);
        format!(
            "{} in {} of {} on average, {}/s",
            crate::markup::bytes(self.reads.bytes),
            crate::markup::several(self.reads.count, "request"),
            crate::markup::bytes(average),
            crate::markup::bytes(self.read_bytes_per_second),
        )
    }
}

impl Step {
    fn bar(&self) -> Option<Bar> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let at = self.at_ms;
        Some(match self.step.as_str() {
            "boot-file" => {
                let detail = format!(
                    "{}, {}",
                    crate::markup::bytes(self.size_bytes.unwrap_or(0)),
                    text(&self.protocol).to_uppercase()
                );
                let label = format!("boot file {}", text(&self.name));
                bar(&label, at, at + self.took_ms.unwrap_or(0.0), Tone::File, detail)
            }
            "script" => bar("iPXE script", at, at, Tone::Mark, "handed out".to_owned()),
            "login" => {
                let protocol = self.protocol.as_deref().unwrap_or("iscsi");
                let label = format!("log-in, {} stage", text(&self.stage));
                bar(&label, at, at, Tone::Mark, format!("{protocol} from {}", text(&self.peer)))
            }
            "session-end" => bar("session ends", at, at, Tone::Mark, text(&self.how)),
            "ready" => bar("ready", at, at, Tone::Second, "the device says that it is ready".to_owned()),
            "server-restart" => bar("server restart", at, at, Tone::Bad, "figures go on".to_owned()),
            "dhcp-offer" | "dhcp-ack" => bar("DHCP answer", at, at, Tone::Network, text(&self.address)),
            other => bar(other, at, at, Tone::Mark, String::new()),
        })
    }
}

fn bar(label: &str, from_ms: f64, to_ms: f64, tone: Tone, detail: String) -> Bar {
    Bar { label: label.to_owned(), from_ms: from_ms.max(0.0), to_ms, tone, detail }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A BIOS boot of 8.2 s, as the server tells it.
    pub(crate) fn sample() -> Value {
        json!({
            "id": "b1", "device": "lab-01", "mac": "52:54:00:77:00:10", "vdisk": "debian", "target": "iqn.x",
            "started_unix_us": 1_700_000_000_000_000_u64, "status": "ready",
            "steps": [
                {"at_ms": 0.0, "step": "dhcp-discover", "client": "BIOS PXE"},
                {"at_ms": 1.5, "step": "dhcp-offer", "address": "10.77.0.10"},
                {"at_ms": 500.0, "step": "boot-file", "name": "undionly.kpxe", "protocol": "tftp", "size_bytes": 70_000, "took_ms": 90.0},
                {"at_ms": 700.0, "step": "script"},
                {"at_ms": 800.0, "step": "login", "stage": "first", "peer": "10.77.0.10:3000", "protocol": "iscsi", "isid": "40"},
                {"at_ms": 4200.0, "step": "login", "stage": "second", "peer": "10.77.0.10:4000", "protocol": "iscsi", "isid": "00"},
                {"at_ms": 8240.0, "step": "ready"},
            ],
            "steps_dropped": 0,
            "first_stage": {"first_request_at_ms": 810.0, "last_request_at_ms": 3000.0,
                "reads": {"count": 900, "bytes": 32_000_000, "errors": 0, "latency_us_average": 80, "latency_us_max": 900, "latency_us_total": 1, "sizes": [{"up_to_bytes": 512, "count": 100}, {"up_to_bytes": 65_536, "count": 800}]},
                "writes": {"count": 0, "bytes": 0, "errors": 0, "latency_us_average": 0, "latency_us_max": 0, "latency_us_total": 0, "sizes": []},
                "flushes": 0, "discards": 0, "read_bytes_per_second": 14_000_000},
            "hand_over": {"at_ms": 4200.0, "gap_ms": 1200.0},
            "second_stage": {"first_request_at_ms": 4210.0, "last_request_at_ms": 60_000.0,
                "reads": {"count": 4000, "bytes": 180_000_000, "errors": 0, "latency_us_average": 60, "latency_us_max": 2000, "latency_us_total": 1, "sizes": []},
                "writes": {"count": 10, "bytes": 40_960, "errors": 0, "latency_us_average": 60, "latency_us_max": 100, "latency_us_total": 1, "sizes": []},
                "flushes": 1, "discards": 0, "read_bytes_per_second": 40_000_000},
            "ready_at_ms": 8240.0, "sessions": 1, "end": null
        })
    }

    fn boot() -> Boot {
        serde_json::from_value(sample()).unwrap()
    }

    #[test]
    fn what_a_system_reads_once_it_is_ready_is_no_part_of_its_boot() {
        assert_eq!(boot().read_bytes(), 212_000_000, "one that an older server recorded");
        let mut sample = sample();
        sample["until_ready"] = sample["second_stage"].clone();
        sample["until_ready"]["reads"]["bytes"] = 50_000_000.into();
        let with = |sample: &Value| serde_json::from_value::<Boot>(sample.clone()).unwrap();
        assert_eq!(with(&sample).read_bytes(), 82_000_000);
        sample["hand_over"] = Value::Null;
        assert_eq!(
            with(&sample).read_bytes(),
            50_000_000,
            "no hand-over: ready in the only stage that there is"
        );
    }

    #[test]
    fn bars_begin_in_order_and_end_with_the_boot() {
        let bars = boot().bars();
        let labels: Vec<&str> = bars.iter().map(|bar| bar.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "DHCP discover",
                "boot file undionly.kpxe",
                "iPXE script",
                "log-in, first stage",
                "first stage reads",
                "hand-over",
                "log-in, second stage",
                "second stage reads",
                "ready"
            ]
        );
        assert!(bars.iter().all(|bar| bar.to_ms <= 8240.0), "what came after ready is no part of the boot");
    }

    #[test]
    fn phases_add_up_to_the_time_until_ready() {
        let phases = boot().phases();
        let total: f64 = phases.iter().map(|phase| phase.ms).sum();
        assert!((total - 8240.0).abs() < 0.01, "{phases:?}");
        assert_eq!(phases.len(), 5);
    }

    #[test]
    fn boot_that_never_came_to_its_disk_has_no_second_stage() {
        let mut told = sample();
        for (key, value) in
            [("second_stage", Value::Null), ("hand_over", Value::Null), ("ready_at_ms", Value::Null)]
        {
            told[key] = value;
        }
        told["end"] = json!({"at_ms": 9000.0, "why": "replaced by boot b2"});
        let boot: Boot = serde_json::from_value(told).unwrap();
        assert!(boot.phases().iter().all(|phase| phase.label != "second stage"));
        assert_eq!(boot.failed().as_deref(), Some("ended in the first stage: replaced by boot b2"));
    }
}
