//! Sessions: what somebody who logged in goes by. They are in memory alone: a restart of the server asks everybody to log
//! in again, and a log-in changes nothing in the catalogue.
use std::collections::HashMap;
use std::time::Duration;

use farm::model::{Timestamp, TokenDigest, UserId};

/// How long a session lasts without being used.
pub const IDLE: Duration = Duration::from_secs(60 * 60);
/// How long it lasts at most.
pub const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);
/// The most sessions at once.
const MAX_SESSIONS: usize = 4096;
/// The most sessions of one user; the oldest ends when there is one more.
const MAX_OF_USER: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Session {
    user: UserId,
    began: Timestamp,
    used: Timestamp,
}

impl Session {
    fn ends(&self) -> Timestamp {
        self.used.after(IDLE).min(self.began.after(LONGEST))
    }
}

/// All sessions, by the digests of their secrets.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    sessions: HashMap<TokenDigest, Session>,
}

impl Sessions {
    /// Begins one; gives when it ends unless it is used.
    pub(super) fn begin(&mut self, digest: TokenDigest, user: UserId, now: Timestamp) -> Timestamp {
        self.sessions.retain(|_, session| session.ends() > now);
        let of_user = self.sessions.values().filter(|session| session.user == user).count();
        if of_user >= MAX_OF_USER {
            self.end_oldest(|session| session.user == user);
        }
        if self.sessions.len() >= MAX_SESSIONS {
            self.end_oldest(|_| true);
        }
        let session = Session { user, began: now, used: now };
        self.sessions.insert(digest, session);
        session.ends()
    }

    /// Whose session this is; it lasts longer by that.
    pub(super) fn user(&mut self, digest: TokenDigest, now: Timestamp) -> Option<UserId> {
        let session = self.sessions.get_mut(&digest)?;
        if session.ends() <= now {
            self.sessions.remove(&digest);
            return None;
        }
        session.used = session.used.max(now);
        Some(session.user)
    }

    /// Ends one.
    pub(super) fn end(&mut self, digest: TokenDigest) {
        self.sessions.remove(&digest);
    }

    /// Ends all of a user but `kept`.
    pub(super) fn end_all(&mut self, user: UserId, kept: Option<TokenDigest>) {
        self.sessions.retain(|digest, session| session.user != user || Some(*digest) == kept);
    }

    fn end_oldest(&mut self, which: impl Fn(&Session) -> bool) {
        let some = self.sessions.iter().filter(|(_, session)| which(session));
        let oldest = some.min_by_key(|(_, session)| session.used).map(|(digest, _)| *digest);
        oldest.map(|digest| self.sessions.remove(&digest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farm::model::Id;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_ms(minutes * 60_000)
    }

    fn digest(number: u8) -> TokenDigest {
        TokenDigest([number; 32])
    }

    #[test]
    fn session_ends_when_it_is_not_used_and_after_twelve_hours_in_any_case() {
        let ann = Id::new(1).unwrap();
        let mut sessions = Sessions::default();
        assert_eq!(sessions.begin(digest(1), ann, at(0)), at(60));
        assert_eq!(sessions.user(digest(1), at(59)), Some(ann));
        assert_eq!(sessions.user(digest(1), at(118)), Some(ann));
        assert_eq!(sessions.user(digest(1), at(178)), None);
        sessions.begin(digest(2), ann, at(0));
        for minutes in (0..720).step_by(30) {
            assert_eq!(sessions.user(digest(2), at(minutes)), Some(ann));
        }
        assert_eq!(sessions.user(digest(2), at(720)), None);
    }

    #[test]
    fn one_session_too_many_ends_the_users_oldest() {
        let (ann, bob) = (Id::new(1).unwrap(), Id::new(2).unwrap());
        let mut sessions = Sessions::default();
        sessions.begin(digest(200), bob, at(0));
        for number in 0..=16 {
            sessions.begin(digest(number), ann, at(i64::from(number)));
        }
        assert_eq!(sessions.user(digest(0), at(17)), None);
        assert_eq!(sessions.user(digest(1), at(17)), Some(ann));
        assert_eq!(sessions.user(digest(200), at(17)), Some(bob));
    }

    #[test]
    fn ending_all_of_a_user_spares_others_and_the_one_that_is_kept() {
        let (ann, bob) = (Id::new(1).unwrap(), Id::new(2).unwrap());
        let mut sessions = Sessions::default();
        for (number, user) in [(1, ann), (2, ann), (3, bob)] {
            sessions.begin(digest(number), user, at(0));
        }
        sessions.end_all(ann, Some(digest(2)));
        let found = [1, 2, 3].map(|number| sessions.user(digest(number), at(1)).is_some());
        assert_eq!(found, [false, true, true]);
    }
}
