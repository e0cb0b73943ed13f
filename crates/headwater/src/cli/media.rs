//! `headwater media`.
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `headwater media`.
#[derive(Debug, Args)]
pub struct MediaArgs {
    /// The verb.
    #[command(subcommand)]
    pub verb: MediaVerb,
}

/// What to do with boot media.
#[derive(Debug, Subcommand)]
pub enum MediaVerb {
    /// Make a CD image, a USB stick's image, a small disk, or several of them
    ///
    /// A machine that boots from one of them needs no boot options from DHCP, only an address, or not even that. It asks
    /// the servers for its boot script, one after the other. The media work with later versions of the server, too.
    #[command(after_help = EXAMPLES)]
    Create(MediaCreateArgs),
}

const EXAMPLES: &str = "\
Examples:
  headwater media create --iso boot.iso --server 10.0.0.1 --server 10.0.0.2 --order random
  headwater media create --usb stick.img --server boot.example:8080 \\
      --address 10.0.0.5/24 --gateway 10.0.0.254 --dns 10.0.0.53
  dd if=stick.img of=/dev/sdX bs=1M conv=fsync

--vlan and servers with https:// need a newer iPXE than Debian's: name it with --ipxe-bios and --ipxe-uefi.";

/// `headwater media create`.
#[derive(Debug, Args)]
#[group(id = "kind", multiple = true, required = true, args = ["iso", "usb", "disk"])]
pub struct MediaCreateArgs {
    /// Write a CD image (ISO 9660) for BIOS and UEFI; a USB stick with it boots, too
    #[arg(long, value_name = "FILE")]
    pub iso: Option<PathBuf>,
    /// Write the image of a USB stick (MBR partition table) for BIOS and UEFI
    #[arg(long, value_name = "FILE")]
    pub usb: Option<PathBuf>,
    /// Write a small raw disk (GUID partition table) for virtual machines, BIOS and UEFI
    #[arg(long, value_name = "FILE")]
    pub disk: Option<PathBuf>,
    /// A server: name or IPv4 address, with the port of its HTTP service if that is not 8080; up to 8 of them
    #[arg(long = "server", value_name = "HOST[:PORT]", required = true)]
    pub servers: Vec<String>,
    /// Which server to ask first
    #[arg(long, value_enum, default_value_t = Order::Listed)]
    pub order: Order,
    /// The machine's own address and network, instead of DHCP
    #[arg(long, value_name = "ADDRESS/BITS")]
    pub address: Option<String>,
    /// The default route, with --address
    #[arg(long, value_name = "ADDRESS", requires = "address")]
    pub gateway: Option<Ipv4Addr>,
    /// The name server, with --address
    #[arg(long, value_name = "ADDRESS", requires = "address")]
    pub dns: Option<Ipv4Addr>,
    /// The network card, counted from 0 as iPXE finds them; by default the first that gets an address
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(..=31))]
    pub card: Option<u8>,
    /// The tag of the VLAN to boot in
    #[arg(long, value_name = "TAG", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Where iPXE finds certificates between a server's and one that it trusts
    #[arg(long, value_name = "URL")]
    pub crosscert: Option<String>,
    /// The first line on the screen
    #[arg(long, value_name = "TEXT", default_value = "Headwater network boot")]
    pub title: String,
    /// A further line on the screen; up to 16 of them
    #[arg(long = "text", value_name = "TEXT")]
    pub text: Vec<String>,
    /// Show a menu (network, next boot device, shell) for so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub menu: Option<u16>,
    /// iPXE for BIOS; by default ipxe.lkrn from the boot files of the configuration
    #[arg(long, value_name = "FILE")]
    pub ipxe_bios: Option<PathBuf>,
    /// iPXE for UEFI; by default ipxe.efi from the boot files of the configuration
    #[arg(long, value_name = "FILE")]
    pub ipxe_uefi: Option<PathBuf>,
    /// The server's configuration file, for the place of its boot files
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Replace files that are there
    #[arg(long)]
    pub force: bool,
}

/// Which server is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// The first that is given.
    Listed,
    /// Any; machines that start together spread over the servers.
    Random,
}
