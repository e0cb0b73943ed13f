//! What the command line knows of each noun: where the API has it, what a list shows, and which properties can be set.
//!
//! One table for each noun, of which listing, showing, making, changing, the columns of CSV and the help of the command line
//! are all made. Names of properties are those of the API; a dot leads into a property of a property.

/// A noun.
#[derive(Debug)]
pub struct Noun {
    /// `site`.
    pub word: &'static str,
    /// Its list in the API.
    pub path: &'static str,
    /// What a list shows.
    pub columns: &'static [Column],
    /// What can be set.
    pub fields: &'static [Field],
}

/// A column of a list.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Above it.
    pub head: &'static str,
    /// The property.
    pub key: &'static str,
}

/// A property that can be set.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name; one that ends in `.*` stands for all properties below it.
    pub key: &'static str,
    /// How its value is written.
    pub kind: FieldKind,
    /// What it is.
    pub help: &'static str,
    /// What it is called elsewhere (in tables of devices, in filters) or taken for, and understood as.
    pub also: &'static [&'static str],
}

impl Field {
    const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }
}

/// How a value is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// As it is. Empty: nothing.
    Text,
    /// As it is, or what stands in the file behind an `@`. Empty: nothing.
    TextOrFile,
    /// As it is, and empty where it is empty.
    PlainText,
    /// `true` or `false`.
    Truth,
    /// A whole number.
    Number,
    /// Bytes: `10 GiB`.
    Size,
    /// A kind of write cache; the words of the configuration are understood as well.
    CacheKind,
    /// Several, with commas between them.
    Texts,
    /// vDisks in boot order, with commas between them.
    Disks,
    /// `SERVER:/path` of each server, with commas between them.
    Paths,
}

const fn column(head: &'static str, key: &'static str) -> Column {
    Column { head, key }
}

const fn field(key: &'static str, kind: FieldKind, help: &'static str) -> Field {
    Field { key, kind, help, also: &[] }
}

use FieldKind::{CacheKind, Disks, Number, Paths, PlainText, Size, Text, TextOrFile, Texts, Truth};

const NAME: Field = field("name", Text, "another name");
const DESCRIPTION: Field = field("description", PlainText, "what somebody wrote about it");
const DISABLED: Field = field("disabled", Truth, "nothing boots from it, nobody gets in by it");

/// The farm.
pub const FARM: Noun = Noun {
    word: "farm",
    path: "/v1/farm",
    columns: &[],
    fields: &[
        NAME,
        DESCRIPTION,
        field(
            "auto_merge.above",
            Number,
            "merge by itself when a chain has more versions than this (3 to 50)",
        ),
        field(
            "auto_merge.result",
            Text,
            "what such a version is for at first: maintenance, test or production",
        ),
    ],
};

/// Sites.
pub const SITE: Noun = Noun {
    word: "site",
    path: "/v1/sites",
    columns: &[column("NAME", "name"), column("DISABLED", "disabled"), column("DESCRIPTION", "description")],
    fields: &[NAME, DESCRIPTION, DISABLED],
};

/// Servers.
pub const SERVER: Noun = Noun {
    word: "server",
    path: "/v1/servers",
    columns: &[
        column("NAME", "name"),
        column("SITE", "site"),
        column("ADDRESSES", "addresses"),
        column("WEIGHT", "weight"),
        column("DISABLED", "disabled"),
    ],
    fields: &[
        NAME,
        DESCRIPTION,
        DISABLED,
        field("site", Text, "its site"),
        field("addresses", Texts, "where devices reach it, best first").also(&["address", "ip"]),
        field("weight", Number, "how many devices it takes in comparison with the others"),
        field("max_devices", Number, "the most devices that it serves at a time").also(&["max-devices"]),
    ],
};

/// What servers carry.
pub const SERVER_LOAD: Noun = Noun {
    word: "server",
    path: "/v1/server-loads",
    columns: &[
        column("NAME", "server"),
        column("STATE", "state"),
        column("DEVICES", "load.devices"),
        column("AT MOST", "max_devices"),
        column("BOOTING", "load.booting"),
        column("WAITING", "load.waiting"),
        column("READING", "load.read_bytes_per_second"),
        column("WRITING", "load.written_bytes_per_second"),
        column("REQUESTS/S", "load.requests_per_second"),
        column("BUSY", "load.processors_busy"),
        column("PROCESSORS", "load.processors"),
        column("MEMORY", "load.memory_bytes"),
        column("HEARD OF", "heard_at"),
    ],
    fields: &[],
};

/// Stores.
pub const STORE: Noun = Noun {
    word: "store",
    path: "/v1/stores",
    columns: &[
        column("NAME", "name"),
        column("SITE", "site"),
        column("PATHS", "paths"),
        column("DISABLED", "disabled"),
        column("DESCRIPTION", "description"),
    ],
    fields: &[
        NAME,
        DESCRIPTION,
        DISABLED,
        field("site", Text, "the only site whose servers may use it"),
        field("paths", Paths, "where it lies on each server: SERVER:/srv/images,OTHER:/mnt/images")
            .also(&["path", "folder"]),
    ],
};

/// vDisks.
pub const VDISK: Noun = Noun {
    word: "vdisk",
    path: "/v1/vdisks",
    columns: &[
        column("NAME", "name"),
        column("STORE", "store"),
        column("MODE", "mode"),
        column("WRITE CACHE", "write_cache.kind"),
        column("LIMIT", "write_cache.limit_bytes"),
        column("HELD AT", "held_at"),
        column("DISABLED", "disabled"),
    ],
    fields: &[
        NAME,
        DESCRIPTION,
        DISABLED,
        field("store", Text, "where its files lie"),
        field("menu_text", Text, "what boot menus call it").also(&["menu-text", "menu"]),
        field("asks_login", Truth, "boot menus let operators alone boot it, who log in"),
        field("mode", Text, "standard (each device has a write cache) or private (one device writes it)"),
        field("write_cache.kind", CacheKind, "server-memory, server-disk or server-disk-persistent")
            .also(&["write_cache", "cache"]),
        field("write_cache.limit_bytes", Size, "the most that one device may write")
            .also(&["write_cache.limit", "limit"]),
        field("write_cache.warn_percent", Number, "from how full on there are warnings")
            .also(&["write_cache.warn", "warn"]),
        field("server", Text, "the one server that may serve it"),
        field("affinity", Text, "servers of the device's subnet: none, best-effort or fixed"),
    ],
};

/// Versions.
pub const VERSION: Noun = Noun {
    word: "version",
    path: "/v1/versions",
    columns: &[
        column("VDISK", "vdisk"),
        column("VERSION", "number"),
        column("KIND", "kind"),
        column("ON", "parent"),
        column("ACCESS", "access"),
        column("RELEASED", "released_at"),
        column("STATE", "state"),
        column("SIZE", "length_bytes"),
        column("COMMENT", "comment"),
    ],
    fields: &[field("comment", PlainText, "a remark")],
};

/// Collections.
pub const COLLECTION: Noun = Noun {
    word: "collection",
    path: "/v1/collections",
    columns: &[
        column("NAME", "name"),
        column("SITE", "site"),
        column("TEMPLATE", "template"),
        column("NEWCOMERS", "newcomers"),
        column("DISABLED", "disabled"),
        column("DESCRIPTION", "description"),
    ],
    fields: &[
        NAME,
        DESCRIPTION,
        DISABLED,
        field("site", Text, "its site"),
        field("template", Text, "the device whose profile new devices get"),
        field("newcomers", Text, "unknown machines join, and are called so: lab-###"),
        field("user_data", TextOrFile, "the template of cloud-init's user data: @FILE"),
        field("ssh_keys", Texts, "public keys that may log in"),
        field("approves_newcomers", Truth, "such a machine waits until somebody approves it"),
        field("menu.show", Text, "when a boot menu with a choice is shown: always, on-key or never"),
        field("menu.wait_s", Number, "after how many seconds it takes the default; 0: never"),
    ],
};

/// Devices.
pub const DEVICE: Noun = Noun {
    word: "device",
    path: "/v1/devices",
    columns: &[
        column("NAME", "name"),
        column("COLLECTION", "collection"),
        column("MAC", "macs"),
        column("KIND", "kind"),
        column("VDISKS", "disks"),
        column("DISABLED", "disabled"),
        column("DESCRIPTION", "description"),
    ],
    fields: &[
        NAME,
        DESCRIPTION,
        DISABLED,
        field("collection", Text, "where it belongs: SITE/COLLECTION"),
        field("macs", Texts, "its MAC addresses").also(&["mac"]),
        field("uuid", Text, "its SMBIOS UUID"),
        field("address", Text, "the IP address that it gets").also(&["ip"]),
        field("initiator", Text, "the iSCSI name that it uses"),
        field("chap", Text, "\"chap=\": it proves nothing"),
        field("chap.user", Text, "its CHAP user"),
        field(
            "chap.secret",
            Text,
            "the name under which its CHAP secret is kept (headwater secret set NAME)",
        ),
        field("kind", Text, "production, test or maintenance"),
        field("disks", Disks, "its vDisks in boot order").also(&["vdisk", "vdisks", "disk"]),
        field("local_disk", Text, "whether it may boot its own disk: no, offered (in the menu) or first")
            .also(&["local-disk"]),
        field("menu.show", Text, "when a boot menu with a choice is shown: always, on-key or never")
            .also(&["menu"]),
        field("menu.wait_s", Number, "after how many seconds it takes the default; 0: never")
            .also(&["menu.wait", "menu-wait"]),
        field("write_cache.kind", CacheKind, "its own kind of write cache").also(&["write_cache", "cache"]),
        field("write_cache.limit_bytes", Size, "its own limit").also(&["write_cache.limit", "limit"]),
        field("limits.bytes_per_second", Size, "the most that it may read and write"),
        field("limits.requests_per_second", Number, "the most requests"),
        field("personality.*", Text, "a value that it is told: personality.Printer=hall"),
        field("user_data", TextOrFile, "its own template of cloud-init's user data: @FILE"),
        field("ssh_keys", Texts, "public keys that may log in, besides those of the collection"),
    ],
};

/// Views.
pub const VIEW: Noun = Noun {
    word: "view",
    path: "/v1/views",
    columns: &[
        column("NAME", "name"),
        column("OF", "of"),
        column("FILTER", "filter"),
        column("SITE", "site"),
        column("DESCRIPTION", "description"),
    ],
    fields: &[
        NAME,
        DESCRIPTION,
        field("of", Text, "devices, vdisks, versions or servers"),
        field("filter", Text, "which of them"),
        field("site", Text, "of one site alone"),
    ],
};

/// Persistent write caches.
pub const WRITE_CACHE: Noun = Noun {
    word: "write-cache",
    path: "/v1/persistent-caches",
    columns: &[
        column("NUMBER", "id"),
        column("DEVICE", "device"),
        column("VDISK", "vdisk"),
        column("VERSION", "version"),
        column("SERVER", "server"),
        column("STAYS", "stays"),
        column("MADE", "made_at"),
    ],
    fields: &[],
};

/// Tasks.
pub const TASK: Noun = Noun {
    word: "task",
    path: "/v1/tasks",
    columns: &[
        column("NUMBER", "id"),
        column("KIND", "kind"),
        column("VDISK", "vdisk"),
        column("STATE", "state"),
        column("DONE %", "percent"),
        column("BY", "actor"),
        column("BEGUN", "made_at"),
        column("RESULT", "result"),
    ],
    fields: &[],
};

/// Locks.
pub const LOCK: Noun = Noun {
    word: "lock",
    path: "/v1/locks",
    columns: &[
        column("FENCE", "fence"),
        column("OF", "subject"),
        column("SHARING", "sharing"),
        column("PURPOSE", "purpose"),
        column("OWNER", "owner"),
        column("SERVER", "server"),
        column("SINCE", "since"),
        column("UNTIL", "until"),
        column("KEEPS OUT", "keeps_out"),
    ],
    fields: &[],
};

/// Users.
pub const USER: Noun = Noun {
    word: "user",
    path: "/v1/users",
    columns: &[
        column("NAME", "name"),
        column("PASSWORD", "has_password"),
        column("MUST CHANGE", "must_change_password"),
        column("DISABLED", "disabled"),
        column("DESCRIPTION", "description"),
    ],
    fields: &[
        NAME,
        DESCRIPTION,
        DISABLED,
        field("must_change_password", Truth, "the password must be changed at the next log-in"),
    ],
};

/// Roles of users.
pub const GRANT: Noun = Noun {
    word: "role",
    path: "/v1/grants",
    columns: &[
        column("NUMBER", "id"),
        column("USER", "user"),
        column("ROLE", "role"),
        column("SITE", "site"),
        column("COLLECTION", "collection"),
    ],
    fields: &[],
};

/// Tokens.
pub const TOKEN: Noun = Noun {
    word: "token",
    path: "/v1/tokens",
    columns: &[
        column("USER", "user"),
        column("NAME", "name"),
        column("ROLE", "role"),
        column("SITE", "site"),
        column("COLLECTION", "collection"),
        column("EXPIRES", "expires_at"),
        column("DISABLED", "disabled"),
    ],
    fields: &[],
};

/// CHAP secrets.
pub const SECRET: Noun = Noun {
    word: "secret",
    path: "/v1/secrets",
    columns: &[column("NAME", "name"), column("KEPT HERE", "kept"), column("DEVICES", "devices")],
    fields: &[],
};

/// Settings of a server.
pub const SETTING: Noun = Noun {
    word: "setting",
    path: "/v1/settings",
    columns: &[
        column("SETTING", "key"),
        column("VALUE", "value"),
        column("IN THE FILE", "configured"),
        column("RUNNING", "running"),
        column("TAKES EFFECT", "effect"),
    ],
    fields: &[],
};

/// Audit entries.
pub const AUDIT: Noun = Noun {
    word: "audit",
    path: "/v1/audit",
    columns: &[
        column("NUMBER", "number"),
        column("AT", "at"),
        column("BY", "actor"),
        column("FROM", "origin"),
        column("ACTION", "action"),
        column("KIND", "kind"),
        column("NAME", "name"),
    ],
    fields: &[],
};

/// What live devices show.
pub const DEVICE_STATUS: Noun = Noun {
    word: "device",
    path: "/v1/device-status",
    columns: &[
        column("DEVICE", "name"),
        column("MAC", "mac"),
        column("VDISK", "vdisk"),
        column("VERSION", "version"),
        column("PRESENCE", "presence"),
        column("STATUS", "status"),
        column("SERVER", "server"),
        column("BOOT", "boot"),
        column("SESSIONS", "sessions"),
        column("WRITE CACHE", "write_cache.used_bytes"),
        column("LIMIT", "write_cache.limit_bytes"),
        column("FILL", "write_cache.fill"),
        column("PATH MTU", "path.mtu_bytes"),
        column("JUMBO", "path.jumbo"),
        column("LIMITED BY", "path.limited_by"),
        column("SECRETS TOLD", "secrets_told"),
        column("KEPT OUT BY", "kept_out.owner"),
        column("LOCK", "kept_out.lock"),
    ],
    fields: &[],
};

/// Machines that wait to be approved.
pub const NEWCOMER: Noun = Noun {
    word: "device",
    path: "/v1/newcomers",
    columns: &[
        column("NAME", "name"),
        column("MAC", "mac"),
        column("UUID", "uuid"),
        column("COLLECTION", "collection"),
        column("SINCE", "since"),
        column("SEEN", "seen"),
    ],
    fields: &[],
};

/// Devices that were woken.
pub const WOKEN: Noun = Noun {
    word: "device",
    path: "/v1/wake",
    columns: &[column("DEVICE", "name"), column("CALLED ON", "interfaces"), column("PROBLEM", "problem")],
    fields: &[],
};

/// Devices that were given a command.
pub const COMMANDED: Noun = Noun {
    word: "device",
    path: "/v1/commands",
    columns: &[
        column("DEVICE", "name"),
        column("STATE", "state"),
        column("HEARD S AGO", "heard_s"),
        column("PROBLEM", "problem"),
    ],
    fields: &[],
};

/// Commands that devices were given, a line for each device.
pub const COMMAND: Noun = Noun {
    word: "command",
    path: "/v1/commands",
    columns: &[
        column("GIVEN", "given_at"),
        column("COMMAND", "command"),
        column("BY", "by"),
        column("DEVICE", "name"),
        column("STATE", "state"),
        column("PROBLEM", "problem"),
        column("TEXT", "text"),
    ],
    fields: &[],
};

/// The nouns whose objects are made and changed with KEY=VALUE.
pub const CHANGEABLE: &[&Noun] = &[&FARM, &SITE, &SERVER, &STORE, &VDISK, &COLLECTION, &DEVICE, &VIEW, &USER];

impl Noun {
    /// The property that is called so, or understood so.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&'static Field> {
        let fits = |field: &&Field| match field.key.strip_suffix('*') {
            Some(start) => key.len() > start.len() && key.starts_with(start),
            None => field.key == key || field.also.contains(&key),
        };
        self.fields.iter().find(fits)
    }

    /// The API's name of a property that may be called by another one.
    #[must_use]
    pub fn key<'k>(&self, key: &'k str) -> &'k str {
        match self.field(key) {
            Some(field) if !field.key.ends_with('*') => field.key,
            _ => key,
        }
    }

    /// The properties that can be set, for the help of the command line.
    #[must_use]
    pub fn help(&self) -> String {
        let rows: Vec<Vec<String>> =
            self.fields.iter().map(|field| vec![format!("  {}", field.key), field.help.to_owned()]).collect();
        format!("Properties:\n{}", crate::columns::align(&rows, &[]))
    }
}
