//! What the commands do that ask a server: one file for each noun.
pub mod boots;
mod client;
pub mod device;
mod live;
pub mod status;
