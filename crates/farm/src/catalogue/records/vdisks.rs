//! vDisks and versions in their tables.
use super::super::cell::{BadRow, Cell, Row};
use super::super::record::{Record, Reference, Table, Unique};
use crate::filter::{Field, FieldKind};
use crate::model::{
    Access, AccessKind, AccessMode, ByteSize, Choice, FileMark, Lineage, ObjectKind, Percent, SubnetAffinity,
    Text, Vdisk, Version, VersionKind, VersionNumber, VersionState, WriteCache, WriteCacheKind,
};

const PRIVATE: &str = "private";
const STANDARD: &str = "standard";

/// The words of a choice, for filters.
pub(super) fn words<T: Choice>() -> Vec<&'static str> {
    T::ALL.iter().map(|(_, word)| *word).collect()
}

pub(super) fn size(row: &mut Row) -> Result<Option<ByteSize>, BadRow> {
    Ok(row.optional_small::<u64>()?.map(ByteSize::new).transpose()?)
}

fn number(row: &mut Row) -> Result<Option<VersionNumber>, BadRow> {
    Ok(row.optional_small::<u32>()?.map(VersionNumber::new).transpose()?)
}

fn number_cell(number: Option<VersionNumber>) -> Cell {
    number.map(|number| i64::from(number.get())).into()
}

impl Record for Vdisk {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Vdisk,
        name: "vdisk",
        columns: &[
            "name",
            "name_key",
            "store_id",
            "description",
            "menu_text",
            "mode",
            "cache_kind",
            "cache_limit",
            "cache_warn",
            "override_version",
            "server_id",
            "affinity",
            "disabled",
            "asks_login",
        ],
        unique: &[Unique { what: "name", columns: &["store_id", "name_key"] }],
        references: &[
            Reference { column: "store_id", what: "store", to: ObjectKind::Store },
            Reference { column: "server_id", what: "server", to: ObjectKind::Server },
        ],
        children: &[],
        label: "t.name",
        joins: "JOIN store ON store.id = t.store_id LEFT JOIN server ON server.id = t.server_id",
        fields: &[
            Field::row("name", FieldKind::Folded, "t.name_key"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("store", FieldKind::Folded, "store.name_key"),
            Field::row("description", FieldKind::Text, "lower(t.description)"),
            Field::row("mode", FieldKind::Word(|| vec![PRIVATE, STANDARD]), "t.mode"),
            Field::row("write-cache", FieldKind::Word(words::<WriteCacheKind>), "coalesce(t.cache_kind, '')"),
            Field::row("server", FieldKind::Folded, "coalesce(server.name, '')"),
            Field::row("affinity", FieldKind::Word(words::<SubnetAffinity>), "t.affinity"),
            Field::row("asks-login", FieldKind::YesNo, "t.asks_login"),
            Field::row("disabled", FieldKind::YesNo, "t.disabled"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        let (mode, cache) = match self.mode {
            AccessMode::Private => (PRIVATE, None),
            AccessMode::Standard(cache) => (STANDARD, Some(cache)),
        };
        vec![
            self.name.as_str().into(),
            self.name.folded().into(),
            self.store.into(),
            self.description.as_str().into(),
            self.menu_text.as_ref().map(Text::as_str).into(),
            mode.into(),
            cache.map(|cache| cache.kind.word()).into(),
            cache.map(|cache| cache.limit.signed()).into(),
            cache.map(|cache| i64::from(cache.warn_at.get())).into(),
            number_cell(self.override_version),
            self.server.into(),
            self.affinity.word().into(),
            self.disabled.into(),
            self.asks_login.into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let name = row.parsed()?;
        let _key = row.text()?;
        let (store, description, menu_text) = (row.id()?, row.parsed()?, row.optional_parsed()?);
        let mode = row.text()?;
        let cache = (row.optional_choice()?, size(row)?, row.optional_small::<u8>()?);
        let mode = match (mode.as_str(), cache) {
            (PRIVATE, _) => AccessMode::Private,
            (STANDARD, (Some(kind), Some(limit), Some(warn))) => {
                AccessMode::Standard(WriteCache { kind, limit, warn_at: Percent::new(warn)? })
            }
            (other, _) => {
                return Err(BadRow { why: format!("mode {other:?} with an incomplete write cache") });
            }
        };
        Ok(Self {
            name,
            store,
            description,
            menu_text,
            mode,
            override_version: number(row)?,
            server: row.optional_id()?,
            affinity: row.choice()?,
            disabled: row.yes_no()?,
            asks_login: row.yes_no()?,
        })
    }

    fn label(&self) -> Option<String> {
        Some(self.name.as_str().to_owned())
    }
}

impl Record for Version {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Version,
        name: "version",
        columns: &[
            "vdisk_id",
            "number",
            "kind",
            "parent",
            "contents_of",
            "access",
            "released_at",
            "file",
            "file_length",
            "disk_size",
            "image_uuid",
            "data_write_uuid",
            "state",
            "remark",
            "made_at",
        ],
        unique: &[
            Unique { what: "number", columns: &["vdisk_id", "number"] },
            Unique { what: "file", columns: &["vdisk_id", "file"] },
        ],
        references: &[Reference { column: "vdisk_id", what: "vDisk", to: ObjectKind::Vdisk }],
        children: &[],
        label: "vdisk.name || ' ' || t.number",
        joins: "JOIN vdisk ON vdisk.id = t.vdisk_id",
        fields: &[
            Field::row("vdisk", FieldKind::Folded, "vdisk.name_key"),
            Field::row("vdisk-id", FieldKind::Number, "t.vdisk_id"),
            Field::row("number", FieldKind::Number, "t.number"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("kind", FieldKind::Word(words::<VersionKind>), "t.kind"),
            Field::row("access", FieldKind::Word(words::<AccessKind>), "t.access"),
            Field::optional("released", FieldKind::Time, "t.released_at"),
            Field::row("state", FieldKind::Word(words::<VersionState>), "t.state"),
            Field::row("file", FieldKind::Text, "lower(t.file)"),
            Field::optional("size", FieldKind::Size, "t.file_length"),
            Field::row("comment", FieldKind::Text, "lower(t.remark)"),
            Field::row("made", FieldKind::Time, "t.made_at"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        let released = match self.access {
            Access::Production { released } => Some(released),
            Access::Maintenance | Access::Test => None,
        };
        vec![
            self.vdisk.into(),
            number_cell(Some(self.number)),
            self.lineage.kind().word().into(),
            number_cell(self.lineage.parent()),
            number_cell(self.lineage.contents_of()),
            self.access.kind().word().into(),
            released.into(),
            self.file.as_str().into(),
            self.mark.map(|mark| mark.length.signed()).into(),
            self.mark.map(|mark| mark.disk_size.signed()).into(),
            self.mark.and_then(|mark| mark.image).map(|uuid| uuid.to_string()).into(),
            self.mark.and_then(|mark| mark.data_write).map(|uuid| uuid.to_string()).into(),
            self.state.word().into(),
            self.comment.as_str().into(),
            self.made_at.into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let vdisk = row.id()?;
        let own = number(row)?.ok_or_else(|| BadRow { why: "a version without a number".to_owned() })?;
        let lineage = lineage(row.choice()?, number(row)?, number(row)?)?;
        let access = access(row.choice()?, row.optional_time()?)?;
        let file = row.parsed()?;
        let (length, disk_size) = (size(row)?, size(row)?);
        let (image, data_write) = (row.optional_parsed()?, row.optional_parsed()?);
        let mark = match (length, disk_size) {
            (Some(length), Some(disk_size)) => Some(FileMark { length, disk_size, image, data_write }),
            _ => None,
        };
        let (state, comment, made_at) = (row.choice()?, row.parsed()?, row.time()?);
        Ok(Self { vdisk, number: own, lineage, access, file, mark, state, comment, made_at })
    }

    fn label(&self) -> Option<String> {
        None
    }
}

fn lineage(
    kind: VersionKind,
    parent: Option<VersionNumber>,
    contents_of: Option<VersionNumber>,
) -> Result<Lineage, BadRow> {
    match (kind, parent, contents_of) {
        (VersionKind::Base, None, None) => Ok(Lineage::Base),
        (VersionKind::Difference, Some(parent), None) => Ok(Lineage::Difference { parent }),
        (VersionKind::MergedUpdates, Some(parent), Some(contents_of)) => {
            Ok(Lineage::MergedUpdates { parent, contents_of })
        }
        (VersionKind::MergedBase, None, Some(contents_of)) => Ok(Lineage::MergedBase { contents_of }),
        _ => Err(BadRow { why: format!("a version of kind {} with parent {parent:?}", kind.word()) }),
    }
}

fn access(kind: AccessKind, released: Option<crate::model::Timestamp>) -> Result<Access, BadRow> {
    match (kind, released) {
        (AccessKind::Maintenance, None) => Ok(Access::Maintenance),
        (AccessKind::Test, None) => Ok(Access::Test),
        (AccessKind::Production, Some(released)) => Ok(Access::Production { released }),
        _ => Err(BadRow { why: format!("a version in {} with release {released:?}", kind.word()) }),
    }
}
