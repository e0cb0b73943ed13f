//! Who has which address, and until when.
//!
//! A lease belongs to a MAC address, not to a client identifier: the firmware, iPXE and the operating system of one
//! machine use different identifiers, and must get one address. The first try for a new machine is at a place in the pool
//! that its MAC address decides, so that a machine keeps its address even where the leases were lost. The table is
//! bounded by the network: the pool and the fixed addresses.
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::subnet::Subnet;
use crate::director::MacAddress;

/// How long an offer waits for its request. iPXE and UEFI take up to 15 s over it when several servers answer.
pub const OFFER_SECONDS: u64 = 30;
/// How long an offer is safe when the pool is full: after that it goes to the next machine that asks, so that a flood of
/// DISCOVERs without REQUESTs does not keep machines out for long. UEFI firmware answers an offer after 4 s.
pub const OFFER_SAFE_SECONDS: u64 = 5;
/// How long an address that a client declined is left alone.
pub const DECLINED_SECONDS: u64 = 600;
/// The most fixed addresses outside the pool that one network's table holds.
const MAX_FIXED: usize = 65_536;

/// Seconds since 1970: leases outlive the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// So many seconds later.
    #[must_use]
    pub fn after(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}

/// How firmly an address is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Offered.
    Offered,
    /// Acknowledged.
    Bound,
    /// Somebody unknown uses it, says the client that it was given to.
    Declined,
}

/// One address in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// By whom.
    pub mac: MacAddress,
    /// How firmly.
    pub hold: Hold,
    /// Until when.
    pub expires: UnixSeconds,
}

impl Lease {
    /// From when on another machine may have the address, if none is free.
    fn reclaimable(&self) -> UnixSeconds {
        match self.hold {
            Hold::Offered => {
                UnixSeconds(self.expires.0.saturating_sub(OFFER_SECONDS.saturating_sub(OFFER_SAFE_SECONDS)))
            }
            Hold::Bound | Hold::Declined => self.expires,
        }
    }
}

/// The addresses of one network.
#[derive(Clone, Debug)]
pub struct LeaseTable {
    subnet: Subnet,
    /// Never given away: our own address, the router, the name servers.
    reserved: Vec<Ipv4Addr>,
    by_address: BTreeMap<Ipv4Addr, Lease>,
    by_mac: HashMap<MacAddress, Ipv4Addr>,
    /// The pool has no free address before this time. Keeps a flood from walking the pool each time.
    full_until: Option<UnixSeconds>,
    changed: bool,
}

impl LeaseTable {
    /// A table of a checked subnet, in which `server` is our own address.
    #[must_use]
    pub fn new(subnet: Subnet, server: Ipv4Addr) -> Self {
        let mut reserved = vec![server];
        reserved.extend(subnet.router);
        reserved.extend(&subnet.dns);
        Self {
            subnet,
            reserved,
            by_address: BTreeMap::new(),
            by_mac: HashMap::new(),
            full_until: None,
            changed: false,
        }
    }

    /// The network.
    #[must_use]
    pub fn subnet(&self) -> &Subnet {
        &self.subnet
    }

    /// The address that `mac` holds now.
    #[must_use]
    pub fn held_by(&self, mac: MacAddress, now: UnixSeconds) -> Option<Ipv4Addr> {
        let address = *self.by_mac.get(&mac)?;
        self.by_address.get(&address).filter(|lease| lease.expires > now).map(|_| address)
    }

    /// Whose the address is now, if it is anybody's but `mac`'s.
    #[must_use]
    pub fn taken(&self, address: Ipv4Addr, mac: MacAddress, now: UnixSeconds) -> Option<&Lease> {
        self.by_address
            .get(&address)
            .filter(|lease| lease.expires > now && (lease.mac != mac || lease.hold == Hold::Declined))
    }

    /// Whether `mac` may have this address of the pool now.
    #[must_use]
    pub fn free_for(&self, address: Ipv4Addr, mac: MacAddress, now: UnixSeconds) -> bool {
        self.subnet.in_pool(address)
            && !self.reserved.contains(&address)
            && self.taken(address, mac, now).is_none()
    }

    /// Whether the address may be fixed for a machine: a host of the network, and not ours or the router's.
    #[must_use]
    pub fn may_be_fixed(&self, address: Ipv4Addr) -> bool {
        self.subnet.has_host(address)
            && !self.reserved.contains(&address)
            && (self.by_address.len() < MAX_FIXED || self.by_address.contains_key(&address))
    }

    /// An address of the pool for `mac`: the one it has or had, else the one it wishes for, else a free one.
    pub fn choose(&mut self, mac: MacAddress, wish: Option<Ipv4Addr>, now: UnixSeconds) -> Option<Ipv4Addr> {
        let had = self.by_mac.get(&mac).copied();
        let favoured = [had, wish].into_iter().flatten().find(|&address| self.free_for(address, mac, now));
        if favoured.is_some() {
            return favoured;
        }
        if self.full_until.is_some_and(|until| now < until) {
            return None;
        }
        let free = self.walk_pool(mac).find(|&address| self.free_for(address, mac, now));
        let found = free.or_else(|| self.oldest_offer(now));
        if found.is_none() {
            self.full_until = self.by_address.values().map(Lease::reclaimable).min();
        }
        found
    }

    /// The address of the pool that was offered the longest ago, if that is long enough.
    fn oldest_offer(&self, now: UnixSeconds) -> Option<Ipv4Addr> {
        let offers = self.by_address.iter().filter(|(address, lease)| {
            lease.hold == Hold::Offered && lease.reclaimable() <= now && self.subnet.in_pool(**address)
        });
        offers.min_by_key(|(_, lease)| lease.expires).map(|(address, _)| *address)
    }

    /// The pool's addresses, from a place that `mac` decides.
    fn walk_pool(&self, mac: MacAddress) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let size = self.subnet.pool_addresses();
        let first = u32::from(self.subnet.first);
        // FNV-1a: spreads MAC addresses that differ in their last byte.
        let hash = mac
            .0
            .iter()
            .fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let start = hash.checked_rem(size).unwrap_or(0);
        let place = move |step: u32| {
            let offset =
                u64::from(start).wrapping_add(u64::from(step)).checked_rem(u64::from(size)).unwrap_or(0);
            Ipv4Addr::from(first.wrapping_add(u32::try_from(offset).unwrap_or(0)))
        };
        (0..size).map(place)
    }

    /// Gives the address to `mac`, and takes from it the one that it had.
    pub fn hold(&mut self, address: Ipv4Addr, mac: MacAddress, hold: Hold, expires: UnixSeconds) {
        if let Some(old) = self.by_mac.insert(mac, address).filter(|&old| old != address) {
            self.by_address.remove(&old);
            self.full_until = None;
        }
        if let Some(before) = self.by_address.insert(address, Lease { mac, hold, expires })
            && before.mac != mac
        {
            self.by_mac.remove(&before.mac);
        }
        self.changed |= hold == Hold::Bound;
    }

    /// Ends `mac`'s lease; of `address` only, where one is given. True: there was one.
    pub fn release(&mut self, mac: MacAddress, address: Option<Ipv4Addr>) -> bool {
        let Some(&held) = self.by_mac.get(&mac) else { return false };
        if address.is_some_and(|address| address != held) {
            return false;
        }
        self.by_mac.remove(&mac);
        self.by_address.remove(&held);
        self.full_until = None;
        self.changed = true;
        true
    }

    /// Withdraws an offer: `mac` took another server's. A lease that was acknowledged runs on.
    pub fn withdraw(&mut self, mac: MacAddress) {
        let held = self.by_mac.get(&mac).and_then(|address| self.by_address.get(address));
        if held.is_some_and(|lease| lease.hold == Hold::Offered) {
            self.release(mac, None);
        }
    }

    /// Leaves the address alone for a while: `mac`, which it was given to, found it in use. True: it was `mac`'s.
    pub fn decline(&mut self, mac: MacAddress, address: Ipv4Addr, now: UnixSeconds) -> bool {
        if !self.release(mac, Some(address)) {
            return false;
        }
        let expires = now.after(DECLINED_SECONDS);
        self.by_address.insert(address, Lease { mac, hold: Hold::Declined, expires });
        true
    }

    /// How many addresses are known to the table; old leases that nobody needed since count.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Whether no address is known to the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Whether leases changed since this was last asked.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Adds the acknowledged leases to a lease file's text: `address mac end`, the end in seconds since 1970.
    pub fn write(&self, text: &mut String) {
        for (address, lease) in &self.by_address {
            if lease.hold == Hold::Bound {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{address} {} {}", lease.mac, lease.expires.0);
            }
        }
    }

    /// Takes over the leases of a lease file's text that are of this network. What is no lease is skipped: the file is
    /// a memory aid, and a damaged line costs one machine a new address.
    pub fn read(&mut self, text: &str) {
        for line in text.lines() {
            if let Some((address, mac, expires)) = parse_line(line)
                && self.may_be_fixed(address)
            {
                self.hold(address, mac, Hold::Bound, expires);
            }
        }
        self.changed = false;
    }
}

fn parse_line(line: &str) -> Option<(Ipv4Addr, MacAddress, UnixSeconds)> {
    let mut words = line.split_ascii_whitespace();
    let address = words.next()?.parse().ok()?;
    let mac = MacAddress::parse(words.next()?)?;
    let expires = UnixSeconds(words.next()?.parse().ok()?);
    words.next().is_none().then_some((address, mac, expires))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const NOW: UnixSeconds = UnixSeconds(1_000);

    fn table(first: u8, last: u8) -> LeaseTable {
        let subnet = Subnet {
            first: Ipv4Addr::new(10, 0, 0, first),
            last: Ipv4Addr::new(10, 0, 0, last),
            netmask: Ipv4Addr::new(255, 255, 255, 0),
            router: None,
            dns: vec![],
            lease: Duration::from_secs(600),
        };
        LeaseTable::new(subnet, SERVER)
    }

    fn mac(n: u8) -> MacAddress {
        MacAddress([2, 0, 0, 0, 0, n])
    }

    #[test]
    fn every_address_of_the_pool_but_our_own_is_given_once() {
        let mut table = table(1, 20);
        let mut given = std::collections::BTreeSet::new();
        for n in 0..19 {
            let address = table.choose(mac(n), None, NOW).unwrap();
            assert!(given.insert(address) && address != SERVER, "{address}");
            table.hold(address, mac(n), Hold::Bound, NOW.after(600));
        }
        assert_eq!(table.choose(mac(99), None, NOW), None);
        assert_eq!(table.choose(mac(99), None, NOW.after(599)), None);
        assert!(table.choose(mac(99), None, NOW.after(600)).is_some(), "expired leases are free");
    }

    #[test]
    fn machine_gets_its_old_address_back_and_a_wish_where_it_is_free() {
        let mut table = table(10, 250);
        let wish = Ipv4Addr::new(10, 0, 0, 77);
        assert_eq!(table.choose(mac(1), Some(wish), NOW), Some(wish));
        table.hold(wish, mac(1), Hold::Bound, NOW.after(1));
        assert_eq!(table.choose(mac(1), None, NOW.after(5_000)), Some(wish), "expired, but still its own");
        assert_ne!(table.choose(mac(2), Some(wish), NOW), Some(wish));
        assert_ne!(
            table.choose(mac(3), Some(Ipv4Addr::new(10, 9, 9, 9)), NOW),
            Some(Ipv4Addr::new(10, 9, 9, 9))
        );
    }

    #[test]
    fn declined_address_is_left_alone_for_a_while_even_for_its_decliner() {
        let mut table = table(10, 10);
        let address = table.choose(mac(1), None, NOW).unwrap();
        table.hold(address, mac(1), Hold::Bound, NOW.after(600));
        assert!(!table.decline(mac(2), address, NOW), "not its own");
        assert!(table.decline(mac(1), address, NOW));
        assert_eq!(table.choose(mac(1), None, NOW), None);
        assert_eq!(table.choose(mac(1), None, NOW.after(DECLINED_SECONDS)), Some(address));
    }

    #[test]
    fn offers_that_nobody_took_go_to_the_next_machine_before_they_expire() {
        let mut table = table(10, 11);
        for n in 0..2 {
            let address = table.choose(mac(n), None, NOW).unwrap();
            table.hold(address, mac(n), Hold::Offered, NOW.after(OFFER_SECONDS));
        }
        assert_eq!(table.choose(mac(9), None, NOW.after(4)), None);
        let reclaimed = table.choose(mac(9), None, NOW.after(5)).unwrap();
        table.hold(reclaimed, mac(9), Hold::Offered, NOW.after(5 + OFFER_SECONDS));
        assert_eq!(table.len(), 2);
        assert!((0..2).any(|n| table.held_by(mac(n), NOW.after(5)).is_none()));
    }

    #[test]
    fn released_address_is_free_at_once() {
        let mut table = table(10, 10);
        let address = table.choose(mac(1), None, NOW).unwrap();
        table.hold(address, mac(1), Hold::Bound, NOW.after(600));
        assert_eq!(table.choose(mac(2), None, NOW), None);
        assert!(table.release(mac(1), None));
        assert_eq!(table.choose(mac(2), None, NOW), Some(address));
    }

    #[test]
    fn machine_that_moves_leaves_its_old_address_free() {
        let mut table = table(10, 11);
        table.hold(Ipv4Addr::new(10, 0, 0, 10), mac(1), Hold::Bound, NOW.after(600));
        table.hold(Ipv4Addr::new(10, 0, 0, 11), mac(1), Hold::Bound, NOW.after(600));
        assert_eq!(table.len(), 1);
        assert_eq!(table.choose(mac(2), None, NOW), Some(Ipv4Addr::new(10, 0, 0, 10)));
    }

    #[test]
    fn leases_survive_writing_and_reading_and_damage_costs_one_line() {
        let mut first = table(10, 250);
        for n in 0..5 {
            let address = first.choose(mac(n), None, NOW).unwrap();
            first.hold(address, mac(n), Hold::Bound, NOW.after(600));
        }
        let offered = first.choose(mac(9), None, NOW).unwrap();
        first.hold(offered, mac(9), Hold::Offered, NOW.after(30));
        let mut text = String::from("# leases\n10.0.0.77 garbage\n192.168.1.1 02:00:00:00:00:33 5000\n");
        first.write(&mut text);
        let mut second = table(10, 250);
        second.read(&text);
        assert_eq!(second.len(), 5);
        for n in 0..5 {
            assert_eq!(second.held_by(mac(n), NOW), first.held_by(mac(n), NOW));
        }
        assert!(!second.take_changed());
    }
}
