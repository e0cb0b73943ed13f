//! Users, their roles and their tokens in their tables.
use super::super::cell::{BadRow, Cell, Row};
use super::super::record::{Record, Reference, Table, Unique};
use super::vdisks::words;
use crate::filter::{Field, FieldKind};
use crate::model::{
    Choice, CollectionId, Grant, ObjectKind, Role, Scope, SiteId, Text, Token, TokenDigest, User,
};

const PERSON: Reference = Reference { column: "person_id", what: "user", to: ObjectKind::User };
const SITE: Reference = Reference { column: "site_id", what: "site", to: ObjectKind::Site };
const COLLECTION: Reference =
    Reference { column: "collection_id", what: "collection", to: ObjectKind::Collection };

impl Record for User {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::User,
        name: "person",
        columns: &["name", "description", "password", "must_change_password", "disabled"],
        unique: &[Unique { what: "name", columns: &["name"] }],
        references: &[],
        children: &[],
        label: "t.name",
        joins: "",
        fields: &[
            Field::row("name", FieldKind::Folded, "t.name"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("description", FieldKind::Text, "lower(t.description)"),
            Field::row("disabled", FieldKind::YesNo, "t.disabled"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.name.as_str().into(),
            self.description.as_str().into(),
            self.password.as_ref().map(Text::as_str).into(),
            self.must_change_password.into(),
            self.disabled.into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        Ok(Self {
            name: row.parsed()?,
            description: row.parsed()?,
            password: row.optional_parsed()?,
            must_change_password: row.yes_no()?,
            disabled: row.yes_no()?,
        })
    }

    fn label(&self) -> Option<String> {
        Some(self.name.as_str().to_owned())
    }
}

fn scope_ids(scope: Scope) -> (Option<SiteId>, Option<CollectionId>) {
    match scope {
        Scope::Farm => (None, None),
        Scope::Site(site) => (Some(site), None),
        Scope::Collection(collection) => (None, Some(collection)),
    }
}

fn scope(row: &mut Row) -> Result<Scope, BadRow> {
    match (row.optional_id()?, row.optional_id()?) {
        (None, None) => Ok(Scope::Farm),
        (Some(site), None) => Ok(Scope::Site(site)),
        (None, Some(collection)) => Ok(Scope::Collection(collection)),
        (Some(_), Some(_)) => Err(BadRow { why: "a role both in a site and in a collection".to_owned() }),
    }
}

impl Record for Grant {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Grant,
        name: "person_role",
        columns: &["person_id", "role", "scope_key", "site_id", "collection_id"],
        unique: &[Unique { what: "role of one user in", columns: &["person_id", "scope_key"] }],
        references: &[PERSON, SITE, COLLECTION],
        children: &[],
        label: "person.name || ' in ' || t.scope_key",
        joins: "JOIN person ON person.id = t.person_id",
        fields: &[
            Field::row("user", FieldKind::Folded, "person.name"),
            Field::row("user-id", FieldKind::Number, "t.person_id"),
            Field::row("role", FieldKind::Word(words::<Role>), "t.role"),
            Field::row("id", FieldKind::Number, "t.id"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        let (site, collection) = scope_ids(self.scope);
        let key = match self.scope {
            Scope::Farm => "farm".to_owned(),
            Scope::Site(site) => format!("site {site}"),
            Scope::Collection(collection) => format!("collection {collection}"),
        };
        vec![self.user.into(), self.role.word().into(), key.into(), site.into(), collection.into()]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let (user, role) = (row.id()?, row.choice()?);
        let _key = row.text()?;
        Ok(Self { user, role, scope: scope(row)? })
    }

    fn label(&self) -> Option<String> {
        None
    }
}

impl Record for Token {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Token,
        name: "token",
        columns: &[
            "person_id",
            "name",
            "name_key",
            "digest",
            "role",
            "site_id",
            "collection_id",
            "made_at",
            "expires_at",
            "disabled",
        ],
        unique: &[Unique { what: "name", columns: &["person_id", "name_key"] }],
        references: &[PERSON, SITE, COLLECTION],
        children: &[],
        label: "person.name || ' ' || t.name",
        joins: "JOIN person ON person.id = t.person_id",
        fields: &[
            Field::row("name", FieldKind::Folded, "t.name_key"),
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("user", FieldKind::Folded, "person.name"),
            Field::row("user-id", FieldKind::Number, "t.person_id"),
            Field::row("role", FieldKind::Word(words::<Role>), "t.role"),
            Field::row("made", FieldKind::Time, "t.made_at"),
            Field::optional("expires", FieldKind::Time, "t.expires_at"),
            Field::row("disabled", FieldKind::YesNo, "t.disabled"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        let (site, collection) = scope_ids(self.scope);
        vec![
            self.user.into(),
            self.name.as_str().into(),
            self.name.folded().into(),
            Cell::Bytes(self.digest.0.to_vec()),
            self.role.word().into(),
            site.into(),
            collection.into(),
            self.made_at.into(),
            self.expires_at.into(),
            self.disabled.into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        let (user, name) = (row.id()?, row.parsed()?);
        let _key = row.text()?;
        let digest =
            row.bytes()?.try_into().map_err(|_| BadRow { why: "a digest not of 32 bytes".to_owned() })?;
        Ok(Self {
            user,
            name,
            digest: TokenDigest(digest),
            role: row.choice()?,
            scope: scope(row)?,
            made_at: row.time()?,
            expires_at: row.optional_time()?,
            disabled: row.yes_no()?,
        })
    }

    fn label(&self) -> Option<String> {
        None
    }
}
