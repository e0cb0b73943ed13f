//! What servers of a farm tell each other, every few seconds, of what they carry.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::live::ServerStatus;
use crate::rates::Rates;

/// What a server carries. What is a second, is an average since the report before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerLoad {
    /// The version of its program.
    pub version: String,
    /// Since when it runs.
    pub uptime_s: u64,
    /// How many devices it serves: those with a session.
    pub devices: u64,
    /// Their sessions.
    pub sessions: u64,
    /// How many of them boot.
    pub booting: u64,
    /// How many may boot at a time; null: all that come.
    pub at_once: Option<u64>,
    /// How many devices wait for a place to boot.
    pub waiting: u64,
    /// How long the first of those has waited.
    pub longest_wait_s: u64,
    /// How many processors its process keeps busy.
    pub processors_busy: f64,
    /// How many it may use.
    pub processors: u32,
    /// The memory that its process holds.
    pub memory_bytes: u64,
    /// What write caches in memory take.
    pub cache_memory_bytes: u64,
    /// What write caches in memory may take together.
    pub cache_memory_limit_bytes: u64,
    /// What devices read.
    pub read_bytes_per_second: u64,
    /// What devices write.
    pub written_bytes_per_second: u64,
    /// Their requests.
    pub requests_per_second: u64,
    /// The share of reads that memory answered, from 0 to 1; null: nothing was read.
    pub hit_share: Option<f64>,
}

impl ServerLoad {
    /// Of a server with so many devices that have a session.
    #[must_use]
    pub fn of(status: &ServerStatus, devices: u64, rates: &Rates) -> Self {
        let ServerStatus { admission, process, .. } = status;
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Self {
            version: status.version.clone(),
            uptime_s: status.uptime_s,
            devices,
            sessions: status.sessions,
            booting: number(admission.booting),
            at_once: admission.at_once.map(number),
            waiting: number(admission.waiting),
            longest_wait_s: admission.longest_wait_s,
            processors_busy: hundredths(rates.processors),
            processors: process.processors,
            memory_bytes: process.memory_bytes,
            cache_memory_bytes: process.cache_memory_bytes,
            cache_memory_limit_bytes: process.cache_memory_limit_bytes,
            read_bytes_per_second: whole(rates.read_bytes),
            written_bytes_per_second: whole(rates.written_bytes),
            requests_per_second: whole(rates.requests),
            hit_share: rates.hit_share.map(hundredths),
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

/// As many digits as anybody reads.
fn hundredths(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}
