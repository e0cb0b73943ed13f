//! What one session does, counted for its boot.
use std::sync::Arc;
use std::time::Duration;

use block::ByteRange;
use iscsi::directory::{RequestKind, SessionEnd, SessionObserver};
use nbd::exports::{ConnectionEnd, ExportObserver, RequestDone};

use super::Recorder;
use crate::config::DeviceName;
use crate::timeline::counters::{Kind, StageCounters};
use crate::timeline::time::{Clock, Millis};
use crate::timeline::tracer::Switch;

/// Counts what one session does.
#[derive(Debug)]
pub struct SessionTap {
    pub(super) counters: Arc<StageCounters>,
    pub(super) switch: Arc<Switch>,
    pub(super) stage: trace::Stage,
    pub(super) clock: Clock,
    pub(super) recorder: Arc<Recorder>,
    pub(super) device: DeviceName,
    pub(super) id: String,
}

impl SessionTap {
    fn count(&self, kind: Kind, range: ByteRange, latency: Duration, ok: bool) {
        let now = self.clock.now();
        self.counters.record(now, kind, range, latency, ok);
        if !self.switch.is_on() {
            return;
        }
        let kind = match kind {
            Kind::Read => trace::Kind::Read,
            Kind::Write => trace::Kind::Write,
            Kind::Flush => trace::Kind::Flush,
            Kind::Discard => trace::Kind::Discard,
        };
        let (offset, length) = match kind {
            trace::Kind::Flush => (0, 0),
            _ => (range.start().get(), range.length().get()),
        };
        let latency_us = Millis::from(latency).us();
        let request = trace::Request { at_us: 0, kind, offset, length, stage: self.stage, latency_us, ok };
        self.switch.push(now, request);
    }
}

impl SessionObserver for SessionTap {
    fn request_done(&self, kind: RequestKind, range: ByteRange, latency: Duration, ok: bool) {
        let kind = match kind {
            RequestKind::Read => Kind::Read,
            RequestKind::Write => Kind::Write,
            RequestKind::Flush => Kind::Flush,
            RequestKind::Discard => Kind::Discard,
        };
        self.count(kind, range, latency, ok);
    }

    fn segments(&self, bytes: u32) {
        self.recorder.segments(&self.device, &self.id, bytes);
    }

    fn ended(&self, how: SessionEnd) {
        self.recorder.session_ended(&self.device, &self.id, end_text(how));
    }
}

impl ExportObserver for SessionTap {
    fn request_done(&self, done: &RequestDone) {
        use nbd::exports::RequestKind;
        let kind = match done.kind {
            RequestKind::Read => Kind::Read,
            RequestKind::Write => Kind::Write,
            RequestKind::Flush => Kind::Flush,
            // Zeros take no space, and carry no data.
            RequestKind::Trim | RequestKind::WriteZeroes => Kind::Discard,
            RequestKind::Cache | RequestKind::BlockStatus => return,
        };
        self.count(kind, done.range, done.latency, done.result.is_ok());
    }

    fn segments(&self, bytes: u32) {
        self.recorder.segments(&self.device, &self.id, bytes);
    }

    fn ended(&self, how: ConnectionEnd) {
        let how = match how {
            ConnectionEnd::Disconnected => "disconnected",
            ConnectionEnd::Lost => "connection lost",
            ConnectionEnd::Shutdown => "ended by the server",
        };
        self.recorder.session_ended(&self.device, &self.id, how);
    }
}

fn end_text(how: SessionEnd) -> &'static str {
    match how {
        SessionEnd::Logout => "logout",
        SessionEnd::ConnectionLost => "connection lost",
        SessionEnd::Replaced => "replaced by another session",
        SessionEnd::Shutdown => "ended by the server",
    }
}
