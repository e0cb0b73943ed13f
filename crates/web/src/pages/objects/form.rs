//! Forms that make, change and delete objects. A form that comes too late shows what others wrote meanwhile beside what
//! was meant, and nothing is lost.
use axum::http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::list::kind;
use super::{Field, FormField, Input, Kind, told};
use crate::answer::{Answer, Page};
use crate::ask::Refusal;
use crate::commands;
use crate::conflict::{self, Conflict, LastChange, was};
use crate::door::Visit;
use crate::fields::{Fields, encode, exact, size};
use crate::markup::{name, same_as, several, token, visible};
use crate::paths;
use crate::rights::{Within, or_refuse};
use crate::said::Said;
use crate::wire::{List, Named};

/// The most objects that a field offers to choose from.
const MAX_CHOICES: usize = 1000;
/// The id of the form.
const FORM: &str = "object";

/// What a form shows.
struct Data {
    kind: &'static Kind,
    /// Where it goes.
    action: String,
    /// The name of the object that is changed; `None`: a new one.
    of: Option<String>,
    /// As the command line calls it.
    called: String,
    /// Values as fields hold them.
    values: Fields,
    /// What they were when the form was made.
    was: Fields,
    revision: String,
    choices: Vec<(&'static str, Vec<Named>)>,
    /// Whether it is offered to lie in no place but the farm.
    may_be_nowhere: bool,
    failed: Option<Refusal>,
    conflicts: Vec<Conflict>,
    by: Option<LastChange>,
    token: String,
}

impl Data {
    fn fields(&self) -> impl Iterator<Item = &'static Field> + use<> {
        let new = self.of.is_none();
        self.kind.fields.iter().filter(move |field| new || field.stays)
    }

    /// A new device goes to the only collection and boots the only vDisk, unless somebody says otherwise. Of other kinds an
    /// empty field means something of its own: a role without a site is one for the whole farm.
    fn choose_where_there_is_one(&mut self) {
        if self.kind.path != "devices" {
            return;
        }
        for field in self.kind.fields {
            let of = match field.input {
                Input::Object(of) => of,
                Input::Disk => "vdisks",
                _ => continue,
            };
            if let Some((_, named)) = self.choices.iter().find(|(known, _)| *known == of)
                && let [only] = named.as_slice()
                && self.values.get(field.name).is_empty()
            {
                self.values = self.values.with(field.name, &only.id.to_string());
            }
        }
    }
}

pub(super) async fn new_page(visit: Visit) -> Result<Answer, Refusal> {
    or_refuse(visit.may_make(kind(&visit)?.object))?;
    let mut data = new_form(&visit, visit.query.clone(), None).await?;
    data.choose_where_there_is_one();
    Ok(page(&data, StatusCode::OK))
}

async fn new_form(visit: &Visit, values: Fields, failed: Option<Refusal>) -> Result<Data, Refusal> {
    let kind = kind(visit)?;
    Ok(Data {
        kind,
        action: format!("/{}/new", kind.path),
        of: None,
        called: String::new(),
        values,
        was: Fields::default(),
        revision: String::new(),
        choices: choices(visit, kind, &Fields::default()).await,
        may_be_nowhere: may_be_nowhere(visit, kind, None),
        failed,
        conflicts: Vec::new(),
        by: None,
        token: visit.token(),
    })
}

pub(super) async fn make(visit: Visit) -> Result<Answer, Refusal> {
    let kind = kind(&visit)?;
    let sent = match body_of(kind, &visit.form) {
        Ok(body) => {
            let path = format!("/v1/{}", kind.path);
            visit.ask.send(Method::POST, &path, None, Some(&Value::Object(body))).await
        }
        Err(refusal) => Err(refusal),
    };
    match sent {
        // The secret of a token is told once: here.
        Ok(made) if made.get("secret").is_some() => Ok(secret(kind, &made)),
        Ok(made) => {
            let id = made.get("id").and_then(Value::as_i64).unwrap_or_default();
            let said =
                Said::good(format!("Made {} {}.", kind.one, made.get("name").map(told).unwrap_or_default()));
            Ok(Answer::Go(paths::object(kind.path, id), Some(said)))
        }
        Err(refusal) => {
            let status = refusal.status;
            Ok(page(&new_form(&visit, visit.form.clone(), Some(refusal)).await?, status))
        }
    }
}

fn secret(kind: &'static Kind, made: &Value) -> Answer {
    let secret = made.get("secret").and_then(Value::as_str).unwrap_or_default();
    let body = html! {
        h1 { "The token was made" }
        p { "This is its secret. It is shown once, and kept nowhere:" }
        p { code { (secret) } }
        p { a.button href=(format!("/{}", kind.path)) { "I have copied it" } }
    };
    Page::new("The token was made", kind.title, body).into()
}

async fn object(visit: &Visit, kind: &Kind) -> Result<Value, Refusal> {
    visit.ask.get(&format!("/v1/{}/{}", kind.path, encode(visit.parameter("object")))).await
}

pub(super) async fn edit_page(visit: Visit) -> Result<Answer, Refusal> {
    let kind = kind(&visit)?;
    let object = object(&visit, kind).await?;
    or_refuse(visit.may_change(kind.object, &object))?;
    let values = held(kind, &object);
    Ok(page(&edit_form(&visit, kind, &object, values, None).await, StatusCode::OK))
}

async fn edit_form(
    visit: &Visit,
    kind: &'static Kind,
    object: &Value,
    values: Fields,
    failed: Option<Refusal>,
) -> Data {
    let was = held(kind, object);
    Data {
        kind,
        action: visit.path.clone(),
        of: Some(object.get("name").map_or_else(|| visit.parameter("object").to_owned(), told)),
        called: commands::name_of(object),
        values,
        revision: object.get("revision").map(told).unwrap_or_default(),
        choices: choices(visit, kind, &was).await,
        may_be_nowhere: may_be_nowhere(visit, kind, Some(&was)),
        was,
        failed,
        conflicts: Vec::new(),
        by: None,
        token: visit.token(),
    }
}

/// The values of an object, as fields hold them.
fn held(kind: &Kind, object: &Value) -> Fields {
    kind.fields.iter().fold(Fields::default(), |fields, field| {
        let value = object.pointer(&format!("/{}", field.name.replace('.', "/"))).unwrap_or(&Value::Null);
        let text = match (field.input, value) {
            (_, Value::Null) => String::new(),
            (Input::Flag, value) => {
                if value.as_bool() == Some(true) {
                    "true".to_owned()
                } else {
                    String::new()
                }
            }
            (Input::Object(_), value) => value.get("id").map(told).unwrap_or_default(),
            (Input::Disk, value) => value.pointer("/0/vdisk/id").map(told).unwrap_or_default(),
            (Input::Size, value) => value.as_u64().map(exact).unwrap_or_default(),
            (Input::Paths, Value::Array(paths)) => {
                let path = |path: &Value| {
                    let part = |pointer: &str| path.pointer(pointer).map(told).unwrap_or_default();
                    format!("{}:{}", part("/server/name"), part("/path"))
                };
                paths.iter().map(path).collect::<Vec<_>>().join(" ")
            }
            (Input::Words, Value::Array(words)) => words.iter().map(told).collect::<Vec<_>>().join(" "),
            (_, Value::String(text)) => text.clone(),
            (_, value) => told(value),
        };
        fields.with(field.name, &text)
    })
}

pub(super) async fn change(visit: Visit) -> Result<Answer, Refusal> {
    let kind = kind(&visit)?;
    let path = format!("/v1/{}/{}", kind.path, encode(visit.parameter("object")));
    let form = conflict::chosen(&visit.form, kind.fields.iter().map(|field| field.name));
    let revision = form.get("revision");
    let sent = match patch_of(kind, &form) {
        Ok(patch) => visit.ask.send(Method::PATCH, &path, Some(revision), Some(&Value::Object(patch))).await,
        Err(refusal) => Err(refusal),
    };
    let refusal = match sent {
        Ok(changed) => {
            let id = changed.get("id").and_then(Value::as_i64).unwrap_or_default();
            return Ok(Answer::Go(paths::object(kind.path, id), Some(Said::good("Changed."))));
        }
        Err(refusal) => refusal,
    };
    let status = refusal.status;
    let object = object(&visit, kind).await?;
    let mut data = edit_form(&visit, kind, &object, form.clone(), Some(refusal)).await;
    if status == StatusCode::PRECONDITION_FAILED {
        let id = object.get("id").and_then(Value::as_i64).unwrap_or_default();
        data.conflicts = conflicts(&data, &form);
        data.by = LastChange::of(&visit.ask, kind.object, id).await;
        // What was left alone here is what somebody else made of it.
        for field in kind.fields.iter().filter(|field| field.stays) {
            if form.get(field.name) == form.get(&was(field.name)) {
                data.values = data.values.with(field.name, data.was.get(field.name));
            }
        }
    } else {
        data.revision = revision.to_owned();
    }
    Ok(page(&data, status))
}

/// What a form says of a new object: what was filled in.
fn body_of(kind: &Kind, form: &Fields) -> Result<Map<String, Value>, Refusal> {
    let mut body = Map::new();
    for field in kind.fields {
        let text = form.get(field.name).trim();
        if !text.is_empty() {
            put(&mut body, field.name, value(field, text)?);
        }
    }
    if kind.path == "users" {
        body.insert("must_change_password".to_owned(), json!(true));
    }
    Ok(body)
}

/// What a form changes: what is not as it was when the form was made.
fn patch_of(kind: &Kind, form: &Fields) -> Result<Map<String, Value>, Refusal> {
    let mut patch = Map::new();
    for field in kind.fields.iter().filter(|field| field.stays) {
        let text = form.get(field.name).trim();
        if text == form.get(&was(field.name)) {
            continue;
        }
        let changed = match (field.input, text) {
            (Input::Flag, text) => json!(text == "true"),
            (Input::Words | Input::Disk | Input::Paths, "") => json!([]),
            (_, "") => Value::Null,
            (_, text) => value(field, text)?,
        };
        put(&mut patch, field.name, changed);
    }
    Ok(patch)
}

/// Sets a property; what a dot leads into stands in an object of its own.
fn put(object: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => {
            object.insert(name.to_owned(), value);
        }
        Some((first, rest)) => {
            let inner = object.entry(first).or_insert_with(|| json!({}));
            if let Some(inner) = inner.as_object_mut() {
                put(inner, rest, value);
            }
        }
    }
}

/// What somebody else changed since the form was made, beside what this form says.
fn conflicts(data: &Data, form: &Fields) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    for field in data.kind.fields.iter().filter(|field| field.stays) {
        let (mine, before, theirs) =
            (form.get(field.name), form.get(&was(field.name)).to_owned(), data.was.get(field.name));
        if before != theirs && mine != theirs {
            conflicts.push(Conflict {
                field: field.name.to_owned(),
                label: field.label.to_owned(),
                mine: words(data, field, mine),
                theirs: words(data, field, theirs),
            });
        }
    }
    conflicts
}

/// A value of a field as people read it.
fn words(data: &Data, field: &Field, text: &str) -> String {
    match field.input {
        Input::Object(kind) => chosen(data, kind, text),
        Input::Disk => chosen(data, "vdisks", text),
        Input::Flag => if text == "true" { "yes" } else { "no" }.to_owned(),
        _ if text.is_empty() => "–".to_owned(),
        _ => text.to_owned(),
    }
}

fn chosen(data: &Data, kind: &str, id: &str) -> String {
    let known = data.choices.iter().find(|(of, _)| *of == kind).into_iter().flat_map(|(_, named)| named);
    known
        .into_iter()
        .find(|named| named.id.to_string() == id)
        .map_or_else(|| "–".to_owned(), |named| named.name.clone())
}

/// What a field says, as the API takes it.
fn value(field: &Field, text: &str) -> Result<Value, Refusal> {
    let bad = |why: String| {
        let mut refusal = Refusal::new(StatusCode::BAD_REQUEST, format!("{}: {why}", field.label));
        refusal.answer.field = Some(field.name.to_owned());
        refusal
    };
    let number = || text.parse::<i64>().map_err(|_| bad(format!("{text:?} is no number")));
    Ok(match field.input {
        Input::Text | Input::Secret | Input::Choice(_) => json!(text),
        Input::Flag => json!(text == "true"),
        Input::Number | Input::Object(_) => json!(number()?),
        Input::Disk => json!([{ "vdisk": number()? }]),
        Input::Size => {
            json!(size(text).ok_or_else(|| bad(format!("{text:?} is no size such as \"10 GiB\"")))?)
        }
        Input::Paths => {
            let path = |word: &str| {
                let (server, path) =
                    word.split_once(':').ok_or_else(|| bad(format!("{word:?} is not SERVER:/folder")))?;
                Ok(json!({ "server": server, "path": path }))
            };
            let words = text.split([',', ' ', '\n', '\r', '\t']).filter(|word| !word.is_empty());
            json!(words.map(path).collect::<Result<Vec<_>, Refusal>>()?)
        }
        Input::Words => {
            let words = text.split(|c: char| c.is_whitespace() || c == ',').filter(|word| !word.is_empty());
            json!(words.collect::<Vec<_>>())
        }
    })
}

/// What fields offer to choose from; what cannot be read is not offered, and neither is a place in which they may not make
/// objects of the kind. `held` is what the object holds now, which stays.
async fn choices(visit: &Visit, kind: &Kind, held: &Fields) -> Vec<(&'static str, Vec<Named>)> {
    let mut choices: Vec<(&'static str, Vec<Named>)> = Vec::new();
    for field in kind.fields {
        let of = match field.input {
            Input::Object(of) => of,
            Input::Disk => "vdisks",
            _ => continue,
        };
        if choices.iter().any(|(known, _)| *known == of) {
            continue;
        }
        let found = visit.ask.get::<List<Named>>(&format!("/v1/{of}?sort=name&limit={MAX_CHOICES}")).await;
        let mut found = found.unwrap_or_default().items;
        if of == Within::of(kind.object).list() {
            found.retain(|named| {
                held.get(field.name) == named.id.to_string()
                    || visit.may_make_in(kind.object, Some(named.id)).is_ok()
            });
        }
        choices.push((of, found));
    }
    choices
}

/// Whether the object may lie in no place but the farm: a field that must be filled in is empty at first for all.
fn may_be_nowhere(visit: &Visit, kind: &Kind, held: Option<&Fields>) -> bool {
    Within::of(kind.object) != Within::SiteOrFarm
        || held.is_some_and(|held| held.get("site").is_empty())
        || visit.may_make_in(kind.object, None).is_ok()
}

fn page(data: &Data, status: StatusCode) -> Answer {
    let title = match &data.of {
        None => format!("New {}", data.kind.one),
        Some(of) => format!("Edit {} {of}", data.kind.one),
    };
    let command = match &data.of {
        None => commands::create(data.kind.cli, data.kind.noun),
        Some(_) => commands::set(data.kind.cli, data.kind.noun, &data.called),
    };
    let body = html! {
        h1 { (visible(&title)) }
        @if !data.conflicts.is_empty() || data.failed.as_ref().is_some_and(|failed| failed.status == StatusCode::PRECONDITION_FAILED) { (conflict::panel(&data.conflicts, data.by.as_ref(), FORM)) }
        @else if let Some(failed) = &data.failed { p.said.bad role="alert" { (visible(&failed.answer.message)) @if let Some(hint) = &failed.answer.hint { " " (visible(hint)) } } }
        form.stack #(FORM) method="post" action=(data.action) data-command=[&command] {
            (token(&data.token))
            input type="hidden" name="revision" value=(data.revision);
            @for field in data.fields() { (input(data, field)) @if data.of.is_some() { input type="hidden" name=(was(field.name)) value=(data.was.get(field.name)); } }
            span.buttons { button.primary { (if data.of.is_some() { "Change" } else { "Make" }) } " " a.button href=(format!("/{}", data.kind.path)) { "Cancel" } }
            @if let Some(command) = &command { (same_as(&format!("{command} …"))) }
        }
    };
    Page::new(title, data.kind.title, body).status(status).into()
}

fn input(data: &Data, field: &Field) -> Markup {
    let value = data.values.get(field.name);
    let is_bad = data
        .failed
        .as_ref()
        .and_then(|failed| failed.answer.field.as_deref())
        .is_some_and(|bad| bad == field.name || bad.split(['[', '.']).next() == Some(field.name));
    let bad = is_bad.then_some("true");
    let was = data.was.get(field.name);
    let new = data.of.is_none();
    let (mut key, mut first, mut flag) = (None, None, None);
    match data.kind.in_command(field) {
        Some(FormField::Word(_)) if new => first = Some(""),
        Some(FormField::Word(_)) => key = Some(field.name),
        Some(FormField::Key(name, _)) => key = Some(name),
        Some(FormField::Flag(name, _)) => flag = Some(name),
        None => {}
    }
    let options = |of: &str| {
        data.choices
            .iter()
            .find(|(known, _)| *known == of)
            .map(|(_, named)| named.as_slice())
            .unwrap_or_default()
    };
    let select = |of: &str| {
        html! {
            select name=(field.name) aria-invalid=[bad] data-key=[key] data-word=[first] data-flag=[flag] data-was=(was) { @if data.may_be_nowhere || of != Within::of(data.kind.object).list() { option value="" { "–" } } @for named in options(of) {
                option value=(named.id) data-name=(named.full()) selected[named.id.to_string() == value] { (visible(&named.full())) }
            } }
        }
    };
    html! {
        @match field.input {
            Input::Flag => label.check { input type="checkbox" name=(field.name) value="true" checked[value == "true"] data-key=[key] data-word=[first] data-flag=[flag] data-was=(was); " " (field.label) @if !field.help.is_empty() { ":" } (help(field)) },
            Input::Object(of) => label { (field.label) (select(of)) (help(field)) },
            Input::Disk => label { (field.label) (select("vdisks")) (help(field)) },
            Input::Choice(words) => label { (field.label) select name=(field.name) aria-invalid=[bad] data-key=[key] data-word=[first] data-flag=[flag] data-was=(was) { @for word in words { option value=(word) selected[*word == value] { (if word.is_empty() { "–" } else { word }) } } } (help(field)) },
            Input::Secret => label { (field.label) input type="password" name=(field.name) autocomplete="new-password" aria-invalid=[bad]; (help(field)) },
            Input::Number => label { (field.label) input name=(field.name) inputmode="numeric" value=(value) aria-invalid=[bad] data-key=[key] data-word=[first] data-flag=[flag] data-was=(was); (help(field)) },
            Input::Words | Input::Paths => label { (field.label) input name=(field.name) value=(value) aria-invalid=[bad] data-list data-key=[key] data-was=(was); (help(field)) },
            Input::Text | Input::Size => label { (field.label) input name=(field.name) value=(value) aria-invalid=[bad] data-key=[key] data-word=[first] data-flag=[flag] data-was=(was) autofocus[field.name == "name"]; (help(field)) },
        }
    }
}

fn help(field: &Field) -> Markup {
    html! { @if !field.help.is_empty() { " " span.effect { (field.help) } } }
}

pub(super) async fn delete_page(visit: Visit) -> Result<Answer, Refusal> {
    let kind = kind(&visit)?;
    or_refuse(visit.may_change(kind.object, &object(&visit, kind).await?))?;
    delete_dialog(&visit, StatusCode::OK, &html! {}).await
}

/// Asks whether the object is to go, as it is now; `told_first` is what happened since it was asked before.
async fn delete_dialog(visit: &Visit, status: StatusCode, told_first: &Markup) -> Result<Answer, Refusal> {
    let kind = kind(visit)?;
    let object = object(visit, kind).await?;
    let called = object.get("name").map_or_else(|| visit.parameter("object").to_owned(), told);
    let hit = match kind.path {
        "vdisks" => Some(format!("vdisk-id = {}", visit.parameter("object"))),
        "collections" => Some(format!("collection-id = {}", visit.parameter("object"))),
        "sites" => Some(format!("site-id = {}", visit.parameter("object"))),
        _ => None,
    };
    let devices = match hit {
        None => 0,
        Some(filter) => {
            let asked = Fields::from([("filter", filter.as_str()), ("limit", "1")]);
            visit
                .ask
                .get::<List<Value>>(&format!("/v1/devices{}", asked.query()))
                .await
                .map_or(0, |found| found.total)
        }
    };
    let back = paths::object(kind.path, object.get("id").and_then(Value::as_i64).unwrap_or_default());
    let body = html! { (told_first) section.dialog.danger role="alertdialog" aria-labelledby="ask" aria-describedby="effect" {
        h1 #ask { "Delete " (kind.one) " " (name(&called)) "?" }
        p #effect { (kind.delete) }
        @if devices > 0 { p { b { (several(devices, "device")) } " belong to it or boot from it." } }
        form method="post" action=(visit.path) {
            (token(&visit.token()))
            input type="hidden" name="revision" value=(object.get("revision").map(told).unwrap_or_default());
            a.button href=(back) autofocus { "Cancel" } " " button.danger { "Delete " (visible(&called)) }
        }
        @if let Some(command) = commands::delete(kind.cli, kind.noun, &commands::name_of(&object)) { (same_as(&command)) }
    } };
    Ok(Page::new(format!("Delete {called}?"), kind.title, body).status(status).into())
}

pub(super) async fn delete(visit: Visit) -> Result<Answer, Refusal> {
    let kind = kind(&visit)?;
    let id = visit.parameter("object");
    let path = format!("/v1/{}/{}", kind.path, encode(id));
    match visit.ask.send(Method::DELETE, &path, Some(visit.form.get("revision")), None).await {
        Ok(_) => Ok(Answer::Go(format!("/{}", kind.path), Some(Said::good("Deleted.")))),
        // Asked anew, of what it is now and with who is hit now.
        Err(refusal) if refusal.status == StatusCode::PRECONDITION_FAILED => {
            let number = id.parse().unwrap_or_default();
            let by = LastChange::of(&visit.ask, kind.object, number).await;
            delete_dialog(&visit, refusal.status, &conflict::asked_anew(by.as_ref(), false)).await
        }
        Err(refusal) => {
            Ok(Answer::Go(format!("/{}/{}", kind.path, encode(id)), Some(Said::bad(refusal.answer.message))))
        }
    }
}
