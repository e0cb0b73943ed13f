//! An iSCSI target (RFC 7143), error recovery level 0, one connection a session.
pub mod directory;
