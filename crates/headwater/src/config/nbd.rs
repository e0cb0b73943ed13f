//! `[nbd]`: where disks are served over NBD, to whom, and with which certificates.
//!
//! NBD has no names and passwords of its own. What protects a disk is TLS with client certificates; so it is demanded
//! wherever another machine could connect, and leaving it out has to be written down.
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::capacity::{self, Capacity};
use super::reader::Section;
use super::values::{dns_name, socket_address};

/// The port of NBD (IANA).
const NBD_PORT: u16 = 10809;

/// The most addresses to listen on.
const MAX_LISTENERS: usize = 16;

/// The most entries of a list of who may do something.
const MAX_NAMED: usize = 256;

/// How NBD is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nbd {
    /// TCP addresses.
    pub listen: Vec<SocketAddr>,
    /// A socket in the file system, for administrators.
    pub unix_socket: Option<PathBuf>,
    /// Whether sockets come from the service manager too.
    pub systemd_sockets: bool,
    /// Encryption.
    pub tls: NbdTls,
    /// Names in certificates that machines share: whoever shows one may use a boot that was handed out.
    pub shared_certificates: Vec<String>,
    /// Who may read whole vDisks.
    pub vdisk_readers: Vec<Reader>,
    /// How many connections there may be, and how much memory they may take.
    pub capacity: Capacity,
}

/// Encryption of NBD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdTls {
    /// None.
    Off {
        /// Whether the configuration says so, or says nothing.
        explicit: bool,
    },
    /// For clients that ask for it.
    Allowed(TlsFiles),
    /// For all.
    Required(TlsFiles),
}

/// The server's certificate, and whose clients it believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate with its chain, PEM.
    pub certificate: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// The authorities of clients' certificates, PEM; revocation lists may stand behind them.
    pub client_ca: PathBuf,
}

/// Who may read whole vDisks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Whoever shows a certificate with this name.
    Certificate(String),
    /// Whoever connects from there.
    Network(Network),
}

/// A network: the addresses whose first `prefix` bits are those of `address`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Reads `10.0.0.0/24`, `fd00::/8`, or one address.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok())?;
        (prefix <= bits).then_some(Self { address, prefix })
    }

    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let same_start = |a: u128, b: u128, bits: u32| {
            let behind = bits.saturating_sub(u32::from(self.prefix));
            a.checked_shr(behind).unwrap_or(0) == b.checked_shr(behind).unwrap_or(0)
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same_start(own.to_bits().into(), other.to_bits().into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => same_start(own.to_bits(), other.to_bits(), 128),
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Why NBD without TLS is not started where other machines reach it.
#[must_use]
pub fn unprotected(address: SocketAddr) -> String {
    format!(
        "other machines can connect to {address}, and without TLS whoever does may read and change the disks of running \
         machines: set certificate, key and client_ca, or listen on a loopback address or a unix_socket alone, or, \
         if that network is a trusted one, tls = \"off\""
    )
}

pub(super) fn read(root: &mut Section<'_>) -> Option<Nbd> {
    let mut section = root.section("nbd")?;
    let listen = section.strings("listen", MAX_LISTENERS, |text| socket_address(text, NBD_PORT));
    let unix_socket = section.path("unix_socket");
    let systemd_sockets = section.boolean("systemd_sockets").unwrap_or(false);
    // Everywhere, unless something else is named.
    let elsewhere = unix_socket.is_some() || systemd_sockets || section.has("listen");
    let everywhere = || vec![SocketAddr::from(([0, 0, 0, 0], NBD_PORT))];
    let listen = listen.unwrap_or_else(|| if elsewhere { Vec::new() } else { everywhere() });
    let tls = read_tls(&mut section, &listen);
    let shared = section.strings("shared_certificates", MAX_NAMED, dns_name);
    let readers = section.strings("vdisk_readers", MAX_NAMED, |text| {
        let network = Network::parse(text).map(Reader::Network);
        network.map_or_else(|| dns_name(text).map(Reader::Certificate), Ok).map_err(|_| {
            format!(
                "\"{text}\" is neither an address or network (\"10.0.0.0/24\") nor the name in a certificate"
            )
        })
    });
    let capacity = capacity::read(&mut section, Capacity::NBD);
    section.finish();
    Some(Nbd {
        listen,
        unix_socket,
        systemd_sockets,
        tls,
        shared_certificates: shared.unwrap_or_default(),
        vdisk_readers: readers.unwrap_or_default(),
        capacity,
    })
}

fn read_tls(section: &mut Section<'_>, listen: &[SocketAddr]) -> NbdTls {
    let wanted = section.string_as("tls", |text| match text {
        "off" | "allowed" | "required" => Ok(text.to_owned()),
        _ => Err(format!("\"{text}\" is none of \"off\", \"allowed\" and \"required\"")),
    });
    let invalid = wanted.is_none() && section.has("tls");
    let keys = ["certificate", "key", "client_ca"];
    let files = keys.map(|key| section.path(key));
    let missing: Vec<&str> = keys.into_iter().filter(|key| !section.has(key)).collect();
    let off = NbdTls::Off { explicit: wanted.is_some() };
    if wanted.as_deref() == Some("off") || invalid {
        return off;
    }
    if missing.len() < keys.len() && !missing.is_empty() {
        section.report("certificate", format!("nbd: TLS also needs {}", missing.join(" and ")));
        return off;
    }
    if let [Some(certificate), Some(key), Some(client_ca)] = files {
        let files = TlsFiles { certificate, key, client_ca };
        return match wanted.as_deref() {
            Some("allowed") => NbdTls::Allowed(files),
            _ => NbdTls::Required(files),
        };
    }
    if !missing.is_empty() {
        if let Some(wanted) = wanted {
            section.report("tls", format!("nbd: tls = \"{wanted}\" needs certificate, key and client_ca"));
        } else if let Some(open) = listen.iter().find(|address| !address.ip().to_canonical().is_loopback()) {
            section.report("listen", format!("nbd: {}", unprotected(*open)));
        }
    }
    off
}
