//! The script of boot media: it brings up the network and asks servers, one after the other, for the machine's script.
//!
//! It is older or newer than the servers that it meets, so it relies on little: `GET /v1/boot/script` with `mac`,
//! `platform`, `uuid` and `media` (the format's number) gives an iPXE script. What a machine boots, and how, is the server's
//! to say. A server that gives no script, or whose script comes back, makes room for the next; after the last there is a
//! pause, and it all begins again.
//!
//! iPXE has no random numbers. Its clock and the machine's address, added, choose the first server: machines that are switched
//! on together spread over the servers, and the next boot begins elsewhere. Scripts cannot divide either, so the last byte
//! of that sum is a label: 256 of them stand in groups before the servers. Numbers that are compared are `int32`, which iPXE
//! writes in decimal; `uint32` becomes `0x2`, which is not equal to `2`: it compares words.
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::harmless_text;
use crate::script_url::SCRIPT_PATH;

/// The format of the media's script, for the server: its meaning never changes, new meanings get new numbers.
pub const MEDIA_FORMAT: u32 = 1;
/// The most servers on one list.
pub const MAX_MEDIA_SERVERS: usize = 8;
/// The most lines of text.
pub const MAX_MEDIA_LINES: usize = 16;
/// The longest name of a server: RFC 1035 §2.3.4.
const MAX_HOST_BYTES: usize = 253;
/// How long a server may be silent: one that is busy with a boot storm answers within that.
const SILENCE_MS: u32 = 10_000;
/// From the end of the list, or a failure of the network, to the next try.
const PAUSE_MS: u32 = 15_000;

/// What the media of a site say and do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaScript {
    /// The program that writes the media: "headwater 0.1.0".
    pub made_by: String,
    /// The first line on the screen, and the menu's title.
    pub title: String,
    /// More lines on the screen; at most [`MAX_MEDIA_LINES`].
    pub text: Vec<String>,
    /// How long a menu waits for a choice (boot, next boot device, shell); `None`: there is no menu.
    pub menu: Option<Duration>,
    /// Whom to ask: 1 to [`MAX_MEDIA_SERVERS`].
    pub servers: Vec<MediaServer>,
    /// Where in the list to begin.
    pub order: ServerOrder,
    /// The network card: `net0` is the first that iPXE finds; `None`: the first that gets an address.
    pub card: Option<u8>,
    /// The tag of the VLAN to boot in.
    pub vlan: Option<u16>,
    /// A fixed address; `None`: DHCP.
    pub address: Option<StaticAddress>,
    /// Where iPXE finds certificates that lead from a server's to one that it trusts (its setting `crosscert`).
    pub crosscert: Option<String>,
}

/// Where in the list of servers to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerOrder {
    /// At its head.
    Listed,
    /// Anywhere; then as listed.
    Random,
}

/// A machine's own address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticAddress {
    /// The address.
    pub address: Ipv4Addr,
    /// The network's mask.
    pub netmask: Ipv4Addr,
    /// The default route.
    pub gateway: Option<Ipv4Addr>,
    /// The name server.
    pub dns: Option<Ipv4Addr>,
}

/// A server to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaServer {
    base: String,
    is_https: bool,
}

impl MediaServer {
    /// Reads `10.0.0.1`, `boot.example:8080`, `http://...` or `https://...`; without a scheme it is HTTP, and without a port
    /// there, too, `default_port` for HTTP and 443 for HTTPS.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, String> {
        let (is_https, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((scheme, _)) => return Err(format!("{scheme:?} is no scheme for a server: http or https")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.split_once(':') {
            None => (rest, if is_https { 443 } else { default_port }),
            Some((host, port)) => {
                let port = port.parse().ok().filter(|&port| port != 0);
                (host, port.ok_or_else(|| format!("{text:?}: the port must be a number from 1 to 65535"))?)
            }
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        if host.is_empty() || host.len() > MAX_HOST_BYTES || !host.bytes().all(is_plain) {
            return Err(format!(
                "{text:?} is no server: a name or an IPv4 address, perhaps with a port (boot.example:8080), without a path"
            ));
        }
        let scheme = if is_https { "https" } else { "http" };
        Ok(Self { base: format!("{scheme}://{host}:{port}"), is_https })
    }

    /// Whether it is asked by HTTPS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// Its URL, without a path: "http://10.0.0.1:8080".
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }
}

impl MediaScript {
    /// The script.
    #[must_use]
    pub fn render(&self) -> String {
        let mut script = String::from("#!ipxe\n");
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            script,
            "# Headwater boot media, format {MEDIA_FORMAT}, by {}",
            harmless_text(&self.made_by)
        );
        let title = harmless_text(&self.title);
        let _ = writeln!(
            script,
            "echo\necho {title} (boot media {MEDIA_FORMAT}, {})",
            harmless_text(&self.made_by)
        );
        for line in self.text.iter().take(MAX_MEDIA_LINES) {
            let _ = writeln!(script, "echo {}", harmless_text(line));
        }
        if let Some(certificates) = &self.crosscert {
            let _ = writeln!(script, "set crosscert {}", url_text(certificates));
        }
        if let Some(wait) = self.menu {
            script.push_str(&menu(&title, wait));
        }
        script.push_str(":network\n");
        script.push_str(&self.network());
        script.push_str(&self.choice());
        let servers: Vec<_> = self.servers.iter().take(MAX_MEDIA_SERVERS).collect();
        for (index, server) in servers.iter().enumerate() {
            let (number, count) = (index.saturating_add(1), servers.len());
            let next = if number == count { 1 } else { number.saturating_add(1) };
            let url = server.url();
            let _ = write!(
                script,
                ":server{number}\n\
                 echo Headwater: server {number} of {count}, {url}\n\
                 chain --timeout {SILENCE_MS} {url}{SCRIPT_PATH}?mac=${{netX/mac}}&platform=${{platform}}&uuid=${{uuid}}&media={MEDIA_FORMAT} || \
                 echo Headwater: {url} did not boot this machine (error ${{errno}})\n\
                 inc tried\n\
                 iseq ${{tried:int32}} {count} && goto none || goto server{next}\n"
            );
        }
        let _ = write!(
            script,
            ":none\n\
             echo Headwater: none of the servers booted this machine ({} asked)\n\
             goto pause\n\
             :no_network\n\
             echo Headwater: no network: {}\n\
             ifstat ||\n\
             :pause\n\
             prompt --key s --timeout {PAUSE_MS} Press s for a shell. Next try in {} s. && shell ||\n\
             goto network\n",
            servers.len(),
            self.network_failure(),
            PAUSE_MS / 1000
        );
        script
    }

    /// The card's name; with a VLAN, the card within it.
    fn interface(&self) -> Option<String> {
        let fixed = self.card.or_else(|| (self.vlan.is_some() || self.address.is_some()).then_some(0))?;
        Some(match self.vlan {
            Some(tag) => format!("net{fixed}-{tag}"),
            None => format!("net{fixed}"),
        })
    }

    fn network(&self) -> String {
        let mut lines = String::new();
        if let Some(tag) = self.vlan {
            let trunk = self.card.unwrap_or(0);
            let _ = writeln!(
                lines,
                "isset ${{net{trunk}-{tag}/mac}} || vcreate --tag {tag} net{trunk} || goto no_network"
            );
        }
        let name = self.interface();
        match (&self.address, name.as_deref().unwrap_or("net0")) {
            (None, _) => {
                let card = name.map(|name| format!(" {name}")).unwrap_or_default();
                let _ = writeln!(lines, "dhcp{card} || goto no_network");
            }
            // A link that comes up late costs the first server its turn: iPXE of 2019 has no `iflinkwait`.
            (Some(fixed), name) => {
                let _ = write!(
                    lines,
                    "ifopen {name} || goto no_network\n\
                     set {name}/ip {}\n\
                     set {name}/netmask {}\n",
                    fixed.address, fixed.netmask
                );
                for (setting, value) in [("gateway", fixed.gateway), ("dns", fixed.dns)] {
                    if let Some(value) = value {
                        let _ = writeln!(lines, "set {name}/{setting} {value}");
                    }
                }
            }
        }
        lines
    }

    fn network_failure(&self) -> &'static str {
        match (self.vlan, &self.address) {
            (Some(_), _) => "no link, no VLAN support in this iPXE, or no DHCP answer in the VLAN",
            (None, None) => "no DHCP server answered, or no link",
            (None, Some(_)) => "no such card",
        }
    }

    /// The lines that go to the first server.
    fn choice(&self) -> String {
        let count = self.servers.len().clamp(1, MAX_MEDIA_SERVERS);
        let mut lines = String::from("set tried:int32 0\n");
        if self.order == ServerOrder::Listed || count == 1 {
            lines.push_str("goto server1\n");
            return lines;
        }
        lines.push_str(
            "set sum:uint32 ${netX/ip:uint32}\ninc sum ${unixtime} ||\nset last:uint8 ${sum}\n\
             goto r${last:hexraw} || goto server1\n",
        );
        for server in 1..=count {
            for byte in (0..=u8::MAX).skip(server.saturating_sub(1)).step_by(count) {
                let _ = writeln!(lines, ":r{byte:02x}");
            }
            let _ = writeln!(lines, "goto server{server}");
        }
        lines
    }
}

fn menu(title: &str, wait: Duration) -> String {
    format!(
        ":menu\n\
         menu {title}\n\
         item network Boot from the network\n\
         item local Go on to the next boot device\n\
         item shell iPXE shell\n\
         choose --default network --timeout {} choice || goto network\n\
         goto ${{choice}}\n\
         :local\n\
         exit\n\
         :shell\n\
         shell ||\n\
         goto menu\n",
        wait.as_millis()
    )
}

/// A URL in which iPXE finds nothing to do.
fn url_text(url: &str) -> String {
    let harmless = |c: &char| c.is_ascii_graphic() && !matches!(c, '$' | '#' | ';' | '&' | '|' | '\\');
    url.chars().filter(harmless).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(servers: &[&str]) -> MediaScript {
        MediaScript {
            made_by: "headwater 1.2.3".into(),
            title: "Room 7".into(),
            text: vec!["Ask ${password}; or call".into()],
            menu: None,
            servers: servers.iter().map(|text| MediaServer::parse(text, 8080).unwrap()).collect(),
            order: ServerOrder::Listed,
            card: None,
            vlan: None,
            address: None,
            crosscert: None,
        }
    }

    #[test]
    fn servers_are_asked_in_turn_and_again_after_a_pause() {
        let script = media(&["10.0.0.1", "boot.example:81"]).render();
        let expected = "#!ipxe\n\
            # Headwater boot media, format 1, by headwater 1.2.3\n\
            echo\n\
            echo Room 7 (boot media 1, headwater 1.2.3)\n\
            echo Ask ?{password}? or call\n\
            :network\n\
            dhcp || goto no_network\n\
            set tried:int32 0\n\
            goto server1\n\
            :server1\n\
            echo Headwater: server 1 of 2, http://10.0.0.1:8080\n\
            chain --timeout 10000 http://10.0.0.1:8080/v1/boot/script?mac=${netX/mac}&platform=${platform}&uuid=${uuid}&media=1 || \
            echo Headwater: http://10.0.0.1:8080 did not boot this machine (error ${errno})\n\
            inc tried\n\
            iseq ${tried:int32} 2 && goto none || goto server2\n\
            :server2\n\
            echo Headwater: server 2 of 2, http://boot.example:81\n\
            chain --timeout 10000 http://boot.example:81/v1/boot/script?mac=${netX/mac}&platform=${platform}&uuid=${uuid}&media=1 || \
            echo Headwater: http://boot.example:81 did not boot this machine (error ${errno})\n\
            inc tried\n\
            iseq ${tried:int32} 2 && goto none || goto server1\n\
            :none\n\
            echo Headwater: none of the servers booted this machine (2 asked)\n\
            goto pause\n\
            :no_network\n\
            echo Headwater: no network: no DHCP server answered, or no link\n\
            ifstat ||\n\
            :pause\n\
            prompt --key s --timeout 15000 Press s for a shell. Next try in 15 s. && shell ||\n\
            goto network\n";
        assert_eq!(script, expected);
    }

    #[test]
    fn random_order_has_a_label_for_every_byte_and_spreads_them_evenly() {
        let script = MediaScript { order: ServerOrder::Random, ..media(&["a", "b", "c"]) }.render();
        let mut counts = [0; 3];
        let mut waiting = 0;
        let mut labels = std::collections::BTreeSet::new();
        for line in script.lines() {
            if let Some(byte) = line.strip_prefix(":r") {
                assert!(labels.insert(byte.to_owned()));
                waiting += 1;
            } else if let Some(server) = line.strip_prefix("goto server")
                && waiting > 0
            {
                counts[server.parse::<usize>().unwrap() - 1] += std::mem::take(&mut waiting);
            }
        }
        assert_eq!(labels.len(), 256);
        assert_eq!(counts, [86, 85, 85]);
    }

    #[test]
    fn static_address_and_vlan_name_the_card_that_they_belong_to() {
        let address = StaticAddress {
            address: [10, 0, 0, 5].into(),
            netmask: [255, 255, 255, 0].into(),
            gateway: Some([10, 0, 0, 254].into()),
            dns: None,
        };
        let script =
            MediaScript { card: Some(1), vlan: Some(7), address: Some(address), ..media(&["a"]) }.render();
        let expected = ":network\n\
            isset ${net1-7/mac} || vcreate --tag 7 net1 || goto no_network\n\
            ifopen net1-7 || goto no_network\n\
            set net1-7/ip 10.0.0.5\n\
            set net1-7/netmask 255.255.255.0\n\
            set net1-7/gateway 10.0.0.254\n\
            set tried:int32 0\n";
        assert!(script.contains(expected), "{script}");
        assert!(!script.contains("dhcp"), "{script}");
    }

    #[test]
    fn menu_begins_by_itself_and_leads_to_labels_that_are_there() {
        let script = MediaScript { menu: Some(Duration::from_secs(5)), ..media(&["a"]) }.render();
        assert!(
            script.contains("choose --default network --timeout 5000 choice || goto network\n"),
            "{script}"
        );
        for item in script.lines().filter_map(|line| line.strip_prefix("item ")) {
            let label = format!("\n:{}\n", item.split(' ').next().unwrap());
            assert!(script.contains(&label), "{label}");
        }
    }

    #[test]
    fn https_server_is_asked_after_it_is_told_where_certificates_are() {
        let certificates = Some("http://ca.example/auto".to_owned());
        let script = MediaScript { crosscert: certificates, ..media(&["https://boot.example"]) }.render();
        let told = script.find("set crosscert http://ca.example/auto\n").unwrap();
        let asked = script.find("chain --timeout 10000 https://boot.example:443/v1/boot/script?").unwrap();
        assert!(told < asked, "{script}");
    }

    #[test]
    fn servers_have_schemes_ports_and_no_paths() {
        let url = |text: &str| MediaServer::parse(text, 8080).map(|server| server.url().to_owned());
        assert_eq!(url("10.0.0.1").unwrap(), "http://10.0.0.1:8080");
        assert_eq!(url("http://boot.example:80/").unwrap(), "http://boot.example:80");
        assert_eq!(url("https://boot.example").unwrap(), "https://boot.example:443");
        for bad in
            ["", "a b", "ftp://a", "a:0", "a:b", "a:70000", "a/b", "http://", "${ip}", "a;reboot", "[::1]:80"]
        {
            assert!(url(bad).is_err(), "{bad}");
        }
    }
}
