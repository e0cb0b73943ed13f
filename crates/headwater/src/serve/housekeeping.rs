//! The thread that writes what must outlive the server: devices' states at once, timelines at
//! most once a second.
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::stream::device::DeviceSlot;
use crate::stream::director::StateSaver;
use crate::timeline::Recorder;

/// How often the thread looks for timelines that have changed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often one timeline is written.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// The thread, until it is stopped.
#[derive(Debug)]
pub(super) struct Housekeeping {
    work: mpsc::Sender<Work>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
enum Work {
    Save(Arc<DeviceSlot>),
    Stop,
}

/// Has devices' states written.
#[derive(Debug)]
pub(super) struct Saver(mpsc::Sender<Work>);

impl StateSaver for Saver {
    fn save(&self, device: &Arc<DeviceSlot>) {
        // Without the thread the server is shutting down.
        let _ = self.0.send(Work::Save(Arc::clone(device)));
    }
}

impl Housekeeping {
    /// Starts it.
    pub(super) fn start(recorder: Arc<Recorder>) -> std::io::Result<Self> {
        let (work, received) = mpsc::channel();
        let body = move || run(&received, &recorder);
        let thread = std::thread::Builder::new().name("housekeeping".to_owned()).spawn(body)?;
        Ok(Self { work, thread })
    }

    /// What has devices' states written by it.
    pub(super) fn saver(&self) -> Saver {
        Saver(self.work.clone())
    }

    /// Ends it when all that was asked for is written.
    pub(super) fn stop(self) {
        // A thread that is gone has stopped already.
        let _ = self.work.send(Work::Stop);
        let _ = self.thread.join();
    }
}

fn run(work: &mpsc::Receiver<Work>, recorder: &Recorder) {
    let mut next = Instant::now();
    loop {
        match work.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Work::Save(device)) => {
                if let Err(error) = device.save_state() {
                    let name = device.name.as_str();
                    tracing::error!(device = name, %error, "cannot remember the boot that was handed out");
                }
            }
            Ok(Work::Stop) | Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                recorder.save_changed(SAVE_EVERY);
                next = Instant::now().checked_add(LOOK_EVERY).unwrap_or(next);
            }
        }
    }
}
