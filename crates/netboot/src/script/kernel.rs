//! The script that boots a Linux kernel.
//!
//! iPXE hands the words behind the kernel's URI to it as its command line. A UEFI machine's kernel finds its initramfs by
//! the name that `initrd=` gives there; a BIOS machine's ignores it.
//!
//! Where the kernel's own initiator is to find the disk, it is hooked (`sanhook`) before: that writes the iBFT, and a login
//! that is refused is seen here, on the screen, and not in an initramfs.
use super::{RETRY_S, SanDisk, TRIES, ending, harmless_text};
use crate::director::KernelBoot;
use crate::http::BOOT_PATH;

/// The longest command line: that of x86 (`COMMAND_LINE_SIZE`), less than what is added.
const MAX_COMMAND_LINE_BYTES: usize = 1900;

/// The drive that a hooked disk becomes: the first one.
const DRIVE: &str = "0x80";

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
    let fetch = match &boot.initrd {
        Some(initrd) => format!(
            "kernel {BOOT_PATH}{kernel} {command_line} initrd={INITRD} && initrd --name {INITRD} {BOOT_PATH}{initrd} && boot"
        ),
        None => format!("kernel {BOOT_PATH}{kernel} {command_line} && boot"),
    };
    let disk = boot.disk.as_ref().map(SanDisk::of).transpose()?;
    let mut script = format!("#!ipxe\necho Headwater: {title}\n");
    let attempt = match disk {
        Some(SanDisk { uri, settings }) => {
            script.push_str(&settings);
            // What an earlier attempt has hooked is let go first: a drive is hooked once.
            format!("sanunhook --drive {DRIVE} ||\nsanhook --drive {DRIVE} {uri} && {fetch}")
        }
        None => fetch,
    };
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
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'@'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot() -> KernelBoot {
        KernelBoot {
            kernel: "debian.kernel".to_owned(),
            initrd: Some("debian.initrd".to_owned()),
            command_line: "nbdroot=10.0.0.1:10809/device/lab-01@b1 root=/dev/nbd0p1".to_owned(),
            disk: None,
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
    fn disk_of_a_kernel_is_hooked_before_the_kernel_is_fetched() {
        let disk = crate::director::SanBoot {
            portal: "10.0.0.1:3260".parse().unwrap(),
            target: "iqn.2026-01.a:t".to_owned(),
            lun: 0,
            initiator: "iqn.2026-01.a:i".to_owned(),
            chap: Some(("user".to_owned(), "secret".to_owned())),
            mutual_chap: None,
            title: String::new(),
        };
        let script = script(&KernelBoot { disk: Some(disk.clone()), ..boot() }).unwrap();
        let hook =
            "sanhook --drive 0x80 iscsi:10.0.0.1::3260:0:iqn.2026-01.a:t && kernel /boot/debian.kernel ";
        assert_eq!(script.matches(hook).count(), 5, "{script}");
        let name = script.find("set initiator-iqn iqn.2026-01.a:i\nset username:hexraw 75736572\n").unwrap();
        assert!(name < script.find("sanhook").unwrap());
        let bad = crate::director::SanBoot { target: "x\nshell".to_owned(), ..disk };
        assert!(super::script(&KernelBoot { disk: Some(bad), ..boot() }).is_err());
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
