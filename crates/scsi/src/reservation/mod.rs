//! Who has the unit for itself: persistent reservations (SPC-4 §5.13) and the older RESERVE (SPC-2 §5.5).
//!
//! [`Reservations`] is the state machine, without locks and I/O: a request comes from an initiator port, changes the
//! state or is refused, and says whom to tell what ([`Effects`]). `decode` reads the commands and writes their
//! parameter data; `conflict` says which commands a reservation keeps out.
//!
//! Registrations belong to initiator ports and outlive their sessions, but not the server process (APTPL is refused):
//! an initiator that relies on them registers again after a power-on, and the death of the server is one.
mod conflict;
mod decode;

pub(crate) use conflict::{Touches, touches};
pub(crate) use decode::{PersistentIn, PersistentOut, decode_classic};

use crate::nexus::UnitAttention;
use crate::port::InitiatorPort;
use crate::sense::{AdditionalSense, CheckCondition, Rejection};

/// The most registrations of one unit.
const MAX_REGISTRATIONS: usize = 256;

/// A reservation key (SPC-4 §5.13.2): the initiator's choice; 0 stands for none.
pub(crate) type Key = u64;

/// TYPE of a persistent reservation (SPC-4 §6.15.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrantsOnly = 5,
    ExclusiveAccessRegistrantsOnly = 6,
    WriteExclusiveAllRegistrants = 7,
    ExclusiveAccessAllRegistrants = 8,
}

/// A reservation that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) kind: Kind,
    /// `None`: all registrants hold it.
    pub(crate) holder: Option<InitiatorPort>,
}

/// A registered initiator port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) port: InitiatorPort,
    pub(crate) key: Key,
}

/// The reservations of one unit.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    generation: u32,
    registrations: Vec<Registration>,
    held: Option<Held>,
    classic: Option<InitiatorPort>,
}

/// What others hear of a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub(crate) attentions: Vec<(InitiatorPort, UnitAttention)>,
    /// Whose tasks are to be aborted.
    pub(crate) aborted: Vec<InitiatorPort>,
}

/// What PERSISTENT RESERVE OUT asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Register { key: Key, new_key: Key },
    RegisterAndIgnore { new_key: Key },
    Reserve { key: Key, kind: Kind },
    Release { key: Key, kind: Kind },
    Clear { key: Key },
    Preempt { key: Key, victim: Key, kind: Kind, abort: bool },
}

type Changed = Result<Effects, Rejection>;

const CONFLICT: Rejection = Rejection::ReservationConflict;

impl Kind {
    /// Whether reads are kept out too.
    pub(crate) const fn is_exclusive_access(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess
                | Self::ExclusiveAccessRegistrantsOnly
                | Self::ExclusiveAccessAllRegistrants
        )
    }

    const fn is_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }

    /// Whether every registered port gets in.
    const fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }
}

impl Reservations {
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    pub(crate) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// Whether any command may be refused on account of a reservation.
    pub(crate) fn any(&self) -> bool {
        self.held.is_some() || self.classic.is_some()
    }

    pub(crate) fn key_of(&self, port: &InitiatorPort) -> Option<Key> {
        self.registrations.iter().find(|registration| registration.port == *port).map(|found| found.key)
    }

    pub(crate) fn is_holder(&self, port: &InitiatorPort) -> bool {
        self.held.as_ref().is_some_and(|held| match &held.holder {
            Some(holder) => holder == port,
            None => self.key_of(port).is_some(),
        })
    }

    /// The key that stands for the holder; 0 where all registrants hold it (SPC-4 §5.13.10).
    pub(crate) fn holder_key(&self) -> Key {
        let holder = self.held.as_ref().and_then(|held| held.holder.as_ref());
        holder.and_then(|port| self.key_of(port)).unwrap_or(0)
    }

    /// Whether a command of `port` that touches the unit so is kept out.
    pub(crate) fn keep_out(&self, port: &InitiatorPort, touches: Touches) -> bool {
        if let Some(owner) = &self.classic {
            return match touches {
                Touches::Persistent => true, // SPC-2 §5.5.1: whoever has the reservation
                touches => owner != port && touches.conflicts_with_classic(),
            };
        }
        let Some(held) = &self.held else { return false };
        let admitted =
            self.is_holder(port) || (held.kind.admits_registrants() && self.key_of(port).is_some());
        !admitted && touches.conflicts_with(held.kind)
    }

    /// RESERVE (SPC-2 §7.21). Where there are registrations it changes nothing, and only those get GOOD who are
    /// admitted anyway (SPC-4 §5.13.3).
    pub(crate) fn reserve_classic(&mut self, port: &InitiatorPort) -> Result<(), Rejection> {
        if !self.registrations.is_empty() {
            return self.key_of(port).map(|_| ()).ok_or(CONFLICT);
        }
        match &self.classic {
            Some(owner) if owner != port => Err(CONFLICT),
            _ => {
                self.classic = Some(port.clone());
                Ok(())
            }
        }
    }

    /// RELEASE (SPC-2 §7.19): of somebody else's reservation it does nothing, and that is no error.
    pub(crate) fn release_classic(&mut self, port: &InitiatorPort) {
        self.classic = self.classic.take().filter(|owner| owner != port);
    }

    /// A reset: the older kind of reservation ends, the persistent ones stay.
    pub(crate) fn reset(&mut self) {
        self.classic = None;
    }

    /// Carries out PERSISTENT RESERVE OUT.
    ///
    /// # Errors
    /// Mostly [`Rejection::ReservationConflict`]; nothing has changed then.
    pub(crate) fn change(&mut self, port: &InitiatorPort, action: Action) -> Changed {
        let proven = |key| if self.key_of(port) == Some(key) { Ok(()) } else { Err(CONFLICT) };
        match action {
            Action::Register { key, new_key } => {
                // SPC-4 §5.13.7: a port that is not registered proves that with the key 0.
                if self.key_of(port).unwrap_or(0) != key {
                    return Err(CONFLICT);
                }
                self.register(port, new_key)
            }
            Action::RegisterAndIgnore { new_key } => self.register(port, new_key),
            Action::Reserve { key, kind } => {
                proven(key)?;
                self.reserve(port, kind)
            }
            Action::Release { key, kind } => {
                proven(key)?;
                self.release(port, kind)
            }
            Action::Clear { key } => {
                proven(key)?;
                Ok(self.clear(port))
            }
            Action::Preempt { key, victim, kind, abort } => {
                proven(key)?;
                self.preempt(port, victim, kind, abort)
            }
        }
    }

    fn register(&mut self, port: &InitiatorPort, new_key: Key) -> Changed {
        let mut effects = Effects::default();
        let full = self.registrations.len() >= MAX_REGISTRATIONS;
        match self.registrations.iter_mut().find(|registration| registration.port == *port) {
            Some(_) if new_key == 0 => effects = self.unregister(port),
            Some(registration) => registration.key = new_key,
            None if new_key == 0 => {}
            None if full => {
                let reason = AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES;
                return Err(CheckCondition::illegal(reason).into());
            }
            None => self.registrations.push(Registration { port: port.clone(), key: new_key }),
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// SPC-4 §5.13.11.2: the reservation goes with its last holder.
    fn unregister(&mut self, port: &InitiatorPort) -> Effects {
        let held_it = self.is_holder(port);
        self.registrations.retain(|registration| registration.port != *port);
        let Some(held) = self.held.take_if(|held| match held.holder {
            Some(_) => held_it,
            None => self.registrations.is_empty(),
        }) else {
            return Effects::default();
        };
        if held.kind.admits_registrants() {
            return self.tell_registrants(port, UnitAttention::ReservationsReleased);
        }
        Effects::default()
    }

    fn reserve(&mut self, port: &InitiatorPort, kind: Kind) -> Changed {
        match &self.held {
            // SPC-4 §5.13.9: the holder may ask again for what it has.
            Some(held) if self.is_holder(port) && held.kind == kind => {}
            Some(_) => return Err(CONFLICT),
            None => self.hold(port, kind),
        }
        Ok(Effects::default())
    }

    fn hold(&mut self, port: &InitiatorPort, kind: Kind) {
        let holder = (!kind.is_all_registrants()).then(|| port.clone());
        self.held = Some(Held { kind, holder });
    }

    fn release(&mut self, port: &InitiatorPort, kind: Kind) -> Changed {
        if !self.is_holder(port) {
            return Ok(Effects::default()); // SPC-4 §5.13.11.3: nothing to release is no error
        }
        if self.held.as_ref().is_some_and(|held| held.kind != kind) {
            return Err(CheckCondition::illegal(AdditionalSense::INVALID_RELEASE).into());
        }
        self.held = None;
        if kind.admits_registrants() {
            return Ok(self.tell_registrants(port, UnitAttention::ReservationsReleased));
        }
        Ok(Effects::default())
    }

    fn clear(&mut self, port: &InitiatorPort) -> Effects {
        let effects = self.tell_registrants(port, UnitAttention::ReservationsPreempted);
        self.held = None;
        self.registrations.clear();
        self.generation = self.generation.wrapping_add(1);
        effects
    }

    /// SPC-4 §5.13.11.4: registrations with the victim's key go, and with its holder the reservation.
    fn preempt(&mut self, port: &InitiatorPort, victim: Key, kind: Kind, abort: bool) -> Changed {
        let all_registrants = self.held.as_ref().is_some_and(|held| held.holder.is_none());
        if victim == 0 && !all_registrants {
            return Err(CheckCondition::parameter_field(8).into());
        }
        let takes_over = self.held.is_some() && victim == self.holder_key();
        let matches = |registration: &Registration| victim == 0 || registration.key == victim;
        if !takes_over && !self.registrations.iter().any(matches) {
            return Err(CONFLICT);
        }
        let mut effects = Effects::default();
        self.registrations.retain(|registration| {
            let own = registration.port == *port;
            // Who takes a reservation over stays registered; who removes registrations may remove its own.
            if !matches(registration) || (own && takes_over) {
                return true;
            }
            if !own {
                effects.attentions.push((registration.port.clone(), UnitAttention::RegistrationsPreempted));
                effects.aborted.extend(abort.then(|| registration.port.clone()));
            }
            false
        });
        if takes_over {
            let changed = self.held.as_ref().is_some_and(|held| held.kind != kind);
            self.hold(port, kind);
            if changed {
                let released = self.tell_registrants(port, UnitAttention::ReservationsReleased);
                effects.attentions.extend(released.attentions);
            }
        } else if all_registrants && self.registrations.is_empty() {
            self.held = None;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// Tells all registered ports but `port`.
    fn tell_registrants(&self, port: &InitiatorPort, attention: UnitAttention) -> Effects {
        let others = self.registrations.iter().filter(|registration| registration.port != *port);
        let attentions = others.map(|registration| (registration.port.clone(), attention)).collect();
        Effects { attentions, aborted: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
