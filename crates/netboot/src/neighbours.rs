//! Which machine is behind an IP address, as well as we know.
//!
//! TFTP and HTTP requests carry no MAC address. We remember what our own leases and the messages that we hear say, and
//! ask the kernel's ARP table otherwise. It is good for showing and for nothing else: any machine can claim any address.
use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};

use crate::director::MacAddress;

/// How many addresses are remembered; the oldest is forgotten first.
const MAX_NEIGHBOURS: usize = 16_384;
/// How much of the ARP table is read: 16 000 lines of it.
const MAX_ARP_BYTES: u64 = 1 << 20;
const ARP_TABLE: &str = "/proc/net/arp";

/// The addresses that we know a machine for. Shared by all services.
#[derive(Debug, Default)]
pub struct Neighbours(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_address: HashMap<Ipv4Addr, (MacAddress, u64)>,
    by_age: BTreeMap<u64, Ipv4Addr>,
    clock: u64,
}

impl Neighbours {
    /// Remembers that `mac` has this address.
    pub fn learn(&self, address: Ipv4Addr, mac: MacAddress) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.clock = known.clock.saturating_add(1);
        let clock = known.clock;
        if let Some((_, age)) = known.by_address.insert(address, (mac, clock)) {
            known.by_age.remove(&age);
        }
        known.by_age.insert(clock, address);
        if known.by_address.len() > MAX_NEIGHBOURS
            && let Some((_, oldest)) = known.by_age.pop_first()
        {
            known.by_address.remove(&oldest);
        }
    }

    /// The machine behind this address.
    #[must_use]
    pub fn mac_of(&self, address: IpAddr) -> Option<MacAddress> {
        let IpAddr::V4(address) = address.to_canonical() else { return None };
        let known = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .by_address
            .get(&address)
            .map(|entry| entry.0);
        known.or_else(|| arp_lookup(&read_arp_table()?, address))
    }
}

fn read_arp_table() -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(ARP_TABLE).ok()?.take(MAX_ARP_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Finds an address in the text of `/proc/net/arp`: address, hardware type, flags, hardware address, mask, device.
fn arp_lookup(table: &str, address: Ipv4Addr) -> Option<MacAddress> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        if words.next()?.parse::<Ipv4Addr>().ok()? != address {
            return None;
        }
        MacAddress::parse(words.nth(2)?).filter(|mac| mac.0 != [0; 6])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0x77, 0, 0x10]);

    #[test]
    fn arp_table_is_searched_and_its_incomplete_entries_skipped() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     10.77.0.9        0x1         0x0         00:00:00:00:00:00     *        br0\n\
                     10.77.0.100      0x1         0x2         52:54:00:77:00:10     *        br0\n\
                     garbage\n";
        assert_eq!(arp_lookup(table, Ipv4Addr::new(10, 77, 0, 100)), Some(MAC));
        assert_eq!(arp_lookup(table, Ipv4Addr::new(10, 77, 0, 9)), None);
        assert_eq!(arp_lookup(table, Ipv4Addr::new(10, 77, 0, 10)), None);
        assert_eq!(arp_lookup("", Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn oldest_address_is_forgotten_first_and_memory_is_bounded() {
        let neighbours = Neighbours::default();
        let address = |n: u32| Ipv4Addr::from(0x0A00_0000 + n);
        neighbours.learn(address(0), MAC);
        neighbours.learn(address(1), MAC);
        neighbours.learn(address(0), MAC);
        for n in 2..=16_384 {
            neighbours.learn(address(n), MAC);
        }
        let known = neighbours.0.lock().unwrap();
        assert_eq!((known.by_address.len(), known.by_age.len()), (MAX_NEIGHBOURS, MAX_NEIGHBOURS));
        assert!(known.by_address.contains_key(&address(0)) && !known.by_address.contains_key(&address(1)));
    }
}
