//! `headwater media create`: settings and iPXE's binaries in, images out.
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use netboot::script::media::{
    MAX_MEDIA_LINES, MAX_MEDIA_SERVERS, MEDIA_FORMAT, MediaScript, MediaServer, ServerOrder, StaticAddress,
};

use crate::cli::{DEFAULT_CONFIG, MediaArgs, MediaCreateArgs, MediaVerb, Order};
use crate::columns::bytes;
use crate::config::Config;
use crate::media::{Content, Feature, Kind, MAX_IPXE_BYTES, build, has_feature};

/// Where the server's HTTP service listens unless it is told otherwise.
const DEFAULT_PORT: u16 = 8080;
/// The names in Debian's package `ipxe`.
const BIOS: &str = "ipxe.lkrn";
const UEFI: &str = "ipxe.efi";
const MAX_CROSSCERT_BYTES: usize = 200;

/// Runs the command; what it prints.
///
/// # Errors
/// Where settings contradict each other or iPXE's abilities, a binary is missing, or a file cannot be written.
pub fn run(args: &MediaArgs) -> anyhow::Result<String> {
    match &args.verb {
        MediaVerb::Create(args) => create(args),
    }
}

fn create(args: &MediaCreateArgs) -> anyhow::Result<String> {
    let script = script(args)?;
    let folder = boot_files(args.config.as_deref())?;
    let bios = read_ipxe(args.ipxe_bios.as_deref(), &folder, BIOS)?;
    let uefi = read_ipxe(args.ipxe_uefi.as_deref(), &folder, UEFI)?;
    check_abilities(&script, &uefi)?;
    let content = Content { bios, uefi, script: script.render(), readme: readme(&script) };
    let mut said = String::new();
    for (kind, path) in [(Kind::Iso, &args.iso), (Kind::Usb, &args.usb), (Kind::Disk, &args.disk)] {
        let Some(path) = path else { continue };
        let image = build(kind, &content).with_context(|| format!("{path:?} cannot be made"))?;
        write(path, &image, args.force)?;
        said.push_str(&format!("{}: {}\n", path.display(), bytes(image.len() as u64)));
    }
    Ok(said)
}

fn script(args: &MediaCreateArgs) -> anyhow::Result<MediaScript> {
    let servers = args.servers.iter().map(|text| MediaServer::parse(text, DEFAULT_PORT));
    let servers: Vec<_> = servers.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?;
    ensure!(servers.len() <= MAX_MEDIA_SERVERS, "{} servers: at most {MAX_MEDIA_SERVERS}", servers.len());
    ensure!(
        args.text.len() <= MAX_MEDIA_LINES,
        "{} lines of text: at most {MAX_MEDIA_LINES}",
        args.text.len()
    );
    let printable = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    for text in args.text.iter().chain([&args.title]) {
        ensure!(
            printable(text),
            "{text:?}: a boot screen shows printable ASCII alone, and one line at a time"
        );
    }
    if let Some(url) = &args.crosscert {
        let is_url = url.starts_with("http://") && url.len() <= MAX_CROSSCERT_BYTES && printable(url);
        ensure!(is_url && !url.contains(' '), "--crosscert {url:?}: a URL with http:// is needed");
    }
    let address = args.address.as_deref().map(|text| static_address(text, args)).transpose()?;
    Ok(MediaScript {
        made_by: concat!("headwater ", env!("CARGO_PKG_VERSION")).to_owned(),
        title: args.title.clone(),
        text: args.text.clone(),
        menu: args.menu.map(|seconds| Duration::from_secs(seconds.into())),
        servers,
        order: match args.order {
            Order::Listed => ServerOrder::Listed,
            Order::Random => ServerOrder::Random,
        },
        card: args.card,
        vlan: args.vlan,
        address,
        crosscert: args.crosscert.clone(),
    })
}

/// `10.0.0.5/24`, and what goes with it.
fn static_address(text: &str, args: &MediaCreateArgs) -> anyhow::Result<StaticAddress> {
    let parse = || {
        let (address, bits) = text.split_once('/')?;
        let bits: u32 = bits.parse().ok().filter(|bits| (1..=30).contains(bits))?;
        let mask = u32::MAX.checked_shl(32_u32.checked_sub(bits)?)?;
        Some((address.parse::<Ipv4Addr>().ok()?, Ipv4Addr::from_bits(mask)))
    };
    let Some((address, netmask)) = parse() else {
        bail!(
            "--address {text:?}: an address and the bits of its network are needed, 10.0.0.5/24 for example"
        );
    };
    let mask = netmask.to_bits();
    let host = address.to_bits() & !mask;
    ensure!(
        host != 0 && host != !mask,
        "--address {text}: that is the address of the network, not of a machine"
    );
    if let Some(gateway) = args.gateway {
        let is_near = gateway.to_bits() & mask == address.to_bits() & mask;
        ensure!(
            is_near && gateway != address,
            "--gateway {gateway}: not another machine in the network of {text}"
        );
    }
    Ok(StaticAddress { address, netmask, gateway: args.gateway, dns: args.dns })
}

/// The folder with iPXE's binaries, as the server is told of it.
fn boot_files(config: Option<&Path>) -> anyhow::Result<PathBuf> {
    let default = Path::new(DEFAULT_CONFIG);
    let path = match config {
        Some(path) => path,
        None if default.exists() => default,
        None => return Ok(PathBuf::from("/usr/lib/ipxe")),
    };
    Ok(Config::load(path)?.netboot.boot_files)
}

fn read_ipxe(given: Option<&Path>, folder: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    let candidates = match given {
        Some(path) => vec![path.to_owned()],
        // Debian's package has some of its files there.
        None => vec![folder.join(name), Path::new("/boot").join(name)],
    };
    let Some(path) = candidates.iter().find(|path| path.exists()) else {
        bail!(
            "iPXE is missing: none of {candidates:?} is there; install Debian's package \"ipxe\", or name a file"
        );
    };
    let read = || {
        let mut file = Vec::new();
        std::fs::File::open(path)?.take(MAX_IPXE_BYTES.saturating_add(1)).read_to_end(&mut file)?;
        std::io::Result::Ok(file)
    };
    let file = read().with_context(|| format!("cannot read {path:?}"))?;
    ensure!(file.len() as u64 <= MAX_IPXE_BYTES, "{path:?} is larger than {}", bytes(MAX_IPXE_BYTES));
    Ok(file)
}

/// Refuses what this iPXE cannot do. Its BIOS binary is compressed and does not show; both come from one build.
fn check_abilities(script: &MediaScript, uefi: &[u8]) -> anyhow::Result<()> {
    let wants_https = script.servers.iter().any(MediaServer::is_https);
    for (wanted, feature, what) in
        [(wants_https, Feature::Https, "HTTPS"), (script.vlan.is_some(), Feature::Vlan, "VLANs")]
    {
        ensure!(
            !wanted || has_feature(uefi, feature),
            "this iPXE knows no {what} (Debian's of 2019 does not): name a newer one with --ipxe-bios and --ipxe-uefi"
        );
    }
    Ok(())
}

fn readme(script: &MediaScript) -> String {
    let mut text = format!(
        "Headwater boot media, format {MEDIA_FORMAT}, made by {}.\r\n\r\n{}\r\nServers:\r\n",
        script.made_by, script.title
    );
    for server in &script.servers {
        text.push_str(&format!("  {}\r\n", server.url()));
    }
    text
}

fn write(path: &Path, image: &[u8], force: bool) -> anyhow::Result<()> {
    let mut options = std::fs::File::options();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let mut file = options
        .open(path)
        .with_context(|| format!("{path:?} cannot be made (--force replaces a file that is there)"))?;
    let written = file.write_all(image).and_then(|()| file.sync_all());
    written.with_context(|| format!("{path:?} cannot be written"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(words: &str) -> MediaCreateArgs {
        let words = format!("headwater media create --iso x.iso {words}");
        match Cli::try_parse_from(words.split(' ')).unwrap().command {
            Command::Media(MediaArgs { verb: MediaVerb::Create(args) }) => args,
            _ => panic!("another command"),
        }
    }

    #[test]
    fn settings_of_the_command_line_reach_the_script() {
        let text = script(&args(
            "--server 10.0.0.1 --server b:81 --address 10.0.0.5/24 --gateway 10.0.0.254 --menu 5 --title Room_7",
        ))
        .unwrap()
        .render();
        for wanted in [
            "set net0/ip 10.0.0.5\nset net0/netmask 255.255.255.0\nset net0/gateway 10.0.0.254\n",
            "chain --timeout 10000 http://10.0.0.1:8080/v1/boot/script?",
            "chain --timeout 10000 http://b:81/v1/boot/script?",
            "--timeout 5000 choice",
            "echo Room_7 (boot media 1, headwater ",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused_with_the_reason() {
        for (words, reason) in [
            ("--server 10.0.0.1 --address 10.0.0.5", "10.0.0.5/24 for example"),
            ("--server 10.0.0.1 --address 10.0.0.5/32", "10.0.0.5/24 for example"),
            ("--server 10.0.0.1 --address 10.0.0.0/24", "not of a machine"),
            ("--server 10.0.0.1 --address 10.0.0.255/24", "not of a machine"),
            ("--server 10.0.0.1 --address 10.0.0.5/24 --gateway 10.0.1.1", "not another machine"),
            ("--server 10.0.0.1/boot", "without a path"),
            ("--server 10.0.0.1 --title Büro", "printable ASCII"),
            ("--server 10.0.0.1 --crosscert ftp://a", "a URL with http://"),
            ("--server a ".repeat(9).trim_end(), "9 servers: at most 8"),
        ] {
            let error = script(&args(words)).unwrap_err().to_string();
            assert!(error.contains(reason), "{words}: {error}");
        }
    }

    #[test]
    fn ipxe_without_https_or_vlans_is_refused_for_media_that_need_them() {
        for (words, what) in
            [("--server https://10.0.0.1", "no HTTPS"), ("--server 10.0.0.1 --vlan 7", "no VLANs")]
        {
            let script = script(&args(words)).unwrap();
            let error = check_abilities(&script, b"an old iPXE: http").unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            check_abilities(&script, b"\0https\0vcreate\0").unwrap();
        }
    }

    #[test]
    fn file_that_is_there_is_replaced_by_force_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("boot.iso");
        write(&path, b"one", false).unwrap();
        let error = write(&path, b"two", false).unwrap_err().to_string();
        assert!(error.contains("--force"), "{error}");
        write(&path, b"two", true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
    }
}
