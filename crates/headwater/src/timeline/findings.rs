//! What was slow about a boot, in plain sentences with their share of its time, and what helps.
//!
//! Each rule looks at the record alone and says nothing unless it took enough of the boot to be worth an administrator's
//! time (half a second, and 3 %) or is an error. Rules do not exclude each other: shares of different findings may overlap.
use serde::{Deserialize, Serialize};

use super::counters::StageTotals;
use super::phases::{Phase, PhaseName, kernel_files, phases, total};
use super::record::{BootRecord, Stage, Status, Step, StepKind, Tftp};
use super::time::Millis;
use crate::columns::bytes;
use crate::path::LimitedBy;

/// What took less than this is no finding, whatever its share.
const WORTH_MS: u64 = 500;

/// What took a smaller share of the boot is none either.
const WORTH_PERCENT: u64 = 3;

/// Reads up to this size are small: at one at a time, each costs a round trip for little.
const SMALL_BYTES: u64 = 32 * 1024;

/// A block of TFTP without negotiation (RFC 1350 §2).
const TFTP_DEFAULT_BLOCK: u16 = 512;

/// Slower than this, a file over HTTP is worth a word: bytes per second.
const SLOW_HTTP: u64 = 10 << 20;

/// Reads that waited longer than this on average did not wait for a disk in this server.
const FAR_STORE_US: u64 = 20_000;

/// Re-reading less than this is normal, in bytes.
const MUCH_BYTES: u64 = 16 << 20;

/// Something worth knowing of a boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Which rule found it.
    pub kind: FindingKind,
    /// How long it took; none: it cannot be told, or is no matter of time.
    pub took_ms: Option<Millis>,
    /// Its share of the boot, in percent.
    pub percent: Option<u64>,
    /// What was.
    pub what: String,
    /// What helps.
    pub advice: Option<String>,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// DHCP had to be asked again.
    DhcpRetries,
    /// iPXE waited long between its address and its script.
    IpxeWaits,
    /// A boot file came slowly by TFTP.
    SlowTftp,
    /// TFTP's packets were lost.
    LostTftp,
    /// A boot file did not get there by TFTP.
    BrokenTftp,
    /// A file came slowly over HTTP.
    SlowHttp,
    /// The device waited for its turn to boot.
    Queued,
    /// Small reads, one at a time.
    SmallReads,
    /// Nothing was asked for between firmware and operating system.
    HandOverGap,
    /// Reads waited for the store.
    SlowStore,
    /// Much was read more than once.
    ReadAgain,
    /// The connection was gone for a while.
    Disconnected,
    /// The server was restarted.
    ServerRestart,
    /// Requests failed.
    FailedRequests,
    /// Packets are smaller than the server's link sends.
    SmallPackets,
    /// The write cache is full, or nearly.
    WriteCache,
}

/// What is worth knowing of a boot: what took longest first, then what is no matter of time.
#[must_use]
pub fn findings(record: &BootRecord) -> Vec<Finding> {
    let phases = phases(record);
    let boot = Boot { record, total_us: total(&phases).us(), phases };
    let mut found = Vec::new();
    boot.dhcp(&mut found);
    boot.ipxe_waits(&mut found);
    boot.queue(&mut found);
    boot.files(&mut found);
    boot.small_reads(&mut found);
    boot.hand_over(&mut found);
    boot.store(&mut found);
    boot.read_again(&mut found);
    boot.disconnected(&mut found);
    boot.failures(&mut found);
    boot.packets(&mut found);
    boot.write_cache(&mut found);
    found.sort_by_key(|finding| std::cmp::Reverse(finding.took_ms));
    found
}

struct Boot<'a> {
    record: &'a BootRecord,
    phases: Vec<Phase>,
    total_us: u64,
}

impl Boot<'_> {
    /// Something that took time, if it is worth a word.
    fn timed(&self, kind: FindingKind, took_us: u64, what: String, advice: &str) -> Option<Finding> {
        let percent = self.percent(took_us);
        let worth = took_us >= WORTH_MS * 1000 && percent.is_none_or(|percent| percent >= WORTH_PERCENT);
        let advice = (!advice.is_empty()).then(|| advice.to_owned());
        worth.then(|| Finding { kind, took_ms: Some(Millis::from_us(took_us)), percent, what, advice })
    }

    fn percent(&self, took_us: u64) -> Option<u64> {
        took_us.saturating_mul(100).saturating_add(self.total_us / 2).checked_div(self.total_us)
    }

    fn phase(&self, name: PhaseName) -> u64 {
        let own = self.phases.iter().filter(|phase| phase.name == name);
        own.map(|phase| phase.took_ms.us()).fold(0, u64::saturating_add)
    }

    /// A client that has to ask again waits longer each time (RFC 2131 §4.1).
    fn dhcp(&self, found: &mut Vec<Finding>) {
        let mut asked: Option<(&str, Millis, u64)> = None;
        for step in &self.record.steps {
            match (&step.kind, asked) {
                (StepKind::DhcpDiscover { client }, Some((who, since, count))) if who == client => {
                    asked = Some((who, since, count.saturating_add(1)));
                }
                (StepKind::DhcpDiscover { client }, _) => asked = Some((client, step.at_ms, 1)),
                (StepKind::DhcpRequest { .. }, Some((who, since, count))) => {
                    let took_us = step.at_ms.us().saturating_sub(since.us());
                    if count > 1 {
                        let what = format!(
                            "DHCP took {}: {who} asked {count} times before it took an address",
                            seconds(took_us)
                        );
                        let advice = "ports that are let through at once (PortFast, edge port), and no second DHCP server or \
                                      relay that answers late";
                        found.extend(self.timed(FindingKind::DhcpRetries, took_us, what, advice));
                    }
                    asked = None;
                }
                _ => {}
            }
        }
    }

    /// iPXE looks for an IPv6 router after it has its IPv4 address, for some 13 s where nobody says that there is none.
    fn ipxe_waits(&self, found: &mut Vec<Finding>) {
        // A menu that waits for somebody is no wait of iPXE's.
        let is_end = |step: &Step| {
            matches!(step.kind, StepKind::Script | StepKind::Menu { .. } | StepKind::Queue { .. })
        };
        let script = self.record.steps.iter().position(is_end);
        let Some(before) = script.and_then(|at| self.record.steps.get(..at)) else { return };
        let is_ack = |step: &&Step| matches!(step.kind, StepKind::DhcpAck { .. });
        let script = self.record.steps.get(before.len()).map_or(0, |step| step.at_ms.us());
        // Files are fetched in this time, too, and have findings of their own.
        let last = before.iter().rfind(|step| is_ack(step) || file_end(step).is_some());
        let Some(since) = last.map(|step| file_end(step).unwrap_or(step.at_ms.us())) else { return };
        let took_us = script.saturating_sub(since);
        if took_us >= 3_000_000 {
            let what = format!("{} between an address and the boot script", seconds(took_us));
            let advice = "iPXE looks for an IPv6 router: let Headwater answer (router_advertisements = true), or wait for no \
                          second DHCP server";
            found.extend(self.timed(FindingKind::IpxeWaits, took_us, what, advice));
        }
    }

    fn queue(&self, found: &mut Vec<Finding>) {
        for step in &self.record.steps {
            let StepKind::Queue { waited_ms, .. } = step.kind else { continue };
            let what = format!("{} in the queue of this server", seconds(waited_ms.us()));
            let advice = "[admission] at_once says how many boot at a time; more of them are faster only while disk and network have \
                          room";
            found.extend(self.timed(FindingKind::Queued, waited_ms.us(), what, advice));
        }
    }

    fn files(&self, found: &mut Vec<Finding>) {
        for step in &self.record.steps {
            match &step.kind {
                StepKind::BootFile { name, protocol, size_bytes, took_ms, tftp } => {
                    let took_us = took_ms.us();
                    let rate = rate(*size_bytes, took_us);
                    if let Some(tftp) = tftp {
                        self.tftp(found, name, *tftp, (*size_bytes, took_us, rate));
                    } else if protocol == "http" && rate < SLOW_HTTP {
                        let part = if kernel_files(self.record).any(|kernel| kernel == step) {
                            "smaller initramfs (MODULES=dep), and "
                        } else {
                            ""
                        };
                        let what = format!(
                            "{name} came over HTTP at {}/s ({} in {})",
                            bytes(rate),
                            bytes(*size_bytes),
                            seconds(took_us)
                        );
                        let advice = format!(
                            "{part}the firmware's own network stack is the limit where the server is idle: try snponly.efi against \
                             ipxe.efi, or undionly.kpxe against the ROM"
                        );
                        found.extend(self.timed(FindingKind::SlowHttp, took_us, what, &advice));
                    }
                }
                StepKind::BootFileLost { name, size_bytes, acknowledged_bytes, took_ms, tftp } => {
                    let block = tftp.block_bytes;
                    let (what, advice) = if *acknowledged_bytes == 0 && block > TFTP_DEFAULT_BLOCK {
                        (
                            format!(
                                "{name}: not one TFTP block of {block} bytes arrived: the network drops larger ones"
                            ),
                            "a path MTU of 1,500 all the way (tunnels and VLANs take their part); from a machine that runs there, `ping -M do -s 1472 SERVER` tells",
                        )
                    } else {
                        let (part, whole) = (bytes(*acknowledged_bytes), bytes(*size_bytes));
                        (
                            format!("{name}: the client fell silent after {part} of {whole} by TFTP"),
                            "a firewall that knows TFTP (its data comes from another port than 69), or UEFI HTTP Boot",
                        )
                    };
                    let (took_ms, advice) = (Some(*took_ms), Some(advice.to_owned()));
                    let percent = took_ms.and_then(|took| self.percent(took.us()));
                    found.push(Finding { kind: FindingKind::BrokenTftp, took_ms, percent, what, advice });
                }
                _ => {}
            }
        }
    }

    fn tftp(&self, found: &mut Vec<Finding>, name: &str, tftp: Tftp, (size, took_us, rate): (u64, u64, u64)) {
        let Tftp { block_bytes, window_blocks, resent } = tftp;
        if resent > 0 {
            let blocks = size.checked_div(block_bytes.into()).unwrap_or(0).saturating_add(1);
            let what =
                format!("{name}: {resent} of {blocks} TFTP blocks of {block_bytes} bytes were sent again");
            let advice = "the network loses packets, or drops those of full size; from a machine that runs there, `ping -M do -s 1472 SERVER` tells";
            found.extend(self.timed(FindingKind::LostTftp, took_us, what, advice));
            return;
        }
        let each =
            if window_blocks > 1 { format!(", {window_blocks} at a time") } else { ", one at a time".into() };
        let what = format!(
            "{name} came by TFTP at {}/s: {} in blocks of {block_bytes} bytes{each}",
            bytes(rate),
            bytes(size)
        );
        let advice = "UEFI HTTP Boot where the firmware has it, or a smaller boot file";
        found.extend(self.timed(FindingKind::SlowTftp, took_us, what, advice));
    }

    /// The firmware asks for one thing at a time: its reads cost round trips, not bandwidth.
    fn small_reads(&self, found: &mut Vec<Finding>) {
        let Some(first) = &self.record.first_stage else { return };
        let stage_us = self.phase(PhaseName::FirstStage);
        let (reads, pattern) = (&first.reads, &first.read_pattern);
        let one_at_a_time = pattern.alone.saturating_mul(10) >= reads.count.saturating_mul(8);
        if stage_us == 0 || reads.count == 0 || !one_at_a_time {
            return;
        }
        let is_small = |up_to: u64| up_to <= SMALL_BYTES;
        let small = reads.sizes.iter().filter(|size| is_small(size.up_to_bytes));
        let count = small.map(|size| size.count).fold(0, u64::saturating_add);
        let took = pattern.took.iter().filter(|time| is_small(time.up_to_bytes));
        let took_us = took.map(|time| time.took_us).fold(0, u64::saturating_add).min(stage_us);
        let share = took_us.saturating_mul(100).checked_div(stage_us).unwrap_or(0);
        let one_size =
            reads.sizes.iter().find(|size| size.count.saturating_mul(10) >= count.saturating_mul(9));
        let of = match one_size {
            Some(size) if size.up_to_bytes == 512 => "512 bytes".to_owned(),
            Some(size) => format!("at most {}", bytes(size.up_to_bytes)),
            None => format!("{} on average", bytes(reads.bytes.checked_div(reads.count).unwrap_or(0))),
        };
        let what = format!(
            "{share} % of the first stage was {} reads of {of}, one at a time (the server itself took {})",
            thousands(count),
            seconds(reads.latency_us_total)
        );
        let advice = "direct kernel boot (boot = \"kernel\"): kernel and initramfs come over HTTP at once";
        found.extend(self.timed(FindingKind::SmallReads, took_us, what, advice));
    }

    fn hand_over(&self, found: &mut Vec<Finding>) {
        let took_us = self.phase(PhaseName::HandOver);
        let what = format!(
            "no request for {} between firmware and initiator: kernel and initramfs start, network driver, DHCP",
            seconds(took_us)
        );
        let advice = "a smaller initramfs (MODULES=dep, no compression that is slow to undo), and no DHCP where the iBFT or the \
                      command line gives the address; server and network were idle";
        found.extend(self.timed(FindingKind::HandOverGap, took_us, what, advice));
    }

    /// The second stage as far as the boot goes, or all of it where the device says nothing.
    fn second(&self) -> Option<&StageTotals> {
        let started = self.record.hand_over.is_some();
        self.record.until_ready.as_ref().filter(|_| started).or(self.record.second_stage.as_ref())
    }

    fn store(&self, found: &mut Vec<Finding>) {
        let stages = [(Stage::First, self.record.first_stage.as_ref()), (Stage::Second, self.second())];
        for (stage, totals) in stages {
            let Some(totals) = totals else { continue };
            let pattern = &totals.read_pattern;
            let Some(average) = pattern.slow_us.checked_div(pattern.slow) else { continue };
            let lasted = match (totals.first_request_at_ms, totals.last_request_at_ms) {
                (Some(first), Some(last)) => last.us().saturating_sub(first.us()),
                _ => continue,
            };
            // Those in flight together wait together.
            let took_us = pattern.slow_us.min(pattern.busy_us).min(lasted);
            let what = format!(
                "{} of {} reads of the {} stage waited for the store, {} each",
                thousands(pattern.slow),
                thousands(totals.reads.count),
                match stage {
                    Stage::First => "first",
                    Stage::Second => "second",
                },
                seconds(average)
            );
            let advice = if average >= FAR_STORE_US {
                "the store is slow: look at its disks or at the network to it; memory in the server keeps the image"
            } else {
                "the image was not in the server's memory: the next boot from it finds it there, if there is enough"
            };
            found.extend(self.timed(FindingKind::SlowStore, took_us, what, advice));
        }
    }

    fn read_again(&self, found: &mut Vec<Finding>) {
        let stages = [("firmware", self.record.first_stage.as_ref()), ("operating system", self.second())];
        for (who, totals) in stages {
            let Some(totals) = totals else { continue };
            let share = totals.read_pattern.again_share().unwrap_or(0.0);
            if share >= 0.5 && totals.reads.bytes >= MUCH_BYTES {
                let what = format!(
                    "{:.0} % of the {} that the {who} read it had read before",
                    share * 100.0,
                    bytes(totals.reads.bytes)
                );
                let advice = (who != "firmware").then(|| "more memory in the device".to_owned());
                found.push(Finding {
                    kind: FindingKind::ReadAgain,
                    took_ms: None,
                    percent: None,
                    what,
                    advice,
                });
            }
        }
    }

    /// Lost sessions until the device was ready. Two of an ordinary boot are none: they are over in no time.
    fn disconnected(&self, found: &mut Vec<Finding>) {
        let until = self.record.ready_at_ms.unwrap_or(Millis::from_us(u64::MAX));
        let (mut open, mut lost_at, mut away_us, mut times) = (0_u64, None, 0_u64, 0_u64);
        for step in self.record.steps.iter().filter(|step| step.at_ms <= until) {
            match step.kind {
                StepKind::Login { stage, .. } => {
                    // The firmware's session ends when the kernel starts, and the hand-over gap has that time already.
                    let is_hand_over = stage == Stage::Second
                        && self.record.hand_over.is_some_and(|hand_over| hand_over.at_ms == step.at_ms);
                    if let Some(at) = lost_at.take().filter(|_| !is_hand_over) {
                        let away = step.at_ms.us().saturating_sub(at);
                        away_us = away_us.saturating_add(away);
                        times = times.saturating_add(u64::from(away >= WORTH_MS * 1000));
                    }
                    open = open.saturating_add(1);
                }
                StepKind::SessionEnd { ref how } => {
                    open = open.saturating_sub(1);
                    if open == 0 && how != "logout" {
                        lost_at = Some(step.at_ms.us());
                    }
                }
                StepKind::ServerRestart => {
                    let kind = FindingKind::ServerRestart;
                    let what = "the server was restarted while the device booted".to_owned();
                    found.push(Finding { kind, took_ms: None, percent: None, what, advice: None });
                    lost_at = lost_at.or(Some(step.at_ms.us()));
                    open = 0;
                }
                _ => {}
            }
        }
        if times > 0 {
            let what = format!("without a connection for {}", seconds(away_us));
            let advice = "the server's log says why each session ended; look at the link and the switch";
            found.extend(self.timed(FindingKind::Disconnected, away_us, what, advice));
        }
    }

    fn failures(&self, found: &mut Vec<Finding>) {
        let stages = [&self.record.first_stage, &self.record.second_stage];
        let errors = |totals: &StageTotals| totals.reads.errors.saturating_add(totals.writes.errors);
        let errors = stages.into_iter().flatten().map(errors).fold(0, u64::saturating_add);
        if errors > 0 {
            let what = format!("{} requests FAILED", thousands(errors));
            let advice =
                "the server's log names them: a damaged image, a full write cache or a store that is gone";
            let (kind, advice) = (FindingKind::FailedRequests, Some(advice.to_owned()));
            found.push(Finding { kind, took_ms: None, percent: None, what, advice });
        }
    }

    /// A path that carries less than the link pays a header, and an interrupt, for every 1,500 bytes.
    fn packets(&self, found: &mut Vec<Finding>) {
        let Some(path) = self.record.path.as_ref().filter(|path| path.limited_by() != LimitedBy::Link) else {
            return;
        };
        let advice = "jumbo frames at the device and on every switch on the way; headwater doctor network DEVICE shows what gets \
                      through. Nothing needs to be set at the server";
        found.push(Finding {
            kind: FindingKind::SmallPackets,
            took_ms: None,
            percent: None,
            what: path.describe(),
            advice: Some(advice.to_owned()),
        });
    }

    fn write_cache(&self, found: &mut Vec<Finding>) {
        let Some(fill) = self.record.write_cache else { return };
        if fill.used_bytes < fill.warn_at_bytes || fill.limit_bytes == 0 {
            return;
        }
        let running = self.record.status != Status::Ended;
        let what = format!(
            "the write cache {} {}: {} of {}",
            if running { "is" } else { "was" },
            if fill.used_bytes >= fill.limit_bytes { "FULL" } else { "nearly full" },
            bytes(fill.used_bytes),
            bytes(fill.limit_bytes)
        );
        let advice = Some(
            "a higher limit, a restart of the device, or a new version without what it writes each time"
                .to_owned(),
        );
        found.push(Finding { kind: FindingKind::WriteCache, took_ms: None, percent: None, what, advice });
    }
}

/// When a file was there; none for other steps.
fn file_end(step: &Step) -> Option<u64> {
    match step.kind {
        StepKind::BootFile { took_ms, .. } => Some(step.at_ms.us().saturating_add(took_ms.us())),
        _ => None,
    }
}

/// Bytes per second.
fn rate(bytes: u64, took_us: u64) -> u64 {
    let per_second = u128::from(bytes).saturating_mul(1_000_000).checked_div(u128::from(took_us));
    per_second.map_or(u64::MAX, |rate| u64::try_from(rate).unwrap_or(u64::MAX))
}

/// `3.9 s`, or milliseconds below a tenth of that.
#[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
fn seconds(us: u64) -> String {
    if us < 100_000 { format!("{} ms", Millis::from_us(us)) } else { format!("{:.1} s", us as f64 / 1e6) }
}

/// `2,310`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len().saturating_sub(index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
