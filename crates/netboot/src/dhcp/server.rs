//! The DHCP server of one interface, as a state machine (RFC 2131 §4.3).
//!
//! It takes checked client messages and the time, asks the director how to treat the client, and answers with an
//! [`Outcome`]. Networks behind relay agents have pools of their own, found by the relay's address. We are the only DHCP
//! server of our networks, and authoritative: a client that asks for an address which cannot be right gets a NAK, so
//! that it starts over at once instead of after a timeout.
use std::net::Ipv4Addr;

use super::Outcome;
use super::boot::{BootServer, ipxe_options};
use super::client::{ClientMessage, MessageType};
use super::leases::{Hold, LeaseTable, OFFER_SECONDS, UnixSeconds};
use super::options;
use super::reply::{ReplyBuilder, ReplyType};
use super::subnet::{Subnet, SubnetError};
use crate::director::{BootStep, ClientKind, DhcpDecision, Director, MacAddress};

/// The longest host name that is handed out (RFC 1123 §2.1).
const MAX_HOST_NAME_BYTES: usize = 63;

/// The DHCP server of one interface.
#[derive(Clone, Debug)]
pub struct Server {
    boot: BootServer,
    /// The network of the interface itself first, then those behind relay agents.
    networks: Vec<LeaseTable>,
}

impl Server {
    /// A server that gives addresses on the interface's own network and on those that relay agents pass on.
    ///
    /// # Errors
    /// What is wrong with which subnet.
    pub fn new(boot: BootServer, local: Subnet, relayed: Vec<Subnet>) -> Result<Self, SubnetError> {
        local.check(Some(boot.address))?;
        let mut networks = vec![LeaseTable::new(local, boot.address)];
        for subnet in relayed {
            subnet.check(None)?;
            networks.push(LeaseTable::new(subnet, boot.address));
        }
        Ok(Self { boot, networks })
    }

    /// Takes one message.
    pub fn handle(&mut self, message: &ClientMessage, director: &dyn Director, now: UnixSeconds) -> Outcome {
        let giaddr = message.giaddr;
        // RFC 2131 §4.3.1: the relay's address picks the network; without one it is the interface's.
        let network = if giaddr.is_unspecified() {
            self.networks.first_mut()
        } else {
            self.networks.iter_mut().find(|network| network.subnet().contains(giaddr))
        };
        let Some(leases) = network else {
            return Outcome::noted(format!("relay agent {giaddr} is on no network that has a pool"));
        };
        let (address, host_name) = match director.dhcp(&message.client()) {
            DhcpDecision::Ignore => return Outcome::silent(),
            DhcpDecision::Serve { address, host_name } => (address, host_name),
        };
        let mut exchange =
            Exchange { boot: &self.boot, leases, message, fixed: None, host_name, now, note: None };
        exchange.fix(address);
        match message.kind {
            MessageType::Discover => exchange.discover(),
            MessageType::Request => exchange.request(),
            MessageType::Decline => exchange.decline(),
            MessageType::Release => exchange.release(),
            MessageType::Inform => exchange.inform(),
        }
    }

    /// The lease file's text, if leases changed since this was last asked.
    pub fn changed_leases(&mut self) -> Option<String> {
        let mut changed = false;
        for network in &mut self.networks {
            changed |= network.take_changed();
        }
        changed.then(|| {
            let mut text = String::from("# DHCP leases: address, MAC address, end in seconds since 1970\n");
            for network in &self.networks {
                network.write(&mut text);
            }
            text
        })
    }

    /// Takes over the leases of an earlier run.
    pub fn restore_leases(&mut self, text: &str) {
        for network in &mut self.networks {
            network.read(text);
        }
    }

    /// How many addresses are known to the lease tables.
    #[must_use]
    pub fn lease_count(&self) -> usize {
        self.networks.iter().map(LeaseTable::len).fold(0, usize::saturating_add)
    }
}

/// One message on its way to an answer.
struct Exchange<'a> {
    boot: &'a BootServer,
    leases: &'a mut LeaseTable,
    message: &'a ClientMessage,
    /// The address that the director set for the machine, if it is free.
    fixed: Option<Ipv4Addr>,
    host_name: Option<String>,
    now: UnixSeconds,
    note: Option<String>,
}

impl Exchange<'_> {
    fn mac(&self) -> MacAddress {
        self.message.mac
    }

    /// Accepts the director's address, unless that cannot be; then the machine gets one from the pool, and the operator
    /// a note.
    fn fix(&mut self, address: Option<Ipv4Addr>) {
        let Some(address) = address else { return };
        let mac = self.mac();
        if !self.leases.may_be_fixed(address) {
            self.note = Some(format!("address {address} set for {mac} is no host's address on its network"));
        } else if let Some(lease) = self.leases.taken(address, mac, self.now) {
            let holder = lease.mac;
            self.note = Some(match lease.hold {
                Hold::Declined => format!("address {address} set for {mac} is in use by another machine"),
                Hold::Offered | Hold::Bound => format!("address {address} set for {mac} is lent to {holder}"),
            });
        } else {
            self.fixed = Some(address);
        }
    }

    /// RFC 2131 §4.3.1.
    fn discover(self) -> Outcome {
        let mac = self.mac();
        let steps = vec![(mac, BootStep::Discover(self.message.firmware))];
        let chosen = self.fixed.or_else(|| self.leases.choose(mac, self.message.requested, self.now));
        let Some(address) = chosen else {
            let note = Some(format!("the pool has no free address for {mac}"));
            return Outcome { reply: None, steps, note };
        };
        // An offer must not shorten a lease that runs.
        if self.leases.held_by(mac, self.now) != Some(address) {
            self.leases.hold(address, mac, Hold::Offered, self.now.after(OFFER_SECONDS));
        }
        self.answer(ReplyType::Offer, address, steps)
    }

    /// RFC 2131 §4.3.2.
    fn request(self) -> Outcome {
        let mac = self.mac();
        if let Some(other) = self.message.server_id.filter(|id| *id != self.boot.address) {
            self.leases.withdraw(mac);
            return Outcome { steps: vec![(mac, BootStep::Elsewhere(other))], ..Outcome::default() };
        }
        let steps = vec![(mac, BootStep::Request(self.message.firmware))];
        // SELECTING and INIT-REBOOT name the address in option 50; RENEWING and REBINDING in ciaddr.
        let wanted = self.message.requested.unwrap_or(self.message.ciaddr);
        if wanted.is_unspecified() {
            return Outcome { note: Some(format!("request of {mac} names no address")), steps, reply: None };
        }
        let right = match self.fixed {
            Some(fixed) => wanted == fixed,
            None => {
                self.leases.held_by(mac, self.now) == Some(wanted)
                    && self.leases.taken(wanted, mac, self.now).is_none()
                    || self.leases.free_for(wanted, mac, self.now)
            }
        };
        if !right {
            return self.refuse(wanted, steps);
        }
        let expires = self.now.after(u64::from(self.leases.subnet().lease_s()));
        self.leases.hold(wanted, mac, Hold::Bound, expires);
        self.answer(ReplyType::Ack, wanted, steps)
    }

    fn refuse(self, wanted: Ipv4Addr, steps: Vec<(MacAddress, BootStep)>) -> Outcome {
        let text = format!("{wanted} is not yours to have");
        let mut builder = ReplyBuilder::new(self.message, ReplyType::Nak, self.boot.address);
        builder.options().set(options::ERROR_MESSAGE, text.as_str());
        let note = Some(format!("refused {wanted} to {}", self.mac()));
        match builder.finish() {
            Ok(reply) => Outcome { reply: Some(reply), steps, note },
            Err(error) => Outcome { reply: None, steps, note: Some(error.to_string()) },
        }
    }

    /// RFC 2131 §4.3.3.
    fn decline(self) -> Outcome {
        let (mac, Some(address)) = (self.mac(), self.message.requested) else { return Outcome::silent() };
        if self.leases.decline(mac, address, self.now) {
            return Outcome::noted(format!(
                "{mac} found {address}, which we gave it, in use by another machine"
            ));
        }
        Outcome::silent()
    }

    /// RFC 2131 §4.3.4.
    fn release(self) -> Outcome {
        let (mac, address) = (self.mac(), self.message.ciaddr);
        self.leases.release(mac, Some(address));
        Outcome::silent()
    }

    /// RFC 2131 §4.3.5: parameters without a lease. The answer goes to the address that the client says it has, so that
    /// must be one of its network.
    fn inform(self) -> Outcome {
        if !self.leases.subnet().has_host(self.message.ciaddr) {
            return Outcome::noted(format!(
                "{} informs of {}, no host of its network",
                self.mac(),
                self.message.ciaddr
            ));
        }
        self.answer(ReplyType::Ack, Ipv4Addr::UNSPECIFIED, Vec::new())
    }

    /// Builds an offer or acknowledgement of `address` (none: to an INFORM).
    fn answer(self, kind: ReplyType, address: Ipv4Addr, mut steps: Vec<(MacAddress, BootStep)>) -> Outcome {
        let mac = self.mac();
        let subnet = self.leases.subnet();
        let mut builder = ReplyBuilder::new(self.message, kind, self.boot.address);
        let options = builder.options();
        options.set_addresses(options::SUBNET_MASK, &[subnet.netmask]);
        options.set_addresses(options::ROUTERS, subnet.router.as_slice());
        options.set_addresses(options::DNS_SERVERS, &subnet.dns);
        if let Some(name) = self.host_name.as_deref().filter(|name| is_host_name(name)) {
            options.set(options::HOST_NAME, name);
        }
        let leased = !address.is_unspecified();
        if leased {
            let lease_s = subnet.lease_s();
            options.set(options::LEASE_TIME, lease_s.to_be_bytes());
            // RFC 2131 §4.4.5: T1 at a half, T2 at seven eighths.
            options.set(options::RENEWAL_TIME, (lease_s >> 1).to_be_bytes());
            options.set(options::REBINDING_TIME, lease_s.saturating_sub(lease_s >> 3).to_be_bytes());
        }
        if self.message.firmware == ClientKind::Ipxe {
            options.set(options::IPXE, ipxe_options());
        }
        let mut builder = builder.address(address);
        let mut note = self.note;
        if let Some(info) = self.boot.boot_info(self.message) {
            builder = builder.boot(&info, self.boot.address);
        } else if self.message.pxe {
            note = note.or_else(|| {
                self.message.architecture.map(|n| format!("{mac}: no boot file for architecture {n}"))
            });
        }
        match builder.finish() {
            Ok(reply) => {
                let given = leased.then_some(address);
                steps.push((
                    mac,
                    if kind == ReplyType::Offer { BootStep::Offer(given) } else { BootStep::Ack(given) },
                ));
                Outcome { reply: Some(reply), steps, note }
            }
            Err(error) => Outcome { reply: None, steps, note: Some(format!("{mac}: {error}")) },
        }
    }
}

/// RFC 1123 §2.1; a label, or labels with dots.
fn is_host_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_HOST_NAME_BYTES
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}
