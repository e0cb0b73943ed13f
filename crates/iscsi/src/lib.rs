//! An iSCSI target (RFC 7143).
