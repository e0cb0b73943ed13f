//! Versions to test rules with.
use crate::model::{
    Access, AccessMode, ByteSize, FileMark, Id, Lineage, Percent, Revision, Stored, SubnetAffinity, Text,
    TextRule, Timestamp, Vdisk, Version, VersionNumber, VersionState, WriteCache, WriteCacheKind,
};

pub(super) fn text<R: TextRule>(text: &str) -> Text<R> {
    Text::new(text).unwrap()
}

pub(super) fn n(number: u32) -> VersionNumber {
    VersionNumber::new(number).unwrap()
}

pub(super) fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(ms)
}

pub(super) fn mark() -> FileMark {
    let size = ByteSize::new(1 << 20).unwrap();
    FileMark { length: size, disk_size: size, image: None, data_write: None }
}

pub(super) fn vdisk() -> Vdisk {
    let cache = WriteCache {
        kind: WriteCacheKind::ServerDisk,
        limit: ByteSize::new(1 << 30).unwrap(),
        warn_at: Percent::new(80).unwrap(),
    };
    Vdisk {
        name: text("golden"),
        store: Id::new(1).unwrap(),
        description: text(""),
        menu_text: None,
        asks_login: false,
        mode: AccessMode::Standard(cache),
        override_version: None,
        server: None,
        affinity: SubnetAffinity::None,
        disabled: false,
    }
}

/// In production since moment 0.
pub(super) fn base(number: u32) -> Stored<Version> {
    version(number, Lineage::Base, Access::Production { released: at(0) })
}

pub(super) fn difference(number: u32, parent: u32, access: Access) -> Stored<Version> {
    version(number, Lineage::Difference { parent: n(parent) }, access)
}

pub(super) fn version(number: u32, lineage: Lineage, access: Access) -> Stored<Version> {
    let value = Version {
        vdisk: Id::new(1).unwrap(),
        number: n(number),
        lineage,
        access,
        file: text(&if number == 0 { "golden.vhdx".to_owned() } else { format!("golden.{number}.avhdx") }),
        mark: (access != Access::Maintenance).then(mark),
        state: VersionState::Ready,
        comment: text(""),
        made_at: at(0),
    };
    Stored { id: Id::new(i64::from(number).saturating_add(100)).unwrap(), revision: Revision::FIRST, value }
}
