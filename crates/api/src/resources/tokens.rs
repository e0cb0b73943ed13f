//! API tokens: what programs go by in a user's place. The secret is told once, when the token is made.
use control::ControlError;
use control::people::{NewToken, make_token};
use farm::catalogue::Reader;
use farm::model::{Name, ObjectKind, Role, Stored, Timestamp, Token, User};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::grants::{scope, told_scope};
use super::object::{Resource, Told, Which, operations, tell};
use crate::asked::Asked;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, Word, resolve};

pub(super) fn all() -> Vec<Operation> {
    let mut all = operations::<Tokens>(Which { make: false, change: true, delete: true });
    // Without an idempotency key: the secret would have to be kept for the repetition.
    let make = Operation::post(
        "/v1/tokens",
        "createToken",
        "tokens",
        "Makes a token; its secret is told now or never.",
        make,
    );
    all.push(make.takes::<NewTokenBody>().makes::<MadeToken>());
    all
}

/// What a program goes by in a user's place.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// What the user calls it; no two tokens of a user have the same name.
    name: Plain<Name>,
    /// The most that it can do.
    role: Word<Role>,
    /// The only site where it can do it.
    #[serde(default)]
    site: Option<Ref>,
    /// The only collection where it can do it.
    #[serde(default)]
    collection: Option<Ref>,
    /// When it ends; null: never.
    #[serde(default)]
    expires_at: Option<Plain<Timestamp>>,
    /// It lets nobody in any more.
    #[serde(default)]
    disabled: bool,
}

/// A new token.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewTokenBody {
    /// Whose; it can do nothing that the user cannot.
    user: Ref,
    /// What the user calls it; no two tokens of a user have the same name.
    name: Plain<Name>,
    /// The most that it can do.
    role: Word<Role>,
    /// The only site where it can do it.
    #[serde(default)]
    site: Option<Ref>,
    /// The only collection where it can do it.
    #[serde(default)]
    collection: Option<Ref>,
    /// When it ends; null: never.
    #[serde(default)]
    expires_at: Option<Plain<Timestamp>>,
}

/// A token that was made.
#[derive(JsonSchema)]
#[allow(dead_code, reason = "it is there for its schema: the token in it is told as every object is")]
struct MadeToken {
    /// The token.
    token: Told<Tokens>,
    /// What to show to be let in. It is not told again.
    secret: String,
}

/// What is told of a token besides.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TokenMore {
    /// Whose.
    user: Ref,
    /// When it was made.
    made_at: Plain<Timestamp>,
}

pub(crate) enum Tokens {}

impl Resource for Tokens {
    type Record = Token;
    type Body = TokenBody;
    type More = TokenMore;
    const NAME: &'static str = "Token";
    const ONE: &'static str = "a token";
    const PATH: &'static str = "/v1/tokens";
    const PARAMETER: &'static str = "token";

    fn place(_: &mut Reader<'_>, _: &Token) -> Result<Place, ControlError> {
        Ok(Place::Farm)
    }

    fn body(names: &mut Names, reader: &mut Reader<'_>, token: &Token) -> Result<TokenBody, ControlError> {
        let (site, collection) = told_scope(names, reader, token.scope)?;
        Ok(TokenBody {
            name: Plain(token.name.clone()),
            role: Word(token.role),
            site,
            collection,
            expires_at: token.expires_at.map(Plain),
            disabled: token.disabled,
        })
    }

    fn more(
        names: &mut Names,
        reader: &mut Reader<'_>,
        token: &Stored<Token>,
    ) -> Result<TokenMore, ControlError> {
        Ok(TokenMore { user: names.user(reader, token.user)?, made_at: Plain(token.made_at) })
    }

    fn record(reader: &mut Reader<'_>, body: TokenBody, old: Option<&Token>) -> Result<Token, ControlError> {
        let old = old.ok_or_else(|| ControlError::new(control::Code::Unsupported, "a token has a secret"))?;
        let TokenBody { name, role, site, collection, expires_at, disabled } = body;
        let scope = scope(reader, site.as_ref(), collection.as_ref())?;
        let expires_at = expires_at.map(|end| end.0);
        Ok(Token { name: name.0, role: role.0, scope, expires_at, disabled, ..old.clone() })
    }
}

fn make(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let NewTokenBody { user, name, role, site, collection, expires_at } = asked.body()?;
    let caller = asked.caller()?;
    let (told, secret, id) = asked.control().change(caller, |change| {
        caller.may(Action::Change, ObjectKind::Token, Place::Farm)?;
        let new = NewToken {
            user: resolve::<User>(change, &user, "user")?.id,
            name: name.0.clone(),
            role: role.0,
            scope: scope(change, site.as_ref(), collection.as_ref())?,
            expires_at: expires_at.as_ref().map(|end| end.0),
        };
        let (token, secret) = make_token(change, new)?;
        let told: Value = tell::<Tokens>(&mut Names::default(), change, &token)?;
        Ok((told, secret, token.id))
    })?;
    let made = serde_json::json!({ "token": told, "secret": secret.reveal() });
    Ok(Reply::json(&made)?.made(format!("/v1/tokens/{id}")))
}
