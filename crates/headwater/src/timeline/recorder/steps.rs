//! What the boot services saw, in the words of a record.
use netboot::director::{BootStep, ClientKind};

use crate::timeline::record::{StepKind, Tftp};
use crate::timeline::time::Moment;

/// The step as it is recorded: its moment, what it was, and who asked.
pub(super) fn translate(now: Moment, step: BootStep) -> (Moment, StepKind, Option<ClientKind>) {
    let text = |address: Option<std::net::Ipv4Addr>| address.map(|address| address.to_string());
    match step {
        BootStep::Discover(client) => {
            (now, StepKind::DhcpDiscover { client: client_text(client).to_owned() }, Some(client))
        }
        BootStep::Offer(address) => (now, StepKind::DhcpOffer { address: text(address) }, None),
        BootStep::Request(client) => {
            (now, StepKind::DhcpRequest { client: client_text(client).to_owned() }, Some(client))
        }
        BootStep::Ack(address) => (now, StepKind::DhcpAck { address: text(address) }, None),
        BootStep::Elsewhere(server) => (now, StepKind::DhcpElsewhere { server: server.to_string() }, None),
        BootStep::BootFile { name, protocol, size_bytes, took, tftp } => {
            let (protocol, tftp) = (protocol.to_owned(), tftp.map(Tftp::from));
            let kind = StepKind::BootFile { name, protocol, size_bytes, took_ms: took.into(), tftp };
            (now.before(took), kind, None)
        }
        BootStep::BootFileLost { name, size_bytes, acknowledged_bytes, took, tftp } => {
            let tftp = tftp.into();
            let kind =
                StepKind::BootFileLost { name, size_bytes, acknowledged_bytes, took_ms: took.into(), tftp };
            (now.before(took), kind, None)
        }
        BootStep::Script => (now, StepKind::Script, None),
    }
}

fn client_text(client: ClientKind) -> &'static str {
    match client {
        ClientKind::BiosPxe => "BIOS PXE",
        ClientKind::UefiX64Pxe => "UEFI PXE",
        ClientKind::UefiX64Http => "UEFI HTTP Boot",
        ClientKind::UefiIa32Pxe => "UEFI 32-bit PXE",
        ClientKind::UefiIa32Http => "UEFI 32-bit HTTP Boot",
        ClientKind::UefiArm64Pxe => "UEFI Arm PXE",
        ClientKind::UefiArm64Http => "UEFI Arm HTTP Boot",
        ClientKind::Ipxe => "iPXE",
        ClientKind::Other => "operating system",
    }
}

/// Whether a step shows that the firmware's own part was over.
pub(super) fn is_past_firmware(step: &StepKind) -> bool {
    match step {
        StepKind::BootFile { .. } | StepKind::Script | StepKind::Menu { .. } | StepKind::Queue { .. } => true,
        StepKind::DhcpDiscover { client } | StepKind::DhcpRequest { client } => {
            client == client_text(ClientKind::Ipxe)
        }
        _ => false,
    }
}
