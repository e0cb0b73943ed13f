//! Logging in and out, and what everybody may do for themselves.
use control::ControlError;
use control::people::{Identity, Session};
use farm::model::{Choice, Timestamp, UserName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::grants::{Grants, told_scope};
use super::object::{Told, tell};
use super::users::Users;
use crate::asked::{Asked, WhoAsks, unauthorized};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref};

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::post("/v1/login", "logIn", "log-in", "Gives a session for a password.", log_in)
            .takes::<LogInBody>()
            .gives::<SessionAnswer>()
            .open(),
        Operation::post(
            "/v1/first-login",
            "firstLogIn",
            "log-in",
            "Sets the first administrator's password with the token that the server printed, once, and lets them in.",
            first,
        )
        .takes::<FirstBody>()
        .gives::<SessionAnswer>()
        .open(),
        Operation::post("/v1/logout", "logOut", "log-in", "Ends the session that it is asked with.", log_out),
        Operation::get("/v1/me", "getMe", "log-in", "Tells who asks, and what they may.", me).gives::<MeAnswer>(),
        Operation::post(
            "/v1/me/password",
            "changeMyPassword",
            "log-in",
            "Changes the password of who asks, and ends all other sessions of theirs.",
            password,
        )
        .takes::<OwnPasswordBody>(),
    ]
}

/// A password to log in with.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogInBody {
    /// The user's name.
    user: String,
    /// The password.
    password: String,
}

/// The token of the first run, and the password to set with it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FirstBody {
    /// What the server printed when it started.
    token: String,
    /// The password.
    password: String,
}

/// A session.
#[derive(Serialize, JsonSchema)]
struct SessionAnswer {
    /// What to show from now on: `Authorization: Bearer ...`.
    token: String,
    /// When it ends unless it is used.
    expires_at: Plain<Timestamp>,
    /// Whose it is.
    user: Plain<UserName>,
    /// Whether the password must be changed before anything else.
    must_change_password: bool,
}

fn answer(session: Session) -> Result<Reply, Problem> {
    let user = session.user.value;
    Reply::json(&SessionAnswer {
        token: session.secret.reveal().to_owned(),
        expires_at: Plain(session.ends),
        must_change_password: user.must_change_password,
        user: Plain(user.name),
    })
}

fn log_in(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let LogInBody { user, password } = asked.body()?;
    answer(asked.api.people.log_in(asked.control(), &user, &password, &asked.origin)?)
}

fn first(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let FirstBody { token, password } = asked.body()?;
    answer(asked.api.people.claim_first_run(asked.control(), &token, &password)?)
}

fn log_out(asked: &Asked<'_>) -> Result<Reply, Problem> {
    if let Some(WhoAsks { identity: Some((_, shown)), .. }) = &asked.who {
        asked.api.people.log_out(shown);
    }
    Ok(Reply::nothing())
}

/// Who asks, and what they may.
#[derive(Serialize, JsonSchema)]
struct MeAnswer {
    /// As the audit names them.
    name: String,
    /// Whether this is root on the server itself, who may everything.
    local: bool,
    /// The user; null: root on the server itself.
    user: Option<Object<Told<Users>>>,
    /// What the user may do, and where.
    roles: Vec<Object<Told<Grants>>>,
    /// What the token that was shown leaves of it; null: no token, or all.
    token: Option<TokenLimits>,
}

/// An object as it is told, with the schema of its kind.
#[derive(Serialize)]
#[serde(transparent)]
struct Object<T> {
    told: Value,
    #[serde(skip)]
    kind: std::marker::PhantomData<T>,
}

impl<T> Object<T> {
    const fn new(told: Value) -> Self {
        Self { told, kind: std::marker::PhantomData }
    }
}

impl<T: JsonSchema> JsonSchema for Object<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        generator.subschema_for::<T>()
    }
}

/// What a token leaves of its user's rights.
#[derive(Serialize, JsonSchema)]
struct TokenLimits {
    /// What it is called.
    name: String,
    /// The most that it can do.
    role: String,
    /// The only site where it can do it.
    site: Option<Ref>,
    /// The only collection where it can do it.
    collection: Option<Ref>,
    /// When it ends; null: never.
    expires_at: Option<Plain<Timestamp>>,
}

fn me(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let caller = asked.caller()?;
    let name = caller.actor().user.to_string();
    let identity = asked.who.as_ref().and_then(|who| who.identity.as_ref()).map(|(identity, _)| identity);
    let Some(Identity { user, token, .. }) = identity else {
        return Reply::json(&MeAnswer {
            name,
            local: caller.is_local(),
            user: None,
            roles: Vec::new(),
            token: None,
        });
    };
    let answer = asked.control().read(|reader| {
        let names = &mut Names::default();
        let mut roles = Vec::new();
        for grant in reader.grants(user.id)? {
            roles.push(Object::new(tell::<Grants>(names, reader, &grant)?));
        }
        let limits = match token {
            None => None,
            Some(token) => {
                let (site, collection) = told_scope(names, reader, token.scope)?;
                let (name, role) = (token.name.to_string(), token.role.word().to_owned());
                Some(TokenLimits { name, role, site, collection, expires_at: token.expires_at.map(Plain) })
            }
        };
        let user = Some(Object::new(tell::<Users>(names, reader, user)?));
        Ok::<_, ControlError>(MeAnswer { name: name.clone(), local: false, user, roles, token: limits })
    })?;
    Reply::json(&answer)
}

/// The old password, and the new one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OwnPasswordBody {
    /// The one that there is.
    old: String,
    /// The one that is to be.
    new: String,
}

fn password(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let OwnPasswordBody { old, new } = asked.body()?;
    let Some(WhoAsks { identity: Some((identity, shown)), .. }) = &asked.who else {
        return Err(Problem::bad_request("root on the server itself has no password here")
            .hint("set a user's with POST /v1/users/{user}/password"));
    };
    if identity.token.is_some() {
        // A token that leaked must not be a way to its user's password.
        return Err(unauthorized().hint("log in with the password: a token cannot change it"));
    }
    asked.api.people.change_own_password(asked.control(), identity, shown, &old, &new, &asked.origin)?;
    Ok(Reply::nothing())
}
