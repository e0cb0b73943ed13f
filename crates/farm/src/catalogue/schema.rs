//! The tables, as steps from an empty database to the present one. Steps are never changed once they are released: a
//! new one is added behind them.
//!
//! Types and statements keep to the [dialect](super::database) that both databases understand. Every object has its id
//! and revision; lists of an object (MAC addresses, disks, paths) stand in tables of their own, whose rows belong to an
//! `owner` and have a `place`. Names stand twice: as they are written, and in lower case (`..._key`), by which they are
//! compared.

use super::cell::Cell;
use super::database::{Database, Transaction};
use super::error::{CatalogueError, DatabaseError};

/// The steps.
const STEPS: &[&[&str]] = &[FIRST, GUEST_SETTINGS, MENUS, REPORTS, DEVICE_REPORTS];

const FIRST: &[&str] = &[
    // What is counted over the whole farm. Ids and numbers are never used again, not even after a deletion.
    "CREATE TABLE head (
        one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
        last_id INTEGER NOT NULL,
        last_change INTEGER NOT NULL,
        last_fence INTEGER NOT NULL
    ) STRICT",
    "INSERT INTO head (one, last_id, last_change, last_fence) VALUES (1, 0, 0, 0)",
    "CREATE TABLE farm (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        one INTEGER NOT NULL UNIQUE CHECK (one = 1),
        name TEXT NOT NULL,
        description TEXT NOT NULL,
        merge_above INTEGER,
        merge_result TEXT
    ) STRICT",
    "CREATE TABLE site (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        name TEXT NOT NULL,
        name_key TEXT NOT NULL UNIQUE,
        description TEXT NOT NULL,
        disabled INTEGER NOT NULL
    ) STRICT",
    "CREATE TABLE server (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        name TEXT NOT NULL UNIQUE,
        site_id INTEGER NOT NULL REFERENCES site (id),
        description TEXT NOT NULL,
        addresses TEXT NOT NULL,
        weight INTEGER NOT NULL,
        max_devices INTEGER,
        disabled INTEGER NOT NULL
    ) STRICT",
    "CREATE TABLE store (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        name TEXT NOT NULL,
        name_key TEXT NOT NULL UNIQUE,
        description TEXT NOT NULL,
        site_id INTEGER REFERENCES site (id),
        disabled INTEGER NOT NULL
    ) STRICT",
    "CREATE TABLE store_path (
        owner INTEGER NOT NULL REFERENCES store (id),
        place INTEGER NOT NULL,
        server_id INTEGER NOT NULL REFERENCES server (id),
        path TEXT NOT NULL,
        PRIMARY KEY (owner, place),
        UNIQUE (owner, server_id)
    ) STRICT",
    "CREATE TABLE vdisk (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        name TEXT NOT NULL,
        name_key TEXT NOT NULL,
        store_id INTEGER NOT NULL REFERENCES store (id),
        description TEXT NOT NULL,
        menu_text TEXT,
        mode TEXT NOT NULL,
        cache_kind TEXT,
        cache_limit INTEGER,
        cache_warn INTEGER,
        override_version INTEGER,
        server_id INTEGER REFERENCES server (id),
        affinity TEXT NOT NULL,
        disabled INTEGER NOT NULL,
        UNIQUE (store_id, name_key)
    ) STRICT",
    "CREATE TABLE version (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        vdisk_id INTEGER NOT NULL REFERENCES vdisk (id),
        number INTEGER NOT NULL,
        kind TEXT NOT NULL,
        parent INTEGER,
        contents_of INTEGER,
        access TEXT NOT NULL,
        released_at INTEGER,
        file TEXT NOT NULL,
        file_length INTEGER,
        disk_size INTEGER,
        image_uuid TEXT,
        data_write_uuid TEXT,
        state TEXT NOT NULL,
        remark TEXT NOT NULL,
        made_at INTEGER NOT NULL,
        UNIQUE (vdisk_id, number),
        UNIQUE (vdisk_id, file)
    ) STRICT",
    "CREATE TABLE collection (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        name TEXT NOT NULL,
        name_key TEXT NOT NULL,
        site_id INTEGER NOT NULL REFERENCES site (id),
        description TEXT NOT NULL,
        disabled INTEGER NOT NULL,
        newcomers TEXT,
        newcomers_of INTEGER UNIQUE REFERENCES site (id),
        UNIQUE (site_id, name_key)
    ) STRICT",
    "CREATE TABLE device (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        name TEXT NOT NULL UNIQUE,
        collection_id INTEGER NOT NULL REFERENCES collection (id),
        description TEXT NOT NULL,
        uuid TEXT UNIQUE,
        address TEXT UNIQUE,
        initiator TEXT UNIQUE,
        chap_user TEXT,
        chap_secret TEXT,
        disabled INTEGER NOT NULL,
        kind TEXT NOT NULL,
        local_disk TEXT NOT NULL,
        cache_kind TEXT,
        cache_limit INTEGER,
        bytes_per_second INTEGER,
        requests_per_second INTEGER
    ) STRICT",
    "CREATE INDEX device_collection ON device (collection_id)",
    "CREATE TABLE device_mac (
        owner INTEGER NOT NULL REFERENCES device (id),
        place INTEGER NOT NULL,
        mac TEXT NOT NULL UNIQUE,
        PRIMARY KEY (owner, place)
    ) STRICT",
    "CREATE TABLE device_disk (
        owner INTEGER NOT NULL REFERENCES device (id),
        place INTEGER NOT NULL,
        vdisk_id INTEGER NOT NULL REFERENCES vdisk (id),
        menu_text TEXT,
        disabled INTEGER NOT NULL,
        PRIMARY KEY (owner, place),
        UNIQUE (owner, vdisk_id)
    ) STRICT",
    "CREATE INDEX device_disk_vdisk ON device_disk (vdisk_id)",
    "CREATE TABLE device_personality (
        owner INTEGER NOT NULL REFERENCES device (id),
        place INTEGER NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (owner, place),
        UNIQUE (owner, name)
    ) STRICT",
    "CREATE TABLE collection_template (
        owner INTEGER NOT NULL REFERENCES collection (id),
        place INTEGER NOT NULL,
        device_id INTEGER NOT NULL REFERENCES device (id),
        PRIMARY KEY (owner, place)
    ) STRICT",
    "CREATE INDEX collection_template_device ON collection_template (device_id)",
    "CREATE TABLE persistent_cache (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        device_id INTEGER NOT NULL REFERENCES device (id),
        vdisk_id INTEGER NOT NULL REFERENCES vdisk (id),
        version INTEGER NOT NULL,
        server_id INTEGER NOT NULL REFERENCES server (id),
        stays INTEGER NOT NULL,
        made_at INTEGER NOT NULL,
        UNIQUE (device_id, vdisk_id)
    ) STRICT",
    "CREATE INDEX persistent_cache_vdisk ON persistent_cache (vdisk_id)",
    "CREATE TABLE saved_view (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        name TEXT NOT NULL,
        name_key TEXT NOT NULL UNIQUE,
        description TEXT NOT NULL,
        site_id INTEGER REFERENCES site (id),
        list TEXT NOT NULL,
        condition TEXT NOT NULL
    ) STRICT",
    "CREATE TABLE person (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        name TEXT NOT NULL UNIQUE,
        description TEXT NOT NULL,
        password TEXT,
        must_change_password INTEGER NOT NULL,
        disabled INTEGER NOT NULL
    ) STRICT",
    "CREATE TABLE person_role (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        person_id INTEGER NOT NULL REFERENCES person (id),
        role TEXT NOT NULL,
        scope_key TEXT NOT NULL,
        site_id INTEGER REFERENCES site (id),
        collection_id INTEGER REFERENCES collection (id),
        UNIQUE (person_id, scope_key)
    ) STRICT",
    "CREATE TABLE token (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        person_id INTEGER NOT NULL REFERENCES person (id),
        name TEXT NOT NULL,
        name_key TEXT NOT NULL,
        digest BLOB NOT NULL UNIQUE,
        role TEXT NOT NULL,
        site_id INTEGER REFERENCES site (id),
        collection_id INTEGER REFERENCES collection (id),
        made_at INTEGER NOT NULL,
        expires_at INTEGER,
        disabled INTEGER NOT NULL,
        UNIQUE (person_id, name_key)
    ) STRICT",
    "CREATE TABLE task (
        id INTEGER NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        kind TEXT NOT NULL,
        vdisk_id INTEGER,
        parameters TEXT NOT NULL,
        actor TEXT NOT NULL,
        server_id INTEGER,
        state TEXT NOT NULL,
        made_at INTEGER NOT NULL,
        started_at INTEGER,
        ended_at INTEGER,
        result TEXT,
        units_done INTEGER NOT NULL DEFAULT 0,
        units_total INTEGER NOT NULL DEFAULT 0,
        progress_at INTEGER NOT NULL DEFAULT 0
    ) STRICT",
    "CREATE INDEX task_state ON task (state)",
    "CREATE TABLE task_line (
        task_id INTEGER NOT NULL REFERENCES task (id),
        place INTEGER NOT NULL,
        at INTEGER NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (task_id, place)
    ) STRICT",
    "CREATE TABLE lease (
        fence INTEGER NOT NULL PRIMARY KEY,
        subject_kind TEXT NOT NULL,
        subject INTEGER NOT NULL,
        sharing TEXT NOT NULL,
        purpose TEXT NOT NULL,
        owner_kind TEXT NOT NULL,
        owner INTEGER NOT NULL,
        server_id INTEGER NOT NULL REFERENCES server (id),
        since INTEGER NOT NULL,
        ends INTEGER NOT NULL
    ) STRICT",
    "CREATE INDEX lease_subject ON lease (subject_kind, subject)",
    "CREATE INDEX lease_owner ON lease (owner_kind, owner)",
    "CREATE INDEX lease_server ON lease (server_id)",
    "CREATE TABLE idempotency (
        person TEXT NOT NULL,
        request_key TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        answer TEXT NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (person, request_key)
    ) STRICT",
    "CREATE INDEX idempotency_at ON idempotency (at)",
    "CREATE TABLE audit (
        number INTEGER NOT NULL PRIMARY KEY,
        at INTEGER NOT NULL,
        actor TEXT NOT NULL,
        token_id INTEGER,
        origin TEXT NOT NULL,
        request TEXT,
        action TEXT NOT NULL,
        kind TEXT NOT NULL,
        object INTEGER NOT NULL,
        name TEXT NOT NULL,
        before TEXT,
        after TEXT
    ) STRICT",
    "CREATE INDEX audit_object ON audit (kind, object)",
    "CREATE INDEX audit_at ON audit (at)",
];

/// What operating systems are told: user data as a template, and SSH keys, one on each line.
const GUEST_SETTINGS: &[&str] = &[
    "ALTER TABLE collection ADD COLUMN user_data TEXT",
    "ALTER TABLE collection ADD COLUMN ssh_keys TEXT",
    "ALTER TABLE device ADD COLUMN user_data TEXT",
    "ALTER TABLE device ADD COLUMN ssh_keys TEXT",
];

/// Boot menus: when they are shown, how long they wait, and what they ask a log-in for; newcomers that wait.
const MENUS: &[&str] = &[
    "ALTER TABLE device ADD COLUMN menu_show TEXT",
    "ALTER TABLE device ADD COLUMN menu_wait INTEGER",
    "ALTER TABLE collection ADD COLUMN approves_newcomers INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE collection ADD COLUMN menu_show TEXT",
    "ALTER TABLE collection ADD COLUMN menu_wait INTEGER",
    "ALTER TABLE vdisk ADD COLUMN asks_login INTEGER NOT NULL DEFAULT 0",
];

/// What servers say of themselves; it goes with them.
const REPORTS: &[&str] = &["CREATE TABLE server_report (
        server_id INTEGER NOT NULL PRIMARY KEY REFERENCES server (id) ON DELETE CASCADE,
        at INTEGER NOT NULL,
        load TEXT
    ) STRICT"];

/// What servers say of the devices that they serve; it goes with either.
const DEVICE_REPORTS: &[&str] = &[
    "CREATE TABLE device_report (
        server_id INTEGER NOT NULL REFERENCES server (id) ON DELETE CASCADE,
        device_id INTEGER NOT NULL REFERENCES device (id) ON DELETE CASCADE,
        told TEXT NOT NULL,
        PRIMARY KEY (server_id, device_id)
    ) STRICT",
    "CREATE INDEX device_report_device ON device_report (device_id)",
];

/// The schema that this program makes and needs: how many steps there are.
pub const SCHEMA: i64 = STEPS.len() as i64;

/// Brings the database to the present schema.
///
/// # Errors
/// [`DatabaseError::Newer`] of one that a later program made; else what the database says.
pub(super) fn migrate(database: &dyn Database) -> Result<(), CatalogueError> {
    database.write(&mut |tx| {
        tx.define("CREATE TABLE IF NOT EXISTS schema_step (step INTEGER NOT NULL PRIMARY KEY) STRICT")?;
        let present = present(tx)?;
        let known = SCHEMA;
        if present > known {
            let database = tx.database().to_owned();
            return Err(DatabaseError::Newer { database, found: present, known }.into());
        }
        let done = usize::try_from(present).unwrap_or(0);
        for (step, statements) in (1i64..).zip(STEPS).skip(done) {
            statements.iter().try_for_each(|statement| tx.define(statement))?;
            tx.execute("INSERT INTO schema_step (step) VALUES (?)", &[Cell::Integer(step)])?;
            tracing::info!(database = tx.database(), step, "brought the catalogue to a newer schema");
        }
        Ok(())
    })
}

fn present(tx: &mut dyn Transaction) -> Result<i64, DatabaseError> {
    let rows = tx.query("SELECT coalesce(max(step), 0) FROM schema_step", &[])?;
    let step = rows.into_iter().next().map(|mut row| row.integer());
    step.and_then(Result::ok).ok_or_else(|| DatabaseError::Damaged {
        database: tx.database().to_owned(),
        why: "its schema cannot be told".to_owned(),
    })
}
