//! Forms that come after somebody else changed what they are about: both values, who wrote theirs and when, and the choice.
//!
//! A form carries, beside each field, what the field was when the form was made (`was-FIELD`). Where somebody was faster, the form
//! comes back with all that was typed, and for each field that both changed asks which is to stand (`take-FIELD`); the next
//! sending says that, and is held to the state that was shown. All forms that change an object go through here.
use farm::model::{Choice as _, ObjectKind};
use maud::{Markup, html};
use serde::Deserialize;

use crate::ask::Ask;
use crate::fields::Fields;
use crate::markup::{moment, name};
use crate::wire::List;

/// The value of a choice for what somebody else wrote.
const THEIRS: &str = "theirs";

/// A field that two have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The field's name in the form.
    pub(crate) field: String,
    pub(crate) label: String,
    /// In words.
    pub(crate) mine: String,
    pub(crate) theirs: String,
}

/// Who changed something last.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct LastChange {
    actor: String,
    at: String,
}

impl LastChange {
    /// Of an object, as the audit tells; `None`: it is not for this role, or knows of none.
    pub(crate) async fn of(ask: &Ask, kind: ObjectKind, object: i64) -> Option<Self> {
        let filter = format!("kind = {} and object = {object}", kind.word());
        let asked = Fields::from([("filter", filter.as_str()), ("sort", "-number"), ("limit", "1")]);
        let found = ask.get::<List<Self>>(&format!("/v1/audit{}", asked.query())).await;
        found.ok()?.items.into_iter().next()
    }
}

/// The field that holds what a field was when the form was made.
pub(crate) fn was(field: &str) -> String {
    format!("was-{field}")
}

fn take(field: &str) -> String {
    format!("take-{field}")
}

/// A form with what was chosen: a field whose other value is to stand is as if nobody had touched it here.
pub(crate) fn chosen<'a>(form: &Fields, fields: impl Iterator<Item = &'a str>) -> Fields {
    fields.fold(form.clone(), |chosen, field| {
        let choice = take(field);
        let chosen = match form.get(&choice) == THEIRS {
            true => chosen.with(field, form.get(&was(field))),
            false => chosen,
        };
        chosen.with(&choice, "")
    })
}

/// What both are told; `form` is the id of the form that the choices go with.
pub(crate) fn panel(conflicts: &[Conflict], by: Option<&LastChange>, form: &str) -> Markup {
    html! { section.failure.conflict role="alert" {
        h2 { "Somebody else changed this meanwhile" }
        @if let Some(by) = by { p { "It was " (name(&by.actor)) ", at " (moment(&by.at)) " UTC." } }
        p { "Nothing of yours was written yet. Look at both values, choose, and send the form again." }
        @if conflicts.is_empty() { p { "What they changed is not in your fields; it is in the form below." } } @else {
            table { thead { tr { th { "Field" } th { "Yours" } th { "Theirs, as it is now" } } }
                tbody { @for Conflict { field, label, mine, theirs } in conflicts { tr {
                    th scope="row" { (label) }
                    td { label.check { input type="radio" form=(form) name=(take(field)) value="mine" checked; " " (name(mine)) } }
                    td { label.check { input type="radio" form=(form) name=(take(field)) value=(THEIRS); " " (name(theirs)) } }
                } } } }
        }
    } }
}

/// What a dialog without values to choose from says: what it tells of has changed since it was asked. `writes`: it has a field,
/// which holds what was typed.
pub(crate) fn asked_anew(by: Option<&LastChange>, writes: bool) -> Markup {
    html! { p.said.bad role="alert" {
        "Nothing was done: somebody else changed this meanwhile"
        @if let Some(by) = by { ", " (name(&by.actor)) " at " (moment(&by.at)) " UTC" }
        ". This is how it stands now" @if writes { "; what you wrote is kept" } "."
    } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_values_of_others_stand_and_all_else_stays_as_it_was_typed() {
        let form = Fields::from([
            ("name", "mine"),
            ("was-name", "theirs"),
            ("take-name", "theirs"),
            ("description", "typed"),
            ("was-description", "other"),
            ("take-description", "mine"),
            ("disabled", "true"),
            ("take-disabled", "theirs"),
        ]);
        let chosen = chosen(&form, ["name", "description", "disabled"].into_iter());
        let values =
            ["name", "description", "disabled", "take-name", "was-name"].map(|name| chosen.get(name));
        assert_eq!(values, ["theirs", "typed", "", "", "theirs"]);
    }
}
