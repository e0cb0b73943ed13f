//! Who may do what where: the one place that decides it.
//!
//! A user has roles, each in the farm, in a site or in a collection; a role holds in everything inside. A token narrows
//! what its user may do, and never widens it. What an action needs follows from the kind of its object ([`needed`]);
//! whether somebody has it is one comparison ([`check`]).
use crate::model::{
    Choice, Collection, CollectionId, ObjectKind, Role, Scope, SiteId, Stored, Timestamp, Token, User,
};

/// What somebody wants to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look at it.
    See,
    /// Run it: boot, restart, shut down, message a device; cancel a task.
    Operate,
    /// Make, change or delete it.
    Change,
}

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It belongs to the whole farm.
    Farm,
    /// To a site.
    Site(SiteId),
    /// To a collection of a site.
    Collection(SiteId, CollectionId),
}

impl Place {
    /// Of what belongs to a site, or else to the whole farm.
    #[must_use]
    pub fn of_site(site: Option<SiteId>) -> Self {
        site.map_or(Self::Farm, Self::Site)
    }

    /// Of what belongs to a collection.
    #[must_use]
    pub fn of_collection(collection: &Stored<Collection>) -> Self {
        Self::Collection(collection.site, collection.id)
    }
}

/// What an action takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// At least this role.
    pub role: Role,
    /// In this place; `None`: in any.
    pub place: Option<Place>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Who<'a> {
    /// The user.
    pub user: &'a User,
    /// The user's roles.
    pub roles: &'a [(Role, Scope)],
    /// The token that the user goes by.
    pub token: Option<&'a Token>,
}

/// Why somebody may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The user is disabled.
    #[error("user {0} is disabled")]
    UserDisabled(String),
    /// The token is disabled or has expired.
    #[error("the token {0} is disabled or has expired: make a new one")]
    TokenEnded(String),
    /// The password must be changed first.
    #[error("user {0} must change the password before anything else")]
    PasswordFirst(String),
    /// The role is missing.
    #[error("this takes the role {role} {place}, which {who} does not have there")]
    Role {
        /// Which role.
        role: &'static str,
        /// Where, in words.
        place: String,
        /// Who.
        who: String,
    },
}

/// What an action on an object takes.
#[must_use]
pub const fn needed(action: Action, kind: ObjectKind, place: Place) -> Needed {
    let farm = Needed { role: Role::Administrator, place: Some(Place::Farm) };
    match (action, kind) {
        // Who has which rights is the farm administrators' business alone.
        (_, ObjectKind::User | ObjectKind::Grant | ObjectKind::Token) => farm,
        (Action::See, ObjectKind::Device | ObjectKind::Collection | ObjectKind::PersistentCache) => {
            Needed { role: Role::ReadOnly, place: Some(place) }
        }
        // Whoever works somewhere must be able to see what there is to boot, and from where.
        (Action::See, _) => Needed { role: Role::ReadOnly, place: None },
        (Action::Operate, ObjectKind::Device | ObjectKind::Task) => {
            Needed { role: Role::Operator, place: Some(place) }
        }
        (Action::Operate | Action::Change, ObjectKind::Farm | ObjectKind::Site) => farm,
        (Action::Operate | Action::Change, _) => Needed { role: Role::Administrator, place: Some(place) },
    }
}

/// Whether somebody may do what takes `needed`, at this moment.
///
/// # Errors
/// [`Denied`].
pub fn check(who: &Who<'_>, needed: Needed, now: Timestamp) -> Result<(), Denied> {
    let name = who.user.name.to_string();
    if who.user.disabled {
        return Err(Denied::UserDisabled(name));
    }
    if who.user.must_change_password && who.token.is_none() {
        return Err(Denied::PasswordFirst(name));
    }
    let by_token = who.token.is_none_or(|token| gives(token.role, token.scope, needed));
    if let Some(token) = who.token
        && (token.disabled || token.expires_at.is_some_and(|end| end <= now))
    {
        return Err(Denied::TokenEnded(token.name.to_string()));
    }
    if by_token && who.roles.iter().any(|(role, scope)| gives(*role, *scope, needed)) {
        return Ok(());
    }
    let place = match needed.place {
        None => "anywhere".to_owned(),
        Some(Place::Farm) => "in the whole farm".to_owned(),
        Some(Place::Site(site)) => format!("in site #{site}"),
        Some(Place::Collection(site, collection)) => format!("in collection #{collection} of site #{site}"),
    };
    let who = if by_token { format!("user {name}") } else { format!("the token of user {name}") };
    Err(Denied::Role { role: needed.role.word(), place, who })
}

/// Whether a role in a scope is enough.
fn gives(role: Role, scope: Scope, needed: Needed) -> bool {
    let inside = match (scope, needed.place) {
        (Scope::Farm, _) | (_, None) => true,
        (Scope::Site(own), Some(Place::Site(site) | Place::Collection(site, _))) => own == site,
        (Scope::Collection(own), Some(Place::Collection(_, collection))) => own == collection,
        (Scope::Site(_), Some(Place::Farm)) | (Scope::Collection(_), Some(Place::Farm | Place::Site(_))) => {
            false
        }
    };
    role >= needed.role && inside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Id, TokenDigest};
    use crate::rules::sample::{at, text};

    fn user() -> User {
        let (name, description) = (text("ann"), text(""));
        User { name, description, password: None, must_change_password: false, disabled: false }
    }

    fn site(number: i64) -> SiteId {
        Id::new(number).unwrap()
    }

    fn may(roles: &[(Role, Scope)], action: Action, kind: ObjectKind, place: Place) -> bool {
        check(&Who { user: &user(), roles, token: None }, needed(action, kind, place), at(0)).is_ok()
    }

    #[test]
    fn role_holds_in_everything_inside_its_scope_and_nowhere_else() {
        let lab: CollectionId = Id::new(10).unwrap();
        let inside = Place::Collection(site(1), lab);
        let scopes = [
            (Scope::Farm, [true, true, true]),
            (Scope::Site(site(1)), [false, true, true]),
            (Scope::Collection(lab), [false, false, true]),
            (Scope::Site(site(2)), [false; 3]),
            (Scope::Collection(Id::new(11).unwrap()), [false; 3]),
        ];
        for (scope, expected) in scopes {
            let roles = [(Role::Administrator, scope)];
            let found = [Place::Farm, Place::Site(site(1)), inside]
                .map(|place| may(&roles, Action::Change, ObjectKind::Device, place));
            assert_eq!(found, expected, "{scope:?}");
        }
    }

    #[test]
    fn each_role_does_what_it_is_for() {
        let place = Place::Collection(site(1), Id::new(10).unwrap());
        for (role, expected) in [
            (Role::ReadOnly, [true, false, false]),
            (Role::Operator, [true, true, false]),
            (Role::Administrator, [true, true, true]),
        ] {
            let roles = [(role, Scope::Site(site(1)))];
            let found = [Action::See, Action::Operate, Action::Change]
                .map(|action| may(&roles, action, ObjectKind::Device, place));
            assert_eq!(found, expected, "{role:?}");
            assert!(!may(&roles, Action::See, ObjectKind::User, Place::Farm));
            assert!(!may(&roles, Action::Change, ObjectKind::Site, Place::Site(site(1))));
            assert!(may(&roles, Action::See, ObjectKind::Vdisk, Place::Farm));
        }
        assert!(!may(&[], Action::See, ObjectKind::Vdisk, Place::Farm));
    }

    #[test]
    fn token_narrows_what_its_user_may() {
        let token = Token {
            user: Id::new(1).unwrap(),
            name: text("ci"),
            digest: TokenDigest([0; 32]),
            role: Role::ReadOnly,
            scope: Scope::Site(site(1)),
            made_at: at(0),
            expires_at: Some(at(100)),
            disabled: false,
        };
        let user = user();
        let all = [(Role::Administrator, Scope::Farm)];
        let with = |roles: &[(Role, Scope)], token: &Token, action, now| {
            let who = Who { user: &user, roles, token: Some(token) };
            check(&who, needed(action, ObjectKind::Device, Place::Site(site(1))), at(now))
        };
        assert_eq!(with(&all, &token, Action::See, 99), Ok(()));
        assert_eq!(with(&all, &token, Action::See, 100), Err(Denied::TokenEnded("ci".to_owned())));
        assert!(matches!(with(&all, &token, Action::Change, 0), Err(Denied::Role { .. })));
        let wide = Token { role: Role::Administrator, scope: Scope::Farm, ..token.clone() };
        let little = [(Role::ReadOnly, Scope::Farm)];
        assert!(with(&little, &wide, Action::Change, 0).is_err());
        let off = Token { disabled: true, ..token };
        assert!(with(&all, &off, Action::See, 0).is_err());
    }

    #[test]
    fn disabled_user_and_one_with_an_initial_password_may_nothing() {
        let all = [(Role::Administrator, Scope::Farm)];
        let see = needed(Action::See, ObjectKind::Vdisk, Place::Farm);
        let disabled = User { disabled: true, ..user() };
        let who = Who { user: &disabled, roles: &all, token: None };
        assert_eq!(check(&who, see, at(0)), Err(Denied::UserDisabled("ann".to_owned())));
        let fresh = User { must_change_password: true, ..user() };
        let who = Who { user: &fresh, roles: &all, token: None };
        assert_eq!(check(&who, see, at(0)), Err(Denied::PasswordFirst("ann".to_owned())));
    }
}
