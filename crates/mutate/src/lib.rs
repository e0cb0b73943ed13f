//! Deterministic mutations of seed inputs: fuzz smokes that run in ordinary tests.
