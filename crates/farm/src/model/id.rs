//! Identity: what names an object for as long as the farm lives, and which state of it somebody saw.
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::bad_value::BadValue;

/// Names an object of kind `K`. Numbers are given out once in a farm's life, over all kinds: object 17 is one thing.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64", bound = "")]
pub struct Id<K> {
    number: i64,
    of: PhantomData<fn() -> K>,
}

impl<K> Id<K> {
    /// From a number, which must be positive.
    ///
    /// # Errors
    /// [`BadValue`].
    pub fn new(number: i64) -> Result<Self, BadValue> {
        if number > 0 {
            Ok(Self { number, of: PhantomData })
        } else {
            Err(BadValue::number("an id", number, "a number from 1 on"))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.number
    }
}

impl<K> TryFrom<i64> for Id<K> {
    type Error = BadValue;

    fn try_from(number: i64) -> Result<Self, BadValue> {
        Self::new(number)
    }
}

impl<K> From<Id<K>> for i64 {
    fn from(id: Id<K>) -> Self {
        id.number
    }
}

// Written out, since derived ones would ask the same of `K`, of which there is never a value.
impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Id<K> {}

impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<K> Eq for Id<K> {}

impl<K> PartialOrd for Id<K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K> Ord for Id<K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

impl<K> Hash for Id<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.number)
    }
}

impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

/// Which state of an object: 1 when it is made, one more with every change. Who changes an object says which state
/// the change was thought out for; where that is no longer the present one, nothing is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Revision(i64);

impl Revision {
    /// Of an object that was just made.
    pub const FIRST: Self = Self(1);

    /// From a number, which must be positive.
    ///
    /// # Errors
    /// [`BadValue`].
    pub fn new(number: i64) -> Result<Self, BadValue> {
        if number > 0 {
            Ok(Self(number))
        } else {
            Err(BadValue::number("a revision", number, "a number from 1 on"))
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }

    /// That of the next state.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl TryFrom<i64> for Revision {
    type Error = BadValue;

    fn try_from(number: i64) -> Result<Self, BadValue> {
        Self::new(number)
    }
}

impl From<Revision> for i64 {
    fn from(revision: Revision) -> Self {
        revision.0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An object as the catalogue holds it: its value, with its id and the revision that this value is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored<T> {
    /// Names it.
    #[serde(bound = "")]
    pub id: Id<T>,
    /// Which state of it this is.
    pub revision: Revision,
    /// What it is.
    pub value: T,
}

impl<T> Deref for Stored<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_or_revision_below_one_is_refused() {
        assert!(Id::<()>::new(0).is_err());
        assert!(Revision::new(-1).is_err());
        assert_eq!(Id::<()>::new(7).map(Id::get), Ok(7));
        assert_eq!(Revision::FIRST.next().get(), 2);
    }

    #[test]
    fn id_is_a_plain_number_in_json() {
        let id: Id<u8> = serde_json::from_str("12").unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), "12");
        assert!(serde_json::from_str::<Id<u8>>("0").is_err());
    }
}
