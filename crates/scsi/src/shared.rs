//! What all sessions of a logical unit share: who they are, reservations, changeable mode parameters, the tray.
//!
//! The path of reads and writes looks at one atomic number: as long as nothing restricts the unit (no reservation, no
//! write protection, the medium in place), no lock is taken. All that changes rarely stands behind one lock.
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

use block::Patience;

use crate::mode::ModeValues;
use crate::nexus::{Nexus, UnitAttention};
use crate::port::InitiatorPort;
use crate::reservation::{Action, Reservations, Touches};
use crate::sense::{AdditionalSense, CheckCondition, Rejection, SenseKey};
use crate::task::Failure;

/// Some reservation is held.
const RESERVED: u8 = 0x01;
/// SWP: writes are refused.
const PROTECTED: u8 = 0x02;
/// WCE is off: every change must last before it is answered.
const WRITE_THROUGH: u8 = 0x04;
/// The medium is not in place.
const EJECTED: u8 = 0x08;

/// The common state of a unit.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// The four bits above.
    restrictions: AtomicU8,
    state: Mutex<State>,
    /// A piece of a file gave less than it had promised: reads go by way of the device from then on.
    forgoes_spans: AtomicBool,
    /// Held together by those who change the medium, alone by those who first look and then change it.
    changing: RwLock<()>,
}

#[derive(Debug, Default)]
struct State {
    nexuses: Vec<Arc<Nexus>>,
    reservations: Reservations,
    mode: ModeValues,
    /// Who has PREVENT set.
    preventing: Vec<InitiatorPort>,
    ejected: bool,
}

/// The right to change the medium; see [`Shared::change_medium`].
#[derive(Debug)]
pub(crate) enum ChangeGuard<'a> {
    Together { _guard: RwLockReadGuard<'a, ()> },
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, restriction: u8) -> bool {
        self.restrictions.load(Ordering::Acquire) & restriction != 0
    }

    /// Brings the fast number in line with the state.
    fn publish(&self, state: &State) {
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        let restrictions = bit(state.reservations.any(), RESERVED)
            | bit(state.mode.write_protected, PROTECTED)
            | bit(!state.mode.write_cache, WRITE_THROUGH)
            | bit(state.ejected, EJECTED);
        self.restrictions.store(restrictions, Ordering::Release);
    }

    /// A session begins to see the unit.
    pub(crate) fn attach(&self, nexus: &Arc<Nexus>) {
        self.lock().nexuses.push(Arc::clone(nexus));
    }

    /// A session ends: what belongs to it and not to its port ends with it (SPC-2 §5.5.1, SBC-3 §5.13).
    pub(crate) fn detach(&self, nexus: &Arc<Nexus>) {
        let mut state = self.lock();
        let before = state.nexuses.len();
        state.nexuses.retain(|other| !Arc::ptr_eq(other, nexus));
        if state.nexuses.len() < before {
            state.reservations.release_classic(nexus.port());
            state.preventing.retain(|port| port != nexus.port());
            self.publish(&state);
        }
    }

    /// Has `attention` told by every session but the one behind `except`.
    pub(crate) fn raise(&self, attention: UnitAttention, except: Option<&Nexus>) {
        self.lock().raise(attention, except);
    }

    /// LOGICAL UNIT RESET (SAM-5 §6.3.3): told to everybody, `by` too.
    pub(crate) fn reset(&self) {
        let mut state = self.lock();
        state.reservations.reset();
        state.preventing.clear();
        state.mode = ModeValues::default();
        state.raise(UnitAttention::Reset, None);
        self.publish(&state);
    }

    /// Whether a reservation keeps this command of `nexus` out.
    pub(crate) fn check_reservation(&self, nexus: &Nexus, touches: Touches) -> Result<(), Rejection> {
        if self.has(RESERVED) && self.lock().reservations.keep_out(nexus.port(), touches) {
            return Err(Rejection::ReservationConflict);
        }
        Ok(())
    }

    /// Whether the medium is there.
    pub(crate) fn check_medium(&self) -> Result<(), CheckCondition> {
        if self.has(EJECTED) {
            return Err(CheckCondition::new(SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT));
        }
        Ok(())
    }

    /// Whether the initiators have left the unit writable.
    pub(crate) fn check_writable(&self) -> Result<(), CheckCondition> {
        if self.has(PROTECTED) {
            let protected = AdditionalSense::SOFTWARE_WRITE_PROTECTED;
            return Err(CheckCondition::new(SenseKey::DataProtect, protected));
        }
        Ok(())
    }

    /// Whether every change must last before it is answered.
    pub(crate) fn writes_through(&self) -> bool {
        self.has(WRITE_THROUGH)
    }

    /// Whether Data-In may be told as pieces of files.
    pub(crate) fn has_spans(&self) -> bool {
        !self.forgoes_spans.load(Ordering::Relaxed)
    }

    pub(crate) fn forgo_spans(&self) {
        self.forgoes_spans.store(true, Ordering::Relaxed);
    }

    /// The changeable mode parameters as they are.
    pub(crate) fn mode(&self) -> ModeValues {
        self.lock().mode
    }

    /// Sets them, and tells the others where that changes anything (SPC-4 §6.13).
    pub(crate) fn set_mode(&self, nexus: &Nexus, mode: ModeValues) {
        let mut state = self.lock();
        if state.mode != mode {
            state.mode = mode;
            state.raise(UnitAttention::ModeParametersChanged, Some(nexus));
            self.publish(&state);
        }
    }

    /// What PERSISTENT RESERVE IN tells.
    pub(crate) fn with_reservations<T>(&self, look: impl FnOnce(&Reservations) -> T) -> T {
        look(&self.lock().reservations)
    }

    pub(crate) fn reserve_classic(&self, nexus: &Nexus) -> Result<(), Rejection> {
        let mut state = self.lock();
        state.reservations.reserve_classic(nexus.port())?;
        self.publish(&state);
        Ok(())
    }

    pub(crate) fn release_classic(&self, nexus: &Nexus) {
        let mut state = self.lock();
        state.reservations.release_classic(nexus.port());
        self.publish(&state);
    }

    /// Carries out PERSISTENT RESERVE OUT; gives the ports whose tasks are to be aborted.
    pub(crate) fn change_reservations(
        &self,
        nexus: &Nexus,
        action: Action,
    ) -> Result<Vec<InitiatorPort>, Rejection> {
        let mut state = self.lock();
        let effects = state.reservations.change(nexus.port(), action)?;
        for (port, attention) in &effects.attentions {
            state
                .nexuses
                .iter()
                .filter(|other| other.port() == port)
                .for_each(|other| other.raise(*attention));
        }
        self.publish(&state);
        Ok(effects.aborted)
    }

    /// PREVENT ALLOW MEDIUM REMOVAL.
    pub(crate) fn prevent_removal(&self, nexus: &Nexus, prevent: bool) {
        let mut state = self.lock();
        state.preventing.retain(|port| port != nexus.port());
        if prevent {
            state.preventing.push(nexus.port().clone());
        }
    }

    /// START STOP UNIT with LOEJ: takes the medium out or puts it back.
    pub(crate) fn move_medium(&self, nexus: &Nexus, load: bool) -> Result<(), CheckCondition> {
        let mut state = self.lock();
        if !state.preventing.is_empty() {
            return Err(CheckCondition::illegal(AdditionalSense::MEDIUM_REMOVAL_PREVENTED)); // SBC-3 §5.25; neither way
        }
        if load && state.ejected {
            state.raise(UnitAttention::MediumLoaded, Some(nexus));
        }
        state.ejected = !load;
        self.publish(&state);
        Ok(())
    }

    /// The right to change the medium: together with others, or alone, as what first looks and then changes must have
    /// it. Reads need no right.
    pub(crate) fn change_medium(&self, alone: bool, patience: Patience) -> Result<ChangeGuard<'_>, Failure> {
        // The lock protects no data: a thread that panicked in the device has left nothing half-changed here.
        let guard = match (alone, patience) {
            (false, Patience::Blocking) => Some(ChangeGuard::Together {
                _guard: self.changing.read().unwrap_or_else(PoisonError::into_inner),
            }),
            (true, Patience::Blocking) => Some(ChangeGuard::Alone {
                _guard: self.changing.write().unwrap_or_else(PoisonError::into_inner),
            }),
            (false, Patience::Now) => {
                at_once(self.changing.try_read()).map(|guard| ChangeGuard::Together { _guard: guard })
            }
            (true, Patience::Now) => {
                at_once(self.changing.try_write()).map(|guard| ChangeGuard::Alone { _guard: guard })
            }
        };
        guard.ok_or(Failure::WouldBlock)
    }
}

fn at_once<T>(tried: Result<T, TryLockError<T>>) -> Option<T> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl State {
    fn raise(&self, attention: UnitAttention, except: Option<&Nexus>) {
        let is_except =
            |nexus: &Arc<Nexus>| except.is_some_and(|except| std::ptr::eq(Arc::as_ptr(nexus), except));
        self.nexuses.iter().filter(|nexus| !is_except(nexus)).for_each(|nexus| nexus.raise(attention));
    }
}
