//! The documents: pure functions of what is known of a device and its boot.
//!
//! They are those of cloud-init's NoCloud source (cloud-init's documentation, "NoCloud"): `meta-data`, `user-data`,
//! `vendor-data`, `network-config`. Texts are written as JSON strings, which are double-quoted scalars of YAML too (YAML 1.2
//! §1.3), so nothing in a value can end a line.
use std::collections::BTreeMap;
use std::fmt::Write as _;

use farm::model::guest::{NoValue, Word};
use farm::model::{GuestSettings, Personality};

use crate::stream::names::fnv1a_128;

/// What is known of a device and its boot.
#[derive(Clone, Debug)]
pub struct Facts {
    /// By the words of [`farm::model::guest::FACTS`]; what is not known is not there.
    pub known: BTreeMap<&'static str, String>,
    /// The device's own values.
    pub personality: Personality,
    /// The device's own settings.
    pub device: GuestSettings,
    /// Those of its collection.
    pub collection: GuestSettings,
}

impl Facts {
    /// `meta-data`: who the machine is.
    #[must_use]
    pub fn meta_data(&self) -> String {
        let mut text = String::new();
        let mut line = |key: &str, value: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{key}: {}", quoted(value));
        };
        let known = |fact| self.known.get(fact).map_or("", String::as_str);
        // The same for as long as there is the device: a new one would have cloud-init set the system up anew.
        line("instance-id", &format!("headwater-{}", known("machine-id")));
        line("local-hostname", known("device"));
        for (fact, value) in &self.known {
            line(fact, value);
        }
        text.push_str("public-keys:");
        let mut keys: Vec<&String> =
            self.collection.ssh_keys.as_slice().iter().chain(self.device.ssh_keys.as_slice()).collect();
        keys.dedup();
        if keys.is_empty() {
            text.push_str(" []");
        }
        text.push('\n');
        keys.iter().for_each(|key| text.push_str(&format!("- {}\n", quoted(key))));
        text
    }

    /// `user-data`: the template of the device, or else that of its collection, filled.
    ///
    /// # Errors
    /// The first place that has no value.
    pub fn user_data(&self) -> Result<String, NoValue> {
        let template = self.device.user_data.as_ref().or(self.collection.user_data.as_ref());
        let Some(template) = template else { return Ok("#cloud-config\n{}\n".to_owned()) };
        template.fill(|word| match word {
            Word::Fact(fact) => self.known.get(fact).cloned(),
            Word::Personality(key, _) => self.personality.values().get(key).map(ToString::to_string),
        })
    }

    /// `vendor-data`: what the farm says, and user data may change: the host name, and a file with all facts and the personality.
    #[must_use]
    pub fn vendor_data(&self) -> String {
        // What is told once does not belong into a file that everybody may read.
        let facts = self.known.iter().filter(|(fact, _)| **fact != SECRETS_URL);
        let mut told: serde_json::Map<String, serde_json::Value> =
            facts.map(|(fact, value)| ((*fact).to_owned(), value.clone().into())).collect();
        let values = self.personality.values().iter();
        let personality: serde_json::Map<String, serde_json::Value> =
            values.map(|(key, value)| (key.to_string(), value.to_string().into())).collect();
        told.insert("personality".to_owned(), personality.into());
        let content = format!("{:#}\n", serde_json::Value::from(told));
        format!(
            "#cloud-config\npreserve_hostname: false\nmanage_etc_hosts: true\nwrite_files:\n\
             - path: /etc/headwater/device.json\n  permissions: \"0644\"\n  content: {}\n",
            quoted(&content)
        )
    }
}

/// Where secrets are fetched; known only as long as they have not been.
pub const SECRETS_URL: &str = "secrets-url";

/// `network-config`: hands off. The root file system is on this network, and the initramfs has set it up.
pub const NETWORK_CONFIG: &str = "config: disabled\n";

/// The machine id (machine-id(5)) of a device: the same at every boot and from every server, another for any other device.
#[must_use]
pub fn machine_id(farm: &str, device: u64) -> String {
    let mut bytes = fnv1a_128(format!("machine-id\n{farm}\n{device}").as_bytes()).to_be_bytes();
    // systemd's are UUIDs of version 4 (RFC 9562 §5.4), which some programs check.
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut bytes;
    *version = (*version & 0x0F) | 0x40;
    *variant = (*variant & 0x3F) | 0x80;
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use farm::model::{PersonalityKey, PersonalityValue, SshKeys, UserData};

    use super::*;

    fn facts() -> Facts {
        let value = (PersonalityKey::new("Room").unwrap(), PersonalityValue::new("B\"12\"").unwrap());
        let key = |name: &str| SshKeys::new(vec![format!("ssh-ed25519 AAAA{name}")]).unwrap();
        let known = [("device", "lab-01"), ("machine-id", "0123"), (SECRETS_URL, "http://s/x")];
        Facts {
            known: known.map(|(key, value)| (key, value.to_owned())).into(),
            personality: Personality::new([value].into()).unwrap(),
            device: GuestSettings { user_data: None, ssh_keys: key("own") },
            collection: GuestSettings {
                user_data: Some(UserData::new("#cloud-config\nroom: {{personality.Room}}\n").unwrap()),
                ssh_keys: key("all"),
            },
        }
    }

    #[test]
    fn meta_data_names_the_machine_and_who_may_log_in() {
        assert_eq!(
            facts().meta_data(),
            "instance-id: \"headwater-0123\"\nlocal-hostname: \"lab-01\"\ndevice: \"lab-01\"\nmachine-id: \"0123\"\n\
             secrets-url: \"http://s/x\"\npublic-keys:\n- \"ssh-ed25519 AAAAall\"\n- \"ssh-ed25519 AAAAown\"\n"
        );
        let lonely =
            Facts { device: GuestSettings::default(), collection: GuestSettings::default(), ..facts() };
        assert!(lonely.meta_data().ends_with("public-keys: []\n"));
    }

    #[test]
    fn user_data_of_the_device_goes_before_that_of_its_collection() {
        let mut facts = facts();
        assert_eq!(facts.user_data().unwrap(), "#cloud-config\nroom: B\"12\"\n");
        facts.device.user_data = Some(UserData::new("own {{device}}").unwrap());
        assert_eq!(facts.user_data().unwrap(), "own lab-01");
        facts.device.user_data = Some(UserData::new("{{address}}").unwrap());
        assert_eq!(facts.user_data().unwrap_err().word, "address");
        (facts.device.user_data, facts.collection.user_data) = (None, None);
        assert!(facts.user_data().unwrap().starts_with("#cloud-config\n"));
    }

    #[test]
    fn vendor_data_has_the_personality_on_one_line_and_no_way_to_secrets() {
        let text = facts().vendor_data();
        let content = text.lines().find_map(|line| line.strip_prefix("  content: ")).unwrap();
        let content: String = serde_json::from_str(content).unwrap();
        let told: serde_json::Value = serde_json::from_str(&content).unwrap();
        assert_eq!(told["personality"]["Room"], "B\"12\"");
        assert_eq!(told["device"], "lab-01");
        assert!(!text.contains("secrets"), "{text}");
    }

    #[test]
    fn machine_id_never_changes_and_differs_between_devices_and_farms() {
        let id = machine_id("Main", 7);
        assert_eq!(id, machine_id("Main", 7));
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        assert_eq!(id.get(12..13), Some("4"));
        assert_ne!(id, machine_id("Main", 8));
        assert_ne!(id, machine_id("Other", 7));
    }
}
