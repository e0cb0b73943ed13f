//! The script that boots a Linux kernel.
//!
//! iPXE hands the words behind the kernel's URI to it as its command line. A UEFI machine's kernel finds its initramfs by
//! the name that `initrd=` gives there; a BIOS machine's ignores it.
use super::{RETRY_S, TRIES, ending, harmless_text};
use crate::director::KernelBoot;
use crate::http::BOOT_PATH;

/// The longest command line: that of x86 (`COMMAND_LINE_SIZE`), less than what is added.
const MAX_COMMAND_LINE_BYTES: usize = 1900;

/// The name under which the kernel finds its initramfs.
const INITRD: &str = "initrd";

/// Whether a kernel's command line survives its way through iPXE.
///
/// # Errors
/// Why it does not, in words.
pub fn check_command_line(text: &str) -> Result<(), &'static str> {
    if text.len() > MAX_COMMAND_LINE_BYTES {
        return Err("it is longer than 1900 bytes");
    }
    if !text.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        return Err("it may have printable ASCII alone, on one line");
    }
    if text.contains("${") {
        return Err("iPXE would replace what stands in ${...}");
    }
    if text.split(' ').any(|word| matches!(word, "||" | "&&" | ";") || word.starts_with('#')) {
        return Err("iPXE would take \"||\", \"&&\", \";\" or a word that begins with \"#\" for itself");
    }
    Ok(())
}

pub(super) fn script(boot: &KernelBoot) -> Result<String, &'static str> {
    check_command_line(&boot.command_line)
        .map_err(|_| "The server's boot plan holds an illegal command line.")?;
    let names = std::iter::once(&boot.kernel).chain(&boot.initrd);
    if !names.into_iter().all(|name| is_boot_file(name)) {
        return Err("The server's boot plan holds an illegal file name.");
    }
    let title = harmless_text(&boot.title);
    let KernelBoot { kernel, command_line, .. } = boot;
    let attempt = match &boot.initrd {
        Some(initrd) => format!(
            "kernel {BOOT_PATH}{kernel} {command_line} initrd={INITRD} && initrd --name {INITRD} {BOOT_PATH}{initrd} && boot"
        ),
        None => format!("kernel {BOOT_PATH}{kernel} {command_line} && boot"),
    };
    let mut script = format!("#!ipxe\necho Headwater: {title}\n");
    for number in 1..=TRIES {
        script.push_str(&format!(
            "{attempt} || echo Headwater: attempt {number} of {TRIES} to boot {kernel} failed\nimgfree ||\n"
        ));
        if number < TRIES {
            script.push_str(&format!("sleep {RETRY_S} ||\n"));
        }
    }
    script.push_str(&ending(&format!("cannot boot {title}: {kernel} cannot be fetched or started")));
    Ok(script)
}

fn is_boot_file(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot() -> KernelBoot {
        KernelBoot {
            kernel: "debian.kernel".to_owned(),
            initrd: Some("debian.initrd".to_owned()),
            command_line: "nbdroot=10.0.0.1:10809/device/lab-01@b1 root=/dev/nbd0p1".to_owned(),
            title: "debian".to_owned(),
        }
    }

    #[test]
    fn kernel_plan_fetches_both_files_and_starts_over_where_that_fails() {
        let script = script(&boot()).unwrap();
        let attempt = "kernel /boot/debian.kernel nbdroot=10.0.0.1:10809/device/lab-01@b1 root=/dev/nbd0p1 initrd=initrd \
                       && initrd --name initrd /boot/debian.initrd && boot || echo ";
        assert_eq!(script.matches(attempt).count(), 5, "{script}");
        assert!(script.starts_with("#!ipxe\necho Headwater: debian\n") && script.ends_with("reboot\n"));
        let alone = super::script(&KernelBoot { initrd: None, ..boot() }).unwrap();
        assert!(!alone.contains("initrd"), "{alone}");
    }

    #[test]
    fn command_lines_and_files_that_ipxe_would_act_on_are_refused() {
        for bad in ["a\nshell", "root=${password}", "a || shell", "a && b", "x ; shell", "a #b", "\u{e9}"] {
            assert!(check_command_line(bad).is_err(), "{bad}");
            assert!(script(&KernelBoot { command_line: bad.to_owned(), ..boot() }).is_err(), "{bad}");
        }
        assert!(script(&KernelBoot { kernel: "a b".to_owned(), ..boot() }).is_err());
        assert_eq!(check_command_line("ip=dhcp a=b#c d=e|f,g&&h x=$y"), Ok(()));
    }
}
