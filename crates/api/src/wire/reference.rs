//! References: objects that name others, by id or by what people call them.
//!
//! Names are unique in different places: those of servers, devices, sites and stores in the whole farm, of collections in their
//! site, of vDisks in their store. `Main/lab` says both; the last part alone is enough where it is unique. A name that is
//! all digits is taken for an id, unless `name:` stands before it.
use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;

use control::{Code, ControlError};
use farm::catalogue::{ListQuery, Reader, Record};
use farm::filter::Filter;
use farm::model::{
    BadValue, Collection, CollectionId, Device, DeviceId, Farm, Grant, Id, ObjectKind, PersistentCache,
    Server, ServerId, Site, SiteId, Store, StoreId, Stored, Task, Token, User, UserId, Vdisk, VdiskId,
    Version, VersionNumber, View,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Names another object. Answers have both id and name; either is enough in a body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Ref {
    /// As answers have it.
    Both {
        /// Its id.
        id: i64,
        /// What it is called.
        #[serde(default)]
        name: String,
    },
    /// By its id.
    Id(i64),
    /// By what it is called.
    Name(String),
}

impl JsonSchema for Ref {
    fn schema_name() -> Cow<'static, str> {
        "Reference".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "another object: answers have its id and its name, and in a body either is enough",
            "anyOf": [
                {
                    "type": "object",
                    "properties": {
                        "id": { "type": "integer", "minimum": 1 },
                        "name": { "type": "string" },
                    },
                    "required": ["id"],
                },
                { "type": "integer", "minimum": 1 },
                { "type": "string" },
            ],
        })
    }
}

/// An object that people call by a name.
pub(crate) trait Named: Record {
    /// The one of this name, in the form that it has in paths and bodies.
    fn named(reader: &mut Reader<'_>, text: &str) -> Result<Stored<Self>, ControlError>;
}

/// The object that a path names.
pub(crate) fn find<T: Named>(reader: &mut Reader<'_>, text: &str) -> Result<Stored<T>, ControlError> {
    if let Some(name) = text.strip_prefix("name:") {
        return T::named(reader, name);
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return T::named(reader, text);
    }
    // More digits than an id can have are no id of ours.
    match text.parse().ok().and_then(|number| Id::new(number).ok()) {
        Some(id) => Ok(reader.get(id)?),
        None => Err(nothing::<T>(text)),
    }
}

/// The object that `field` of a body names.
pub(crate) fn resolve<T: Named>(
    reader: &mut Reader<'_>,
    reference: &Ref,
    field: &str,
) -> Result<Stored<T>, ControlError> {
    let found = match reference {
        Ref::Both { id, .. } | Ref::Id(id) => match Id::new(*id) {
            Ok(id) => reader.get(id).map_err(ControlError::from),
            Err(bad) => Err(bad.into()),
        },
        Ref::Name(name) => find(reader, name),
    };
    found.map_err(|error| match error.code {
        Code::NotFound | Code::BadValue | Code::Conflict => ControlError::bad_value(field, error.message),
        _ => error,
    })
}

fn nothing<T: Record>(name: &str) -> ControlError {
    ControlError::new(Code::NotFound, format!("there is no {} {name:?}", T::TABLE.kind))
}

/// A name that breaks its rule is the name of nothing.
fn parsed<T: Record, N: FromStr<Err = BadValue>>(text: &str) -> Result<N, ControlError> {
    text.parse().map_err(|_| nothing::<T>(text))
}

fn only<T: Record>(mut found: Vec<Stored<T>>, text: &str) -> Result<Stored<T>, ControlError> {
    match (found.pop(), found.pop()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(nothing::<T>(text)),
        (Some(_), Some(_)) => {
            let kind = T::TABLE.kind;
            Err(ControlError::new(Code::Conflict, format!("there are several of {kind} {text:?}"))
                .hint("say where it is as well, as in Main/lab, or name it by its id"))
        }
    }
}

macro_rules! named_in_the_farm {
    ($($kind:ty: $find:ident),*) => {$(
        impl Named for $kind {
            fn named(reader: &mut Reader<'_>, text: &str) -> Result<Stored<Self>, ControlError> {
                Ok(reader.$find(&parsed::<Self, _>(text)?)?)
            }
        }
    )*};
}

named_in_the_farm!(Site: site, Server: server, Store: store, Device: device, View: view, User: user);

macro_rules! named_by_id {
    ($($kind:ty),*) => {$(
        impl Named for $kind {
            fn named(_: &mut Reader<'_>, text: &str) -> Result<Stored<Self>, ControlError> {
                Err(nothing::<Self>(text))
            }
        }
    )*};
}

named_by_id!(Farm, Grant, Task, PersistentCache);

impl Named for Collection {
    fn named(reader: &mut Reader<'_>, text: &str) -> Result<Stored<Self>, ControlError> {
        if let Some((site, name)) = text.split_once('/') {
            let site = find::<Site>(reader, site)?;
            return Ok(reader.collection(site.id, &parsed::<Self, _>(name)?)?);
        }
        let name: farm::model::Name = parsed::<Self, _>(text)?;
        let filter = Filter::equal("name", name.folded());
        let page = reader.list::<Self>(&ListQuery { filter, limit: 2, ..ListQuery::default() })?;
        only(page.items, text)
    }
}

impl Named for Vdisk {
    fn named(reader: &mut Reader<'_>, text: &str) -> Result<Stored<Self>, ControlError> {
        if let Some((store, name)) = text.split_once('/') {
            let store = find::<Store>(reader, store)?;
            return Ok(reader.vdisk(store.id, &parsed::<Self, _>(name)?)?);
        }
        only(reader.vdisks_named(&parsed::<Self, _>(text)?)?, text)
    }
}

impl Named for Version {
    fn named(reader: &mut Reader<'_>, text: &str) -> Result<Stored<Self>, ControlError> {
        const FORM: &str = "a version is named VDISK/NUMBER, as in golden/3";
        let (vdisk, number) = text.rsplit_once('/').ok_or_else(|| nothing::<Self>(text).hint(FORM))?;
        let vdisk = find::<Vdisk>(reader, vdisk)?;
        let number: VersionNumber = parsed::<Self, _>(number).map_err(|error| error.hint(FORM))?;
        let versions = reader.versions(vdisk.id)?;
        let known: Vec<String> = versions.iter().map(|version| version.number.to_string()).collect();
        versions.into_iter().find(|version| version.number == number).ok_or_else(|| {
            let why = format!("vDisk \"{}\" has no version {number}", vdisk.name);
            ControlError::new(Code::NotFound, why).hint(match known.as_slice() {
                [] => "it has none at all".to_owned(),
                known => format!("it has {}", known.join(", ")),
            })
        })
    }
}

impl Named for Token {
    fn named(reader: &mut Reader<'_>, text: &str) -> Result<Stored<Self>, ControlError> {
        let (user, name) = text.split_once('/').ok_or_else(|| nothing::<Self>(text))?;
        let user = find::<User>(reader, user)?;
        let name: farm::model::Name = parsed::<Self, _>(name)?;
        let mut tokens = reader.tokens(user.id)?;
        tokens.retain(|token| token.name.folded() == name.folded());
        only(tokens, text)
    }
}

/// What objects are called, looked up once for each request.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<(ObjectKind, i64), String>,
}

impl Names {
    fn refer<T: Record>(
        &mut self,
        reader: &mut Reader<'_>,
        id: Id<T>,
        call: impl FnOnce(&mut Self, &mut Reader<'_>, Stored<T>) -> Result<String, ControlError>,
    ) -> Result<Ref, ControlError> {
        let key = (T::TABLE.kind, id.get());
        if let Some(name) = self.known.get(&key) {
            return Ok(Ref::Both { id: id.get(), name: name.clone() });
        }
        let name = match reader.find(id)? {
            Some(object) => call(self, reader, object)?,
            None => String::new(),
        };
        self.known.insert(key, name.clone());
        Ok(Ref::Both { id: id.get(), name })
    }

    fn text(reference: Ref) -> String {
        match reference {
            Ref::Both { name, .. } | Ref::Name(name) => name,
            Ref::Id(id) => id.to_string(),
        }
    }

    pub(crate) fn site(&mut self, reader: &mut Reader<'_>, id: SiteId) -> Result<Ref, ControlError> {
        self.refer(reader, id, |_, _, site| Ok(site.name.to_string()))
    }

    pub(crate) fn server(&mut self, reader: &mut Reader<'_>, id: ServerId) -> Result<Ref, ControlError> {
        self.refer(reader, id, |_, _, server| Ok(server.name.to_string()))
    }

    pub(crate) fn store(&mut self, reader: &mut Reader<'_>, id: StoreId) -> Result<Ref, ControlError> {
        self.refer(reader, id, |_, _, store| Ok(store.name.to_string()))
    }

    pub(crate) fn device(&mut self, reader: &mut Reader<'_>, id: DeviceId) -> Result<Ref, ControlError> {
        self.refer(reader, id, |_, _, device| Ok(device.name.to_string()))
    }

    pub(crate) fn user(&mut self, reader: &mut Reader<'_>, id: UserId) -> Result<Ref, ControlError> {
        self.refer(reader, id, |_, _, user| Ok(user.name.to_string()))
    }

    pub(crate) fn collection(
        &mut self,
        reader: &mut Reader<'_>,
        id: CollectionId,
    ) -> Result<Ref, ControlError> {
        self.refer(reader, id, |names, reader, collection| {
            let site = Self::text(names.site(reader, collection.site)?);
            Ok(format!("{site}/{}", collection.name))
        })
    }

    pub(crate) fn vdisk(&mut self, reader: &mut Reader<'_>, id: VdiskId) -> Result<Ref, ControlError> {
        self.refer(reader, id, |names, reader, vdisk| {
            let store = Self::text(names.store(reader, vdisk.store)?);
            Ok(format!("{store}/{}", vdisk.name))
        })
    }

    pub(crate) fn version(&mut self, reader: &mut Reader<'_>, id: Id<Version>) -> Result<Ref, ControlError> {
        self.refer(reader, id, |names, reader, version| {
            let vdisk = Self::text(names.vdisk(reader, version.vdisk)?);
            Ok(format!("{vdisk}/{}", version.number))
        })
    }
}
