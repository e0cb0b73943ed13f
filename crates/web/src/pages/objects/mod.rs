//! What farms are made of, kind by kind: lists with filters, one object with its properties, forms to make and change it.
//!
//! A kind is a row of a table: which columns its list has, and which fields its form. What the REST API says of a field is what
//! a form says of it, so a property that is added there needs one line here.
mod form;
mod list;

use farm::model::ObjectKind;
use serde_json::Value;

use crate::commands::Cli;
use crate::door::Route;

/// A kind of objects.
pub(crate) struct Kind {
    /// In the addresses of the API and of the console.
    pub(crate) path: &'static str,
    /// In the navigation.
    pub(crate) title: &'static str,
    pub(crate) one: &'static str,
    /// As the command line calls it; empty: it does not.
    pub(crate) noun: &'static str,
    /// What the command line does with it.
    pub(crate) cli: Cli,
    pub(crate) object: ObjectKind,
    /// Label, place in the answer, field to sort by.
    pub(crate) columns: &'static [(&'static str, &'static str, &'static str)],
    pub(crate) fields: &'static [Field],
    pub(crate) example: &'static str,
    /// What the list says where there is none.
    pub(crate) none: &'static str,
    /// What goes with an object when it is deleted.
    pub(crate) delete: &'static str,
    pub(crate) order: &'static str,
}

/// A field of a form.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) help: &'static str,
    pub(crate) input: Input,
    /// Whether it is there when an object is changed, too.
    pub(crate) stays: bool,
}

/// How a field is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Text,
    Number,
    Secret,
    Flag,
    /// One word of these; an empty one is nothing.
    Choice(&'static [&'static str]),
    /// An object of this kind.
    Object(&'static str),
    /// Several, with spaces or commas between them.
    Words,
    /// The vDisk of a device.
    Disk,
    /// Bytes: `10 GiB`.
    Size,
    /// Where a store lies: `SERVER:/folder`, with spaces between them.
    Paths,
}

/// How a field of a form stands in the command that does the same, with a value to show it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FormField {
    /// A word by itself.
    Word(&'static str),
    /// `KEY=VALUE`.
    Key(&'static str, &'static str),
    /// `--flag VALUE`.
    Flag(&'static str, &'static str),
}

impl Kind {
    /// How a field stands in the command; `None`: it does not.
    pub(crate) fn in_command(&self, field: &Field) -> Option<FormField> {
        let sample = match field.input {
            // Passwords stand in no command.
            Input::Secret => return None,
            Input::Text | Input::Object(_) => "some thing",
            Input::Number => "3",
            Input::Flag => "true",
            Input::Choice(words) => words.first().copied().unwrap_or_default(),
            Input::Words => "52:54:00:77:00:10,52:54:00:77:00:11",
            Input::Disk => "images/win11",
            Input::Size => "10 GiB",
            Input::Paths => "one:/srv/images,two:/mnt/images",
        };
        match (self.cli, field.name) {
            (Cli::Token, "user" | "name") | (Cli::Plain, "name") => Some(FormField::Word(sample)),
            (Cli::Token, "role") => Some(FormField::Flag("--role", sample)),
            (Cli::Token, "expires_at") => Some(FormField::Flag("--expires", sample)),
            (Cli::Plain, name) => Some(FormField::Key(name, sample)),
            _ => None,
        }
    }
}

/// What the forms of all kinds say on the command line.
pub(crate) fn form_fields() -> Vec<(Cli, &'static str, Vec<FormField>)> {
    let fields = |kind: &Kind| kind.fields.iter().filter_map(|field| kind.in_command(field)).collect();
    KINDS.iter().map(|kind| (kind.cli, kind.noun, fields(kind))).collect()
}

const fn field(name: &'static str, label: &'static str, help: &'static str, input: Input) -> Field {
    Field { name, label, help, input, stays: true }
}

const fn once(name: &'static str, label: &'static str, help: &'static str, input: Input) -> Field {
    Field { name, label, help, input, stays: false }
}

const DESCRIPTION: Field = field("description", "Description", "", Input::Text);
const DISABLED: Field = field("disabled", "Disabled", "nothing boots from it or by it", Input::Flag);
const ROLES: &[&str] = &["read-only", "operator", "administrator"];

const KINDS: &[Kind] = &[
    Kind {
        path: "devices",
        title: "Devices",
        one: "device",
        noun: "device",
        cli: Cli::Plain,
        object: ObjectKind::Device,
        columns: &[],
        fields: &[
            field(
                "name",
                "Name",
                "up to 15 letters, digits and hyphens: the machine's own name",
                Input::Text,
            ),
            field("collection", "Collection", "", Input::Object("collections")),
            field("macs", "MAC addresses", "of its network cards, with spaces between them", Input::Words),
            field("disks", "vDisk", "what it boots", Input::Disk),
            field(
                "kind",
                "Kind",
                "which versions it gets",
                Input::Choice(&["production", "test", "maintenance"]),
            ),
            field("address", "Address", "a fixed one, where Headwater is the DHCP server", Input::Text),
            DESCRIPTION,
            DISABLED,
        ],
        example: "",
        none: "There is none yet.",
        delete: "Its machine boots no more, and its settings are gone.",
        order: "name",
    },
    Kind {
        path: "vdisks",
        title: "vDisks",
        one: "vDisk",
        noun: "vdisk",
        cli: Cli::Plain,
        object: ObjectKind::Vdisk,
        columns: &[],
        fields: &[
            field("name", "Name", "", Input::Text),
            DESCRIPTION,
            field("menu_text", "Menu text", "how boot menus call it", Input::Text),
            field(
                "mode",
                "Mode",
                "standard: many devices, each with its write cache; private: one device writes it",
                Input::Choice(&["standard", "private"]),
            ),
            field(
                "write_cache.kind",
                "Write cache",
                "where what a device writes is kept",
                Input::Choice(&["", "server-disk", "server-memory", "server-disk-persistent"]),
            ),
            field(
                "write_cache.limit_bytes",
                "Its limit",
                "the most that one device may write: 10 GiB",
                Input::Size,
            ),
            field("write_cache.warn_percent", "Warning at", "per cent of the limit", Input::Number),
            DISABLED,
        ],
        example: "",
        none: "There is none yet.",
        delete: "It is unknown to the farm; the files of its versions stay.",
        order: "name",
    },
    Kind {
        path: "stores",
        title: "Stores",
        one: "store",
        noun: "store",
        cli: Cli::Plain,
        object: ObjectKind::Store,
        columns: &[
            ("Name", "name", "name"),
            ("Folders", "paths", ""),
            ("Site", "site", "site"),
            ("Description", "description", "description"),
            ("Disabled", "disabled", "disabled"),
        ],
        fields: &[
            field("name", "Name", "", Input::Text),
            field(
                "paths",
                "Folders",
                "where it lies on each server: SERVER:/srv/images, with spaces between several",
                Input::Paths,
            ),
            field("site", "Site", "none: of the whole farm", Input::Object("sites")),
            DESCRIPTION,
            DISABLED,
        ],
        example: "name ~ \"img*\"",
        none: "There is none yet.",
        delete: "Its vDisks must be gone before; files stay.",
        order: "name",
    },
    Kind {
        path: "servers",
        title: "Servers",
        one: "server",
        noun: "server",
        cli: Cli::Plain,
        object: ObjectKind::Server,
        columns: &[
            ("Name", "name", "name"),
            ("Site", "site", "site"),
            ("Addresses", "addresses", ""),
            ("Weight", "weight", "weight"),
            ("At most", "max_devices", ""),
            ("Disabled", "disabled", "disabled"),
        ],
        fields: &[
            field("name", "Name", "", Input::Text),
            field("site", "Site", "", Input::Object("sites")),
            field("addresses", "Addresses", "where devices reach it, with spaces between them", Input::Words),
            field("weight", "Weight", "its share of the devices, beside other servers", Input::Number),
            field("max_devices", "At most", "so many devices at once", Input::Number),
            DESCRIPTION,
            DISABLED,
        ],
        example: "site = Main",
        none: "There is none yet.",
        delete: "Devices that run from it must have ended before.",
        order: "name",
    },
    Kind {
        path: "sites",
        title: "Sites",
        one: "site",
        noun: "site",
        cli: Cli::Plain,
        object: ObjectKind::Site,
        columns: &[
            ("Name", "name", "name"),
            ("Description", "description", "description"),
            ("Disabled", "disabled", "disabled"),
        ],
        fields: &[field("name", "Name", "", Input::Text), DESCRIPTION, DISABLED],
        example: "not disabled",
        none: "There is none yet.",
        delete: "Its servers and collections must be gone before.",
        order: "name",
    },
    Kind {
        path: "collections",
        title: "Collections",
        one: "collection",
        noun: "collection",
        cli: Cli::Plain,
        object: ObjectKind::Collection,
        columns: &[
            ("Name", "name", "name"),
            ("Site", "site", "site"),
            ("Newcomers", "newcomers", ""),
            ("Template", "template", ""),
            ("Description", "description", "description"),
            ("Disabled", "disabled", "disabled"),
        ],
        fields: &[
            field("name", "Name", "", Input::Text),
            field("site", "Site", "", Input::Object("sites")),
            field(
                "newcomers",
                "Newcomers",
                "machines that nobody knows join here, named so: lab-### counts up",
                Input::Text,
            ),
            field(
                "template",
                "Template",
                "the device whose settings newcomers get",
                Input::Object("devices"),
            ),
            DESCRIPTION,
            DISABLED,
        ],
        example: "site = Main",
        none: "There is none yet.",
        delete: "Its devices must be gone or moved before.",
        order: "name",
    },
    Kind {
        path: "views",
        title: "Views",
        one: "view",
        noun: "view",
        cli: Cli::Plain,
        object: ObjectKind::View,
        columns: &[
            ("Name", "name", "name"),
            ("Of", "of", "of"),
            ("Filter", "filter", ""),
            ("Site", "site", "site"),
            ("Description", "description", "description"),
        ],
        fields: &[
            field("name", "Name", "", Input::Text),
            field(
                "of",
                "Of",
                "which list it is a part of",
                Input::Choice(&["devices", "vdisks", "versions", "servers"]),
            ),
            field(
                "filter",
                "Filter",
                "what fits it is in the view, always: name ~ \"lab-*\" and not disabled",
                Input::Text,
            ),
            field(
                "site",
                "Site",
                "of its devices and servers alone; none: of the whole farm",
                Input::Object("sites"),
            ),
            DESCRIPTION,
        ],
        example: "of = devices",
        none: "There is none yet. A view is a filter that is kept under a name, for what is looked at again and again.",
        delete: "What it shows stays; links to it lead nowhere.",
        order: "name",
    },
    Kind {
        path: "users",
        title: "Administrators",
        one: "user",
        noun: "user",
        cli: Cli::Plain,
        object: ObjectKind::User,
        columns: &[
            ("Name", "name", "name"),
            ("Description", "description", "description"),
            ("Has a password", "has_password", ""),
            ("Must change it", "must_change_password", ""),
            ("Disabled", "disabled", "disabled"),
        ],
        fields: &[
            field("name", "Name", "", Input::Text),
            once("password", "Password", "the user must change it at the first log-in", Input::Secret),
            DESCRIPTION,
            field("disabled", "Disabled", "cannot log in, and tokens stop working", Input::Flag),
        ],
        example: "not disabled",
        none: "There is none yet.",
        delete: "Roles and tokens of the user go as well, and sessions end.",
        order: "name",
    },
    Kind {
        path: "grants",
        title: "Roles",
        one: "role",
        noun: "",
        cli: Cli::Nothing,
        object: ObjectKind::Grant,
        columns: &[
            ("User", "user", "user"),
            ("Role", "role", "role"),
            ("Site", "site", ""),
            ("Collection", "collection", ""),
        ],
        fields: &[
            field("user", "User", "", Input::Object("users")),
            field(
                "role",
                "Role",
                "operators run devices; administrators change things",
                Input::Choice(ROLES),
            ),
            field("site", "Site", "there alone; none: in the whole farm", Input::Object("sites")),
            field("collection", "Collection", "there alone", Input::Object("collections")),
        ],
        example: "user = ann",
        none: "There is none yet.",
        delete: "The user may no longer do what the role gave.",
        order: "user",
    },
    Kind {
        path: "tokens",
        title: "Tokens",
        one: "token",
        noun: "token",
        cli: Cli::Token,
        object: ObjectKind::Token,
        columns: &[
            ("Name", "name", "name"),
            ("User", "user", "user"),
            ("Role", "role", "role"),
            ("Site", "site", ""),
            ("Made", "made_at", "made"),
            ("Ends", "expires_at", "expires"),
            ("Disabled", "disabled", "disabled"),
        ],
        fields: &[
            once("user", "User", "", Input::Object("users")),
            field("name", "Name", "what it is for", Input::Text),
            field("role", "Role", "the most that it can do", Input::Choice(ROLES)),
            field("expires_at", "Ends", "2027-01-31T00:00:00Z; none: never", Input::Text),
            field("disabled", "Disabled", "", Input::Flag),
        ],
        example: "user = ann",
        none: "There is none yet. Programs show a token instead of a user's password; it allows at most what its user may.",
        delete: "Programs that use it are let in no more.",
        order: "name",
    },
    Kind {
        path: "persistent-caches",
        title: "Write caches",
        one: "persistent write cache",
        noun: "write-cache",
        cli: Cli::WriteCache,
        object: ObjectKind::PersistentCache,
        columns: &[
            ("Device", "device", "device"),
            ("vDisk", "vdisk", "vdisk"),
            ("Version", "version", "version"),
            ("Server", "server", "server"),
            ("Stays", "stays", "stays"),
            ("Made", "made_at", "made"),
        ],
        fields: &[field("stays", "Stays when its version ends", "", Input::Flag)],
        example: "vdisk = win11",
        none: "None is kept. Devices whose write cache outlasts their boots have one here for each version that they ran.",
        delete: "All that the device wrote is gone for good.",
        order: "device",
    },
    Kind {
        path: "locks",
        title: "Locks",
        one: "lock",
        noun: "lock",
        cli: Cli::Lists,
        object: ObjectKind::Lease,
        columns: &[
            ("Of", "subject", "subject"),
            ("Held by", "owner", "owner"),
            ("For", "purpose", "purpose"),
            ("Sharing", "sharing", "sharing"),
            ("Server", "server", ""),
            ("Since", "since", "since"),
            ("Until", "until", "ends"),
            ("Keeps out", "keeps_out", ""),
        ],
        fields: &[],
        example: "sharing = exclusive",
        none: "Nothing is held by anybody: no machine runs, and no task works on a version.",
        delete: "",
        order: "since",
    },
    Kind {
        path: "audit",
        title: "Audit",
        one: "entry",
        noun: "audit",
        cli: Cli::Lists,
        object: ObjectKind::Farm,
        columns: &[
            ("At", "at", "at"),
            ("Who", "actor", "actor"),
            ("Did", "action", "action"),
            ("Kind", "kind", "kind"),
            ("To", "name", "name"),
            ("From", "origin", "origin"),
            ("Request", "request", "request"),
        ],
        fields: &[],
        example: "actor = ann and kind = device",
        none: "There is none yet.",
        delete: "",
        order: "-number",
    },
];

/// The kind that an address begins with.
pub(super) fn kind_of(path: &str) -> Option<&'static Kind> {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    KINDS.iter().find(|kind| kind.path == first)
}

pub(super) fn all() -> Vec<Route> {
    let mut routes = Vec::new();
    for kind in KINDS {
        let path = kind.path;
        if !kind.columns.is_empty() {
            routes.push(Route::get(format!("/{path}"), list::page));
            // A lock has a page of its own.
            if path != "locks" {
                routes.push(Route::get(format!("/{path}/{{object}}"), list::one));
            }
        }
        if kind.fields.is_empty() {
            continue;
        }
        // How a vDisk comes to be has a page of its own, and write caches are made by devices.
        if !["vdisks", "persistent-caches"].contains(&path) {
            routes.push(Route::get(format!("/{path}/new"), form::new_page));
            routes.push(Route::post(format!("/{path}/new"), form::make));
        }
        routes.push(Route::get(format!("/{path}/{{object}}/edit"), form::edit_page));
        routes.push(Route::post(format!("/{path}/{{object}}/edit"), form::change));
        routes.push(Route::get(format!("/{path}/{{object}}/delete"), form::delete_page));
        routes.push(Route::post(format!("/{path}/{{object}}/delete"), form::delete));
    }
    routes
}

/// A value of the API in words.
pub(super) fn told(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.is_empty() => "–".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "–".to_owned(),
        Value::Array(items) => items.iter().map(told).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => match (fields.get("name"), fields.get("path"), fields.get("server")) {
            (_, Some(path), Some(server)) => format!("{} on {}", told(path), told(server)),
            (Some(name), _, _) => told(name),
            _ => fields
                .iter()
                .map(|(key, value)| format!("{key} {}", told(value)))
                .collect::<Vec<_>>()
                .join(", "),
        },
    }
}
