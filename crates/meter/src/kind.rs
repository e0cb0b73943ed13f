//! The kinds of requests that are told apart.

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// READ.
    Read,
    /// WRITE, WRITE SAME, zeros that take space.
    Write,
    /// FLUSH, SYNCHRONIZE CACHE.
    Flush,
    /// UNMAP, TRIM, zeros that need take no space.
    Unmap,
    /// Everything else: what asks about the disk, and what is refused before it is known what it would do.
    Other,
}

impl Kind {
    /// All, in the order of [`Totals::kinds`](crate::Totals::kinds).
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Unmap, Self::Other];

    /// Its name, as metrics and commands show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Unmap => "unmap",
            Self::Other => "other",
        }
    }
}
