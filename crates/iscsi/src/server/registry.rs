//! Which sessions there are: for reinstatement, exclusive targets and shutdown.
//!
//! A session is entered before it is established and stays until its last task has ended. Who wants its place asks
//! its event loop to end it and waits on its gate: when the gate opens, no late write of the old session is left.
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::mailbox::{ConnectionId, Fence, Letter, Mailbox, Message};
use crate::directory::{Coexistence, IscsiName, Isid, LoginAttempt, SessionEnd, SessionObserver};

/// All sessions with a target.
#[derive(Default)]
pub(super) struct Registry {
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    entries: Vec<Arc<Place>>,
    last_tsih: u16,
}

/// One session's place in the registry.
struct Place {
    target: IscsiName,
    initiator: IscsiName,
    isid: Isid,
    port: scsi::InitiatorPort,
    tsih: u16,
    mailbox: Arc<Mailbox>,
    connection: ConnectionId,
    arrival_number: u64,
    units: Arc<scsi::Units>,
    ended: Mutex<bool>,
    gate: Condvar,
}

/// A session that wants in.
pub(super) struct Entrant {
    pub(super) target: IscsiName,
    pub(super) attempt: LoginAttempt,
    /// The TSIH in the login request.
    pub(super) tsih: u16,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) connection: ConnectionId,
    /// Its connection's number in the order of arrival.
    pub(super) arrival_number: u64,
    pub(super) coexistence: Coexistence,
    pub(super) units: Arc<scsi::Units>,
    pub(super) observer: Arc<dyn SessionObserver>,
}

/// Why a session does not get in.
#[derive(Debug)]
pub(super) enum NoEntry {
    /// Its TSIH names no session of this initiator.
    NoSuchSession,
    /// It would replace a session whose connection came later than its own: it is a late echo, cut off already.
    Overtaken,
    /// The sessions that it replaces did not end in time.
    StillBusy,
}

/// The life of a session: whoever holds it ends it, once, and only when no task of the session runs any more.
pub(super) struct SessionLife {
    registry: Arc<Registry>,
    place: Arc<Place>,
    observer: Arc<dyn SessionObserver>,
    over: bool,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A TSIH that was not used lately; never 0.
    pub(super) fn new_tsih(&self) -> u16 {
        self.lock().new_tsih()
    }

    /// Enters a session and ends those whose place it takes; returns when they have ended, or after `patience`.
    pub(super) fn enter(
        self: &Arc<Self>,
        entrant: Entrant,
        patience: Duration,
    ) -> Result<(SessionLife, u16), NoEntry> {
        let mut sessions = self.lock();
        let same_target = |place: &&Arc<Place>| place.target == entrant.target;
        // RFC 7143 §6.3.5: the same initiator name and ISID is the same session again.
        let same_nexus = |place: &Place| {
            place.initiator == entrant.attempt.initiator && place.isid == entrant.attempt.isid
        };
        let mut replaced: Vec<Arc<Place>> = sessions.entries.iter().filter(same_target).cloned().collect();
        let exclusive = entrant.coexistence == Coexistence::Exclusive;
        let known = replaced.iter().any(|place| same_nexus(place) && place.tsih == entrant.tsih);
        replaced.retain(|place| exclusive || same_nexus(place));
        let refused = if entrant.tsih != 0 && !known {
            Some(NoEntry::NoSuchSession)
        } else if replaced.iter().any(|place| place.arrival_number > entrant.arrival_number) {
            Some(NoEntry::Overtaken)
        } else {
            None
        };
        if let Some(no_entry) = refused {
            drop(sessions);
            // What was granted is given back.
            entrant.observer.ended(SessionEnd::ConnectionLost);
            return Err(no_entry);
        }
        let tsih = if entrant.tsih == 0 { sessions.new_tsih() } else { entrant.tsih };
        let place = Arc::new(Place {
            target: entrant.target,
            port: entrant.attempt.port(),
            initiator: entrant.attempt.initiator,
            isid: entrant.attempt.isid,
            tsih,
            mailbox: entrant.mailbox,
            connection: entrant.connection,
            arrival_number: entrant.arrival_number,
            units: entrant.units,
            ended: Mutex::new(false),
            gate: Condvar::new(),
        });
        sessions.entries.push(Arc::clone(&place));
        drop(sessions);
        let life = SessionLife { registry: Arc::clone(self), place, observer: entrant.observer, over: false };
        if end_all(&replaced, SessionEnd::Replaced, patience) {
            Ok((life, tsih))
        } else {
            Err(NoEntry::StillBusy)
        }
    }

    /// Ends all sessions of a target; `false` where some had not ended after `patience`.
    pub(super) fn end_target(&self, target: &IscsiName, how: SessionEnd, patience: Duration) -> bool {
        let chosen: Vec<Arc<Place>> =
            self.lock().entries.iter().filter(|place| place.target == *target).cloned().collect();
        end_all(&chosen, how, patience)
    }

    /// Has the initiators of a target log out within `grace`, then ends what is left of its sessions; `false` where some
    /// had not ended after `patience` more.
    pub(super) fn drain_target(&self, target: &IscsiName, grace: Duration, patience: Duration) -> bool {
        let seconds = u16::try_from(grace.as_secs()).unwrap_or(u16::MAX);
        let chosen: Vec<Arc<Place>> =
            self.lock().entries.iter().filter(|place| place.target == *target).cloned().collect();
        for place in &chosen {
            place.mailbox.post(Message::To(place.connection, Letter::WantLogout(seconds)));
        }
        let deadline = Instant::now().checked_add(grace);
        let _ = chosen.iter().all(|place| place.wait(deadline));
        end_all(&chosen, SessionEnd::Shutdown, patience)
    }

    /// Asks all sessions of a target to end, and does not wait.
    pub(super) fn ask_to_end(&self, target: &IscsiName, how: SessionEnd) {
        for place in self.lock().entries.iter().filter(|place| place.target == *target) {
            place.mailbox.post(Message::To(place.connection, Letter::End(how)));
        }
    }

    /// Has every session but the one that waits for `fence` abort its tasks of `unit`; with `ports`, only sessions of
    /// these. `tell`: those that lose tasks hear of it.
    pub(super) fn abort_elsewhere(
        &self,
        unit: &Arc<scsi::LogicalUnit>,
        ports: Option<&[scsi::InitiatorPort]>,
        tell: bool,
        fence: &Arc<Fence>,
    ) {
        for place in &self.lock().entries {
            let own = place.connection == fence.connection && Arc::ptr_eq(&place.mailbox, &fence.mailbox);
            let luns: Vec<_> = place.units.luns_of(unit).collect();
            let meant = ports.is_none_or(|ports| ports.contains(&place.port));
            if !own && meant && !luns.is_empty() {
                let letter = Letter::Abort { luns, tell, fence: Arc::clone(fence) };
                place.mailbox.post(Message::To(place.connection, letter));
            }
        }
    }
}

impl Sessions {
    fn new_tsih(&mut self) -> u16 {
        loop {
            self.last_tsih = self.last_tsih.wrapping_add(1);
            let tsih = self.last_tsih;
            let used = self.entries.iter().any(|place| place.tsih == tsih);
            // With 65535 sessions one number is used twice: harmless, as names and ISID are compared too.
            if tsih != 0 && (!used || self.entries.len() >= usize::from(u16::MAX)) {
                return tsih;
            }
        }
    }
}

fn end_all(places: &[Arc<Place>], how: SessionEnd, patience: Duration) -> bool {
    for place in places {
        place.mailbox.post(Message::To(place.connection, Letter::End(how)));
    }
    let deadline = Instant::now().checked_add(patience);
    places.iter().all(|place| place.wait(deadline))
}

impl Place {
    /// Waits for the session's end; `false` at the deadline.
    fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            let left = deadline.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            ended = self.gate.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl SessionLife {
    /// Whom to tell what the session does.
    pub(super) fn observer(&self) -> &Arc<dyn SessionObserver> {
        &self.observer
    }

    /// The session is over and none of its tasks runs.
    pub(super) fn end(mut self, how: SessionEnd) {
        self.end_once(how);
    }

    fn end_once(&mut self, how: SessionEnd) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        self.place.units.detach();
        self.observer.ended(how);
        self.registry.lock().entries.retain(|place| !Arc::ptr_eq(place, &self.place));
        *self.place.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.place.gate.notify_all();
    }
}

impl Drop for SessionLife {
    fn drop(&mut self) {
        self.end_once(SessionEnd::ConnectionLost);
    }
}
