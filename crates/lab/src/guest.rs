//! Target devices: QEMU machines without a disk, emulated (TCG), that boot from the lab network, by their firmware or from
//! boot media.
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::command::spawn;
use crate::console::{Console, Line, Waited};
use crate::firmware_variables::{IscsiDisk, iscsi_disk};
use crate::network::{INTERFACE, Network, SERVER_ADDRESS};
use crate::qmp;

/// How long a micro guest may take until it is up: about sixteen times what it takes on an idle machine of two cores.
pub const MICRO_READY_WITHIN: Duration = Duration::from_secs(240);
/// The same for the golden image.
pub const GOLDEN_READY_WITHIN: Duration = Duration::from_secs(240);

/// How long [`Guest::run`] waits.
const COMMAND_WITHIN: Duration = Duration::from_secs(60);
/// How long the shell on the serial line may take to appear once the guest is up.
const SHELL_WITHIN: Duration = Duration::from_secs(60);
/// How long one probe for the shell is waited for; what is typed before the shell is there can be lost.
const PROBE_WITHIN: Duration = Duration::from_secs(3);
/// How long a guest may take from the order to power off until its QEMU has ended.
const POWER_OFF_WITHIN: Duration = Duration::from_secs(60);
/// busybox's line editor takes 1023 bytes a line; our own marks need some.
const COMMAND_LINE_LIMIT_BYTES: usize = 900;
/// How many lines of the console go into an error.
const LINES_IN_ERROR: usize = 40;
/// What says that a boot has failed for good: waiting on would only waste time.
const HOPELESS: [&str; 3] = ["Kernel panic - not syncing", "MICRO-FAILED", "Gave up waiting for root"];

const OVMF_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const OVMF_VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";
/// What Headwater's iSCSI names begin with, and where its targets are, unless it is told otherwise.
const ISCSI_NAMES: &str = "iqn.2026-11.org.headwater";
const ISCSI_PORT: u16 = 3260;
const IPXE_KERNEL: &str = "/usr/lib/ipxe/ipxe.lkrn";
/// iPXE asks for the machine's address again, without saying that it is iPXE (its user class).
const PLAIN_PXE_SCRIPT: &str = "#!ipxe\nset user-class PXE\nautoboot\n";
const IPXE_EFI_ROM: &str = "/usr/lib/ipxe/qemu/efi-virtio.rom";

/// What a device boots by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS with iPXE as the network card's ROM.
    BiosIpxeRom,
    /// SeaBIOS with a PXE client that knows TFTP and no scripts, as the ROMs of network cards are: loads its boot file. No such
    /// ROM is free software; iPXE, told not to say that it is one, stands for it.
    BiosPxe,
    /// OVMF with its own network driver, by PXE: loads its boot file by TFTP.
    UefiPxe,
    /// OVMF with iPXE as the network card's ROM.
    UefiIpxeRom,
    /// OVMF with its own network driver, by HTTP Boot.
    UefiHttp,
    /// OVMF with its own iSCSI initiator, set up in its variables as Headwater names things by default: the target
    /// `iqn.2026-11.org.headwater:NAME` for a device of this name. No PXE, no iPXE.
    UefiIscsi,
    /// SeaBIOS from boot media ([`GuestSpec::media`]); its network card has no ROM.
    BiosMedia,
    /// OVMF from boot media.
    UefiMedia,
}

/// What a device has in its drive or port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// How it is attached.
    pub kind: MediaKind,
    /// The image.
    pub file: PathBuf,
}

/// How boot media are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// In a CD drive (AHCI).
    Cd,
    /// On USB (xHCI).
    UsbStick,
    /// As a virtio disk.
    Disk,
    /// As a virtio disk that the machine may write; what it has written goes with it.
    SystemDisk,
    /// As a virtio disk of the machine's own, behind the network in its boot order.
    OwnDisk,
}

/// A device to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestSpec {
    /// Names its log.
    pub name: String,
    /// What it boots by.
    pub firmware: Firmware,
    /// Its network card's address.
    pub mac: String,
    /// Its memory.
    pub memory_mib: u32,
    /// Its boot media; it boots from them where its firmware says so.
    pub media: Option<Media>,
    /// The bridge that its cable ends in; see [`Network::segment`].
    pub bridge: String,
    /// Its SMBIOS UUID; `None`: it has none.
    pub uuid: Option<String>,
}

impl GuestSpec {
    /// A device with room for either image: 1 GiB, address `52:54:00:77:00:10` plus `index`.
    #[must_use]
    pub fn new(name: &str, firmware: Firmware, index: u8) -> Self {
        let mac = format!("52:54:00:77:{:02x}:{:02x}", index >> 4, (index & 15) + 16);
        let bridge = INTERFACE.to_owned();
        Self { name: name.to_owned(), firmware, mac, memory_mib: 1024, media: None, bridge, uuid: None }
    }

    /// The same device with boot media.
    #[must_use]
    pub fn with_media(self, kind: MediaKind, file: impl Into<PathBuf>) -> Self {
        Self { media: Some(Media { kind, file: file.into() }), ..self }
    }

    /// The same device in another segment of the network.
    #[must_use]
    pub fn on_bridge(self, bridge: &str) -> Self {
        Self { bridge: bridge.to_owned(), ..self }
    }

    /// The same device with this SMBIOS UUID.
    #[must_use]
    pub fn with_uuid(self, uuid: &str) -> Self {
        Self { uuid: Some(uuid.to_owned()), ..self }
    }
}

/// A running device. Dropping it cuts its power.
pub struct Guest {
    name: String,
    child: Child,
    keyboard: ChildStdin,
    console: Console,
    /// The first line that [`wait_for`](Self::wait_for) has not seen.
    next_line: usize,
    commands: u32,
    monitor: PathBuf,
    tap: String,
    network: Network,
}

impl Guest {
    /// Powers a device on.
    ///
    /// # Errors
    /// Where QEMU or a firmware is missing, or no tap can be made.
    pub fn start(network: &Network, spec: &GuestSpec) -> Result<Self> {
        let run = network.run();
        let monitor = run.socket(&format!("{}.qmp", spec.name));
        // A guest of this name may have run before.
        let _ = std::fs::remove_file(&monitor);
        let tap = network.tap(&spec.bridge)?;
        let mut command = network.command("qemu-system-x86_64");
        command.args(machine_arguments(spec, &tap, &monitor));
        command.args(firmware_arguments(spec, run.folder())?);
        command.args(spec.media.as_ref().map(media_arguments).unwrap_or_default());
        let complaints = File::create(run.log(&format!("{}-qemu", spec.name)))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(complaints);
        let log = File::options().create(true).append(true).open(run.log(&spec.name))?;
        let began = Instant::now();
        let mut child = spawn(command)?;
        run.record_process(child.id())?;
        let keyboard = child.stdin.take().context("no pipe to the serial line")?;
        let output = child.stdout.take().context("no pipe from the serial line")?;
        let console = Console::begin(output, log, began);
        let name = spec.name.clone();
        Ok(Self {
            name,
            child,
            keyboard,
            console,
            next_line: 0,
            commands: 0,
            monitor,
            tap,
            network: network.clone(),
        })
    }

    /// Waits for a line with this text on the serial console, after the last line that was waited for.
    ///
    /// # Errors
    /// Where the time is over, the device has ended, or its boot has failed for good; with the last lines.
    pub fn wait_for(&mut self, text: &str, timeout: Duration) -> Result<Line> {
        self.wait_for_any(&[text], timeout)
    }

    /// Waits for a line with any of these texts; see [`wait_for`](Self::wait_for).
    ///
    /// # Errors
    /// As [`wait_for`](Self::wait_for).
    pub fn wait_for_any(&mut self, texts: &[&str], timeout: Duration) -> Result<Line> {
        let is_wanted = |line: &str| texts.iter().any(|text| line.contains(text));
        let is_hopeless = |line: &str| HOPELESS.iter().any(|text| line.contains(text));
        let waited =
            self.console.wait(&mut self.next_line, timeout, |line| is_wanted(line) || is_hopeless(line));
        let what = match waited {
            Waited::Found(line) if is_wanted(&line.text) => return Ok(line),
            Waited::Found(line) => format!("its boot failed: {}", line.text),
            Waited::TimedOut => format!("no line with {texts:?} within {} s", timeout.as_secs()),
            Waited::Ended => self.ending(&format!("waiting for a line with {texts:?}")),
        };
        bail!(self.failure(&what))
    }

    /// Waits until this text is on the screen since the last line that was waited for, on a line that has ended or not: a
    /// menu draws its lines by moving the cursor.
    ///
    /// # Errors
    /// Where the time is over or the device has ended, with the last lines.
    pub fn wait_for_screen(&mut self, text: &str, timeout: Duration) -> Result<()> {
        match self.console.wait_for_screen(&mut self.next_line, timeout, text) {
            Waited::Found(_) => Ok(()),
            Waited::TimedOut => {
                bail!(self.failure(&format!("no {text:?} on the screen within {} s", timeout.as_secs())))
            }
            Waited::Ended => {
                let what = self.ending(&format!("waiting for {text:?} on the screen"));
                bail!(self.failure(&what))
            }
        }
    }

    /// Presses these keys on the serial line's keyboard; `\r` is the Enter key.
    ///
    /// # Errors
    /// Where the guest has ended.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        write!(self.keyboard, "{keys}")
            .and_then(|()| self.keyboard.flush())
            .with_context(|| format!("guest {}: cannot type into its serial line", self.name))
    }

    /// Runs a shell command in the guest's root shell and gives what it wrote (standard error too).
    ///
    /// # Errors
    /// Where it fails (its output is in the error), takes more than a minute, or there is no shell.
    pub fn run(&mut self, command: &str) -> Result<String> {
        self.run_within(command, COMMAND_WITHIN)
    }

    /// Runs a shell command as [`run`](Self::run) does, with a time limit.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_within(&mut self, command: &str, timeout: Duration) -> Result<String> {
        let (output, status) = self.run_for_status(command, timeout)?;
        if status != 0 {
            bail!(self.failure(&format!("`{command}` failed with status {status}:\n{output}")));
        }
        Ok(output)
    }

    /// Runs a shell command and gives what it wrote and its exit status.
    ///
    /// # Errors
    /// Where it takes too long, or there is no shell.
    pub fn run_for_status(&mut self, command: &str, timeout: Duration) -> Result<(String, i32)> {
        self.wait_for_shell()?;
        let number = self.commands;
        self.start_in_shell(command)?;
        let (begin, end) = (format!("LAB-BEGIN-{number}"), format!("LAB-END-{number} "));
        self.wait_for(&begin, timeout)?;
        let first = self.next_line;
        let line = self.wait_for(&end, timeout)?;
        let mut output: String = self
            .console
            .lines(first)
            .iter()
            .take(self.next_line - first - 1)
            .map(|l| format!("{}\n", l.text))
            .collect();
        // Output without a last newline stands before the mark.
        let (rest, status) = line.text.split_once(&end).context("the mark has gone")?;
        output.push_str(rest);
        Ok((output, status.trim().parse().with_context(|| format!("exit status in {:?}", line.text))?))
    }

    /// Types a command into the guest's shell and does not wait for it; [`wait_for`](Self::wait_for) sees its output.
    ///
    /// # Errors
    /// Where a line of it is too long for the guest's shell, or the guest has ended.
    pub fn start_in_shell(&mut self, command: &str) -> Result<()> {
        if let Some(line) = command.lines().find(|line| line.len() > COMMAND_LINE_LIMIT_BYTES) {
            bail!("a line of {} bytes is too long for the guest's shell: break it", line.len());
        }
        let number = self.commands;
        self.commands += 1;
        // The marks are written so that their echo is not one.
        self.type_line(&format!(
            "echo LAB-BEG''IN-{number}; {{ {command}\n}} 2>&1 </dev/null; echo LAB-E''ND-{number} $?"
        ))
    }

    fn type_line(&mut self, text: &str) -> Result<()> {
        writeln!(self.keyboard, "{text}")
            .and_then(|()| self.keyboard.flush())
            .with_context(|| format!("guest {}: cannot type into its serial line", self.name))
    }

    /// Types until a shell answers; it then keeps kernel messages off the console.
    ///
    /// The answer to any of what was typed will do: a slow machine answers the first when the third has been typed.
    fn wait_for_shell(&mut self) -> Result<()> {
        let began = Instant::now();
        self.next_line = self.console.len();
        let first = self.commands;
        loop {
            let number = self.commands;
            self.commands += 1;
            self.type_line(&format!("dmesg -n 1; echo LAB-SH''ELL-{number}"))?;
            let answers = |line: &str| {
                shell_answered(line).is_some_and(|answered| (first..=number).contains(&answered))
            };
            match self.console.wait(&mut self.next_line, PROBE_WITHIN, answers) {
                Waited::Found(_) => return Ok(()),
                Waited::TimedOut if began.elapsed() < SHELL_WITHIN => {}
                Waited::TimedOut => bail!(self.failure("no shell answers on its serial line")),
                Waited::Ended => {
                    let what = self.ending("waiting for its shell");
                    bail!(self.failure(&what))
                }
            }
        }
    }

    /// Presses the reset button.
    ///
    /// # Errors
    /// Where QEMU does not answer.
    pub fn reset(&mut self) -> Result<()> {
        self.next_line = self.console.len();
        qmp::order(&self.monitor, "system_reset").with_context(|| format!("cannot reset guest {}", self.name))
    }

    /// Freezes the guest: its clock stops, its connections stay.
    ///
    /// # Errors
    /// Where QEMU does not answer.
    pub fn pause(&self) -> Result<()> {
        qmp::order(&self.monitor, "stop").with_context(|| format!("cannot pause guest {}", self.name))
    }

    /// Lets a paused guest go on.
    ///
    /// # Errors
    /// Where QEMU does not answer.
    pub fn resume(&self) -> Result<()> {
        qmp::order(&self.monitor, "cont").with_context(|| format!("cannot resume guest {}", self.name))
    }

    /// Pulls the network cable, or plugs it in again. Nobody is told: what was connected stays half open.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn connect_network(&self, connected: bool) -> Result<()> {
        let state = if connected { "up" } else { "down" };
        self.network.ip(&["link", "set", &self.tap, state]).map(drop)
    }

    /// Cuts the power.
    ///
    /// # Errors
    /// Where the system refuses.
    pub fn kill(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            self.child.kill()?;
        }
        self.child.wait()?;
        Ok(())
    }

    /// Lets the guest write out its file systems and power off, and waits for that.
    ///
    /// # Errors
    /// Where there is no shell, or it takes too long.
    pub fn shutdown(&mut self) -> Result<()> {
        self.wait_for_shell()?;
        self.start_in_shell("sync; poweroff -f")?;
        let mut line = self.console.len();
        match self.console.wait(&mut line, POWER_OFF_WITHIN, |_| false) {
            Waited::Ended => self.kill(),
            _ => bail!(self.failure(&format!("not off {} s after the order", POWER_OFF_WITHIN.as_secs()))),
        }
    }

    /// All lines of its serial console.
    #[must_use]
    pub fn transcript(&self) -> Vec<Line> {
        self.console.lines(0)
    }

    /// Whether a line of its serial console holds this text.
    #[must_use]
    pub fn has_said(&self, text: &str) -> bool {
        self.transcript().iter().any(|line| line.text.contains(text))
    }

    /// Its log.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.network.run().log(&self.name)
    }

    fn ending(&mut self, during: &str) -> String {
        let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        let complaints = self.network.run().log(&format!("{}-qemu", self.name));
        let said = std::fs::read_to_string(complaints).unwrap_or_default();
        format!("QEMU ended ({status}) {during}; it said: {}", said.trim())
    }

    /// An error's text, with the last lines; the logs are kept, too.
    fn failure(&self, what: &str) -> String {
        self.network.keep_logs();
        format!(
            "guest {}: {what}\nits serial console ends:\n{}",
            self.name,
            self.console.tail(LINES_IN_ERROR)
        )
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to cut.
        let _ = self.kill();
    }
}

fn machine_arguments(spec: &GuestSpec, tap: &str, monitor: &Path) -> Vec<String> {
    let words = format!(
        // Without graphics BIOS and iPXE write to the serial line. One processor, though two boot faster: a kernel that
        // patches its own code (static keys, while a driver is started) under another emulated processor's feet now and
        // then panics with "Oops: int3".
        "-accel tcg,thread=multi -cpu max -machine q35,graphics=off -display none -no-user-config -nodefaults \
         -m {} -smp 1 -chardev stdio,id=serial,signal=off -serial chardev:serial \
         -netdev tap,id=network,ifname={tap},script=no,downscript=no -device virtio-rng-pci",
        spec.memory_mib
    );
    let mut arguments: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    arguments.extend(spec.uuid.iter().flat_map(|uuid| ["-uuid".to_owned(), uuid.clone()]));
    arguments.extend(["-qmp".to_owned(), format!("unix:{},server=on,wait=off", monitor.display())]);
    arguments
}

fn firmware_arguments(spec: &GuestSpec, folder: &Path) -> Result<Vec<String>> {
    let card = format!("virtio-net-pci,netdev=network,mac={}", spec.mac);
    let rom = match spec.firmware {
        Firmware::BiosIpxeRom => ",bootindex=0".to_owned(),
        Firmware::UefiPxe | Firmware::UefiHttp => ",bootindex=0,romfile=".to_owned(),
        Firmware::UefiIpxeRom => format!(",bootindex=0,romfile={IPXE_EFI_ROM}"),
        // A boot index would put all of the card's boot options before our own.
        Firmware::BiosPxe | Firmware::UefiIscsi | Firmware::BiosMedia | Firmware::UefiMedia => {
            ",romfile=".to_owned()
        }
    };
    let mut arguments = vec!["-device".to_owned(), card + &rom];
    if spec.firmware == Firmware::BiosPxe {
        let script = folder.join("plain-pxe.ipxe");
        std::fs::write(&script, PLAIN_PXE_SCRIPT)?;
        let script = script.to_string_lossy().into_owned();
        arguments.extend(["-kernel", IPXE_KERNEL, "-initrd", &script].map(str::to_owned));
    } else if !matches!(spec.firmware, Firmware::BiosIpxeRom | Firmware::BiosMedia) {
        let variables = folder.join(format!("{}-variables.fd", spec.name));
        make_variables(spec, &variables)?;
        for (unit, file, mode) in [(0, Path::new(OVMF_CODE), ",readonly=on"), (1, &variables, "")] {
            arguments.push("-drive".to_owned());
            arguments.push(format!("if=pflash,format=raw,unit={unit}{mode},file={}", file.display()));
        }
    }
    if spec.firmware == Firmware::UefiHttp {
        // OVMF leaves PXE out when it is told to, and HTTP Boot remains.
        for protocol in ["IPv4PXESupport", "IPv6PXESupport"] {
            arguments.push("-fw_cfg".to_owned());
            arguments.push(format!("name=opt/org.tianocore/{protocol},string=n"));
        }
    }
    Ok(arguments)
}

/// Media are read-only, as a stick with its switch set, so that several devices can have the same.
fn media_arguments(media: &Media) -> Vec<String> {
    let access = if media.kind == MediaKind::SystemDisk { "snapshot=on" } else { "read-only=on" };
    let drive = format!("if=none,id=media,format=raw,{access},file={}", media.file.display());
    let device = match media.kind {
        MediaKind::Cd => "ide-cd,drive=media,bootindex=0",
        MediaKind::UsbStick => "usb-storage,drive=media,bootindex=0",
        MediaKind::Disk | MediaKind::SystemDisk => "virtio-blk-pci,drive=media,bootindex=0",
        MediaKind::OwnDisk => "virtio-blk-pci,drive=media,bootindex=1",
    };
    let mut words = vec!["-drive", &drive, "-device", device];
    if media.kind == MediaKind::UsbStick {
        words.splice(0..0, ["-device", "qemu-xhci"]);
    }
    words.into_iter().map(str::to_owned).collect()
}

fn make_variables(spec: &GuestSpec, variables: &Path) -> Result<()> {
    if spec.firmware == Firmware::UefiIscsi {
        let target = format!("{ISCSI_NAMES}:{}", spec.name);
        let disk = IscsiDisk {
            initiator: &format!("{target}:initiator"),
            target: &target,
            server: SERVER_ADDRESS.parse()?,
            port: ISCSI_PORT,
            mac: &spec.mac,
        };
        return iscsi_disk(Path::new(OVMF_VARIABLES), variables, &disk);
    }
    std::fs::copy(OVMF_VARIABLES, variables).context("cannot copy UEFI's variables: is `ovmf` installed?")?;
    Ok(())
}

/// Which of the probes that were typed a line answers.
fn shell_answered(line: &str) -> Option<u32> {
    line.split_once("LAB-SHELL-")?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_a_shell_is_told_from_the_echo_of_what_was_typed() {
        assert_eq!(shell_answered("# LAB-SHELL-12"), Some(12));
        assert_eq!(shell_answered("# dmesg -n 1; echo LAB-SH''ELL-12"), None);
    }

    #[test]
    fn guests_have_addresses_of_their_own() {
        let macs: std::collections::HashSet<_> =
            (0..=255).map(|index| GuestSpec::new("g", Firmware::UefiPxe, index).mac).collect();
        assert_eq!(macs.len(), 256);
        assert_eq!(GuestSpec::new("g", Firmware::UefiPxe, 0).mac, "52:54:00:77:00:10");
    }

    #[test]
    fn stick_comes_with_a_usb_controller_and_boots_before_the_network() {
        let spec = GuestSpec::new("s", Firmware::BiosMedia, 0).with_media(MediaKind::UsbStick, "/s.img");
        let folder = tempfile::tempdir().unwrap();
        let firmware = firmware_arguments(&spec, folder.path()).unwrap().join(" ");
        assert!(firmware.ends_with(",romfile="), "{firmware}");
        let media = media_arguments(&spec.media.unwrap()).join(" ");
        assert!(media.starts_with("-device qemu-xhci -drive ") && media.contains("file=/s.img"), "{media}");
        assert!(media.ends_with("usb-storage,drive=media,bootindex=0"), "{media}");
    }

    #[test]
    fn uefi_guest_has_variables_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = firmware_arguments(&GuestSpec::new("one", Firmware::UefiHttp, 0), folder.path())
            .unwrap()
            .join(" ");
        assert!(folder.path().join("one-variables.fd").exists());
        assert!(arguments.contains("romfile= "), "{arguments}");
        assert!(arguments.contains("IPv4PXESupport,string=n"), "{arguments}");
    }
}
