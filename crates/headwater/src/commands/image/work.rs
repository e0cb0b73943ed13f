//! Long work behind a command: on a thread of its own, with a progress bar on standard error, and ended by Ctrl-C,
//! SIGTERM or SIGHUP.
//!
//! The first signal asks the work to stop, which it does at its next step, cleaning up behind itself; a second one
//! ends the program at once.
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use diskimage::Watch;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How often the bar is drawn.
const TICK: Duration = Duration::from_millis(100);
const TOTAL_KNOWN: &str = "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
const TOTAL_UNKNOWN: &str = "{msg} {spinner} {bytes}";

/// How work shows itself and how fast it may go.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    /// What is done, in a word: `converting`.
    pub(super) what: &'static str,
    /// Whether nothing is to be shown.
    pub(super) quiet: bool,
    /// The most bytes a second.
    pub(super) limit: Option<NonZeroU64>,
}

/// Does `work` and gives what it gives.
///
/// # Errors
/// The work's own; its death.
pub(super) async fn watched<T: Send + 'static>(
    manner: Manner,
    work: impl FnOnce(&Watch) -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    let mut signals = Signals::listen().context("signals cannot be heard")?;
    let watch = Arc::new(Watch::default());
    watch.set_limit(manner.limit);
    let bar = bar(&manner);
    let mut running = {
        let watch = Arc::clone(&watch);
        tokio::task::spawn_blocking(move || work(&watch))
    };
    let mut ticks = tokio::time::interval(TICK);
    let result = loop {
        tokio::select! {
            result = &mut running => break result,
            _ = ticks.tick() => show(&bar, &watch),
            () = signals.next() => {
                watch.cancel();
                bar.set_message("stopping");
                signals.end_at_next();
            }
        }
    };
    bar.finish_and_clear();
    result.context("the work died")?
}

/// The signals that ask a program to end: of a terminal (Ctrl-C, or that it is closed) and of whoever stops services.
struct Signals {
    /// Taken by the task that waits for the last one.
    listening: Option<[(Signal, SignalKind); 3]>,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind: SignalKind| anyhow::Ok((signal(kind)?, kind));
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(listen);
        Ok(Self { listening: Some([interrupt?, terminate?, hangup?]) })
    }

    /// The next one; none comes once [`end_at_next`](Self::end_at_next) was called.
    async fn next(&mut self) {
        match &mut self.listening {
            Some(listening) => drop(wait(listening).await),
            None => std::future::pending().await,
        }
    }

    /// Lets the next one end the program at once.
    fn end_at_next(&mut self) {
        let Some(mut listening) = self.listening.take() else { return };
        tokio::spawn(async move {
            let kind = wait(&mut listening).await;
            // What a shell reports of a program that a signal ended.
            std::process::exit(kind.as_raw_value().saturating_add(128));
        });
    }
}

async fn wait([interrupt, terminate, hangup]: &mut [(Signal, SignalKind); 3]) -> SignalKind {
    tokio::select! {
        _ = interrupt.0.recv() => interrupt.1,
        _ = terminate.0.recv() => terminate.1,
        _ = hangup.0.recv() => hangup.1,
    }
}

fn bar(manner: &Manner) -> ProgressBar {
    // Draws nothing where standard error is no terminal.
    let target = if manner.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(None, target).with_message(manner.what);
    if let Ok(style) = ProgressStyle::with_template(TOTAL_UNKNOWN) {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, watch: &Watch) {
    let (done, total) = watch.progress();
    if total > 0 && bar.length() != Some(total) {
        if bar.length().is_none()
            && let Ok(style) = ProgressStyle::with_template(TOTAL_KNOWN)
        {
            bar.set_style(style.progress_chars("━━ "));
        }
        bar.set_length(total);
    }
    bar.set_position(done);
    bar.tick();
}
