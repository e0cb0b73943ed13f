//! The thread that keeps up with the farm: follows the catalogue, renews the devices' leases, tells what this server
//! carries, closes the disks of devices that are away, and sees which boots have ended for those that wait.
use std::collections::HashSet;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farm::rules::leases::RENEWED_EVERY;
use farm::rules::reports::REPORTED_EVERY;

use super::report::Reporter;
use crate::stream::admission::{Admission, Seen};
use crate::stream::device::SessionEnder;
use crate::stream::devices::Devices;
use crate::timeline::Recorder;
use crate::timeline::record::WriteCacheFill;
use crate::timeline::recorder::Glance;

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
        admission: Arc<Admission>,
        mut reporter: Reporter,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let body = move || {
            let mut renewed = Instant::now();
            let mut reported: Option<Instant> = None;
            while stopped.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                devices.farm().tick();
                let now = Instant::now();
                let boots = recorder.glances();
                let busy = busy(&boots);
                devices.rest(&busy, now);
                admission.queue().watch(now, boots.iter().map(seen));
                note_write_caches(&devices, &recorder);
                if now.saturating_duration_since(renewed) >= RENEWED_EVERY {
                    renewed = now;
                    renew(&devices, &recorder, ender.get().map(AsRef::as_ref));
                }
                if reported.is_none_or(|at| now.saturating_duration_since(at) >= REPORTED_EVERY) {
                    reported = Some(now);
                    reporter.tell(busy.len());
                }
            }
            reporter.tell_the_end();
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
fn busy(boots: &[Glance]) -> HashSet<String> {
    let busy = boots.iter().filter(|boot| boot.sessions > 0);
    busy.map(|boot| boot.device.as_str().to_owned()).collect()
}

/// What admission wants to know of a boot.
fn seen(boot: &Glance) -> Seen<'_> {
    Seen { device: boot.device.as_str(), boot: &boot.id, activity: boot.revision, ready: boot.ready }
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
