//! Administrators: how they are let in, and what they are let in with.
//!
//! A password gives a session, which lasts as long as it is used; programs go by API tokens, which the catalogue holds as
//! digests, each with a role, a place and an end. What either may do is decided elsewhere, in one place
//! ([`Caller::may`]): here it is decided who asks. The first administrator comes in by a token that is made when the farm has
//! none, is good for one thing (setting a password), and is told to whoever starts the server.
mod first_run;
mod passwords;
mod secrets;
mod sessions;
mod throttle;

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farm::catalogue::{Change, Reader};
use farm::model::{
    Actor, Grant, Name, ObjectKind, PasswordHash, Revision, Role, Scope, Stored, Timestamp, Token,
    TokenDigest, User, UserId, UserName,
};

use crate::caller::Caller;
use crate::error::{Code, ControlError};
use crate::whole::Control;

pub use first_run::FirstRun;
pub use passwords::{MAX_PASSWORD_BYTES, MIN_PASSWORD_CHARS, PasswordError};
pub use secrets::{NoRandomness, Secret, SecretKind};
pub use sessions::{IDLE, LONGEST};

use passwords::Hasher;
use sessions::Sessions;
use throttle::{Key, Throttle};

/// Who is let in. There is one for each server.
#[derive(Debug, Default)]
pub struct People {
    hasher: Hasher,
    throttle: Mutex<Throttle>,
    sessions: Mutex<Sessions>,
}

/// From where a request came, and what it is called in the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The address.
    pub address: IpAddr,
    /// The request.
    pub request: Option<String>,
}

/// Somebody who was let in.
#[derive(Clone, Debug)]
pub struct Identity {
    /// With all rights.
    pub caller: Caller,
    /// Who.
    pub user: Stored<User>,
    /// By which token; `None`: by password.
    pub token: Option<Stored<Token>>,
}

/// A session that has begun.
#[derive(Clone, Debug)]
pub struct Session {
    /// What to show from now on.
    pub secret: Secret,
    /// When it ends unless it is used.
    pub ends: Timestamp,
    /// Whose it is.
    pub user: Stored<User>,
}

/// Why somebody was not let in.
#[derive(Debug, thiserror::Error)]
pub enum LogInError {
    /// User or password are wrong; which, is not told.
    #[error("the user name or the password is wrong")]
    Wrong,
    /// The user may not log in any more.
    #[error("user {0} is disabled")]
    Disabled(UserName),
    /// Too many tries.
    #[error("too many failed log-ins: try again in {} s", .0.as_secs().max(1))]
    Wait(Duration),
    /// The new password was not taken, or none can be looked at now.
    #[error(transparent)]
    Password(#[from] PasswordError),
    /// The token of the first run is unknown, was used, or has ended.
    #[error(
        "the token of the first run is unknown, was used, or has ended: start the server again for a new one; a farm that \
         has its administrators makes none (headwater user password)"
    )]
    NoFirstRun,
    /// The catalogue below.
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl From<LogInError> for ControlError {
    fn from(error: LogInError) -> Self {
        let code = match error {
            LogInError::Control(error) => return error,
            LogInError::Password(error) => return error.into(),
            LogInError::Wrong | LogInError::Disabled(_) | LogInError::NoFirstRun => Code::Unauthenticated,
            LogInError::Wait(_) => Code::Throttled,
        };
        Self::new(code, error.to_string())
    }
}

impl From<PasswordError> for ControlError {
    fn from(error: PasswordError) -> Self {
        match error {
            PasswordError::Busy => Self::new(Code::Throttled, error.to_string()),
            PasswordError::Failed => Self::new(Code::Internal, error.to_string()),
            PasswordError::TooShort | PasswordError::TooLong | PasswordError::Guessable => {
                Self::bad_value("password", error)
            }
        }
    }
}

impl From<NoRandomness> for ControlError {
    fn from(error: NoRandomness) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}

/// What a new token is to be.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Whose.
    pub user: UserId,
    /// What the user calls it.
    pub name: Name,
    /// The most that it can do.
    pub role: Role,
    /// The only place where it can do it.
    pub scope: Scope,
    /// When it ends; `None`: never.
    pub expires_at: Option<Timestamp>,
}

impl People {
    /// Lets somebody in by password.
    ///
    /// # Errors
    /// [`LogInError`].
    pub fn log_in(
        &self,
        control: &Control,
        user: &str,
        password: &str,
        from: &Origin,
    ) -> Result<Session, LogInError> {
        let user = self.known(control, user, password, from)?;
        tracing::info!(user = %user.name, address = %from.address, "logged in");
        self.begin(user, control.now())
    }

    /// Looks at a password for one thing that is done at once: no session begins.
    ///
    /// # Errors
    /// [`LogInError`].
    pub fn check_password(
        &self,
        control: &Control,
        user: &str,
        password: &str,
        from: &Origin,
    ) -> Result<Identity, LogInError> {
        let user = self.known(control, user, password, from)?;
        let grants = control.read(|reader| Ok(reader.grants(user.id)?))?;
        Ok(identity(user, &grants, None, from, control.now()))
    }

    /// The user whose password this is.
    fn known(
        &self,
        control: &Control,
        user: &str,
        password: &str,
        from: &Origin,
    ) -> Result<Stored<User>, LogInError> {
        let now = control.now();
        // Of a text that is no user name there is no user; it is counted by the address alone.
        let name = UserName::new(user).ok();
        let keys: Vec<Key> = name
            .iter()
            .map(|name| Key::User(name.as_str().to_owned()))
            .chain([Key::address(from.address)])
            .collect();
        lock(&self.throttle).begin(&keys, now).map_err(LogInError::Wait)?;
        let known = control.read(|reader| find_user(reader, name.as_ref()))?;
        let hash = known.as_ref().and_then(|user| user.password.as_ref());
        let fits = self.hasher.verify(password, hash)?;
        let object = known.as_ref().map_or(0, |user| user.id.get());
        let Some(user) = known.filter(|_| fits) else {
            tracing::warn!(user, address = %from.address, "log-in failed");
            // As often as the throttle lets anybody try.
            witness(control, "log-in-failed", name.as_ref(), object, from);
            return Err(LogInError::Wrong);
        };
        lock(&self.throttle).succeeded(&keys, now);
        if user.disabled {
            witness(control, "log-in-refused", name.as_ref(), object, from);
            return Err(LogInError::Disabled(user.value.name));
        }
        witness(control, "log-in", name.as_ref(), object, from);
        Ok(user)
    }

    /// Who shows this secret: a session's, or an API token. `None`: nobody, or nobody any more.
    ///
    /// # Errors
    /// The catalogue's.
    pub fn identify(
        &self,
        control: &Control,
        secret: &str,
        from: &Origin,
    ) -> Result<Option<Identity>, ControlError> {
        let now = control.now();
        let digest = secrets::digest(secret);
        let (user, token) = match SecretKind::of(secret) {
            None | Some(SecretKind::FirstRun) => return Ok(None),
            Some(SecretKind::Session) => (lock(&self.sessions).user(digest, now), None),
            Some(SecretKind::Token) => {
                let token = control.read(|reader| Ok(reader.token(digest)?))?;
                let stands =
                    |token: &Stored<Token>| !token.disabled && token.expires_at.is_none_or(|end| end > now);
                let token = token.filter(stands);
                (token.as_ref().map(|token| token.user), token)
            }
        };
        let Some(id) = user else { return Ok(None) };
        let found = control.read(|reader| {
            let Some(user) = reader.find(id)? else { return Ok(None) };
            let grants = reader.grants(id)?;
            Ok(Some((user, grants)))
        })?;
        let Some((user, grants)) = found.filter(|(user, _)| !user.disabled) else { return Ok(None) };
        Ok(Some(identity(user, &grants, token, from, now)))
    }

    /// Ends the session of this secret, if it is one.
    pub fn log_out(&self, secret: &str) {
        lock(&self.sessions).end(secrets::digest(secret));
    }

    /// The hash of a password that `user` is to have: made before the change that it goes into, since it takes its time.
    ///
    /// # Errors
    /// [`PasswordError`].
    pub fn hash(&self, user: &UserName, password: &str) -> Result<PasswordHash, PasswordError> {
        self.hasher.hash(user.as_str(), password)
    }

    /// Changes somebody's own password, who shows the old one as well, and ends all other sessions of theirs.
    ///
    /// # Errors
    /// [`LogInError::Wrong`] of the old password, [`LogInError::Password`] of the new one.
    pub fn change_own_password(
        &self,
        control: &Control,
        identity: &Identity,
        shown: &str,
        old: &str,
        new: &str,
        from: &Origin,
    ) -> Result<(), LogInError> {
        let user = &identity.user;
        let keys = [Key::User(user.name.as_str().to_owned()), Key::address(from.address)];
        lock(&self.throttle).begin(&keys, control.now()).map_err(LogInError::Wait)?;
        if !self.hasher.verify(old, user.password.as_ref())? {
            return Err(LogInError::Wrong);
        }
        lock(&self.throttle).succeeded(&keys, control.now());
        let hash = self.hasher.hash(user.name.as_str(), new)?;
        control.change(&identity.caller, |change| {
            put_password(change, user.id, user.revision, hash.clone(), false)
        })?;
        lock(&self.sessions).end_all(user.id, Some(secrets::digest(shown)));
        Ok(())
    }

    /// Ends all sessions of a user: whoever was given another password, was disabled or is gone.
    pub fn end_sessions(&self, user: UserId) {
        lock(&self.sessions).end_all(user, None);
    }

    fn begin(&self, user: Stored<User>, now: Timestamp) -> Result<Session, LogInError> {
        let secret = Secret::new(SecretKind::Session).map_err(ControlError::from)?;
        let ends = lock(&self.sessions).begin(secret.digest(), user.id, now);
        Ok(Session { secret, ends, user })
    }
}

fn identity(
    user: Stored<User>,
    grants: &[Stored<Grant>],
    token: Option<Stored<Token>>,
    from: &Origin,
    now: Timestamp,
) -> Identity {
    let origin = from.address.to_canonical().to_string();
    let (value, request) = (user.value.clone(), from.request.clone());
    let caller = Caller::user(value, grants, token.clone(), origin, request, now);
    Identity { caller, user, token }
}

/// Gives a user another password, inside a change.
///
/// # Errors
/// [`Code::Stale`] where `expected` is not the user's revision, or the catalogue's.
pub fn put_password(
    change: &mut Change<'_>,
    user: UserId,
    expected: Revision,
    hash: PasswordHash,
    must_change: bool,
) -> Result<Stored<User>, ControlError> {
    let old = change.expect(user, expected)?;
    let new = User { password: Some(hash), must_change_password: must_change, ..old.value };
    Ok(change.update_as("set-password", user, expected, new)?)
}

/// Makes a token, inside a change. The secret is told now or never.
///
/// # Errors
/// [`Code::BadValue`] of an end that has passed, [`Code::Conflict`] of a name that the user's tokens have, or the
/// catalogue's.
pub fn make_token(change: &mut Change<'_>, new: NewToken) -> Result<(Stored<Token>, Secret), ControlError> {
    make_secret(change, new, SecretKind::Token)
}

fn make_secret(
    change: &mut Change<'_>,
    new: NewToken,
    kind: SecretKind,
) -> Result<(Stored<Token>, Secret), ControlError> {
    let made_at = change.now();
    if new.expires_at.is_some_and(|end| end <= made_at) {
        return Err(ControlError::bad_value("expires_at", "the end of a token lies in the future"));
    }
    let secret = Secret::new(kind)?;
    let NewToken { user, name, role, scope, expires_at } = new;
    let digest: TokenDigest = secret.digest();
    let token =
        change.create(Token { user, name, digest, role, scope, made_at, expires_at, disabled: false })?;
    Ok((token, secret))
}

/// Writes into the audit who came to the door. Where that cannot be written, the log has it: an administrator must get in to
/// mend what keeps it from being written.
fn witness(control: &Control, action: &str, name: Option<&UserName>, object: i64, from: &Origin) {
    let Some(name) = name else { return };
    let (origin, request) = (from.address.to_canonical().to_string(), from.request.clone());
    let by = Actor { user: name.clone(), token: None, origin, request };
    let written = control
        .catalogue()
        .change(&by, control.now(), |change| change.witness(action, ObjectKind::User, object, name.as_str()));
    if let Err(error) = written {
        tracing::warn!(user = %name, %error, "{action} could not be written into the audit");
    }
}

fn find_user(reader: &mut Reader<'_>, name: Option<&UserName>) -> Result<Option<Stored<User>>, ControlError> {
    let Some(name) = name else { return Ok(None) };
    match reader.user(name) {
        Ok(user) => Ok(Some(user)),
        Err(farm::catalogue::CatalogueError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
