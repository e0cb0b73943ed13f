//! How each type of the model lies in its table: one file for each group of types.
mod caches;
mod devices;
mod menus;
mod people;
mod places;
mod tasks;
mod vdisks;
mod views;

use super::record::{Record, Table};
use crate::model::{
    Collection, Device, Farm, Grant, ObjectKind, PersistentCache, Server, Site, Store, Task, Token, User,
    Vdisk, Version, View,
};

/// Every table of objects.
pub(super) const TABLES: [&Table; 14] = [
    Farm::TABLE,
    Site::TABLE,
    Server::TABLE,
    Store::TABLE,
    Vdisk::TABLE,
    Version::TABLE,
    Collection::TABLE,
    Device::TABLE,
    PersistentCache::TABLE,
    View::TABLE,
    User::TABLE,
    Grant::TABLE,
    Token::TABLE,
    Task::TABLE,
];

/// Leases are no records: they have no revision, and are not audited but when they are broken.
pub(super) fn table_of(kind: ObjectKind) -> Option<&'static Table> {
    TABLES.iter().copied().find(|table| table.kind == kind)
}
