//! The first run: a farm without administrators gets one, and a token to set its password with.
use std::time::Duration;

use farm::model::{Description, Grant, Name, Role, Scope, Stored, Timestamp, Token, User, UserName};

use super::{LogInError, NewToken, People, Secret, SecretKind, Session, make_secret, secrets};
use crate::error::ControlError;
use crate::whole::Control;

/// What the first administrator is called.
const FIRST: &str = "admin";
/// What its token is called.
const TOKEN: &str = "first run";
/// How long it is good.
const GOOD_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The first administrator, who has no password yet.
#[derive(Clone, Debug)]
pub struct FirstRun {
    /// Who.
    pub user: UserName,
    /// What to set the password with, once; to be shown to whoever starts the server.
    pub token: Secret,
    /// Until when it can be used.
    pub until: Timestamp,
}

impl People {
    /// Makes the first administrator where the farm has no user, and a new token for one who has never set a password:
    /// what an earlier start printed is no good any more. `None`: there are administrators.
    ///
    /// # Errors
    /// The catalogue's.
    pub fn first_run(&self, control: &Control) -> Result<Option<FirstRun>, ControlError> {
        // Most starts change nothing, and need not wait for a write.
        if control.read(|reader| Ok(waiting(&reader.all::<User>()?)))? == Waiting::No {
            return Ok(None);
        }
        let caller = control.system();
        control.change(&caller, |change| {
            let user = match waiting(&change.all::<User>()?) {
                Waiting::No => return Ok(None),
                Waiting::For(user) => change.get(user)?,
                Waiting::Nobody => {
                    let user = change.create(User {
                        name: UserName::new(FIRST)?,
                        description: Description::new("the first administrator")?,
                        password: None,
                        must_change_password: false,
                        disabled: false,
                    })?;
                    change.create(Grant { user: user.id, role: Role::Administrator, scope: Scope::Farm })?;
                    user
                }
            };
            for old in change.tokens(user.id)? {
                change.delete(old.id, old.revision)?;
            }
            let until = change.now().after(GOOD_FOR);
            let new = NewToken {
                user: user.id,
                name: Name::new(TOKEN)?,
                role: Role::Administrator,
                scope: Scope::Farm,
                expires_at: Some(until),
            };
            let (_, token) = make_secret(change, new, SecretKind::FirstRun)?;
            Ok(Some(FirstRun { user: user.value.name, token, until }))
        })
    }

    /// Sets the first administrator's password with the token of the first run, which is gone by that, and lets them in.
    ///
    /// # Errors
    /// [`LogInError::NoFirstRun`], or [`LogInError::Password`] of a password that is not taken: the token stays good.
    pub fn claim_first_run(
        &self,
        control: &Control,
        secret: &str,
        password: &str,
    ) -> Result<Session, LogInError> {
        if SecretKind::of(secret) != Some(SecretKind::FirstRun) {
            return Err(LogInError::NoFirstRun);
        }
        let now = control.now();
        let digest = secrets::digest(secret);
        let good = |token: Option<Stored<Token>>| {
            token.filter(|token| !token.disabled && token.expires_at.is_none_or(|end| end > now))
        };
        let found = control.read(|reader| {
            let Some(token) = good(reader.token(digest)?) else { return Ok(None) };
            Ok(reader.find(token.user)?)
        })?;
        let Some(user) = found.filter(|user| !user.disabled) else { return Err(LogInError::NoFirstRun) };
        let hash = self.hash(&user.name, password)?;
        let claimed = control.change(&control.system(), |change| {
            // Another one may have claimed it meanwhile.
            let Some(token) = good(change.token(digest)?) else { return Ok(None) };
            change.delete(token.id, token.revision)?;
            let user = change.get(token.user)?;
            let new = User { password: Some(hash.clone()), ..user.value };
            Ok(Some(change.update_as("set-password", user.id, user.revision, new)?))
        })?;
        let user = claimed.ok_or(LogInError::NoFirstRun)?;
        tracing::info!(user = %user.name, "the first administrator has set a password");
        self.begin(user, now)
    }
}

/// Whom the farm waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// For nobody: there are administrators.
    No,
    /// For this one, who has never set a password.
    For(farm::model::UserId),
    /// There are no users at all.
    Nobody,
}

fn waiting(users: &[Stored<User>]) -> Waiting {
    match users {
        [] => Waiting::Nobody,
        [only] if only.name.as_str() == FIRST && only.password.is_none() && !only.disabled => {
            Waiting::For(only.id)
        }
        _ => Waiting::No,
    }
}
