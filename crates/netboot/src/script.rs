//! A boot plan as an iPXE script: a pure function.
//!
//! iPXE has no quotes. It splits a line at white space, takes `||`, `&&` and `;` as operators, a word that begins with `#`
//! as a comment, and expands `${...}`. So a value either consists of harmless characters, or is written in hexadecimal
//! (`set name:hexraw`), or, if it is text for people, has its dangerous characters replaced. A target or initiator name that
//! is no iSCSI name makes a script that says so: it would be a defect of the plan's maker.
mod kernel;
pub mod media;
mod menu;

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use crate::director::{BootPlan, SanBoot, ScriptRequest};
use crate::script_url::{SCRIPT_PATH, script_path};
pub use kernel::check_command_line;

/// How often a script tries its disk: it covers a server that restarts.
const TRIES: u32 = 5;
/// Between two tries.
const RETRY_S: u32 = 3;
/// Between two tries to reach a server that does not answer a machine that waits.
const WAIT_RETRY_S: u32 = 15;
/// From the last failed try to the restart.
const RESTART_MS: u32 = 30_000;
/// How long a refused machine waits before it asks again.
const ASK_AGAIN_MS: u32 = 60_000;
/// The longest text for people: a few lines of a text screen.
const MAX_TEXT_BYTES: usize = 400;
/// The most bytes that a CHAP user or secret has.
const MAX_CHAP_BYTES: usize = 256;
/// RFC 7143 §4.2.7.1.
const MAX_ISCSI_NAME_BYTES: usize = 223;

/// The script that carries out `plan`, for the machine that asked with `request`.
#[must_use]
pub fn render(plan: &BootPlan, request: &ScriptRequest) -> String {
    match plan {
        BootPlan::San(san) => san_script(san).unwrap_or_else(|fault| refusal(fault, request)),
        BootPlan::Kernel(boot) => kernel::script(boot).unwrap_or_else(|fault| refusal(fault, request)),
        BootPlan::Wait(message, seconds) => waiting(message, *seconds, request),
        BootPlan::Menu(plan) => menu::menu(plan, request),
        BootPlan::MenuKey(plan) => menu::key(plan, request),
        BootPlan::LogIn(plan) => menu::log_in(plan, request),
        BootPlan::LocalDisk => menu::LOCAL_DISK.to_owned(),
        BootPlan::Refuse(message) => refusal(message, request),
    }
}

/// The script for an iPXE that came without DHCP's URL (boot media, an embedded script): it asks again with its settings.
#[must_use]
pub fn introduction() -> String {
    format!(
        "#!ipxe\nchain --replace {SCRIPT_PATH}?mac=${{netX/mac:hexhyp}}&platform=${{platform}}&uuid=${{uuid}}\n"
    )
}

fn san_script(san: &SanBoot) -> Result<String, &'static str> {
    let SanDisk { uri, settings } = SanDisk::of(san)?;
    let title = harmless_text(&san.title);
    let (portal, target) = (san.portal, &san.target);
    let mut script = format!("#!ipxe\necho Headwater: {title}\n{settings}");
    for attempt in 1..=TRIES {
        script.push_str(&format!(
            "sanboot --drive 0x80 {uri} || echo Headwater: attempt {attempt} of {TRIES} to boot from {portal} failed\n"
        ));
        if attempt < TRIES {
            script.push_str(&format!("sleep {RETRY_S} ||\n"));
        }
    }
    script.push_str(&ending(&format!(
        "cannot boot {title}: no answer, login refused, or nothing bootable on {target} at {portal}"
    )));
    Ok(script)
}

/// A disk over iSCSI, as iPXE is told of it.
struct SanDisk {
    /// Where it is.
    uri: String,
    /// The lines that say who logs in.
    settings: String,
}

impl SanDisk {
    fn of(san: &SanBoot) -> Result<Self, &'static str> {
        let [target, initiator] = [&san.target, &san.initiator];
        if !is_iscsi_name(target) || !is_iscsi_name(initiator) {
            return Err("The server's boot plan holds an illegal iSCSI name.");
        }
        let mut settings = format!("set initiator-iqn {initiator}\n");
        for (pair, prefix) in [(&san.chap, ""), (&san.mutual_chap, "reverse-")] {
            let Some((user, secret)) = pair else { continue };
            if [user, secret].iter().any(|text| text.is_empty() || text.len() > MAX_CHAP_BYTES) {
                return Err("The server's boot plan holds an empty or overlong CHAP user or secret.");
            }
            let (user, secret) = (hex(user), hex(secret));
            settings.push_str(&format!(
                "set {prefix}username:hexraw {user}\nset {prefix}password:hexraw {secret}\n"
            ));
        }
        Ok(Self { uri: san_uri(san.portal, san.lun, target), settings })
    }
}

/// What a script ends with that could not boot: why, and another try from the start.
fn ending(why: &str) -> String {
    format!(
        "echo Headwater: {why}\n\
         prompt --key s --timeout {RESTART_MS} Press s for a shell. Restart in {} s. && shell ||\n\
         reboot\n",
        RESTART_MS / 1000
    )
}

/// A server that is away for a moment does not end the wait.
fn waiting(message: &str, seconds: u32, request: &ScriptRequest) -> String {
    // What somebody has chosen is not asked for again.
    let choice =
        word(request.choice.as_deref()).map(|choice| format!("&choice={choice}")).unwrap_or_default();
    let again = again(request) + &choice;
    let mut script = format!("#!ipxe\necho Headwater: {}\n", harmless_text(message));
    for pause in [seconds, RETRY_S, WAIT_RETRY_S, WAIT_RETRY_S] {
        script.push_str(&format!("sleep {pause} ||\nchain --replace {again} ||\n"));
    }
    script.push_str("reboot\n");
    script
}

fn refusal(message: &str, request: &ScriptRequest) -> String {
    let again = again(request);
    format!(
        "#!ipxe\necho Headwater: {}\n\
         prompt --timeout {ASK_AGAIN_MS} Press a key to ask again now; the server is asked every {} s. ||\n\
         chain --replace {again} ||\n\
         reboot\n",
        harmless_text(message),
        ASK_AGAIN_MS / 1000
    )
}

/// Where the machine asks again, with what it said of itself.
fn again(request: &ScriptRequest) -> String {
    script_path(request.mac, word(request.platform.as_deref()), word(request.uuid.as_deref()))
}

/// iPXE's SAN URI (RFC 4173 §5). The LUN is hexadecimal there.
fn san_uri(portal: SocketAddr, lun: u16, target: &str) -> String {
    let address = match portal.ip() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    format!("iscsi:{address}::{}:{lun:x}:{target}", portal.port())
}

/// The characters of RFC 7143 §4.2.7.2; other scripts' letters cannot be typed at a boot prompt.
fn is_iscsi_name(name: &str) -> bool {
    let typed = ["iqn.", "eui.", "naa."].iter().any(|prefix| name.starts_with(prefix));
    typed
        && name.len() <= MAX_ISCSI_NAME_BYTES
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b':'))
}

/// Text for people, on one line, in which iPXE finds nothing to do.
fn harmless_text(text: &str) -> String {
    let printable = |c: char| {
        if c.is_ascii_graphic() && !matches!(c, '$' | '#' | ';' | '&' | '|' | '\\') || c == ' ' {
            c
        } else {
            '?'
        }
    };
    let text: String = text.chars().take(MAX_TEXT_BYTES).map(printable).collect();
    // `echo` would read a first word with a dash as its own option.
    text.trim_start_matches([' ', '-']).to_owned()
}

/// A request's value, if it may stand in a URL as it is.
fn word(value: Option<&str>) -> Option<&str> {
    value.filter(|text| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'))
}

fn hex(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::director::MacAddress;

    pub(super) fn request() -> ScriptRequest {
        ScriptRequest {
            mac: MacAddress([0x52, 0x54, 0, 0x77, 0, 0x10]),
            platform: Some("efi".to_owned()),
            uuid: None,
            choice: None,
            log_in: None,
            base: "http://10.0.0.1:8080".to_owned(),
            peer: "10.0.0.9:4000".parse().unwrap(),
            local: "10.0.0.1".parse().unwrap(),
        }
    }

    fn san() -> SanBoot {
        SanBoot {
            portal: "10.77.0.1:3260".parse().unwrap(),
            target: "iqn.2026-01.io.headwater:lab".to_owned(),
            lun: 18,
            initiator: "iqn.2026-01.io.headwater:lab-07".to_owned(),
            chap: None,
            mutual_chap: None,
            title: "debian (version 3)".to_owned(),
        }
    }

    #[test]
    fn san_plan_boots_its_target_and_restarts_on_failure() {
        let script = render(&BootPlan::San(san()), &request());
        assert!(script.starts_with("#!ipxe\necho Headwater: debian (version 3)\n"), "{script}");
        assert!(script.contains("set initiator-iqn iqn.2026-01.io.headwater:lab-07\n"));
        let boot = "sanboot --drive 0x80 iscsi:10.77.0.1::3260:12:iqn.2026-01.io.headwater:lab ||";
        assert_eq!(script.matches(boot).count(), 5, "{script}");
        assert!(script.ends_with("&& shell ||\nreboot\n"), "{script}");
        assert!(!script.contains("password"));
    }

    #[test]
    fn portal_on_ipv6_stands_in_brackets() {
        let plan = SanBoot { portal: "[fd00::1]:3261".parse().unwrap(), ..san() };
        assert!(render(&BootPlan::San(plan), &request()).contains("iscsi:[fd00::1]::3261:12:iqn"));
    }

    #[test]
    fn chap_secret_of_any_characters_is_written_in_hexadecimal() {
        let plan = SanBoot { chap: Some(("lab 07".into(), "a b;${x} || shell\n".into())), ..san() };
        let script = render(&BootPlan::San(plan), &request());
        assert!(script.contains("set username:hexraw 6c6162203037\n"), "{script}");
        assert!(script.contains("set password:hexraw 6120623b247b787d207c7c207368656c6c0a\n"), "{script}");
        assert!(!script.contains("reverse-"), "{script}");
        let mutual = Some(("t".into(), "u".into()));
        let script = render(&BootPlan::San(SanBoot { mutual_chap: mutual, ..san() }), &request());
        let reverse = "set reverse-username:hexraw 74\nset reverse-password:hexraw 75\n";
        assert!(script.contains(reverse), "{script}");
    }

    #[test]
    fn texts_cannot_bring_in_commands() {
        let nasty = "x\nreboot\r ; shell || ${password} # \\ && \u{e9}";
        for plan in
            [BootPlan::San(SanBoot { title: nasty.to_owned(), ..san() }), BootPlan::Refuse(nasty.to_owned())]
        {
            let script = render(&plan, &request());
            let line = script.lines().nth(1).unwrap();
            assert_eq!(line, "echo Headwater: x?reboot? ? shell ?? ?{password} ? ? ?? ?", "{script}");
        }
    }

    #[test]
    fn names_that_are_none_make_a_refusal_instead_of_a_command() {
        for bad in
            ["iqn.x; shell", "iqn.a b", "", "iqn.${password}", "lab", &format!("iqn.{}", "x".repeat(230))]
        {
            for plan in
                [SanBoot { target: bad.to_owned(), ..san() }, SanBoot { initiator: bad.to_owned(), ..san() }]
            {
                let script = render(&BootPlan::San(plan), &request());
                assert!(script.contains("illegal iSCSI name") && !script.contains("sanboot"), "{script}");
            }
        }
    }

    #[test]
    fn refused_machine_asks_again_with_what_it_said() {
        let mut request = request();
        request.uuid = Some("x;reboot".to_owned());
        let script = render(&BootPlan::Refuse("no such device".to_owned()), &request);
        assert!(script.contains("echo Headwater: no such device\n"), "{script}");
        let again = "chain --replace /v1/boot/script?mac=52-54-00-77-00-10&platform=efi ||\n";
        assert!(script.contains(again), "{script}");
    }

    #[test]
    fn waiting_machine_says_so_and_asks_again_after_its_pause() {
        let script = render(&BootPlan::Wait("place 14; about 20 s".to_owned(), 5), &request());
        let again = "chain --replace /v1/boot/script?mac=52-54-00-77-00-10&platform=efi ||\n";
        assert!(
            script.starts_with(&format!("#!ipxe\necho Headwater: place 14? about 20 s\nsleep 5 ||\n{again}")),
            "{script}"
        );
        assert_eq!(script.matches(again).count(), 4, "{script}");
        assert!(script.ends_with("reboot\n"), "{script}");
    }

    #[test]
    fn debug_of_a_plan_hides_the_secret() {
        let plan = BootPlan::San(SanBoot { chap: Some(("u".into(), "topsecret".into())), ..san() });
        assert!(!format!("{plan:?}").contains("topsecret"));
    }
}
