//! What a new farm is to be like: out of options, out of questions where there is a terminal, else as by default.
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use farm::model::{FileName, Name, ServerName, UserName, VdiskName, VersionNumber};
use farm::rules::files::version_of;

use crate::cli::InitArgs;

/// How often a question is asked again whose answer is wrong.
const TRIES: usize = 5;

/// All that is to be known.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) state_dir: PathBuf,
    pub(super) farm: Name,
    pub(super) site: Name,
    pub(super) server: ServerName,
    pub(super) network: Option<Network>,
    pub(super) store: PathBuf,
    pub(super) adopt: Adopt,
    pub(super) admin: Option<Admin>,
}

/// The network that machines boot on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) interface: String,
    /// The addresses to give out; `None`: proxyDHCP.
    pub(super) range: Option<String>,
}

/// Which images of the store are taken over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Adopt {
    Nothing,
    All,
    One(VdiskName),
}

/// The first administrator.
pub(super) struct Admin {
    pub(super) name: UserName,
    pub(super) password: String,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (password not shown)", self.name)
    }
}

/// # Errors
/// A value that cannot be one.
pub(super) fn gather(args: &InitArgs) -> anyhow::Result<Answers> {
    let asks = !args.defaults && std::io::stdin().is_terminal();
    let mut line = |question: &str| {
        let mut errors = std::io::stderr();
        write!(errors, "{question}")?;
        errors.flush()?;
        let mut line = String::new();
        anyhow::ensure!(std::io::stdin().lock().read_line(&mut line)? > 0, "the questions were not answered");
        Ok(line.trim().to_owned())
    };
    let mut answers = gather_from(args, asks.then_some(&mut line as Ask<'_>))?;
    let admin = match &args.admin {
        Some(name) => Some(UserName::new(name)?),
        None => None,
    };
    if let Some(name) = admin {
        let password = super::super::farm::secret(&format!("Password of {name}"), true)?;
        answers.admin = Some(Admin { name, password });
    }
    Ok(answers)
}

/// Asks a question; what was typed.
type Ask<'a> = &'a mut dyn FnMut(&str) -> anyhow::Result<String>;

fn gather_from(args: &InitArgs, mut ask: Option<Ask<'_>>) -> anyhow::Result<Answers> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_ascii_lowercase();
    let name = |text: &str| Name::new(text).map_err(anyhow::Error::from);
    let path = |text: &str| {
        let path = PathBuf::from(text);
        if path.is_absolute() { Ok(path) } else { bail!("\"{text}\" is not an absolute path") }
    };
    // As every program takes paths of its command line: from where it is run.
    let whole = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| whole(path).display().to_string());
    let farm = answer("Name of the farm", &args.farm, "Headwater", &mut ask, name)?;
    let site = answer("Name of this site", &args.site, "Main", &mut ask, name)?;
    let server =
        answer("Name of this server", &args.server, &host, &mut ask, |text| Ok(ServerName::new(text)?))?;
    let state_dir = answer(
        "Directory for the farm's state",
        &shown(&args.state_dir),
        "/var/lib/headwater",
        &mut ask,
        path,
    )?;
    let store = answer("Directory of vDisks", &shown(&args.store), "/srv/headwater/images", &mut ask, path)?;
    let network = network(args, &mut ask)?;
    let adopt = match &args.vdisk {
        Some(file) => Adopt::One(base(file)?),
        None if args.adopt => Adopt::All,
        None if ask.is_some() && has_images(&store) => {
            let yes = |text: &str| Ok(text.starts_with(['y', 'Y']));
            let take = answer("There are images in it. Take them over (y/n)", &None, "y", &mut ask, yes)?;
            if take { Adopt::All } else { Adopt::Nothing }
        }
        None => Adopt::Nothing,
    };
    Ok(Answers { state_dir, farm, site, server, network, store, adopt, admin: None })
}

fn network(args: &InitArgs, ask: &mut Option<Ask<'_>>) -> anyhow::Result<Option<Network>> {
    let text = |text: &str| Ok(text.to_owned());
    let present = crate::serve::explain::interfaces();
    let question = format!("Interface that machines boot on ({}; none)", present.join(", "));
    let interface = answer(&question, &args.interface, "none", ask, text)?;
    if interface == "none" {
        return Ok(None);
    }
    if !present.contains(&interface) {
        return Err(crate::serve::explain::interface_absent(&interface, &present));
    }
    if args.proxy {
        return Ok(Some(Network { interface, range: None }));
    }
    if ask.is_none() && args.dhcp.is_none() {
        bail!(
            "--interface {interface} needs --dhcp FIRST-LAST (be its DHCP server) or --proxy (beside another one)"
        );
    }
    let question = format!(
        "Addresses to give out on {interface} (10.0.0.100-10.0.0.199), or \"proxy\" beside another DHCP server"
    );
    let range = answer(&question, &args.dhcp, "proxy", ask, text)?;
    Ok(Some(Network { interface, range: (range != "proxy").then_some(range) }))
}

/// The option, or what is answered, or the default.
fn answer<T>(
    question: &str,
    option: &Option<String>,
    default: &str,
    ask: &mut Option<Ask<'_>>,
    parse: impl Fn(&str) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(ask) = ask.as_mut().filter(|_| option.is_none()) else {
        return parse(option.as_deref().unwrap_or(default));
    };
    let mut wrong = String::new();
    for _ in 0..TRIES {
        let typed = ask(&format!("{wrong}{question} [{default}]: "))?;
        match parse(if typed.is_empty() { default } else { &typed }) {
            Ok(value) => return Ok(value),
            Err(error) => wrong = format!("{error:#}\n"),
        }
    }
    bail!("{}", wrong.trim_end())
}

/// The vDisk whose base is in this file.
fn base(file: &str) -> anyhow::Result<VdiskName> {
    let found = FileName::new(file).ok().and_then(|file| version_of(&file));
    let (name, number) = found.with_context(|| {
        format!("--vdisk {file}: is not the file of a vDisk in the store, such as golden.vhdx; other formats are converted first: headwater image convert")
    })?;
    anyhow::ensure!(
        number == VersionNumber::BASE,
        "--vdisk {file}: is version {number} of {name}; name the base"
    );
    Ok(name)
}

fn has_images(store: &std::path::Path) -> bool {
    let entries = std::fs::read_dir(store).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| FileName::new(entry.file_name().to_str()?).ok())
        .any(|name| version_of(&name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn args(words: &[&str]) -> InitArgs {
        let words = ["headwater", "init"].iter().chain(words);
        match crate::cli::Cli::try_parse_from(words).unwrap().command {
            crate::cli::Command::Init(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn questions_fill_what_options_leave_open_and_are_asked_again() {
        let mut asked = Vec::new();
        let mut typed = ["", "bad/name", "Berlin", "/srv/state", "relative", "", "lo", "proxy"].iter();
        let mut ask = |question: &str| {
            asked.push(question.to_owned());
            Ok((*typed.next().unwrap()).to_owned())
        };
        let answers = gather_from(&args(&["--server", "one"]), Some(&mut ask)).unwrap();
        assert_eq!((answers.farm.as_str(), answers.site.as_str()), ("Headwater", "Berlin"));
        assert_eq!((answers.server.as_str(), answers.state_dir.to_str()), ("one", Some("/srv/state")));
        assert_eq!(answers.store.to_str(), Some("/srv/headwater/images"));
        assert_eq!(answers.network, Some(Network { interface: "lo".to_owned(), range: None }));
        assert!(asked[2].contains("without \"/\""), "{asked:?}");
        assert!(asked[5].contains("is not an absolute path"), "{asked:?}");
    }

    #[test]
    fn options_alone_ask_nothing_and_are_checked() {
        let answers =
            gather_from(&args(&["--farm", "F", "--interface", "lo", "--dhcp", "10.0.0.1-10.0.0.9"]), None)
                .unwrap();
        assert_eq!(answers.network.unwrap().range.as_deref(), Some("10.0.0.1-10.0.0.9"));
        let refused = |words: &[&str]| gather_from(&args(words), None).unwrap_err().to_string();
        assert!(refused(&["--interface", "lo"]).contains("--proxy"));
        assert!(refused(&["--interface", "eth99", "--proxy"]).contains("no network interface"));
        assert!(refused(&["--vdisk", "golden.1.avhdx"]).contains("name the base"));
        assert!(refused(&["--vdisk", "golden.qcow2"]).contains("headwater image convert"));
        assert!(refused(&["--site", "a/b"]).contains("a name"));
    }
}
