//! One file on its way to one client: a state machine without socket or clock.
//!
//! Datagrams of the client and the passing of time go in; datagrams to send and the next deadline come out. Blocks are
//! counted in 64 bits here; the wire carries the low 16, so files of more than 65 535 blocks wrap around, as every client
//! expects. A window of blocks is in flight (RFC 7440; one block without that option). An acknowledgement of the whole
//! window slides it. One that stops short of it, or repeats the last one, reports a lost block: all after it are sent again.
//! It is believed once until the blocks that were in flight are acknowledged, because every late or repeated packet makes
//! clients send such reports, and each would cost a window of blocks: duplicates would multiply (RFC 1123 §4.2.3.1). What is
//! lost a second time is found by the timeout.
use std::time::{Duration, Instant};

use axum::body::Bytes;

use super::packet::{ClientPacket, RequestedOptions, data, option_acknowledgement};
use crate::director::TftpFigures;

/// The block size without negotiation (RFC 1350 §2).
const DEFAULT_BLOCK_BYTES: u16 = 512;
/// The largest block that we send: with its headers it fits into an Ethernet frame, so that nothing is fragmented.
/// RFC 2348 lets the server answer with less than was asked for.
pub const MAX_BLOCK_BYTES: u16 = 1468;
/// The largest window that we send; more only helps on lines that are long and clean.
pub const MAX_WINDOW: u16 = 16;
/// The first wait for an answer, where the client asked for none.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest wait: waits double.
const MAX_TIMEOUT: Duration = Duration::from_secs(8);
/// How often the same place is sent again before the client counts as gone.
pub const MAX_RETRIES: u32 = 6;
/// The longest that a transfer may take, however slowly it goes on.
pub const MAX_TRANSFER: Duration = Duration::from_secs(900);

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client acknowledged the last block.
    Complete,
    /// The client said that it wants no more. Firmware does so after it has asked for the size.
    ClientStopped {
        /// TFTP's error code.
        code: u16,
        /// What it said.
        text: String,
    },
    /// The client fell silent, with so much of the file acknowledged.
    Silent {
        /// Bytes acknowledged.
        acknowledged_bytes: u64,
    },
    /// The transfer took longer than [`MAX_TRANSFER`].
    TooSlow {
        /// Bytes acknowledged.
        acknowledged_bytes: u64,
    },
}

/// A transfer.
#[derive(Debug)]
pub struct Transfer {
    file: Bytes,
    block_bytes: u16,
    window: u16,
    base_timeout: Duration,
    /// The answer to the client's options, until it is acknowledged.
    oack: Option<Vec<u8>>,
    /// Blocks up to here are acknowledged; block 0 is the OACK.
    acknowledged: u64,
    /// Blocks up to here are sent.
    sent: u64,
    /// A lost block was reported and sent again; until this block is acknowledged, further reports are not believed.
    recovering_to: u64,
    retries: u32,
    /// Packets that were sent again, the OACK among them.
    resent: u64,
    deadline: Instant,
    give_up: Instant,
    end: Option<End>,
}

impl Transfer {
    /// Starts the transfer of `file`; `out` takes the datagrams to send.
    #[must_use]
    pub fn start(file: Bytes, options: RequestedOptions, now: Instant, out: &mut Vec<Vec<u8>>) -> Self {
        let block_bytes = options.blksize.map(|size| size.min(MAX_BLOCK_BYTES));
        let window = options.windowsize.map(|size| size.min(MAX_WINDOW));
        let mut accepted: Vec<(&str, u64)> = Vec::new();
        accepted.extend(block_bytes.map(|size| ("blksize", u64::from(size))));
        // RFC 2349: the same value as was asked for, or none.
        accepted.extend(options.timeout_s.map(|seconds| ("timeout", u64::from(seconds))));
        accepted.extend(options.tsize.then_some(("tsize", size_of(&file))));
        accepted.extend(window.map(|size| ("windowsize", u64::from(size))));
        let base_timeout = options.timeout_s.map_or(DEFAULT_TIMEOUT, |s| Duration::from_secs(s.into()));
        let mut transfer = Self {
            file,
            block_bytes: block_bytes.unwrap_or(DEFAULT_BLOCK_BYTES),
            window: window.unwrap_or(1),
            base_timeout,
            oack: (!accepted.is_empty()).then(|| option_acknowledgement(&accepted)),
            acknowledged: 0,
            sent: 0,
            recovering_to: 0,
            retries: 0,
            resent: 0,
            deadline: now,
            give_up: later(now, MAX_TRANSFER),
            end: None,
        };
        transfer.send(now, out);
        transfer
    }

    /// How it ended, once it has.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// What was negotiated, and how often packets were sent again.
    #[must_use]
    pub fn figures(&self) -> TftpFigures {
        let Self { block_bytes, window, resent, .. } = *self;
        TftpFigures { block_bytes, window_blocks: window, resent }
    }

    /// When to call [`on_time`](Self::on_time) if nothing comes before.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline.min(self.give_up)
    }

    /// Takes a datagram of the client. What is none of its packets is ignored.
    pub fn on_datagram(&mut self, datagram: &[u8], now: Instant, out: &mut Vec<Vec<u8>>) {
        if self.end.is_some() {
            return;
        }
        match ClientPacket::decode(datagram) {
            Ok(ClientPacket::Ack(block)) => self.on_ack(block, now, out),
            Ok(ClientPacket::Error { code, text }) => self.end = Some(End::ClientStopped { code, text }),
            Ok(ClientPacket::Read(_) | ClientPacket::Write) | Err(_) => {}
        }
    }

    /// Takes the passing of time.
    pub fn on_time(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        if self.end.is_some() {
            return;
        }
        if now >= self.give_up {
            self.end = Some(End::TooSlow { acknowledged_bytes: self.acknowledged_bytes() });
        } else if now >= self.deadline {
            if self.retries >= MAX_RETRIES {
                self.end = Some(End::Silent { acknowledged_bytes: self.acknowledged_bytes() });
                return;
            }
            self.retries = self.retries.saturating_add(1);
            self.take_back();
            self.send(now, out);
        }
    }

    fn on_ack(&mut self, block: u16, now: Instant, out: &mut Vec<Vec<u8>>) {
        // How far past the last acknowledged block, in the 16 bits that the wire has.
        let low = (self.acknowledged & 0xFFFF) as u16;
        let ahead = u64::from(block.wrapping_sub(low));
        let in_flight = self.sent.saturating_sub(self.acknowledged);
        if self.oack.is_some() {
            // RFC 2347 §4: the OACK is acknowledged as block 0; nothing else is in flight.
            if block == 0 {
                self.oack = None;
                self.progress(now, out);
            }
        } else if ahead <= in_flight {
            self.acknowledged = self.acknowledged.saturating_add(ahead);
            if self.acknowledged >= self.last_block() {
                self.end = Some(End::Complete);
                return;
            }
            let gap = ahead < in_flight;
            // Without a window, a repeated acknowledgement says nothing (RFC 1123 §4.2.3.1).
            if gap && (self.window == 1 || self.acknowledged < self.recovering_to) && ahead == 0 {
                return;
            }
            if gap && self.acknowledged >= self.recovering_to {
                // RFC 7440 §4: what follows the acknowledged block was lost.
                self.recovering_to = self.sent;
                self.take_back();
            }
            self.progress(now, out);
        }
    }

    /// Counts what is in flight as lost: it is sent again.
    fn take_back(&mut self) {
        let in_flight = self.sent.saturating_sub(self.acknowledged);
        self.resent = self.resent.saturating_add(in_flight).saturating_add(u64::from(self.oack.is_some()));
        self.sent = self.acknowledged;
    }

    fn progress(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        self.retries = 0;
        self.send(now, out);
    }

    /// Sends the OACK, or what the window has room for.
    fn send(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        let wait = self.base_timeout.saturating_mul(1 << self.retries.min(MAX_RETRIES));
        self.deadline = later(now, wait.min(MAX_TIMEOUT.max(self.base_timeout)));
        if let Some(oack) = &self.oack {
            out.push(oack.clone());
            return;
        }
        let window_end = self.acknowledged.saturating_add(self.window.into()).min(self.last_block());
        while self.sent < window_end {
            let offset = self.sent.saturating_mul(self.block_bytes.into());
            self.sent = self.sent.saturating_add(1);
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let rest = self.file.get(start..).unwrap_or_default();
            let block = rest.get(..usize::from(self.block_bytes)).unwrap_or(rest);
            out.push(data((self.sent & 0xFFFF) as u16, block));
        }
    }

    /// The number of the last block: the first that is not full (RFC 1350 §6), so it may be empty.
    fn last_block(&self) -> u64 {
        let full = size_of(&self.file).checked_div(self.block_bytes.into()).unwrap_or(0);
        full.saturating_add(1)
    }

    fn acknowledged_bytes(&self) -> u64 {
        self.acknowledged.saturating_mul(self.block_bytes.into()).min(size_of(&self.file))
    }
}

fn size_of(file: &Bytes) -> u64 {
    file.len() as u64
}

fn later(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or(now)
}

#[cfg(test)]
mod tests;
