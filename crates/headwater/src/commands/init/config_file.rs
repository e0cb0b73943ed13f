//! The configuration of a new farm: the default file, comments and all, with the answers in their places.
use super::answers::{Answers, Network};
use crate::config::DEFAULT_FILE;

/// The text of the file.
pub(super) fn text(answers: &Answers) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let state = answers.state_dir.to_string_lossy();
    let caches = answers.state_dir.join("write-cache");
    let mut changes = vec![
        ("state_dir = \"/var/lib/headwater\"".to_owned(), format!("state_dir = {}", quoted(&state))),
        (
            "directory = \"/var/lib/headwater/write-cache\"".to_owned(),
            format!("directory = {}", quoted(&caches.to_string_lossy())),
        ),
        ("#[server]\n".to_owned(), "[server]\n".to_owned()),
        ("#name = \"stream-1\"".to_owned(), format!("name = {}", quoted(answers.server.as_str()))),
        ("#site = \"Berlin\"".to_owned(), format!("site = {}", quoted(answers.site.as_str()))),
    ];
    if let Some(network) = &answers.network {
        changes.extend(interface(network, quoted));
    }
    let mut text = DEFAULT_FILE.to_owned();
    for (default, own) in changes {
        text = text.replacen(&default, &own, 1);
    }
    text
}

fn interface(network: &Network, quoted: impl Fn(&str) -> String) -> Vec<(String, String)> {
    let mut changes = vec![
        ("#[[interface]]\n".to_owned(), "[[interface]]\n".to_owned()),
        ("#name = \"eth1\"".to_owned(), format!("name = {}", quoted(&network.interface))),
    ];
    match &network.range {
        Some(range) => {
            changes.push(("#mode = \"dhcp\"".to_owned(), "mode = \"dhcp\"".to_owned()));
            let default = "#range = \"10.77.0.100-10.77.0.199\"".to_owned();
            changes.push((default, format!("range = {}", quoted(range))));
        }
        None => changes.push(("#mode = \"dhcp\"".to_owned(), "mode = \"proxy\"".to_owned())),
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::super::answers::Adopt;
    use super::*;
    use crate::config::{InterfaceMode, parse};

    fn answers(network: Option<Network>) -> Answers {
        Answers {
            state_dir: "/srv/a \"b\"".into(),
            farm: "Farm".parse().unwrap(),
            site: "Büro".parse().unwrap(),
            server: "one".parse().unwrap(),
            network,
            store: "/srv/images".into(),
            adopt: Adopt::Nothing,
            admin: None,
        }
    }

    #[test]
    fn every_answer_stands_in_the_file_and_is_read_back() {
        let range = Some("10.1.0.10-10.1.0.20".to_owned());
        let network = Network { interface: "eth7".to_owned(), range };
        let config = parse(&text(&answers(Some(network))), "x".as_ref()).unwrap();
        assert_eq!(config.state_dir.to_str(), Some("/srv/a \"b\""));
        assert_eq!(config.write_cache.directory.to_str(), Some("/srv/a \"b\"/write-cache"));
        assert_eq!(config.server.name.unwrap().as_str(), "one");
        assert_eq!(config.server.site.unwrap().as_str(), "Büro");
        let [interface] = config.interfaces.as_slice() else { panic!("{:?}", config.interfaces) };
        assert_eq!(interface.name, "eth7");
        assert!(
            matches!(&interface.mode, InterfaceMode::Dhcp(pool) if pool.range.first.octets() == [10, 1, 0, 10])
        );
        let proxy = Network { interface: "eth7".to_owned(), range: None };
        let config = parse(&text(&answers(Some(proxy))), "x".as_ref()).unwrap();
        assert_eq!(config.interfaces[0].mode, InterfaceMode::Proxy);
        assert!(parse(&text(&answers(None)), "x".as_ref()).unwrap().interfaces.is_empty());
    }
}
