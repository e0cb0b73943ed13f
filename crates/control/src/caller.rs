//! Who asks for something, and what they may.
use farm::model::{Actor, Grant, ObjectKind, Role, Scope, Stored, Task, Timestamp, Token, User, UserName};
use farm::rules::permission::{Action, Denied, Place, Who, check, needed};

use crate::whole::Control;

/// Who asks for something: known for certain, since whoever makes one has let them in.
#[derive(Clone, Debug)]
pub struct Caller {
    actor: Actor,
    rights: Rights,
    at: Timestamp,
}

#[derive(Clone, Debug)]
enum Rights {
    /// Everything, in the whole farm.
    All,
    /// What the user's roles give, and the token leaves of it.
    OfUser { user: Box<User>, roles: Vec<(Role, Scope)>, token: Option<Box<Token>> },
}

/// The name under which the audit lists what was asked for by root on the server itself.
const LOCAL_ROOT: &str = "root";
/// The name under which the audit lists what the farm does by itself.
const SYSTEM: &str = "system";

impl Caller {
    /// Root on the server itself, who could change everything without asking us anyway.
    #[must_use]
    pub fn local_root(request: Option<String>, at: Timestamp) -> Self {
        let actor = Actor { user: known(LOCAL_ROOT), token: None, origin: "local".to_owned(), request };
        Self { actor, rights: Rights::All, at }
    }

    /// The farm itself, on the server `origin`: what follows from what is configured, as an automatic merge.
    #[must_use]
    pub fn system(origin: &str, at: Timestamp) -> Self {
        let actor = Actor { user: known(SYSTEM), token: None, origin: origin.to_owned(), request: None };
        Self { actor, rights: Rights::All, at }
    }

    /// Whoever asked for a task, while it runs.
    pub(crate) fn task(task: &Stored<Task>, control: &Control) -> Self {
        let request = Some(format!("task {}", task.id));
        let system = control.system();
        let actor = Actor { user: task.actor.clone(), request, ..system.actor };
        Self { actor, ..system }
    }

    /// A user who was let in, with all roles that the catalogue has of them, by `token` or by password.
    #[must_use]
    pub fn user(
        user: User,
        grants: &[Stored<Grant>],
        token: Option<Stored<Token>>,
        origin: String,
        request: Option<String>,
        at: Timestamp,
    ) -> Self {
        let roles = grants.iter().map(|grant| (grant.role, grant.scope)).collect();
        let id = token.as_ref().map(|token| token.id);
        let actor = Actor { user: user.name.clone(), token: id, origin, request };
        let token = token.map(|token| Box::new(token.value));
        Self { actor, rights: Rights::OfUser { user: Box::new(user), roles, token }, at }
    }

    /// As audit entries name them.
    #[must_use]
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// When they asked.
    #[must_use]
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether this is root on the server itself, or the server.
    #[must_use]
    pub const fn is_local(&self) -> bool {
        matches!(self.rights, Rights::All)
    }

    /// Whether they may do this with an object of this kind in this place.
    ///
    /// # Errors
    /// [`Denied`], with the role that is missing.
    pub fn may(&self, action: Action, kind: ObjectKind, place: Place) -> Result<(), Denied> {
        match &self.rights {
            Rights::All => Ok(()),
            Rights::OfUser { user, roles, token } => {
                check(&Who { user, roles, token: token.as_deref() }, needed(action, kind, place), self.at)
            }
        }
    }

    /// Whether they may do it in the whole farm, or in at least one of these places.
    ///
    /// # Errors
    /// [`Denied`], with the role that is missing in the whole farm.
    pub fn may_in_any(
        &self,
        action: Action,
        kind: ObjectKind,
        places: impl IntoIterator<Item = Place>,
    ) -> Result<(), Denied> {
        let in_the_farm = self.may(action, kind, Place::Farm);
        if in_the_farm.is_ok() || places.into_iter().any(|place| self.may(action, kind, place).is_ok()) {
            return Ok(());
        }
        in_the_farm
    }
}

/// A name that is written in this file.
#[allow(clippy::expect_used, reason = "both names are constants, and a test makes both")]
fn known(name: &str) -> UserName {
    UserName::new(name).expect("a user name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use farm::model::{Id, Revision, Text};

    const AT: Timestamp = Timestamp::from_ms(1_795_000_000_000);

    #[test]
    fn root_and_the_farm_itself_may_everything_under_their_names() {
        for (caller, name) in [(Caller::local_root(None, AT), "root"), (Caller::system("one", AT), "system")]
        {
            assert_eq!(caller.actor().user.as_str(), name);
            assert!(caller.is_local());
            assert_eq!(caller.may(Action::Change, ObjectKind::User, Place::Farm), Ok(()));
        }
    }

    #[test]
    fn user_may_what_the_roles_give_and_no_more() {
        let user = User {
            name: Text::new("ann").unwrap(),
            description: Text::new("").unwrap(),
            password: None,
            must_change_password: false,
            disabled: false,
        };
        let site = Id::new(1).unwrap();
        let value = Grant { user: Id::new(5).unwrap(), role: Role::Administrator, scope: Scope::Site(site) };
        let grant = Stored { id: Id::new(6).unwrap(), revision: Revision::FIRST, value };
        let caller = Caller::user(user, &[grant], None, "10.0.0.7".to_owned(), None, AT);
        assert!(!caller.is_local());
        assert_eq!(caller.may(Action::Change, ObjectKind::Vdisk, Place::Site(site)), Ok(()));
        let denied = caller.may(Action::Change, ObjectKind::Vdisk, Place::Farm).unwrap_err();
        assert!(denied.to_string().contains("administrator in the whole farm"), "{denied}");
        let (own, other) = (Place::Site(site), Place::Site(Id::new(2).unwrap()));
        let in_any =
            |places: &[Place]| caller.may_in_any(Action::Change, ObjectKind::Vdisk, places.iter().copied());
        assert_eq!(in_any(&[other, own]), Ok(()));
        assert_eq!(in_any(&[other]), Err(denied.clone()));
        assert_eq!(in_any(&[]), Err(denied));
    }
}
