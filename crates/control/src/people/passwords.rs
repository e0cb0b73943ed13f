//! Passwords: what is taken for one, and how it is kept.
//!
//! Kept is an Argon2id hash in PHC string format with 19 MiB, two passes and one lane: the least that OWASP's password
//! storage cheat sheet recommends, some 25 ms of one core. One hash is computed at a time, since each takes its 19 MiB, and
//! only so many may wait for their turn: a flood of log-ins costs no more than one core and one buffer.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use argon2::{Argon2, PasswordHasher, PasswordVerifier};
use farm::model::PasswordHash;

/// The shortest password, in characters: with no other rule about its contents, long enough not to be guessed at the pace
/// that the throttle leaves.
pub const MIN_PASSWORD_CHARS: usize = 12;

/// The longest password, in bytes: longer ones cost time and add nothing.
pub const MAX_PASSWORD_BYTES: usize = 256;

/// How many may wait for a hash.
const MAX_WAITING: usize = 32;

/// Why a password was not taken, or not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// It could be guessed.
    #[error("the password is too short: it takes at least {MIN_PASSWORD_CHARS} characters")]
    TooShort,
    /// It is longer than anybody types.
    #[error("the password is too long: it may have {MAX_PASSWORD_BYTES} bytes")]
    TooLong,
    /// It is the user's name, or one character over and over.
    #[error(
        "the password is easy to guess: it must not be made of the user's name or of one character alone"
    )]
    Guessable,
    /// Too many passwords are being looked at.
    #[error("too many log-ins at once: try again in a second")]
    Busy,
    /// The system gives no random bytes, or the memory for the hash is not there.
    #[error("the password cannot be hashed: the system lacks random bytes or memory for it")]
    Failed,
}

/// Hashes passwords and checks them against hashes, one at a time.
#[derive(Debug, Default)]
pub(super) struct Hasher {
    turn: Mutex<()>,
    waiting: AtomicUsize,
}

impl Hasher {
    /// The hash of a password that `user` is to have.
    pub(super) fn hash(&self, user: &str, password: &str) -> Result<PasswordHash, PasswordError> {
        check(user, password)?;
        let hash = self.in_turn(|argon| argon.hash_password(password.as_bytes()))?;
        let text = hash.map_err(|_| PasswordError::Failed)?.to_string();
        PasswordHash::new(&text).map_err(|_| PasswordError::Failed)
    }

    /// Whether this is the password. Where there is no hash, it takes as long to say no.
    pub(super) fn verify(&self, password: &str, hash: Option<&PasswordHash>) -> Result<bool, PasswordError> {
        if password.len() > MAX_PASSWORD_BYTES {
            return Ok(false);
        }
        let known = hash.map_or(NOBODYS_HASH, PasswordHash::as_str);
        let fits = self.in_turn(|argon| argon.verify_password(password.as_bytes(), known).is_ok())?;
        Ok(fits && hash.is_some())
    }

    fn in_turn<R>(&self, work: impl FnOnce(&Argon2<'_>) -> R) -> Result<R, PasswordError> {
        let place = Place::take(&self.waiting)?;
        let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&Argon2::default());
        drop((turn, place));
        Ok(result)
    }
}

/// A hash of no password, with the parameters of all others, so that unknown users cost as long as known ones.
const NOBODYS_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5bm8$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A place among those that wait.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize) -> Result<Self, PasswordError> {
        let place = Self(waiting);
        if waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            Err(PasswordError::Busy)
        } else {
            Ok(place)
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn check(user: &str, password: &str) -> Result<(), PasswordError> {
    if password.len() > MAX_PASSWORD_BYTES {
        return Err(PasswordError::TooLong);
    }
    if password.chars().count() < MIN_PASSWORD_CHARS {
        return Err(PasswordError::TooShort);
    }
    let lower = password.to_lowercase();
    let rest = if user.is_empty() { lower } else { lower.replace(user, "") };
    let first = rest.chars().next();
    if rest.chars().all(|c| Some(c) == first) { Err(PasswordError::Guessable) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_that_can_be_guessed_is_refused() {
        assert_eq!(check("ann", "short"), Err(PasswordError::TooShort));
        assert_eq!(check("ann", &"x".repeat(257)), Err(PasswordError::TooLong));
        assert_eq!(check("ann", "aaaaaaaaaaaaaaaa"), Err(PasswordError::Guessable));
        assert_eq!(check("ann", "AnnAnnAnnAnnAnn"), Err(PasswordError::Guessable));
        assert_eq!(check("ann", "three walnut boats"), Ok(()));
    }

    #[test]
    fn hash_fits_its_own_password_alone() {
        let hasher = Hasher::default();
        let hash = hasher.hash("ann", "three walnut boats").unwrap();
        assert!(hash.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"));
        assert_eq!(hasher.verify("three walnut boats", Some(&hash)), Ok(true));
        assert_eq!(hasher.verify("three walnut boat", Some(&hash)), Ok(false));
        assert_eq!(hasher.verify("three walnut boats", None), Ok(false));
        let again = hasher.hash("ann", "three walnut boats").unwrap();
        assert_ne!(hash, again, "each has a salt of its own");
    }

    #[test]
    fn hash_of_nobody_is_one_that_is_computed() {
        // Else unknown users would be answered at once.
        assert!(argon2::password_hash::phc::PasswordHash::new(NOBODYS_HASH).is_ok());
        let known = Argon2::default().hash_password(b"x").unwrap();
        let nobodys = argon2::password_hash::phc::PasswordHash::new(NOBODYS_HASH).unwrap();
        assert_eq!(known.params, nobodys.params);
    }

    #[test]
    fn log_ins_above_the_queue_are_turned_away() {
        let hasher = Hasher::default();
        let places: Vec<_> = (0..MAX_WAITING).map(|_| Place::take(&hasher.waiting).unwrap()).collect();
        assert_eq!(hasher.verify("x", None), Err(PasswordError::Busy));
        drop(places);
        assert_eq!(hasher.verify("x", None), Ok(false));
    }
}
