//! How many connections and how much memory a server of disks may use: keys that `[iscsi]` and `[nbd]` have in common.
use super::reader::Section;
use super::values::ByteSize;

/// The most connections that can be allowed: each is an open file, and a system has no more than a million as a rule.
pub(super) const MAX_CONNECTIONS: u64 = 1_000_000;

/// The least memory: the largest requests must fit.
pub(super) const MIN_MEMORY: ByteSize = ByteSize(128 << 20);

/// What one server of disks may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Connections in all.
    pub max_connections: usize,
    /// Connections from one address.
    pub max_connections_per_address: usize,
    /// Memory for data on its way, of all connections together.
    pub memory_limit: ByteSize,
}

impl Capacity {
    /// What the iSCSI server may use, where nothing else is said.
    pub const ISCSI: Self =
        Self { max_connections: 8192, max_connections_per_address: 64, memory_limit: ByteSize(3 << 29) };

    /// What the NBD server may use, where nothing else is said. Its clients use several connections each.
    pub const NBD: Self =
        Self { max_connections: 8192, max_connections_per_address: 256, memory_limit: ByteSize(1 << 30) };
}

pub(super) fn read(section: &mut Section<'_>, default: Capacity) -> Capacity {
    let mut count = |key, default| {
        let number = section.integer(key, 1..=MAX_CONNECTIONS);
        number.and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
    };
    let max_connections = count("max_connections", default.max_connections);
    let max_connections_per_address =
        count("max_connections_per_address", default.max_connections_per_address);
    let memory_limit = section.string_as("memory_limit", |text| {
        let size = ByteSize::parse(text)?;
        if size < MIN_MEMORY { Err(format!("\"{text}\" is less than {MIN_MEMORY}")) } else { Ok(size) }
    });
    Capacity {
        max_connections,
        max_connections_per_address,
        memory_limit: memory_limit.unwrap_or(default.memory_limit),
    }
}
