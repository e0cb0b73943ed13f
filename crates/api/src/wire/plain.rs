//! Texts and words: parsed when they are read, with the rule in the schema and in the error.
use std::borrow::Cow;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use farm::filter::Filter;
use farm::model::guest::MAX_USER_DATA_BYTES;
use farm::model::{Choice, Mac, NamingPattern, Text, TextRule, Timestamp, UserData, Uuid};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// A text that is read into a `T`, and shown by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plain<T>(pub(crate) T);

/// What a text can be read into.
pub(crate) trait FromPlain: FromStr<Err: Display> + Display {
    /// What the schema says of it.
    fn schema() -> Schema;
}

impl<T: FromPlain> Serialize for Plain<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de, T: FromPlain> Deserialize<'de> for Plain<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

impl<T: FromPlain> JsonSchema for Plain<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Plain".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        T::schema()
    }
}

impl<R: TextRule> FromPlain for Text<R> {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "description": R::RULE })
    }
}

impl FromPlain for Mac {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "description": "a MAC address", "examples": ["52:54:00:12:34:56"] })
    }
}

impl FromPlain for Uuid {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "format": "uuid" })
    }
}

impl FromPlain for NamingPattern {
    fn schema() -> Schema {
        let says = "how devices that add themselves are named: one run of \"#\" stands for the number";
        json_schema!({ "type": "string", "description": says, "examples": ["lab-###"] })
    }
}

impl FromPlain for UserData {
    fn schema() -> Schema {
        let says =
            "a template with known places: {{device}}, {{vdisk}}, {{personality.Room|none}} and others";
        json_schema!({ "type": "string", "maxLength": MAX_USER_DATA_BYTES, "description": says })
    }
}

impl FromPlain for Filter {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "description": "which objects", "examples": ["kind = production"] })
    }
}

impl FromPlain for Timestamp {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "format": "date-time", "description": "RFC 3339, in UTC" })
    }
}

impl FromPlain for Ipv4Addr {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "format": "ipv4" })
    }
}

impl FromPlain for IpAddr {
    fn schema() -> Schema {
        json_schema!({ "type": "string", "description": "an IPv4 or IPv6 address" })
    }
}

/// One of the words of a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word<T>(pub(crate) T);

impl<T: Choice> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0.word())
    }
}

impl<'de, T: Choice> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        T::from_word(&text).map(Self).map_err(D::Error::custom)
    }
}

impl<T: Choice> JsonSchema for Word<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<&str> = T::ALL.iter().map(|(_, word)| *word).collect();
        json_schema!({ "type": "string", "enum": words })
    }
}
