//! What the servers of the farm carry, as each of them tells it. It stands apart from the servers, whose ETags say nothing of it.
use std::collections::HashMap;

use control::ControlError;
use farm::catalogue::Reader;
use farm::model::{ObjectKind, Server, ServerId, ServerReport, ServerState, Stored, Timestamp};
use farm::rules::permission::Action;
use farm::rules::reports::state;
use schemars::JsonSchema;
use serde::Serialize;

use super::object::{PageOf, Resource, seen};
use super::places::Servers;
use crate::asked::Asked;
use crate::load::ServerLoad;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::Reply;
use crate::wire::{Names, Plain, Ref, Word, find};

pub(super) fn all() -> Vec<Operation> {
    let list = Operation::get(
        "/v1/server-loads",
        "listServerLoads",
        "servers",
        "Lists servers, as /v1/servers does, with whether each of them serves and what it carries; of the last seconds.",
        list,
    );
    let show = Operation::get(
        "/v1/servers/{server}/load",
        "getServerLoad",
        "servers",
        "Tells whether a server serves, and what it carries; of the last seconds.",
        show,
    );
    vec![list.pages().gives::<PageOf<LoadAnswer>>(), show.gives::<LoadAnswer>()]
}

/// Whether a server serves, and what it carries.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ServerReport")]
struct LoadAnswer {
    /// Which.
    server: Ref,
    /// Its site.
    site: Ref,
    /// A disabled server is given no new devices.
    disabled: bool,
    /// The most devices that it serves at a time; null: as many as come.
    max_devices: Option<u32>,
    /// `running`; `silent`: it was not heard of for three reports, and is gone or cannot reach the farm's database; `stopped`: it said
    /// that it stops; `never-heard`.
    state: Word<ServerState>,
    /// When it was heard of last, by its own clock; null: never.
    heard_at: Option<Plain<Timestamp>>,
    /// What it carried then; null: it has stopped, or was never heard of.
    load: Option<ServerLoad>,
}

/// The answers about servers, all of one moment.
struct Answers {
    now: Timestamp,
    reports: HashMap<ServerId, ServerReport>,
    names: Names,
}

impl Answers {
    fn of(asked: &Asked<'_>, reader: &mut Reader<'_>) -> Result<Self, ControlError> {
        let (now, reports) = (asked.control().now(), reader.server_reports()?);
        Ok(Self { now, reports, names: Names::default() })
    }

    fn tell(&mut self, reader: &mut Reader<'_>, server: &Stored<Server>) -> Result<LoadAnswer, ControlError> {
        let report = self.reports.get(&server.id);
        Ok(LoadAnswer {
            server: Ref::Both { id: server.id.get(), name: server.name.to_string() },
            site: self.names.site(reader, server.site)?,
            disabled: server.disabled,
            max_devices: server.max_devices,
            state: Word(state(report, self.now)),
            heard_at: report.map(|report| Plain(report.at)),
            // A server of another version may tell it in words of its own.
            load: report.and_then(|report| serde_json::from_str(report.load.as_deref()?).ok()),
        })
    }
}

fn list(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let mut query = asked.list()?;
    let caller = asked.caller()?;
    let page = asked.control().read(|reader| {
        query.filter = seen::<Servers>(reader, caller, query.filter.clone())?;
        let page = reader.list::<Server>(&query)?;
        let mut answers = Answers::of(asked, reader)?;
        let items = page.items.iter().map(|server| answers.tell(reader, server));
        let items = items.collect::<Result<Vec<_>, ControlError>>()?;
        Ok(PageOf { items, next: page.next.map(|cursor| cursor.to_string()), total: page.total })
    })?;
    Reply::json(&page)
}

fn show(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let (caller, wanted) = (asked.caller()?, asked.parameter("server")?);
    let told = asked.control().read(|reader| {
        let server = find::<Server>(reader, wanted)?;
        caller.may(Action::See, ObjectKind::Server, Servers::place(reader, &server.value)?)?;
        Answers::of(asked, reader)?.tell(reader, &server)
    })?;
    Reply::json(&told)
}
