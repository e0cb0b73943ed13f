//! Objects with a revision: listed, shown, made, changed and taken away in one way.
//!
//! A [`Resource`] says how the body of a request becomes a record of the catalogue, and how a record is told. What is the
//! same for all of them stands here: who may, which revision is meant, what a repeated request is answered, and how a
//! merge patch (RFC 7396) is applied: to the body that the object would be made with, which is then read as a new one.
use std::borrow::Cow;
use std::marker::PhantomData;

use control::{Caller, Code, ControlError};
use farm::catalogue::{ListQuery, Reader, Record};
use farm::filter::Filter;
use farm::model::{Collection, ObjectKind, Site, Stored, Timestamp};
use farm::rules::permission::{Action, Place};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::asked::{Asked, read};
use crate::operation::Operation;
use crate::problem::Problem;
use crate::reply::{Kept, Reply, json};
use crate::wire::{Named, Names, find};

/// A kind of objects.
pub(crate) trait Resource: Sized + 'static {
    /// What the catalogue holds.
    type Record: Named;
    /// What is said of one when it is made.
    type Body: Serialize + DeserializeOwned + JsonSchema;
    /// What is told of one besides.
    type More: Serialize + JsonSchema;
    /// As schemas name it.
    const NAME: &'static str;
    /// As sentences name it, with its article.
    const ONE: &'static str;
    /// Where it is.
    const PATH: &'static str;
    /// What paths call the one.
    const PARAMETER: &'static str;

    /// Where a record is.
    fn place(reader: &mut Reader<'_>, record: &Self::Record) -> Result<Place, ControlError>;

    /// The body that a record would be made with.
    fn body(
        names: &mut Names,
        reader: &mut Reader<'_>,
        record: &Self::Record,
    ) -> Result<Self::Body, ControlError>;

    /// What is told of it besides.
    fn more(
        names: &mut Names,
        reader: &mut Reader<'_>,
        stored: &Stored<Self::Record>,
    ) -> Result<Self::More, ControlError>;

    /// The record that a body says; `old` is what it replaces.
    fn record(
        reader: &mut Reader<'_>,
        body: Self::Body,
        old: Option<&Self::Record>,
    ) -> Result<Self::Record, ControlError>;

    /// Whether it may become another one, or go (`None`), besides what the catalogue says to that.
    fn may_become(
        reader: &mut Reader<'_>,
        old: &Stored<Self::Record>,
        new: Option<&Self::Record>,
    ) -> Result<(), ControlError> {
        let _ = (reader, old, new);
        Ok(())
    }

    /// Those that lie in these sites and collections; `None`: the list cannot be told apart so.
    fn inside(visible: &Visible) -> Option<Filter> {
        let _ = visible;
        None
    }
}

/// Nothing besides.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Nothing {}

/// The places that somebody may look into, who may not look everywhere.
#[derive(Debug, Default)]
pub(crate) struct Visible {
    /// Whole sites.
    pub(crate) sites: Vec<Stored<Site>>,
    /// Collections, those of the sites among them.
    pub(crate) collections: Vec<Stored<Collection>>,
}

/// An object as it is told: its id, its revision, its body, and what is told besides.
pub(crate) struct Told<R>(PhantomData<R>);

impl<R: Resource> JsonSchema for Told<R> {
    fn schema_name() -> Cow<'static, str> {
        R::NAME.into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut properties = Map::new();
        properties.insert("id".to_owned(), serde_json::json!({ "type": "integer", "minimum": 1 }));
        properties.insert("revision".to_owned(), serde_json::json!({ "type": "integer", "minimum": 1 }));
        for schema in [R::Body::json_schema(generator), R::More::json_schema(generator)] {
            let own = schema.as_value().get("properties").and_then(Value::as_object).cloned();
            properties.extend(own.unwrap_or_default());
        }
        let required: Vec<&String> = properties.keys().collect();
        schemars::json_schema!({ "type": "object", "required": required, "properties": properties })
    }
}

/// A part of a list.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PageOf<T> {
    /// The objects.
    pub(crate) items: Vec<T>,
    /// What to ask for the next page with; null: this is the last one.
    pub(crate) next: Option<String>,
    /// How many objects the filter leaves, on all pages together.
    pub(crate) total: u64,
}

/// The operations that every kind has, as far as `which` says.
pub(crate) fn operations<R: Resource>(which: Which) -> Vec<Operation> {
    let one = format!("{}/{{{}}}", R::PATH, R::PARAMETER);
    let name = R::NAME;
    let tag = R::PATH.trim_start_matches("/v1/");
    let mut all = vec![
        Operation::get(
            R::PATH,
            format!("list{name}s"),
            tag,
            format!("Lists {}.", tag.replace('-', " ")),
            list::<R>,
        )
        .pages()
        .gives::<PageOf<Told<R>>>(),
        Operation::get(one.clone(), format!("get{name}"), tag, format!("Tells of {}.", R::ONE), show::<R>)
            .gives::<Told<R>>(),
    ];
    if which.make {
        let summary = format!("Makes {}.", R::ONE);
        let make = Operation::post(R::PATH, format!("create{name}"), tag, summary, make::<R>);
        all.push(make.takes::<R::Body>().makes::<Told<R>>().once());
    }
    if which.change {
        let summary = format!("Changes {}.", R::ONE);
        let patch = Operation::patch(one.clone(), format!("update{name}"), tag, summary, patch::<R>);
        all.push(patch.takes_patch::<R::Body>().gives::<Told<R>>());
    }
    if which.delete {
        let summary = format!("Takes {} away.", R::ONE);
        all.push(Operation::delete(one, format!("delete{name}"), tag, summary, delete::<R>));
    }
    all
}

/// Which of the operations of every kind one has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Which {
    pub(crate) make: bool,
    pub(crate) change: bool,
    pub(crate) delete: bool,
}

impl Which {
    pub(crate) const ALL: Self = Self { make: true, change: true, delete: true };
}

const fn kind<R: Resource>() -> ObjectKind {
    <R::Record as Record>::TABLE.kind
}

/// An object as it is told.
pub(crate) fn tell<R: Resource>(
    names: &mut Names,
    reader: &mut Reader<'_>,
    stored: &Stored<R::Record>,
) -> Result<Value, ControlError> {
    let body = R::body(names, reader, &stored.value)?;
    let more = R::more(names, reader, stored)?;
    let mut told = Map::new();
    told.insert("id".to_owned(), stored.id.get().into());
    told.insert("revision".to_owned(), stored.revision.get().into());
    for part in [object(&body), object(&more)] {
        told.extend(part);
    }
    Ok(Value::Object(told))
}

/// Types of the interface are structs with text keys: there is nothing that JSON lacks.
fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// `GET` of a list.
pub(crate) fn list<R: Resource>(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let mut query = asked.list()?;
    let caller = asked.caller()?;
    let page = asked.control().read(|reader| {
        query.filter = seen::<R>(reader, caller, query.filter.clone())?;
        page::<R>(reader, &query)
    })?;
    Reply::json(&page)
}

/// A page of objects, as they are told.
pub(crate) fn page<R: Resource>(
    reader: &mut Reader<'_>,
    query: &ListQuery,
) -> Result<PageOf<Value>, ControlError> {
    let page = reader.list::<R::Record>(query)?;
    let mut names = Names::default();
    let items: Result<Vec<_>, _> =
        page.items.iter().map(|stored| tell::<R>(&mut names, reader, stored)).collect();
    Ok(PageOf { items: items?, next: page.next.map(|cursor| cursor.to_string()), total: page.total })
}

/// The filter, and that the caller may see what fits it.
pub(crate) fn seen<R: Resource>(
    reader: &mut Reader<'_>,
    caller: &Caller,
    filter: Filter,
) -> Result<Filter, ControlError> {
    let Err(denied) = caller.may(Action::See, kind::<R>(), Place::Farm) else { return Ok(filter) };
    let mut visible = Visible::default();
    for site in reader.all::<Site>()? {
        if caller.may(Action::See, kind::<R>(), Place::Site(site.id)).is_ok() {
            visible.sites.push(site);
        }
    }
    for collection in reader.all::<Collection>()? {
        if caller.may(Action::See, kind::<R>(), Place::of_collection(&collection)).is_ok() {
            visible.collections.push(collection);
        }
    }
    match R::inside(&visible).filter(|_| !visible.sites.is_empty() || !visible.collections.is_empty()) {
        Some(inside) => Ok(inside.and(filter)),
        None => Err(denied.into()),
    }
}

/// `GET` of one.
pub(crate) fn show<R: Resource>(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let caller = asked.caller()?;
    let wanted = asked.parameter(R::PARAMETER)?;
    let (told, revision) = asked.control().read(|reader| {
        let stored = find::<R::Record>(reader, wanted)?;
        caller.may(Action::See, kind::<R>(), R::place(reader, &stored.value)?)?;
        Ok((tell::<R>(&mut Names::default(), reader, &stored)?, stored.revision))
    })?;
    Ok(Reply::json(&told)?.revision(revision))
}

/// `POST` of a new one.
pub(crate) fn make<R: Resource>(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let value = asked.value()?;
    once(asked, |change| {
        // Read for each try of the transaction: what it says is used up by it.
        let body: R::Body = read(value.clone()).map_err(as_control)?;
        let record = R::record(change, body, None)?;
        asked_caller(asked)?.may(Action::Change, kind::<R>(), R::place(change, &record)?)?;
        let stored = change.create(record)?;
        made::<R>(change, &stored)
    })
}

/// What is answered when an object was made.
pub(crate) fn made<R: Resource>(
    reader: &mut Reader<'_>,
    stored: &Stored<R::Record>,
) -> Result<Reply, ControlError> {
    let told = tell::<R>(&mut Names::default(), reader, stored)?;
    let reply = Reply::json(&told).map_err(as_control)?;
    Ok(reply.revision(stored.revision).made(format!("{}/{}", R::PATH, stored.id)))
}

/// How long an answer is kept for the repetition of its request: a day.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// Carries out a creation once, however often its request is sent with the same key.
pub(crate) fn once(
    asked: &Asked<'_>,
    work: impl Fn(&mut farm::catalogue::Change<'_>) -> Result<Reply, ControlError>,
) -> Result<Reply, Problem> {
    let key = asked.once()?;
    let reply = asked.control().change(asked.caller()?, |change| {
        let Some((key, fingerprint)) = &key else { return work(change) };
        if let Some(kept) = change.answered(key, fingerprint)? {
            let kept: Kept = serde_json::from_str(&kept).map_err(|error| {
                ControlError::new(Code::Internal, format!("an answer that was kept is damaged: {error}"))
            })?;
            return Ok(kept.reply());
        }
        let reply = work(change)?;
        if let Some(kept) = Kept::of(&reply).and_then(|kept| serde_json::to_string(&kept).ok()) {
            change.remember(key, fingerprint, &kept)?;
            change.forget_answers(Timestamp::from_ms(change.now().ms().saturating_sub(KEPT_MS)))?;
        }
        Ok(reply)
    })?;
    Ok(reply)
}

/// `PATCH` of one.
pub(crate) fn patch<R: Resource>(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let wanted = asked.parameter(R::PARAMETER)?;
    patch_found::<R>(asked, |reader| find::<R::Record>(reader, wanted))
}

/// `PATCH` of the one that is found so.
pub(crate) fn patch_found<R: Resource>(
    asked: &Asked<'_>,
    found: impl Fn(&mut Reader<'_>) -> Result<Stored<R::Record>, ControlError>,
) -> Result<Reply, Problem> {
    let expected = asked.expected()?;
    let caller = asked.caller()?;
    let Value::Object(patch) = asked.value()? else {
        return Err(Problem::bad_request("a change is an object with the properties that change"));
    };
    let (told, revision) = asked.control().change(caller, |change| {
        let old = found(change)?;
        let place = R::place(change, &old.value)?;
        caller.may(Action::Change, kind::<R>(), place)?;
        let names = &mut Names::default();
        let body = R::body(names, change, &old.value)?;
        let known = object(&body);
        let mut patch = patch.clone();
        // Whoever sends back what was told need not take out what only we say.
        let said = tell::<R>(names, change, &old)?;
        patch.retain(|key, value| known.contains_key(key) || said.get(key) != Some(value));
        // What is unknown and has a value is found below; null takes it out before that.
        if let Some((key, _)) = patch.iter().find(|(key, value)| value.is_null() && !known.contains_key(*key))
        {
            let why = format!("there is no property {key:?}");
            return Err(ControlError { field: Some(key.clone()), ..ControlError::new(Code::BadValue, why) });
        }
        let mut merged = Value::Object(known);
        merge(&mut merged, Value::Object(patch));
        let body: R::Body = read(merged).map_err(as_control)?;
        let record = R::record(change, body, Some(&old.value))?;
        // What is moved elsewhere must be allowed there as well.
        caller.may(Action::Change, kind::<R>(), R::place(change, &record)?)?;
        R::may_become(change, &old, Some(&record))?;
        let new = change.update(old.id, expected.or(old.revision), record)?;
        Ok((tell::<R>(&mut Names::default(), change, &new)?, new.revision))
    })?;
    Ok(Reply::json(&told)?.revision(revision))
}

/// `DELETE` of one.
pub(crate) fn delete<R: Resource>(asked: &Asked<'_>) -> Result<Reply, Problem> {
    let expected = asked.expected()?;
    let caller = asked.caller()?;
    let wanted = asked.parameter(R::PARAMETER)?;
    asked.control().change(caller, |change| {
        let old = find::<R::Record>(change, wanted)?;
        let place = R::place(change, &old.value)?;
        caller.may(Action::Change, kind::<R>(), place)?;
        R::may_become(change, &old, None)?;
        Ok(change.delete(old.id, expected.or(old.revision))?)
    })?;
    Ok(Reply::nothing())
}

pub(crate) fn asked_caller<'a>(asked: &'a Asked<'_>) -> Result<&'a Caller, ControlError> {
    asked.caller().map_err(as_control)
}

/// Inside a transaction there are errors of one kind.
pub(crate) fn as_control(problem: Problem) -> ControlError {
    let code = match problem.code {
        "unauthenticated" => Code::Unauthenticated,
        "internal" => Code::Internal,
        _ => Code::BadValue,
    };
    let (hint, field) = (problem.hint.map(String::from), problem.field.map(String::from));
    ControlError { code, message: problem.message, hint, field }
}

/// RFC 7396 §2.
fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(&key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Json of a value that is told outside of the objects.
pub(crate) fn told(value: &impl Serialize) -> Result<Value, ControlError> {
    json(value).map_err(as_control)
}

/// Any of these, in groups: a database takes no expression of a thousand levels.
pub(crate) fn any(terms: Vec<Filter>) -> Filter {
    const GROUP: usize = 100;
    let mut groups: Vec<Filter> = Vec::new();
    for term in terms {
        match groups.last_mut() {
            Some(Filter::Any(group)) if group.len() < GROUP => group.push(term),
            _ => groups.push(Filter::Any(vec![term])),
        }
    }
    Filter::Any(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patch_is_merged_as_the_examples_of_rfc_7396_say() {
        // RFC 7396, appendix A.
        let cases = [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
            (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a":"b"}), json!(["c"]), json!(["c"])),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
            (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
        ];
        for (mut target, patch, expected) in cases {
            merge(&mut target, patch.clone());
            assert_eq!(target, expected, "{patch}");
        }
    }
}
