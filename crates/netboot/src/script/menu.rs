//! Scripts in which somebody at the machine says something: the boot menu, the key that calls for it, the log-in.
//!
//! What was chosen goes back to the server as a word in the script's URL; the answer is the script that boots it. The server
//! knows no more of a machine at its menu than that it asked once: the next question may reach it after a restart, or another
//! server of the farm. A script that cannot reach the server goes on trying: somebody's choice is not lost by a restart.
//!
//! A user and a password go by Basic authentication: the packaged iPXE of 2019 has no `params` (a form to post), and hides
//! the password of a URL when it shows that. They travel in clear: no packaged iPXE has HTTPS with certificates of a site's
//! own.
use super::{RETRY_S, again, harmless_text};
use crate::director::{LogInPlan, MENU_CHOICE, MenuKeyPlan, MenuPlan, ScriptRequest};

/// The most entries with a key of their own: the digits.
const MAX_KEYS: usize = 9;
/// The longest text of a menu's line: a text screen has 80 columns, and iPXE leaves some at both sides.
const MAX_LINE_CHARS: usize = 70;
/// How long a refused log-in stands on the screen: time to read it, and a brake for guessing by hand.
const REFUSED_MS: u32 = 3000;

/// Boots the machine's own disk. UEFI goes on with the next entry of its boot order when a loader ends with an error; a BIOS
/// is told the disk, and goes on with its boot order where that does not start.
pub(super) const LOCAL_DISK: &str = "#!ipxe\n\
    echo Headwater: this machine boots its own disk\n\
    iseq ${platform} efi && exit 1 ||\n\
    sanboot --no-describe --drive 0x80 ||\n\
    echo Headwater: the machine's own disk does not start\n\
    exit 1\n";

pub(super) fn menu(plan: &MenuPlan, request: &ScriptRequest) -> String {
    let Some(default) = choice_word(&plan.default) else { return broken(request) };
    let mut script = format!("#!ipxe\n:menu\nmenu {}\n", line(&plan.title));
    for (index, item) in plan.items.iter().enumerate() {
        let Some(choice) = choice_word(&item.choice) else { return broken(request) };
        let number = index.saturating_add(1);
        let (key, label) = if number <= MAX_KEYS {
            (format!("--key {number} "), format!("{number}. "))
        } else {
            (String::new(), "   ".to_owned())
        };
        script.push_str(&format!("item {key}{choice} {label}{}\n", line(&item.text)));
    }
    let timeout =
        if plan.wait_s == 0 { String::new() } else { format!("--timeout {} ", milliseconds(plan.wait_s)) };
    // Escape leaves the menu: that takes the default, too.
    script.push_str(&format!("choose --default {default} {timeout}choice || set choice {default}\n"));
    script.push_str(&ask("${choice}", request));
    script
}

pub(super) fn key(plan: &MenuKeyPlan, request: &ScriptRequest) -> String {
    let Some(default) = choice_word(&plan.default) else { return broken(request) };
    format!(
        "#!ipxe\necho Headwater: {}\nset choice {default}\n\
         prompt --key m --timeout {} Press m within {} s for the boot menu. && set choice {MENU_CHOICE} ||\n{}",
        line(&plan.title),
        milliseconds(plan.wait_s),
        plan.wait_s,
        ask("${choice}", request)
    )
}

pub(super) fn log_in(plan: &LogInPlan, request: &ScriptRequest) -> String {
    let (Some(choice), Some(host)) = (choice_word(&plan.choice), host(&request.base)) else {
        return broken(request);
    };
    let mut script = format!("#!ipxe\necho Headwater: {} asks for a log-in\n", line(&plan.title));
    if let Some(why) = &plan.refused {
        let why = harmless_text(why);
        script.push_str(&format!("prompt --timeout {REFUSED_MS} Headwater: {why}. ||\n"));
    }
    script.push_str(&format!(
        "clear username ||\nclear password ||\n\
         login || goto menu\n\
         set whom ${{username:uristring}}:${{password:uristring}}\n\
         clear username ||\nclear password ||\n\
         chain --replace http://${{whom}}@{host}{}&choice={choice}&login=1 ||\n\
         clear whom ||\n\
         echo Headwater: the server does not answer\n\
         sleep {RETRY_S} ||\n\
         :menu\n{}",
        again(request),
        ask(MENU_CHOICE, request)
    ));
    script
}

/// Asks the server what `choice` means, until it answers.
fn ask(choice: &str, request: &ScriptRequest) -> String {
    format!(
        ":ask\n\
         chain --replace {}&choice={choice} ||\n\
         echo Headwater: the server does not answer; it is asked again in {RETRY_S} s\n\
         sleep {RETRY_S} ||\n\
         goto ask\n",
        again(request)
    )
}

fn broken(request: &ScriptRequest) -> String {
    super::refusal("The server's boot plan holds an illegal choice or address.", request)
}

fn milliseconds(seconds: u16) -> u32 {
    u32::from(seconds).saturating_mul(1000)
}

fn line(text: &str) -> String {
    harmless_text(text).chars().take(MAX_LINE_CHARS).collect()
}

/// A word that may stand in a script and in a URL as it is.
fn choice_word(text: &str) -> Option<&str> {
    let harmless = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (!text.is_empty() && !text.starts_with('-') && text.bytes().all(harmless)).then_some(text)
}

/// The host and port in a server's URL, if they may stand in a script.
fn host(text: &str) -> Option<&str> {
    let host = text.strip_prefix("http://")?;
    let harmless =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']');
    (!host.is_empty() && host.bytes().all(harmless)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::super::render;
    use super::super::tests::request;
    use super::*;
    use crate::director::{BootPlan, MenuItem};

    fn plan() -> MenuPlan {
        let item = |choice: &str, text: &str| MenuItem { choice: choice.to_owned(), text: text.to_owned() };
        MenuPlan {
            title: "Headwater boot menu of lab-07".to_owned(),
            items: vec![
                item("v1-3", "Debian"),
                item("v2-0", "Windows; reboot"),
                item("local", "its own disk"),
            ],
            default: "v2-0".to_owned(),
            wait_s: 10,
        }
    }

    const ASK: &str =
        "chain --replace /v1/boot/script?mac=52-54-00-77-00-10&platform=efi&choice=${choice} ||\n";

    #[test]
    fn menu_offers_its_items_by_key_and_takes_the_default_after_a_while() {
        let script = render(&BootPlan::Menu(plan()), &request());
        for part in [
            "menu Headwater boot menu of lab-07\n",
            "item --key 1 v1-3 1. Debian\n",
            "item --key 2 v2-0 2. Windows? reboot\n",
            "item --key 3 local 3. its own disk\n",
            "choose --default v2-0 --timeout 10000 choice || set choice v2-0\n",
            ASK,
        ] {
            assert!(script.contains(part), "{part}{script}");
        }
        let for_ever = render(&BootPlan::Menu(MenuPlan { wait_s: 0, ..plan() }), &request());
        assert!(for_ever.contains("choose --default v2-0 choice ||"), "{for_ever}");
    }

    #[test]
    fn tenth_item_has_no_key() {
        let items = (0..10).map(|n| MenuItem { choice: format!("v1-{n}"), text: "x".to_owned() }).collect();
        let script = menu(&MenuPlan { items, ..plan() }, &request());
        assert!(script.contains("item --key 9 v1-8 9. x\nitem v1-9    x\n"), "{script}");
    }

    #[test]
    fn key_calls_for_the_menu_and_its_absence_for_the_default() {
        let plan = MenuKeyPlan { title: "lab-07".to_owned(), default: "v1-3".to_owned(), wait_s: 5 };
        let script = render(&BootPlan::MenuKey(plan), &request());
        let prompt = "set choice v1-3\nprompt --key m --timeout 5000 Press m within 5 s for the boot menu. && set choice menu ||\n";
        assert!(script.contains(prompt) && script.contains(ASK), "{script}");
    }

    #[test]
    fn log_in_sends_what_was_typed_and_forgets_it() {
        let plan = LogInPlan {
            title: "Windows".to_owned(),
            choice: "v2-0".to_owned(),
            refused: Some("the user name or the password is wrong".to_owned()),
        };
        let script = render(&BootPlan::LogIn(plan.clone()), &request());
        let send = "set whom ${username:uristring}:${password:uristring}\nclear username ||\nclear password ||\n\
                    chain --replace http://${whom}@10.0.0.1:8080/v1/boot/script?mac=52-54-00-77-00-10&platform=efi&choice=v2-0&login=1 ||\n";
        assert!(script.contains(send), "{script}");
        assert!(script.contains("Headwater: the user name or the password is wrong. ||\n"), "{script}");
        let first = render(&BootPlan::LogIn(LogInPlan { refused: None, ..plan }), &request());
        assert!(!first.contains("prompt"), "{first}");
    }

    #[test]
    fn words_and_addresses_that_are_none_make_a_refusal_instead_of_a_command() {
        for bad in ["", "a b", "x;reboot", "${password}", "-x", "a\nb"] {
            let script = render(&BootPlan::Menu(MenuPlan { default: bad.to_owned(), ..plan() }), &request());
            assert!(script.contains("illegal choice") && !script.contains("choose"), "{script}");
            let mut plan = plan();
            plan.items[1].choice = bad.to_owned();
            assert!(menu(&plan, &request()).contains("illegal choice"));
            let key = MenuKeyPlan { title: String::new(), default: bad.to_owned(), wait_s: 1 };
            assert!(super::key(&key, &request()).contains("illegal choice"));
        }
        for bad in ["", "http://", "http://a b", "ftp://a", "http://a/${x}", "http://a;b"] {
            let request = ScriptRequest { base: bad.to_owned(), ..request() };
            let plan = LogInPlan { title: String::new(), choice: "local".to_owned(), refused: None };
            assert!(log_in(&plan, &request).contains("illegal choice or address"), "{bad}");
        }
    }
}
