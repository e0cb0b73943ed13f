//! The keys of the file that can be given another value beside it, while the server runs: how each is read and told.
//!
//! A key stands here when there is a use for changing it from afar, and when a mistake in it cannot shut the administrator
//! out: addresses and certificates are not among them.
use std::num::NonZeroUsize;

use api::host::Effect;
use tracing_subscriber::EnvFilter;

use super::admission::MAX_AT_ONCE;
use super::capacity::{MAX_CONNECTIONS, MIN_MEMORY};
use super::limits::{MAX_BURST_MS, MAX_IOPS, bytes_per_second};
use super::network::InterfaceMode;
use super::values::{ByteSize, duration};
use super::{Config, MAX_LOGOUT};

/// What the settings are parts of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settable {
    /// The configuration.
    pub config: Config,
    /// What is logged: a level, or `info,headwater=debug` and the like.
    pub log: String,
}

/// A key that can be given another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingKey {
    /// What is logged.
    Log,
    /// How many devices boot at a time.
    AtOnce,
    /// After which silence a booting device is taken for dead, or for up.
    Quiet,
    /// How long a device keeps its place.
    Longest,
    /// Bytes that each device may move in a second.
    Bandwidth,
    /// Requests that each device may make in a second.
    Iops,
    /// How long a device may go beyond its rates.
    BurstMs,
    /// Boot timelines kept for each device.
    BootsKept,
    /// How long initiators have to log out.
    LogoutWithin,
    /// iSCSI connections at a time.
    MaxConnections,
    /// Of these from one address.
    MaxConnectionsPerAddress,
    /// Memory for data on its way.
    MemoryLimit,
    /// What DHCP does on an interface.
    Mode(String),
}

/// The word for no limit.
const NONE: &str = "none";

impl SettingKey {
    /// All keys of a configuration.
    #[must_use]
    pub fn all(config: &Config) -> Vec<Self> {
        let mut all = vec![
            Self::Log,
            Self::AtOnce,
            Self::Quiet,
            Self::Longest,
            Self::Bandwidth,
            Self::Iops,
            Self::BurstMs,
            Self::BootsKept,
            Self::LogoutWithin,
            Self::MaxConnections,
            Self::MaxConnectionsPerAddress,
            Self::MemoryLimit,
        ];
        all.extend(config.interfaces.iter().map(|interface| Self::Mode(interface.name.clone())));
        all
    }

    /// As the file has it; `log` is an argument of `headwater serve` there.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Log => "log",
            Self::AtOnce => "admission.at_once",
            Self::Quiet => "admission.quiet",
            Self::Longest => "admission.longest",
            Self::Bandwidth => "limits.bandwidth",
            Self::Iops => "limits.iops",
            Self::BurstMs => "limits.burst_ms",
            Self::BootsKept => "boots_kept",
            Self::LogoutWithin => "iscsi.logout_within",
            Self::MaxConnections => "iscsi.max_connections",
            Self::MaxConnectionsPerAddress => "iscsi.max_connections_per_address",
            Self::MemoryLimit => "iscsi.memory_limit",
            Self::Mode(interface) => return format!("interface.{interface}.mode"),
        }
        .to_owned()
    }

    /// What it is, in a line.
    #[must_use]
    pub const fn says(&self) -> &'static str {
        match self {
            Self::Log => "what is logged: error, warn, info, debug, or \"info,headwater=debug\" and the like",
            Self::AtOnce => {
                "how many devices boot at a time, the others wait for their turn; 0: all that come"
            }
            Self::Quiet => {
                "a booting device that is silent for so long is taken for up, or for dead: its place is free"
            }
            Self::Longest => "how long a device keeps its place to boot, whatever it does",
            Self::Bandwidth => {
                "what each device may move in a second that has no limit of its own: 100 MiB; none: no limit"
            }
            Self::Iops => "how many requests each device may make in a second; 0: no limit",
            Self::BurstMs => "for how many milliseconds an idle device may go beyond these",
            Self::BootsKept => "how many boot timelines are kept for each device",
            Self::LogoutWithin => "how long devices have to log out when the server stops",
            Self::MaxConnections => "iSCSI connections at a time",
            Self::MaxConnectionsPerAddress => "iSCSI connections from one address",
            Self::MemoryLimit => "memory for data on its way over iSCSI: 1536 MiB",
            Self::Mode(_) => {
                "dhcp: the network's DHCP server; proxy: boot information beside another one; none: nothing"
            }
        }
    }

    /// When a new value counts.
    #[must_use]
    pub const fn effect(&self) -> Effect {
        match self {
            Self::Log | Self::AtOnce | Self::Quiet | Self::Longest => Effect::Now,
            Self::Bandwidth | Self::Iops | Self::BurstMs => Effect::NextBoot,
            Self::BootsKept
            | Self::LogoutWithin
            | Self::MaxConnections
            | Self::MaxConnectionsPerAddress
            | Self::MemoryLimit
            | Self::Mode(_) => Effect::NextStart,
        }
    }

    /// Its value, as it can be given back.
    #[must_use]
    pub fn get(&self, of: &Settable) -> String {
        let Settable { config, log } = of;
        let time = |time| humantime::format_duration(time).to_string();
        match self {
            Self::Log => log.clone(),
            Self::AtOnce => config.admission.at_once.map_or(0, NonZeroUsize::get).to_string(),
            Self::Quiet => time(config.admission.quiet),
            Self::Longest => time(config.admission.longest),
            Self::Bandwidth => config
                .limits
                .bytes_per_second
                .map_or_else(|| NONE.to_owned(), |bytes| ByteSize(bytes).to_string()),
            Self::Iops => config.limits.requests_per_second.unwrap_or(0).to_string(),
            Self::BurstMs => config.limits.burst.as_millis().to_string(),
            Self::BootsKept => config.boots_kept.to_string(),
            Self::LogoutWithin => time(config.iscsi.logout_within),
            Self::MaxConnections => config.iscsi.capacity.max_connections.to_string(),
            Self::MaxConnectionsPerAddress => config.iscsi.capacity.max_connections_per_address.to_string(),
            Self::MemoryLimit => config.iscsi.capacity.memory_limit.to_string(),
            Self::Mode(name) => {
                let interface = config.interfaces.iter().find(|interface| interface.name == *name);
                match interface.map(|interface| &interface.mode) {
                    Some(InterfaceMode::Dhcp(_)) => "dhcp",
                    Some(InterfaceMode::Proxy) => "proxy",
                    Some(InterfaceMode::None) | None => NONE,
                }
                .to_owned()
            }
        }
    }

    /// Gives it a value.
    ///
    /// # Errors
    /// What a value must be, in words; all is as before.
    pub fn put(&self, of: &mut Settable, text: &str) -> Result<(), String> {
        let Settable { config, log } = of;
        let capacity = &mut config.iscsi.capacity;
        match self {
            Self::Log => *log = filter(text)?,
            Self::AtOnce => config.admission.at_once = NonZeroUsize::new(number(text, 0, MAX_AT_ONCE)?),
            Self::Quiet => config.admission.quiet = duration(text)?,
            Self::Longest => config.admission.longest = duration(text)?,
            Self::Bandwidth => config.limits.bytes_per_second = bytes_per_second(text)?,
            Self::Iops => {
                let iops: u64 = number(text, 0, MAX_IOPS)?;
                config.limits.requests_per_second = (iops > 0).then_some(iops);
            }
            Self::BurstMs => {
                config.limits.burst = std::time::Duration::from_millis(number(text, 0, MAX_BURST_MS)?);
            }
            Self::BootsKept => config.boots_kept = number(text, 1, 1000)?,
            Self::LogoutWithin => match duration(text)? {
                time if time > MAX_LOGOUT => return Err(format!("\"{text}\" is more than a minute")),
                time => config.iscsi.logout_within = time,
            },
            Self::MaxConnections => capacity.max_connections = number(text, 1, MAX_CONNECTIONS)?,
            Self::MaxConnectionsPerAddress => {
                capacity.max_connections_per_address = number(text, 1, MAX_CONNECTIONS)?;
            }
            Self::MemoryLimit => match ByteSize::parse(text)? {
                size if size < MIN_MEMORY => return Err(format!("\"{text}\" is less than {MIN_MEMORY}")),
                size => capacity.memory_limit = size,
            },
            Self::Mode(name) => mode(config, name, text)?,
        }
        Ok(())
    }
}

fn number<T: TryFrom<u64>>(text: &str, least: u64, most: u64) -> Result<T, String> {
    let expected = || format!("\"{text}\" is not a number from {least} to {most}");
    let number = text.trim().parse().ok().filter(|number| (least..=most).contains(number));
    number.and_then(|number: u64| T::try_from(number).ok()).ok_or_else(expected)
}

fn filter(text: &str) -> Result<String, String> {
    let wrong = || format!("\"{text}\" is not a filter such as \"info\" or \"info,headwater=debug\"");
    if text.trim().is_empty() {
        return Err(wrong());
    }
    EnvFilter::try_new(text).map(|_| text.trim().to_owned()).map_err(|_| wrong())
}

/// The file knows the addresses that a DHCP server hands out: it alone can make an interface one.
fn mode(config: &mut Config, name: &str, text: &str) -> Result<(), String> {
    let relayed = config.relays.iter().any(|relay| relay.interface == name);
    let interface = config.interfaces.iter_mut().find(|interface| interface.name == name);
    let Some(interface) = interface else { return Err(format!("there is no interface \"{name}\"")) };
    interface.mode = match (text, &interface.mode) {
        ("dhcp", InterfaceMode::Dhcp(_)) => return Ok(()),
        ("dhcp", _) => {
            return Err(format!(
                "the configuration file gives interface \"{name}\" no range of addresses to hand out: set mode = \"dhcp\" and range there"
            ));
        }
        ("proxy" | NONE, InterfaceMode::Dhcp(_)) if relayed => {
            return Err(format!(
                "a [[relay]] hands out addresses by interface \"{name}\": it stays \"dhcp\""
            ));
        }
        ("proxy", _) => InterfaceMode::Proxy,
        (NONE, _) => InterfaceMode::None,
        _ => return Err(format!("\"{text}\" is neither \"dhcp\" nor \"proxy\" nor \"none\"")),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn settable(text: &str) -> Settable {
        let config = super::super::parse(text, Path::new("headwater.toml")).unwrap();
        Settable { config, log: "info".to_owned() }
    }

    const INTERFACES: &str = "[[interface]]\nname = \"lan0\"\nmode = \"dhcp\"\nrange = \"10.0.0.100-10.0.0.199\"\n\
                              [[interface]]\nname = \"lan1\"\nmode = \"proxy\"\n";

    #[test]
    fn every_setting_takes_the_value_that_it_tells() {
        let mut settable = settable(INTERFACES);
        let keys = SettingKey::all(&settable.config);
        assert_eq!(keys.len(), 14);
        for key in keys {
            let before = settable.clone();
            let value = key.get(&settable);
            key.put(&mut settable, &value).unwrap_or_else(|why| panic!("{}: {why}", key.name()));
            assert_eq!(settable, before, "{}", key.name());
        }
    }

    #[test]
    fn values_that_the_file_would_not_take_are_refused_and_change_nothing() {
        let mut settable = settable(INTERFACES);
        let before = settable.clone();
        let mode = |name: &str| SettingKey::Mode(name.to_owned());
        for (key, bad) in [
            (SettingKey::Log, " "),
            (SettingKey::AtOnce, "-1"),
            (SettingKey::AtOnce, "100001"),
            (SettingKey::Quiet, "soon"),
            (SettingKey::Bandwidth, "1 KiB"),
            (SettingKey::Iops, "many"),
            (SettingKey::BootsKept, "0"),
            (SettingKey::LogoutWithin, "2min"),
            (SettingKey::MaxConnections, "0"),
            (SettingKey::MemoryLimit, "1 MiB"),
            (mode("lan1"), "dhcp"),
            (mode("lan0"), "on"),
            (mode("lan9"), "none"),
        ] {
            assert!(key.put(&mut settable, bad).is_err(), "{} = {bad}", key.name());
            assert_eq!(settable, before, "{} = {bad}", key.name());
        }
        mode("lan0").put(&mut settable, "proxy").unwrap();
        assert_eq!(mode("lan0").get(&settable), "proxy");
    }
}
