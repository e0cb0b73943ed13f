//! `[api]`: where the REST API is served to other machines.
use std::net::SocketAddr;
use std::path::PathBuf;

use super::reader::Section;
use super::values::socket_address;

/// The port of the API where none is said.
const PORT: u16 = 8443;

/// `[api]`: the REST API over HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Api {
    /// Where.
    pub listen: SocketAddr,
    /// The server's certificate with its chain, and its key; `None`: one that is made at the first start.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

pub(super) fn read(root: &mut Section<'_>) -> Option<Api> {
    let mut section = root.section("api")?;
    let listen = section.string_as("listen", |text| socket_address(text, PORT));
    let (certificate, key) = (section.path("certificate"), section.path("key"));
    for (one, other) in [("certificate", "key"), ("key", "certificate")] {
        if section.has(one) && !section.has(other) {
            section.report(one, format!("api.{one} without {other}: TLS needs both"));
        }
    }
    section.finish();
    let listen = listen.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], PORT)));
    Some(Api { listen, certificate: certificate.zip(key) })
}
