//! The decisions that the boot services leave to their owner, and the steps that they report.
//!
//! The owner (the server program) implements [`Director`]. All calls come from the network tasks: they must be quick.
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::dhcp::lookout::Oddity;

/// An Ethernet address. Written and read as `52:54:00:77:00:10`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// Reads `52:54:00:77:00:10`, `52-54-00-77-00-10` or `525400770010`, in either case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = match text.len() {
            12 => text.bytes().collect(),
            17 => {
                let separator = *text.as_bytes().get(2).filter(|b| matches!(b, b':' | b'-'))?;
                let parts: Vec<&[u8]> = text.as_bytes().split(|&b| b == separator).collect();
                parts.iter().all(|part| part.len() == 2).then(|| parts.concat())?
            }
            _ => return None,
        };
        let mut bytes = [0; 6];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |b: &u8| char::from(*b).to_digit(16).and_then(|d| u8::try_from(d).ok());
            let [high, low] = pair else { return None };
            *byte = digit(high)? << 4 | digit(low)?;
        }
        (digits.len() == 12).then_some(Self(bytes))
    }
}

impl std::fmt::Display for MacAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // Written at once: tables of ten thousand devices show one each.
        let mut text = [b':'; 17];
        for (place, byte) in text.chunks_mut(3).zip(self.0) {
            for (digit, nibble) in place.iter_mut().zip([byte >> 4, byte & 0xf]) {
                *digit = DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
            }
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl std::fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// What kind of firmware or loader is asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientKind {
    /// A BIOS PXE ROM (client architecture 0, RFC 4578 §2.1).
    BiosPxe,
    /// UEFI x64 by PXE (architectures 7 and 9).
    UefiX64Pxe,
    /// UEFI x64 by HTTP Boot (architecture 16).
    UefiX64Http,
    /// UEFI on 32-bit x86 by PXE (architecture 6).
    UefiIa32Pxe,
    /// UEFI on 32-bit x86 by HTTP Boot (architecture 15).
    UefiIa32Http,
    /// UEFI on 64-bit Arm by PXE (architecture 11).
    UefiArm64Pxe,
    /// UEFI on 64-bit Arm by HTTP Boot (architecture 19).
    UefiArm64Http,
    /// iPXE, whatever it was loaded by: it says so in its user class (option 77).
    Ipxe,
    /// Some other DHCP client: the operating system itself, say.
    Other,
}

/// Who is asking for an address or a boot file.
#[derive(Clone, Debug)]
pub struct DhcpClient {
    /// Its hardware address.
    pub mac: MacAddress,
    /// What it is.
    pub kind: ClientKind,
    /// Its SMBIOS UUID, from option 97, as it was sent.
    pub uuid: Option<[u8; 16]>,
}

/// How DHCP treats a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DhcpDecision {
    /// Answer it.
    Serve {
        /// This address; `None`: one from the pool (as DHCP server), or none (as proxy).
        address: Option<Ipv4Addr>,
        /// The host name to hand out (option 12).
        host_name: Option<String>,
    },
    /// Say nothing: it is not ours.
    Ignore,
}

/// What a machine that asks for its iPXE script is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootPlan {
    /// Boot from a disk over iSCSI.
    San(SanBoot),
    /// Boot a Linux kernel that is fetched over HTTP.
    Kernel(KernelBoot),
    /// Show a message, and ask again after so many seconds: others boot first.
    Wait(String, u32),
    /// Ask what to boot, and come back with it.
    Menu(MenuPlan),
    /// Wait a moment for a key that calls for the menu, and come back with that or with the default.
    MenuKey(MenuKeyPlan),
    /// Ask who somebody is, and come back with that.
    LogIn(LogInPlan),
    /// Boot from the machine's own disk.
    LocalDisk,
    /// Show a message and go no further: no such device, no image, a lost write cache.
    Refuse(String),
}

/// A boot menu. Its texts are for people; the words of choices come back as [`ScriptRequest::choice`], and are made of
/// letters, digits and hyphens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MenuPlan {
    /// The first line.
    pub title: String,
    /// What there is to choose.
    pub items: Vec<MenuItem>,
    /// The word of what is chosen when nobody does.
    pub default: String,
    /// After how many seconds without a key the default is taken; 0: never.
    pub wait_s: u16,
}

/// A line of a boot menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MenuItem {
    /// The word that it comes back with.
    pub choice: String,
    /// Its text.
    pub text: String,
}

/// The word that comes back where somebody has called for the menu.
pub const MENU_CHOICE: &str = "menu";

/// A moment to call for the boot menu.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MenuKeyPlan {
    /// The first line.
    pub title: String,
    /// The word of what is chosen when nobody presses the key.
    pub default: String,
    /// How many seconds.
    pub wait_s: u16,
}

/// A question for user and password, which come back as [`ScriptRequest::log_in`], together with the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogInPlan {
    /// What it is asked for.
    pub title: String,
    /// The word of what was chosen.
    pub choice: String,
    /// Why the last answer did not do.
    pub refused: Option<String>,
}

/// A user and a password, as somebody typed them at a machine.
#[derive(Clone, PartialEq, Eq)]
pub struct LogIn {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl std::fmt::Debug for LogIn {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogIn").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A disk to boot from.
#[derive(Clone, PartialEq, Eq)]
pub struct SanBoot {
    /// Address and port of the target.
    pub portal: SocketAddr,
    /// The target's name.
    pub target: String,
    /// The LUN.
    pub lun: u16,
    /// The name that the initiator must use.
    pub initiator: String,
    /// CHAP user and secret.
    pub chap: Option<(String, String)>,
    /// CHAP user and secret by which the target must prove itself.
    pub mutual_chap: Option<(String, String)>,
    /// What to print before the boot: the vDisk's name, say. One line of printable ASCII.
    pub title: String,
}

impl std::fmt::Debug for SanBoot {
    /// Without the secret: plans are logged.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SanBoot")
            .field("portal", &self.portal)
            .field("target", &self.target)
            .field("lun", &self.lun)
            .field("initiator", &self.initiator)
            .field("chap", &self.chap.as_ref().map(|(user, _)| user))
            .finish_non_exhaustive()
    }
}

/// A Linux kernel to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelBoot {
    /// The boot file (see [`boot_files`](crate::boot_files)) that is the kernel.
    pub kernel: String,
    /// The boot file that is its initramfs.
    pub initrd: Option<String>,
    /// The kernel's command line: printable ASCII, in which iPXE finds nothing to do.
    pub command_line: String,
    /// The disk that the kernel's initiator finds in the iBFT; `None` where the command line names the disk.
    pub disk: Option<SanBoot>,
    /// What to print before the boot. One line of printable ASCII.
    pub title: String,
}

/// Who asks for a script. iPXE puts its settings into the query of the script's URL.
#[derive(Clone, Debug)]
pub struct ScriptRequest {
    /// The machine.
    pub mac: MacAddress,
    /// `bios` or `uefi`: iPXE's `${platform}` (`pcbios`, `efi`).
    pub platform: Option<String>,
    /// Its SMBIOS UUID, as iPXE prints it.
    pub uuid: Option<String>,
    /// The word of what was chosen in its boot menu; [`MENU_CHOICE`]: the menu. `None`: it asks for the first time.
    pub choice: Option<String>,
    /// Who somebody at the machine says to be.
    pub log_in: Option<LogIn>,
    /// How it has reached us: `http://10.0.0.1:8080`.
    pub base: String,
    /// Where it asks from.
    pub peer: SocketAddr,
    /// The address of ours that it reached: what it can reach for the rest, too.
    pub local: IpAddr,
}

/// How a file went by TFTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TftpFigures {
    /// The bytes of a block, as negotiated; 512 without negotiation.
    pub block_bytes: u16,
    /// How many blocks were sent before an answer was waited for.
    pub window_blocks: u16,
    /// Packets that were sent again.
    pub resent: u64,
}

/// One step of a machine's way to its script, as the boot services saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootStep {
    /// DHCPDISCOVER came in.
    Discover(ClientKind),
    /// We offered this address (as DHCP server) or boot information alone (as proxy).
    Offer(Option<Ipv4Addr>),
    /// DHCPREQUEST came in.
    Request(ClientKind),
    /// We acknowledged.
    Ack(Option<Ipv4Addr>),
    /// It took the offer of another DHCP server, which it told everybody (RFC 2131 §3.1, step 3).
    Elsewhere(Ipv4Addr),
    /// A boot file went out whole.
    BootFile {
        /// Its name.
        name: String,
        /// `tftp` or `http`.
        protocol: &'static str,
        /// Its size.
        size_bytes: u64,
        /// From the request to its last byte acknowledged (TFTP) or sent (HTTP).
        took: Duration,
        /// How TFTP went about it.
        tftp: Option<TftpFigures>,
    },
    /// A boot file was asked for by TFTP and did not get there whole: the client fell silent.
    BootFileLost {
        /// Its name.
        name: String,
        /// Its size.
        size_bytes: u64,
        /// How much of it was acknowledged.
        acknowledged_bytes: u64,
        /// From the request until it was given up.
        took: Duration,
        /// How TFTP went about it.
        tftp: TftpFigures,
    },
    /// The script was asked for and handed out.
    Script,
}

/// The owner's decisions, and its ear for what happens.
pub trait Director: Send + Sync {
    /// How to treat a DHCP client. The owner logs unknown machines.
    fn dhcp(&self, client: &DhcpClient) -> DhcpDecision;

    /// What the machine is to boot. Called once for every script that is handed out: it begins a boot.
    fn plan(&self, request: &ScriptRequest) -> BootPlan;

    /// The machine behind `mac` took a step now. TFTP and HTTP know an address only: the boot services find the MAC
    /// address in their leases and in what DHCP and proxyDHCP saw, and report what they can.
    fn step(&self, mac: MacAddress, step: BootStep);

    /// Something odd was heard on an interface; the same thing again after an hour at the earliest.
    fn oddity(&self, _interface: &str, _oddity: &Oddity) {}
}
