//! The Headwater server and its command line.
fn main() {}
