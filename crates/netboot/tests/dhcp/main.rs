//! The DHCP server and proxy, from bytes to bytes, on packets that real firmware sent.
mod golden;
mod lookout;
mod proxy;
mod server;
mod smoke;
mod support;
