//! A kernel's command line with places for what only the boot knows.
use std::net::SocketAddr;

/// The words that stand for something else, and what for.
const WORDS: [&str; 11] = [
    "options",
    "server",
    "nbd_port",
    "export",
    "iscsi_port",
    "target",
    "initiator",
    "device",
    "mac",
    "boot",
    "seed",
];

/// A command line such as `root=/dev/nbd0p1 nbdroot={server}:{nbd_port}/{export}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine(String);

/// What stands at the places of a [`CommandLine`].
#[derive(Clone, Debug)]
pub struct BootWords<'a> {
    /// `{options}`: the options of the boot entry inside the image; `None`: the kernel is not from there.
    pub options: Option<&'a str>,
    /// `{nbd_port}`, and `{server}` with it; `None`: NBD cannot be reached.
    pub nbd: Option<SocketAddr>,
    /// `{iscsi_port}`, and `{server}` with it.
    pub iscsi: Option<SocketAddr>,
    /// `{export}`: the NBD export of this boot.
    pub export: &'a str,
    /// `{target}`: the iSCSI target of this boot.
    pub target: &'a str,
    /// `{initiator}`: the name that the device's initiator must use.
    pub initiator: &'a str,
    /// `{device}`: the device's name.
    pub device: &'a str,
    /// `{mac}`: its MAC address.
    pub mac: &'a str,
    /// `{boot}`: the boot's id.
    pub boot: &'a str,
    /// `{seed}`: where the operating system is told about itself, with a slash at the end.
    pub seed: &'a str,
}

impl CommandLine {
    /// Checks a command line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        netboot::script::check_command_line(text).map_err(str::to_owned)?;
        for (start, _) in text.match_indices('{') {
            let word = text.get(start..).and_then(|rest| rest.strip_prefix('{')?.split_once('}'));
            let known = word.is_some_and(|(word, _)| WORDS.contains(&word));
            if !known {
                let words: Vec<String> = WORDS.iter().map(|word| format!("{{{word}}}")).collect();
                return Err(format!("\"{{\" begins none of {}", words.join(", ")));
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// The options of the boot entry inside the image, and where cloud-init finds what it wants to know.
    pub(super) fn of_the_entry() -> Self {
        Self("{options} ds=nocloud;s={seed}".to_owned())
    }

    /// Whether it says what only a boot entry inside the image can.
    pub(super) fn needs_entry(&self) -> bool {
        self.0.contains("{options}")
    }

    /// Whether the kernel is told of its disk over NBD, and needs none in the iBFT.
    #[must_use]
    pub fn names_export(&self) -> bool {
        self.0.contains("{export}")
    }

    /// Fills the places; `None` where one has nothing to be filled with: NBD is not served where the machine could
    /// reach it.
    #[must_use]
    pub fn fill(&self, words: &BootWords<'_>) -> Option<String> {
        let mut text = self.0.clone();
        for word in WORDS {
            let place = format!("{{{word}}}");
            if !text.contains(&place) {
                continue;
            }
            let value = match word {
                "options" => words.options?.to_owned(),
                "server" => words.nbd.or(words.iscsi)?.ip().to_string(),
                "nbd_port" => words.nbd?.port().to_string(),
                "iscsi_port" => words.iscsi?.port().to_string(),
                "export" => words.nbd.map(|_| words.export.to_owned())?,
                "target" => words.target.to_owned(),
                "initiator" => words.initiator.to_owned(),
                "device" => words.device.to_owned(),
                "mac" => words.mac.to_owned(),
                "seed" => words.seed.to_owned(),
                _ => words.boot.to_owned(),
            };
            text = text.replace(&place, &value);
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_with_what_the_boot_is() {
        let line = "root=/dev/nbd0p1 nbdroot={server}:{nbd_port}/{export} hw={device},{mac},{boot} {target} {initiator}";
        let words = BootWords {
            options: Some("ro quiet"),
            nbd: Some("10.0.0.1:10809".parse().unwrap()),
            iscsi: None,
            export: "device/lab-01@b1",
            target: "iqn.t",
            initiator: "iqn.i",
            device: "lab-01",
            mac: "52:54:00:00:00:01",
            boot: "b1",
            seed: "http://10.0.0.1:8080/v1/cloud/t/",
        };
        assert_eq!(
            CommandLine::parse(line).unwrap().fill(&words).unwrap(),
            "root=/dev/nbd0p1 nbdroot=10.0.0.1:10809/device/lab-01@b1 hw=lab-01,52:54:00:00:00:01,b1 iqn.t iqn.i"
        );
        let of_entry = CommandLine::of_the_entry();
        assert_eq!(of_entry.fill(&words).unwrap(), "ro quiet ds=nocloud;s=http://10.0.0.1:8080/v1/cloud/t/");
        assert_eq!(of_entry.fill(&BootWords { options: None, ..words.clone() }), None);
        let nowhere = BootWords { nbd: None, ..words };
        assert_eq!(CommandLine::parse("{export}").unwrap().fill(&nowhere), None);
        assert_eq!(CommandLine::parse("ro quiet").unwrap().fill(&nowhere).unwrap(), "ro quiet");
    }

    #[test]
    fn unknown_places_are_refused() {
        for bad in ["{exprot}", "{", "a{b", "{server", "{{server}}"] {
            assert!(CommandLine::parse(bad).is_err(), "{bad}");
        }
    }
}
