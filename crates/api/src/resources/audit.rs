//! The audit: who changed what, when, from where, and how it was before.
use control::ControlError;
use farm::catalogue::{ListQuery, MAX_PAGE};
use farm::filter::Filter;
use farm::model::{AuditEntry, ObjectKind, Timestamp};
use farm::rules::permission::{Action, Place};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::object::PageOf;
use crate::asked::Asked;
use crate::operation::{Operation, ParameterKind};
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Plain, Word};

const LINES: &str = "application/x-ndjson";
/// The most entries of one export: some 50 MB.
const MAX_EXPORT: usize = 100_000;

pub(super) fn all() -> Vec<Operation> {
    vec![
        Operation::get("/v1/audit", "listAudit", "audit", "Lists changes.", list)
            .pages()
            .gives::<PageOf<EntryAnswer>>(),
        Operation::get(
            "/v1/audit/export",
            "exportAudit",
            "audit",
            "Gives changes as lines of JSON, oldest first, 100,000 at most.",
            export,
        )
        .filtered()
        .query("after", ParameterKind::Number(0, u64::MAX >> 1), "the number behind which to begin")
        .gives_text(LINES),
        Operation::get("/v1/audit/{number}", "getAuditEntry", "audit", "Tells of a change.", show)
            .gives::<EntryAnswer>(),
    ]
}

/// One change, as it stays written.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub(crate) struct EntryAnswer {
    /// Its number: 1, 2, 3 without gaps.
    number: i64,
    /// When.
    at: Plain<Timestamp>,
    /// Who.
    actor: String,
    /// The id of the token that they went by.
    token: Option<i64>,
    /// From where.
    origin: String,
    /// The request that asked for it.
    request: Option<String>,
    /// What was done.
    action: String,
    /// To what kind of object.
    kind: Word<ObjectKind>,
    /// To which.
    object: i64,
    /// What it was called.
    name: String,
    /// The properties that changed, as they were; null of what was new.
    before: Option<Value>,
    /// The properties that changed, as they are now; null of what is gone.
    after: Option<Value>,
}

impl From<AuditEntry> for EntryAnswer {
    fn from(entry: AuditEntry) -> Self {
        Self {
            number: entry.number.0,
            at: Plain(entry.at),
            actor: entry.actor.user.to_string(),
            token: entry.actor.token.map(farm::model::Id::get),
            origin: entry.actor.origin,
            request: entry.actor.request,
            action: entry.action,
            kind: Word(entry.kind),
            object: entry.object,
            name: entry.name,
            before: entry.before,
            after: entry.after,
        }
    }
}

/// Entries hold what all kinds of objects were: they are for whoever may see all of them.
fn may(asked: &Asked<'_>) -> Result<(), Problem> {
    let caller = asked.caller()?;
    let all = caller.may(Action::See, ObjectKind::User, Place::Farm);
    Ok(all.map_err(ControlError::from)?)
}

fn list(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may(asked)?;
    let query = asked.list()?;
    let page = asked.control().read(|reader| Ok(reader.audit(&query)?))?;
    let items: Vec<EntryAnswer> = page.items.into_iter().map(EntryAnswer::from).collect();
    let next = page.next.map(|cursor| cursor.to_string());
    Reply::json(&PageOf { items, next, total: page.total })
}

fn show(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may(asked)?;
    let wanted = asked.parameter("number")?;
    let missing = || Problem::not_found(format!("there is no change {wanted:?}, or it was archived"));
    let number: i64 = wanted.parse().map_err(|_| missing())?;
    let query = ListQuery { filter: Filter::equal("number", number), limit: 1, ..ListQuery::default() };
    let entry = asked.control().read(|reader| Ok(reader.audit(&query)?.items.pop()))?;
    Reply::json(&EntryAnswer::from(entry.ok_or_else(missing)?))
}

fn export(asked: &Asked<'_>) -> Result<Reply, Problem> {
    may(asked)?;
    let after: i64 = asked.wanted("after", "a number")?.unwrap_or(0);
    let behind = Filter::Term(farm::filter::Term {
        field: "number".to_owned(),
        compared: Some((farm::filter::Operator::Greater, after.to_string())),
    });
    let filter = behind.and(asked.filter()?);
    let lines = asked.control().read(|reader| {
        let mut lines = String::new();
        let mut query = ListQuery { filter: filter.clone(), limit: MAX_PAGE, ..ListQuery::default() };
        for _ in 0..MAX_EXPORT.div_ceil(MAX_PAGE) {
            let page = reader.audit(&query)?;
            for entry in page.items {
                let line = super::object::told(&EntryAnswer::from(entry))?;
                lines.push_str(&line.to_string());
                lines.push('\n');
            }
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        Ok(lines)
    })?;
    Ok(Reply::text(LINES, lines))
}
