//! The thread that keeps up with the farm: follows the catalogue, renews the devices' leases, and closes the disks of
//! devices that are away.
use std::collections::HashSet;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farm::rules::leases::RENEWED_EVERY;

use crate::stream::device::SessionEnder;
use crate::stream::devices::Devices;
use crate::timeline::Recorder;
use crate::timeline::record::WriteCacheFill;

/// How often the catalogue is asked what others changed, and devices whether they have a session.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The thread, until it is stopped.
#[derive(Debug)]
pub(super) struct Keeper {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Keeper {
    /// Starts it.
    pub(super) fn start(
        devices: Arc<Devices>,
        recorder: Arc<Recorder>,
        ender: Arc<OnceLock<Box<dyn SessionEnder>>>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let body = move || {
            let mut renewed = Instant::now();
            while stopped.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                devices.farm().tick();
                let now = Instant::now();
                devices.rest(&busy(&recorder), now);
                note_write_caches(&devices, &recorder);
                if now.saturating_duration_since(renewed) >= RENEWED_EVERY {
                    renewed = now;
                    renew(&devices, &recorder, ender.get().map(AsRef::as_ref));
                }
            }
        };
        let thread = std::thread::Builder::new().name("farm".to_owned()).spawn(body)?;
        Ok(Self { stop, thread })
    }

    /// Ends it.
    pub(super) fn stop(self) {
        drop(self.stop);
        // A thread that panicked has stopped.
        let _ = self.thread.join();
    }
}

/// The devices that have a session.
fn busy(recorder: &Recorder) -> HashSet<String> {
    let live = recorder.live();
    let busy = live.into_iter().filter(|boot| boot.record.sessions > 0);
    busy.map(|boot| boot.record.device).collect()
}

/// Has the timelines know how full the write caches are.
fn note_write_caches(devices: &Devices, recorder: &Recorder) {
    for running in devices.running() {
        let Some(usage) = running.write_cache else { continue };
        let fill = WriteCacheFill {
            used_bytes: usage.used.get(),
            limit_bytes: usage.limit.get(),
            warn_at_bytes: usage.warn_at.get(),
        };
        recorder.write_cache(&running.device, running.boot.as_str(), fill);
    }
}

fn renew(devices: &Devices, recorder: &Recorder, ender: Option<&dyn SessionEnder>) {
    for (lost, slot) in devices.renew_leases() {
        let device = slot.name.as_str();
        tracing::error!(device, "{}", lost.why);
        slot.fence_off().end(ender);
        recorder.end(&slot.name, &lost.why);
    }
}
