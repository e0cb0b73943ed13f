//! What bodies and answers are made of: texts with their rules, words of a choice, references, objects.
mod plain;
mod reference;

pub(crate) use plain::{Plain, Word};
pub(crate) use reference::{Named, Names, Ref, find, resolve};
