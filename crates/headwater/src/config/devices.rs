//! `[[device]]` and `unknown_devices`: who boots what.
use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;

use iscsi::directory::IscsiName;
use netboot::director::MacAddress;
use toml::Spanned;
use toml::de::DeValue;

use super::limits;
use super::problem::Position;
use super::reader::{Section, nearest};
use super::storage::{CacheKind, limit};
use super::values::{ByteSize, dns_name};

/// The longest device name: that of a host (RFC 1123 §2.1).
const MAX_DEVICE_NAME_BYTES: usize = 63;

/// The shortest CHAP secret (RFC 7143 §9.2.1: 96 bits where no IPsec protects the connection).
const MIN_SECRET_BYTES: usize = 12;

/// The longest: more than any initiator takes.
const MAX_SECRET_BYTES: usize = 255;

/// A device's name: part of target names, file names and DHCP host names, so lower-case letters, digits and
/// hyphens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceName(String);

// What is found by a name is found by its text.
impl Borrow<str> for DeviceName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl DeviceName {
    /// Checks a name.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let edges = !text.starts_with('-') && !text.ends_with('-');
        if !text.is_empty() && text.len() <= MAX_DEVICE_NAME_BYTES && edges && text.chars().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!(
                "\"{text}\" is not a device name (1 to {MAX_DEVICE_NAME_BYTES} lower-case letters, digits and inner hyphens)"
            ))
        }
    }

    /// The name of a machine that the configuration does not name.
    #[must_use]
    pub fn of_unknown(mac: MacAddress) -> Self {
        Self(format!("mac-{}", mac.to_string().replace(':', "")))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `[[device]]`: a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name.
    pub name: DeviceName,
    /// How it is recognised.
    pub mac: MacAddress,
    /// What it boots.
    pub vdisk: String,
    /// The address that DHCP gives it; `None`: one of the pool.
    pub address: Option<Ipv4Addr>,
    /// The name that its initiator must use.
    pub initiator: IscsiName,
    /// What its initiator must prove.
    pub chap: Option<Chap>,
    /// The name in the certificate that it shows over NBD; `None`: its own name.
    pub certificate: Option<String>,
    /// Its write cache's kind, where it has one of its own.
    pub write_cache: Option<CacheKind>,
    /// Its write cache's limit, where it has one of its own.
    pub write_cache_limit: Option<ByteSize>,
    /// How fast it may read and write, where it has limits of its own.
    pub limits: Option<meter::Rates>,
    /// Where in the configuration.
    pub defined_at: Position,
}

impl Device {
    /// Whether it writes its vDisk itself.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.write_cache == Some(CacheKind::None)
    }
}

/// A CHAP user and secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Chap {
    /// The user.
    pub user: String,
    /// The secret.
    pub secret: String,
    /// User and secret by which the target proves itself in turn.
    pub target: Option<(String, String)>,
}

impl fmt::Debug for Chap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chap").field("user", &self.user).finish_non_exhaustive()
    }
}

/// What machines get that no `[[device]]` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownDevices {
    /// No answer; a log line.
    Ignore,
    /// This vDisk, each with a write cache of its own.
    Vdisk(String),
}

/// The initiator name that a device uses where the configuration names none.
#[must_use]
pub(crate) fn derived_initiator(prefix: &str, device: &DeviceName) -> Option<IscsiName> {
    IscsiName::parse([prefix, ":", device.as_str(), ":initiator"].concat())
}

/// `unknown_devices = "ignore"` or `unknown_devices = { vdisk = "name" }`.
pub(super) fn read_unknown(root: &mut Section<'_>) -> UnknownDevices {
    const KEY: &str = "unknown_devices";
    let Some(value) = root.value(KEY) else { return UnknownDevices::Ignore };
    if value.get_ref().as_table().is_some() {
        let Some(mut section) = root.section(KEY) else { return UnknownDevices::Ignore };
        let vdisk = section.required("vdisk", |text| Ok(text.to_owned()));
        section.finish();
        return vdisk.map_or(UnknownDevices::Ignore, UnknownDevices::Vdisk);
    }
    if !is_ignore(value) {
        root.report(KEY, "unknown_devices must be \"ignore\" or { vdisk = \"name\" }");
    }
    UnknownDevices::Ignore
}

fn is_ignore(value: &Spanned<DeValue<'_>>) -> bool {
    value.get_ref().as_str() == Some("ignore")
}

pub(super) fn check_unknown(root: &Section<'_>, unknown: UnknownDevices, vdisks: &[&str]) -> UnknownDevices {
    if let UnknownDevices::Vdisk(vdisk) = &unknown
        && let Some(why) = missing_vdisk(vdisk, vdisks)
    {
        root.report("unknown_devices", format!("unknown_devices: {why}"));
    }
    unknown
}

pub(super) fn read_devices(
    root: &mut Section<'_>,
    vdisks: &[&str],
    prefix: &str,
    usual: meter::Rates,
) -> Vec<Device> {
    let mut devices: Vec<Device> = Vec::new();
    let mut seen = Seen::default();
    for mut section in root.sections("device") {
        let Some(device) = read_device(&mut section, vdisks, prefix, usual) else { continue };
        seen.check(&section, &device);
        devices.push(device);
    }
    devices
}

fn read_device(
    section: &mut Section<'_>,
    vdisks: &[&str],
    prefix: &str,
    usual: meter::Rates,
) -> Option<Device> {
    let name = section.required("name", DeviceName::parse);
    let mac = section.required("mac", |text| {
        let mac = MacAddress::parse(text)
            .ok_or_else(|| format!("\"{text}\" is not a MAC address such as \"52:54:00:12:34:56\""))?;
        if mac.0.first().is_some_and(|byte| byte & 1 == 1) {
            return Err(format!("\"{text}\" is a group address; no machine has it"));
        }
        Ok(mac)
    });
    let vdisk = section.required("vdisk", |text| match missing_vdisk(text, vdisks) {
        Some(why) => Err(why),
        None => Ok(text.to_owned()),
    });
    let address = section.ipv4("address");
    let initiator = section.string_as("initiator", |text| {
        IscsiName::parse(text).ok_or_else(|| {
            format!("\"{text}\" is not an iSCSI name such as \"iqn.2026-11.org.example:host\"")
        })
    });
    let chap = read_chap(section);
    let certificate = section.string_as("certificate", dns_name);
    let write_cache = section.string_as("write_cache", CacheKind::parse);
    let write_cache_limit = section.string_as("write_cache_limit", limit);
    let limits = limits::read_device(section, usual);
    section.finish();
    let name = name?;
    let initiator = initiator.or_else(|| derived_initiator(prefix, &name))?;
    let defined_at = section.position();
    Some(Device {
        initiator,
        name,
        mac: mac?,
        vdisk: vdisk?,
        address,
        chap,
        certificate,
        write_cache,
        write_cache_limit,
        limits,
        defined_at,
    })
}

fn read_chap(section: &mut Section<'_>) -> Option<Chap> {
    let own = read_pair(section, "chap_user", "chap_secret");
    let target = read_pair(section, "chap_target_user", "chap_target_secret");
    if target.is_some() && !section.has("chap_user") {
        section.report(
            "chap_target_user",
            "device.chap_target_user without chap_user: the device proves itself first (RFC 7143 §12.1.3)",
        );
    }
    let (user, secret) = own?;
    if target.as_ref().is_some_and(|(_, other)| *other == secret) {
        section.report(
            "chap_target_secret",
            "device.chap_target_secret must not be chap_secret (RFC 7143 §9.2.1): whoever hears one direction could answer the other",
        );
    }
    Some(Chap { user, secret, target })
}

/// A user and its secret, which need each other.
fn read_pair(
    section: &mut Section<'_>,
    user_key: &'static str,
    secret_key: &'static str,
) -> Option<(String, String)> {
    let user = section.string_as(user_key, |text| match text.len() {
        1..=255 if !text.chars().any(char::is_control) => Ok(text.to_owned()),
        _ => Err("must have 1 to 255 bytes and no control characters".to_owned()),
    });
    // The message must not repeat the secret.
    let secret = section.string_as(secret_key, |text| match text.len() {
        MIN_SECRET_BYTES..=MAX_SECRET_BYTES if !text.chars().any(char::is_control) => Ok(text.to_owned()),
        length => Err(format!(
            "a CHAP secret must have {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes (RFC 7143 §9.2.1) and no control characters; this one has {length} bytes"
        )),
    });
    match (section.has(user_key), section.has(secret_key)) {
        (true, false) => {
            section.report(user_key, format!("device.{user_key} without {secret_key}: CHAP needs both"));
        }
        (false, true) => {
            section.report(secret_key, format!("device.{secret_key} without {user_key}: CHAP needs both"));
        }
        _ => {}
    }
    Some((user?, secret?))
}

/// Why a vDisk cannot be used, if it cannot.
fn missing_vdisk(vdisk: &str, vdisks: &[&str]) -> Option<String> {
    if vdisks.contains(&vdisk) {
        return None;
    }
    let hint = match nearest(vdisk, vdisks.iter().copied()) {
        Some(known) => format!("did you mean \"{known}\"?"),
        None if vdisks.is_empty() => "the configuration has no [[vdisk]]".to_owned(),
        None => format!("known: {}", vdisks.join(", ")),
    };
    Some(format!("there is no vDisk \"{vdisk}\"; {hint}"))
}

/// What must be unique among devices, with the line of its first use.
#[derive(Default)]
struct Seen {
    names: HashMap<String, usize>,
    macs: HashMap<MacAddress, usize>,
    addresses: HashMap<Ipv4Addr, usize>,
    initiators: HashMap<IscsiName, usize>,
}

impl Seen {
    fn check(&mut self, section: &Section<'_>, device: &Device) {
        let line = device.defined_at.line;
        let Device { name, mac, address, initiator, .. } = device;
        if let Some(first) = note(&mut self.names, name.as_str().to_owned(), line) {
            section.report("name", format!("device \"{name}\" is defined twice; first on line {first}"));
        }
        if let Some(first) = note(&mut self.macs, *mac, line) {
            section.report(
                "mac",
                format!("device \"{name}\": MAC address {mac} is taken by the device on line {first}"),
            );
        }
        if let Some(address) = address
            && let Some(first) = note(&mut self.addresses, *address, line)
        {
            section.report(
                "address",
                format!("device \"{name}\": address {address} is taken by the device on line {first}"),
            );
        }
        if let Some(first) = note(&mut self.initiators, initiator.clone(), line) {
            section.report(
                "initiator",
                format!(
                    "device \"{name}\": initiator name {initiator} is taken by the device on line {first}"
                ),
            );
        }
    }
}

/// Notes a first use; the line of an earlier one.
fn note<K: std::hash::Hash + Eq>(seen: &mut HashMap<K, usize>, key: K, line: usize) -> Option<usize> {
    match seen.entry(key) {
        std::collections::hash_map::Entry::Occupied(entry) => Some(*entry.get()),
        std::collections::hash_map::Entry::Vacant(entry) => {
            entry.insert(line);
            None
        }
    }
}
