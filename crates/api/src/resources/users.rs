//! Administrators.
use control::ControlError;
use control::people::put_password;
use farm::catalogue::Reader;
use farm::model::{Description, ObjectKind, Stored, User, UserName};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::object::{Resource, Told, Which, asked_caller, made, once, operations, patch};
use super::text;
use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, find};

pub(super) fn all() -> Vec<Operation> {
    let mut all = operations::<Users>(Which { make: false, change: false, delete: false });
    all.extend([
        Operation::post("/v1/users", "createUser", "users", "Makes a user.", make)
            .takes::<NewUser>()
            .makes::<Told<Users>>()
            .once(),
        Operation::patch("/v1/users/{user}", "updateUser", "users", "Changes a user.", change)
            .takes_patch::<UserBody>()
            .gives::<Told<Users>>(),
        Operation::delete("/v1/users/{user}", "deleteUser", "users", "Takes a user away.", take_away),
        Operation::post(
            "/v1/users/{user}/password",
            "setUserPassword",
            "users",
            "Gives a user another password, and ends all sessions of theirs.",
            password,
        )
        .takes::<PasswordBody>(),
    ]);
    all
}

/// An administrator.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserBody {
    /// The name to log in with; no two users have the same.
    name: Plain<UserName>,
    /// What somebody wrote about them.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// Whether the password must be changed before anything else.
    #[serde(default)]
    must_change_password: bool,
    /// A disabled user is let in by nothing, tokens included.
    #[serde(default)]
    disabled: bool,
}

/// A new administrator.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewUser {
    /// The name to log in with; no two users have the same.
    name: Plain<UserName>,
    /// What somebody wrote about them.
    #[serde(default)]
    description: Option<Plain<Description>>,
    /// Whether the password must be changed before anything else.
    #[serde(default)]
    must_change_password: bool,
    /// A disabled user is let in by nothing, tokens included.
    #[serde(default)]
    disabled: bool,
    /// What to log in with; null: by tokens alone.
    #[serde(default)]
    #[schemars(length(max = 256))]
    password: Option<String>,
}

/// What is told of a user besides.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct UserMore {
    /// Whether there is a password to log in with.
    has_password: bool,
}

pub(crate) enum Users {}

impl Resource for Users {
    type Record = User;
    type Body = UserBody;
    type More = UserMore;
    const NAME: &'static str = "User";
    const ONE: &'static str = "a user";
    const PATH: &'static str = "/v1/users";
    const PARAMETER: &'static str = "user";

    fn place(_: &mut Reader<'_>, _: &User) -> Result<Place, ControlError> {
        Ok(Place::Farm)
    }

    fn body(_: &mut Names, _: &mut Reader<'_>, user: &User) -> Result<UserBody, ControlError> {
        Ok(UserBody {
            name: Plain(user.name.clone()),
            description: Some(Plain(user.description.clone())),
            must_change_password: user.must_change_password,
            disabled: user.disabled,
        })
    }

    fn more(_: &mut Names, _: &mut Reader<'_>, user: &Stored<User>) -> Result<UserMore, ControlError> {
        Ok(UserMore { has_password: user.password.is_some() })
    }

    fn record(_: &mut Reader<'_>, body: UserBody, old: Option<&User>) -> Result<User, ControlError> {
        let UserBody { name, description, must_change_password, disabled } = body;
        Ok(User {
            name: name.0,
            description: text(description)?,
            password: old.and_then(|old| old.password.clone()),
            must_change_password,
            disabled,
        })
    }
}

fn make(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let NewUser { name, description, must_change_password, disabled, password } = asked.body()?;
    let hash = password.map(|password| asked.api.people.hash(&name.0, &password)).transpose();
    let hash = hash.map_err(ControlError::from)?;
    let description = text(description)?;
    let user = User { name: name.0, description, password: hash, must_change_password, disabled };
    once(asked, |change| {
        asked_caller(asked)?.may(Action::Change, ObjectKind::User, Place::Farm)?;
        let stored = change.create(user.clone())?;
        made::<Users>(change, &stored)
    })
}

/// Whoever is disabled is out at once.
fn change(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let reply = patch::<Users>(asked)?;
    let wanted = asked.parameter("user")?;
    // By another name, the user is found under that the next time; nobody who was disabled is let in meanwhile, either.
    if let Ok(user) = asked.control().read(|reader| find::<User>(reader, wanted))
        && user.disabled
    {
        asked.api.people.end_sessions(user.id);
    }
    Ok(reply)
}

/// A user goes with roles and tokens: they are nobody else's.
fn take_away(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let wanted = asked.parameter("user")?;
    let caller = asked.caller()?;
    let expected = asked.expected()?;
    let id = asked.control().change(caller, |change| {
        caller.may(Action::Change, ObjectKind::User, Place::Farm)?;
        let user = find::<User>(change, wanted)?;
        for token in change.tokens(user.id)? {
            change.delete(token.id, token.revision)?;
        }
        for grant in change.grants(user.id)? {
            change.delete(grant.id, grant.revision)?;
        }
        change.delete(user.id, expected.or(user.revision))?;
        Ok(user.id)
    })?;
    asked.api.people.end_sessions(id);
    Ok(Reply::nothing())
}

/// Another password for somebody.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PasswordBody {
    /// The password.
    #[schemars(length(max = 256))]
    password: String,
    /// Whether the user must change it before anything else.
    #[serde(default)]
    must_change: bool,
}

fn password(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let PasswordBody { password, must_change } = asked.body()?;
    let (caller, wanted) = (asked.caller()?, asked.parameter("user")?);
    let user = asked.control().read(|reader| {
        caller.may(Action::Change, ObjectKind::User, Place::Farm)?;
        find::<User>(reader, wanted)
    })?;
    let hash = asked.api.people.hash(&user.name, &password).map_err(ControlError::from)?;
    asked
        .control()
        .change(caller, |change| put_password(change, user.id, user.revision, hash.clone(), must_change))?;
    asked.api.people.end_sessions(user.id);
    Ok(Reply::nothing())
}
