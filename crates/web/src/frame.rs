//! What stands around every page: search, navigation, what is being worked on, and what was just said.
use std::time::Duration;

use axum::http::StatusCode;
use farm::model::ObjectKind;
use maud::{DOCTYPE, Markup, html};
use serde::Deserialize;

use crate::answer::Page;
use crate::ask::{Ask, Refusal};
use crate::assets::path;
use crate::door::Visit;
use crate::markup::{button, name, token, visible};
use crate::pages::tasks;
use crate::paths;
use crate::said::Said;
use crate::wire::{List, Named};

/// The most sites and collections of the tree; the lists show all.
const MAX_TREE: usize = 60;

/// Which colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    /// As the browser prefers.
    Auto,
    Light,
    Dark,
}

impl Theme {
    pub(crate) fn of(word: &str) -> Self {
        match word {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::Auto,
        }
    }

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// The navigation: label, address.
const KINDS: &[(&str, &str)] = &[
    ("Overview", paths::HOME),
    ("Devices", paths::DEVICES),
    ("Boots", paths::BOOTS),
    ("vDisks", paths::VDISKS),
    ("Tasks", paths::TASKS),
    ("Locks", "/locks"),
    ("Stores", "/stores"),
    ("Servers", "/servers"),
    ("Settings", paths::SETTINGS),
    ("Doctor", paths::DOCTOR),
    ("Sites", "/sites"),
    ("Collections", "/collections"),
    ("Views", "/views"),
    ("Write caches", "/persistent-caches"),
    ("Administrators", "/users"),
    ("Roles", "/grants"),
    ("Tokens", "/tokens"),
    ("Audit", "/audit"),
    ("Set up", paths::FIRST_RUN),
];

/// What is needed to draw the frame of one page.
pub(crate) struct Frame {
    ask: Ask,
    user: Option<String>,
    token: String,
    theme: Theme,
    said: Option<Said>,
    here: String,
    /// What makes new objects.
    create: Markup,
    cancel: tasks::Cancel,
}

#[derive(Deserialize)]
struct FarmName {
    name: String,
}

impl Frame {
    pub(crate) fn of(visit: &Visit) -> Self {
        Self {
            ask: visit.ask.clone(),
            user: visit.who.as_ref().map(|who| who.user.name.to_string()),
            token: visit.token(),
            theme: visit.theme,
            said: visit.said.clone(),
            here: format!("{}{}", visit.path, visit.query.query()),
            cancel: tasks::Cancel::of(visit),
            create: html! {
                (button("/devices/new", "+ Device", &visit.may_make(ObjectKind::Device))) " "
                (button("/vdisks/new", "+ vDisk", &visit.may_make(ObjectKind::Vdisk)))
            },
        }
    }

    pub(crate) const fn has_said(&self) -> bool {
        self.said.is_some()
    }

    /// A page in its frame.
    pub(crate) async fn around(&self, page: Page) -> Markup {
        let Some(user) = &self.user else { return self.alone(&page) };
        let tree = "/v1/sites?sort=name&limit=100";
        let collections = "/v1/collections?sort=name&limit=200";
        let (farm, sites, collections, tasks) = tokio::join!(
            self.ask.get::<FarmName>("/v1/farm"),
            self.ask.get::<List<Named>>(tree),
            self.ask.get::<List<Named>>(collections),
            tasks::recent(&self.ask),
        );
        let farm = farm.map(|farm| farm.name).unwrap_or_else(|_| "Headwater".to_owned());
        let (sites, collections) = (sites.unwrap_or_default(), collections.unwrap_or_default());
        let body = html! {
            a.skip href="#main" { "Skip to the page" }
            header.top {
                a.menu href="#menu" aria-label="Menu" { "☰" }
                a.brand href=(paths::HOME) { img src=(path("icon.svg")) alt="" width="24" height="24"; (name(&farm)) }
                form.search action=(paths::SEARCH) role="search" {
                    input type="search" name="q" placeholder="Name, MAC, IP, UUID, vDisk" aria-label="Search the farm" aria-keyshortcuts="/" title="Key /";
                }
                span.create { (self.create) }
                details.account {
                    summary { (name(user)) }
                    div {
                        (self.theme_form())
                        label.check hidden { input #slash type="checkbox"; " Key / goes to the search" }
                        a href=(paths::PASSWORD) { "Change password" }
                        form method="post" action=(paths::LOG_OUT) { (token(&self.token)) button { "Log out" } }
                    }
                }
            }
            nav #menu aria-label="Farm" {
                a.close href="#" { "Close menu" }
                ul { @for (label, to) in KINDS {
                    li { a href=(to) aria-current=[(page.here == *label).then_some("page")] { (label) } }
                } }
                (tree_of(&sites, &collections))
                p.small.clock { "Times are in UTC." }
            }
            main #main tabindex="-1" {
                // Always there, so that what comes into it is read out.
                div.cut role="status" { p #lost hidden { "Live updates are interrupted; trying again…" } }
                (self.notice())
                (page.body)
            }
            (tasks::log_panel(tasks.as_ref().ok(), &self.cancel))
        };
        self.document(&page.title, Some(&farm), true, &body)
    }

    /// A page for whoever is not logged in.
    fn alone(&self, page: &Page) -> Markup {
        let body = html! { main.alone #main {
            p.mark { img src=(path("icon.svg")) alt="" width="40" height="40"; "Headwater" }
            (self.notice())
            (page.body)
        } };
        self.document(&page.title, None, false, &body)
    }

    fn notice(&self) -> Markup {
        html! { @if let Some(said) = &self.said {
            p.said.bad[!said.good] role=(if said.good { "status" } else { "alert" }) { (visible(&said.text)) }
        } }
    }

    fn theme_form(&self) -> Markup {
        html! { form.theme method="post" action=(paths::THEME) aria-label="Colours" {
            (token(&self.token))
            input type="hidden" name="back" value=(self.here);
            @for (theme, label) in [(Theme::Auto, "Auto"), (Theme::Light, "Light"), (Theme::Dark, "Dark")] {
                button name="theme" value=(theme.word()) aria-pressed=(if theme == self.theme { "true" } else { "false" }) { (label) }
            }
        } }
    }

    fn document(&self, title: &str, farm: Option<&str>, live: bool, body: &Markup) -> Markup {
        document(title, farm, self.theme, live, body)
    }
}

fn document(title: &str, farm: Option<&str>, theme: Theme, live: bool, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme.word()) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // htmx: no style elements of its own, no code in attributes, and failures are shown where they happen.
                meta name="htmx-config" content=r#"{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"historyCacheSize":0,"selfRequestsOnly":true}"#;
                title { (visible(title)) @if let Some(farm) = farm { " – " (visible(farm)) } " – Headwater" }
                link rel="icon" href=(path("icon.svg"));
                link rel="stylesheet" href=(path("console.css"));
                @if live {
                    link rel="stylesheet" href=(path("uplot.min.css"));
                    script src=(path("htmx.min.js")) defer {}
                    script src=(path("uplot.min.js")) defer {}
                    script src=(path("console.js")) defer {}
                    script src=(path("keys.js")) defer {}
                    script src=(path("wizard.js")) defer {}
                }
            }
            body data-live=[live.then_some(paths::LIVE)] { (body) }
        }
    }
}

fn tree_of(sites: &List<Named>, collections: &List<Named>) -> Markup {
    html! { @if !sites.items.is_empty() {
        h2 { "Places" }
        ul.tree { @for site in &sites.items {
            li {
                a href=(format!("{}?site={}", paths::DEVICES, site.id)) { (name(&site.name)) }
                ul { @for collection in collections.items.iter().filter(|c| c.site.as_ref().is_some_and(|s| s.id == site.id)).take(MAX_TREE) {
                    li { a href=(format!("{}?collection={}", paths::DEVICES, collection.id)) { (name(&collection.name)) } }
                } }
            }
        } }
    } }
}

/// Why something was not done.
pub(crate) fn failure(refusal: &Refusal) -> Markup {
    let answer = &refusal.answer;
    let title = match refusal.status {
        StatusCode::NOT_FOUND => "There is nothing here",
        StatusCode::FORBIDDEN => "This is not allowed",
        StatusCode::PRECONDITION_FAILED => "Somebody else was faster",
        _ => "That did not work",
    };
    html! { section.failure role="alert" {
        h1 { (title) }
        p { (visible(&answer.message)) }
        @if let Some(hint) = &answer.hint { p.hint { (visible(hint)) } }
        @if !answer.rows.is_empty() {
            table { thead { tr { th { "Line" } th { "Column" } th { "What is wrong" } } } tbody { @for row in &answer.rows {
                tr { td { (row.line) } td { (visible(row.column.as_deref().unwrap_or("–"))) } td { (visible(&row.why)) } }
            } } }
        }
        @if !answer.request_id.is_empty() { p.small { "Request " code { (visible(&answer.request_id)) } ", as the server's log names it" } }
    } }
}

/// A failure at the door, before anything is known of who comes.
pub(crate) fn bare_failure(refusal: &Refusal) -> Markup {
    let body =
        html! { main.alone #main { (failure(refusal)) p { a href=(paths::HOME) { "To the console" } } } };
    document("That did not work", None, Theme::Auto, false, &body)
}

/// A time span since a start of the server, in words.
pub(crate) fn since(seconds: u64) -> String {
    crate::markup::span(Duration::from_secs(seconds))
}
