//! Persistent write caches in their table.
use super::super::cell::{BadRow, Cell, Row};
use super::super::record::{Record, Reference, Table, Unique};
use crate::filter::{Field, FieldKind};
use crate::model::{ObjectKind, PersistentCache, VersionNumber};

impl Record for PersistentCache {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::PersistentCache,
        name: "persistent_cache",
        columns: &["device_id", "vdisk_id", "version", "server_id", "stays", "made_at"],
        unique: &[Unique { what: "write cache of one device on vDisk", columns: &["device_id", "vdisk_id"] }],
        references: &[
            Reference { column: "device_id", what: "device", to: ObjectKind::Device },
            Reference { column: "vdisk_id", what: "vDisk", to: ObjectKind::Vdisk },
            Reference { column: "server_id", what: "server", to: ObjectKind::Server },
        ],
        children: &[],
        label: "device.name || ' on ' || vdisk.name",
        joins: "JOIN device ON device.id = t.device_id JOIN collection ON collection.id = device.collection_id \
            JOIN vdisk ON vdisk.id = t.vdisk_id \
            JOIN server ON server.id = t.server_id",
        fields: &[
            Field::row("device", FieldKind::Folded, "device.name"),
            Field::row("device-id", FieldKind::Number, "t.device_id"),
            Field::row("collection", FieldKind::Folded, "collection.name_key"),
            Field::row("collection-id", FieldKind::Number, "device.collection_id"),
            Field::row("site-id", FieldKind::Number, "collection.site_id"),
            Field::row("vdisk", FieldKind::Folded, "vdisk.name_key"),
            Field::row("vdisk-id", FieldKind::Number, "t.vdisk_id"),
            Field::row("version", FieldKind::Number, "t.version"),
            Field::row("server", FieldKind::Folded, "server.name"),
            Field::row("stays", FieldKind::YesNo, "t.stays"),
            Field::row("made", FieldKind::Time, "t.made_at"),
            Field::row("id", FieldKind::Number, "t.id"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.device.into(),
            self.vdisk.into(),
            i64::from(self.version.get()).into(),
            self.server.into(),
            self.stays.into(),
            self.made_at.into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        Ok(Self {
            device: row.id()?,
            vdisk: row.id()?,
            version: VersionNumber::new(row.small()?)?,
            server: row.id()?,
            stays: row.yes_no()?,
            made_at: row.time()?,
        })
    }

    fn label(&self) -> Option<String> {
        None
    }
}
