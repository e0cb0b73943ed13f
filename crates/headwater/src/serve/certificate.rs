//! The certificate of the REST API: the one that the configuration names, or one that the server makes for itself.
//!
//! A certificate of its own names the server, `localhost` and the addresses that the machine has when it is made. Whoever wants to
//! be sure of the server copies it from `STATE_DIR/api/certificate.pem` and has clients trust it alone.
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::{Api, Config};

/// From when on a certificate of our own is valid: before any server made one.
const VALID_FROM: (i32, u8, u8) = (2026, 1, 1);

/// Until when: whoever trusts it, trusts this very certificate, and takes it back by hand.
const VALID_UNTIL: (i32, u8, u8) = (2056, 1, 1);

/// The most addresses that a certificate names.
const MAX_ADDRESSES: usize = 32;

/// TLS for the API, with the certificate that is configured, or else one of the server's own, which is made if there is
/// none. `server` is what the server is called.
///
/// # Errors
/// A file that cannot be read, or written, or is none.
pub(super) fn tls(config: &Config, api: &Api, server: &str) -> anyhow::Result<Arc<rustls::ServerConfig>> {
    let (certificate, key) = match &api.certificate {
        Some(files) => files.clone(),
        None => own(config, server)?,
    };
    let named = |path: &Path| format!("api: {} cannot be used", path.display());
    let chain = CertificateDer::pem_file_iter(&certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.with_context(|| named(&certificate))?;
    anyhow::ensure!(!chain.is_empty(), "{}: there is no certificate in it", named(&certificate));
    let private = PrivateKeyDer::from_pem_file(&key).with_context(|| named(&key))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .with_context(|| named(&certificate))?;
    Ok(Arc::new(tls))
}

/// The server's own certificate and its key.
fn own(config: &Config, server: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
    let directory = config.state_dir.join("api");
    let (certificate, key) = (directory.join("certificate.pem"), directory.join("key.pem"));
    if certificate.exists() && key.exists() {
        return Ok((certificate, key));
    }
    std::fs::create_dir_all(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let made = make(server, &local_addresses()).context("a certificate cannot be made")?;
    write(&key, &made.key, 0o600)?;
    write(&certificate, &made.certificate, 0o644)?;
    tracing::info!(certificate = %certificate.display(), "made a certificate for the API");
    Ok((certificate, key))
}

fn write(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let write = || {
        let mut file =
            std::fs::File::options().write(true).create(true).truncate(true).mode(mode).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("{} cannot be written", path.display()))
}

/// A certificate and its key, in PEM.
struct Made {
    certificate: String,
    key: String,
}

fn make(server: &str, addresses: &[IpAddr]) -> Result<Made, rcgen::Error> {
    let mut names = vec![server.to_owned(), "localhost".to_owned()];
    names.extend(addresses.iter().map(ToString::to_string));
    names.dedup();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, server);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let date = |(year, month, day)| rcgen::date_time_ymd(year, month, day);
    (params.not_before, params.not_after) = (date(VALID_FROM), date(VALID_UNTIL));
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(Made { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// The addresses of this machine, as its routes tell; without them, those that every machine has.
fn local_addresses() -> Vec<IpAddr> {
    let routes = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let mut addresses = vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from(std::net::Ipv6Addr::LOCALHOST)];
    addresses.extend(addresses_in(&routes));
    addresses.sort_unstable();
    addresses.dedup();
    addresses.truncate(MAX_ADDRESSES);
    addresses
}

/// The addresses in the kernel's routes (`/proc/net/fib_trie`): a line `|-- ADDRESS`, and one below it with
/// `/32 host LOCAL`.
fn addresses_in(routes: &str) -> impl Iterator<Item = IpAddr> {
    let mut last = None;
    routes.lines().filter_map(move |line| {
        if let Some(address) = line.trim().strip_prefix("|-- ") {
            last = address.parse().ok();
            return None;
        }
        last.filter(|_| line.trim() == "/32 host LOCAL")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_the_kernel_calls_local() {
        let routes = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     \
                      +-- 10.77.0.0/16 2 0 2\n        |-- 10.77.0.1\n           /32 host LOCAL\n        \
                      |-- 10.77.255.255\n           /32 link BROADCAST\n";
        assert_eq!(addresses_in(routes).collect::<Vec<_>>(), [IpAddr::from([10, 77, 0, 1])]);
    }

    #[test]
    fn certificate_of_the_server_is_made_once_and_its_key_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let text = format!("state_dir = \"{}\"\n[api]\n", directory.path().display());
        let config = crate::config::parse(&text, Path::new("x")).unwrap();
        let api = config.api.clone().unwrap();
        tls(&config, &api, "stream-1").unwrap();
        let key = directory.path().join("api/key.pem");
        assert_eq!(key.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let before = std::fs::read(&key).unwrap();
        tls(&config, &api, "stream-1").unwrap();
        assert_eq!(std::fs::read(&key).unwrap(), before);
        std::fs::write(&key, "no key").unwrap();
        let said = format!("{:#}", tls(&config, &api, "stream-1").unwrap_err());
        assert!(said.contains("api/key.pem cannot be used"), "{said}");
    }
}
