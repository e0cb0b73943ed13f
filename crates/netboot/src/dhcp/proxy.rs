//! ProxyDHCP: boot information beside the site's DHCP server, which goes on giving the addresses (PXE 2.1 §2.2).
//!
//! On port 67 a DISCOVER of a client that boots from the network is answered with an offer without an address. It says
//! "use the boot file that stands here" (discovery control, bit 3), so most clients never come back. Those that do, ask
//! on port 4011 and get the same as an acknowledgement. Plain DHCP clients get no answer. The REQUESTs that clients send
//! to the site's server by broadcast are heard too: they tell which address a machine has.
use std::net::Ipv4Addr;

use super::Outcome;
use super::boot::{BootInfo, BootServer, pxe_options};
use super::client::{ClientMessage, MessageType};
use super::options;
use super::reply::{ReplyBuilder, ReplyType};
use crate::director::{BootStep, ClientKind, DhcpDecision, Director};

/// The vendor class by which PXE clients know a proxy's offer (PXE 2.1 §2.2.1, table 2-1).
const PXE_CLIENT: &str = "PXEClient";

/// Takes one message that came to port 67.
#[must_use]
pub fn handle_broadcast(boot: &BootServer, message: &ClientMessage, director: &dyn Director) -> Outcome {
    let kind = message.firmware;
    match (message.kind, kind) {
        (_, ClientKind::Other) => no_boot_file(message),
        (MessageType::Discover, _) => {
            if director.dhcp(&message.client()) == DhcpDecision::Ignore {
                return Outcome::silent();
            }
            answer(boot, message, ReplyType::Offer, (BootStep::Discover(kind), BootStep::Offer(None)))
        }
        // The site's server answers this one.
        (MessageType::Request, _) => {
            if director.dhcp(&message.client()) == DhcpDecision::Ignore {
                return Outcome::silent();
            }
            let elsewhere = message.server_id.map(BootStep::Elsewhere);
            let steps = std::iter::once(BootStep::Request(kind)).chain(elsewhere);
            Outcome { steps: steps.map(|step| (message.mac, step)).collect(), ..Outcome::default() }
        }
        (MessageType::Decline | MessageType::Release | MessageType::Inform, _) => Outcome::silent(),
    }
}

/// Takes one message that came to port 4011, as PXE boot server; beside our own DHCP server, too.
#[must_use]
pub fn handle_boot_request(boot: &BootServer, message: &ClientMessage, director: &dyn Director) -> Outcome {
    let kind = message.firmware;
    // PXE 2.1 §2.2.2: REQUEST or INFORM; some ROMs send their DISCOVER again.
    if !matches!(message.kind, MessageType::Discover | MessageType::Request | MessageType::Inform) {
        return Outcome::silent();
    }
    if kind == ClientKind::Other {
        return no_boot_file(message);
    }
    if director.dhcp(&message.client()) == DhcpDecision::Ignore {
        return Outcome::silent();
    }
    answer(boot, message, ReplyType::Ack, (BootStep::Request(kind), BootStep::Ack(None)))
}

/// The address that a client says it has or takes, in a message to any server. Hearsay: good for showing which machine
/// fetched a file, and for nothing else.
#[must_use]
pub fn heard_address(message: &ClientMessage) -> Option<Ipv4Addr> {
    let address = match message.kind {
        MessageType::Request => message.requested.unwrap_or(message.ciaddr),
        MessageType::Inform => message.ciaddr,
        MessageType::Discover | MessageType::Decline | MessageType::Release => return None,
    };
    (!address.is_unspecified()).then_some(address)
}

fn no_boot_file(message: &ClientMessage) -> Outcome {
    match message.architecture {
        Some(number) if message.pxe => {
            Outcome::noted(format!("{}: no boot file for architecture {number}", message.mac))
        }
        _ => Outcome::silent(),
    }
}

fn answer(
    boot: &BootServer,
    message: &ClientMessage,
    kind: ReplyType,
    steps: (BootStep, BootStep),
) -> Outcome {
    let asked = vec![(message.mac, steps.0)];
    let Some(mut info) = boot.boot_info(message) else {
        return Outcome {
            note: Some(format!("{}: no boot file for it", message.mac)),
            steps: asked,
            reply: None,
        };
    };
    let mut builder = ReplyBuilder::new(message, kind, boot.address);
    if info.vendor_class.is_none() {
        info = BootInfo { vendor_class: Some(PXE_CLIENT), ..info };
        builder.options().set(options::VENDOR_SPECIFIC, pxe_options(message.boot_item.as_deref()));
    }
    match builder.boot(&info, boot.address).finish() {
        Ok(reply) => {
            Outcome { reply: Some(reply), steps: [asked, vec![(message.mac, steps.1)]].concat(), note: None }
        }
        Err(error) => Outcome { reply: None, steps: asked, note: Some(format!("{}: {error}", message.mac)) },
    }
}
