//! A network that we give addresses on: its pool and what its clients are told.
use std::net::Ipv4Addr;
use std::time::Duration;

/// The largest pool. A lease costs about 100 bytes, and the search for a free address walks the pool.
pub const MAX_POOL_ADDRESSES: u32 = 65_536;
/// The shortest lease. Clients renew at half of it; a shorter one is only load.
pub const MIN_LEASE: Duration = Duration::from_secs(60);
/// The most name servers that are handed out: what fits, and what resolvers use.
pub const MAX_DNS_SERVERS: usize = 3;

/// A network, its pool of addresses, and what clients on it are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The first address of the pool.
    pub first: Ipv4Addr,
    /// The last address of the pool.
    pub last: Ipv4Addr,
    /// The network's mask.
    pub netmask: Ipv4Addr,
    /// The default router.
    pub router: Option<Ipv4Addr>,
    /// Name servers.
    pub dns: Vec<Ipv4Addr>,
    /// How long an address is lent.
    pub lease: Duration,
}

/// What is wrong with a subnet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubnetError {
    /// The mask has holes, or leaves no room for hosts.
    #[error("{0} is no netmask of a network with hosts; 255.255.255.0 is usual")]
    Netmask(Ipv4Addr),
    /// The pool is upside down.
    #[error("the pool ends at {last}, before its first address {first}")]
    Order {
        /// Its first address.
        first: Ipv4Addr,
        /// Its last address.
        last: Ipv4Addr,
    },
    /// The pool is too large.
    #[error("the pool has {0} addresses; {MAX_POOL_ADDRESSES} is the most")]
    Size(u32),
    /// An address is not a host of the pool's network.
    #[error("{what} {address} is no host's address in the network {network}/{prefix} of the pool")]
    Outside {
        /// Which address.
        what: &'static str,
        /// The address.
        address: Ipv4Addr,
        /// The network.
        network: Ipv4Addr,
        /// The network's prefix length.
        prefix: u32,
    },
    /// The lease is too short.
    #[error("the lease of {0:?} is too short; {MIN_LEASE:?} is the least")]
    Lease(Duration),
    /// Too many name servers.
    #[error("{0} name servers; {MAX_DNS_SERVERS} is the most")]
    Dns(usize),
}

impl Subnet {
    /// Checks it. `server`: our own address on it; `None` where only relay agents reach it.
    ///
    /// # Errors
    /// What is wrong, with the value.
    pub fn check(&self, server: Option<Ipv4Addr>) -> Result<(), SubnetError> {
        let mask = u32::from(self.netmask);
        // Two hosts at least, and ones before zeros.
        if mask.leading_ones() > 30 || mask.leading_ones() < 8 || mask.count_ones() != mask.leading_ones() {
            return Err(SubnetError::Netmask(self.netmask));
        }
        let (first, last) = (u32::from(self.first), u32::from(self.last));
        let Some(distance) = last.checked_sub(first) else {
            return Err(SubnetError::Order { first: self.first, last: self.last });
        };
        if distance >= MAX_POOL_ADDRESSES {
            return Err(SubnetError::Size(distance.saturating_add(1)));
        }
        let hosts = [
            ("the pool's first address", Some(self.first)),
            ("the pool's last address", Some(self.last)),
            ("the router", self.router),
            ("this server's address", server),
        ];
        for (what, address) in hosts {
            if let Some(address) = address.filter(|&address| !self.has_host(address)) {
                let network = Ipv4Addr::from(first & mask);
                return Err(SubnetError::Outside { what, address, network, prefix: mask.leading_ones() });
            }
        }
        if self.lease < MIN_LEASE {
            return Err(SubnetError::Lease(self.lease));
        }
        if self.dns.len() > MAX_DNS_SERVERS {
            return Err(SubnetError::Dns(self.dns.len()));
        }
        Ok(())
    }

    /// Whether `address` is in the network, and neither its own nor its broadcast address.
    #[must_use]
    pub fn has_host(&self, address: Ipv4Addr) -> bool {
        let (mask, address) = (u32::from(self.netmask), u32::from(address));
        let host = address & !mask;
        self.contains(Ipv4Addr::from(address)) && host != 0 && host != !mask
    }

    /// Whether `address` is in the network.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = u32::from(self.netmask);
        u32::from(address) & mask == u32::from(self.first) & mask
    }

    /// Whether `address` is in the pool.
    #[must_use]
    pub fn in_pool(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }

    /// How many addresses the pool has.
    pub(crate) fn pool_addresses(&self) -> u32 {
        u32::from(self.last).saturating_sub(u32::from(self.first)).saturating_add(1)
    }

    /// The lease as the wire carries it; all ones would mean for ever (RFC 2131 §3.3).
    pub(crate) fn lease_s(&self) -> u32 {
        u32::try_from(self.lease.as_secs()).unwrap_or(u32::MAX).min(u32::MAX.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet() -> Subnet {
        Subnet {
            first: Ipv4Addr::new(10, 77, 0, 100),
            last: Ipv4Addr::new(10, 77, 0, 200),
            netmask: Ipv4Addr::new(255, 255, 255, 0),
            router: Some(Ipv4Addr::new(10, 77, 0, 1)),
            dns: vec![],
            lease: Duration::from_secs(3600),
        }
    }

    #[test]
    fn usual_subnet_passes() {
        assert_eq!(subnet().check(Some(Ipv4Addr::new(10, 77, 0, 1))), Ok(()));
    }

    #[test]
    fn each_wrong_value_is_named() {
        let server = Some(Ipv4Addr::new(10, 77, 0, 1));
        let with = |change: fn(&mut Subnet)| {
            let mut subnet = subnet();
            change(&mut subnet);
            subnet.check(server).unwrap_err().to_string()
        };
        assert!(with(|s| s.netmask = Ipv4Addr::new(255, 0, 255, 0)).contains("255.0.255.0"));
        assert!(with(|s| s.netmask = Ipv4Addr::BROADCAST).contains("netmask"));
        assert!(with(|s| s.last = Ipv4Addr::new(10, 77, 0, 9)).contains("10.77.0.9"));
        assert!(with(|s| s.last = Ipv4Addr::new(10, 77, 0, 255)).contains("last address 10.77.0.255"));
        assert!(with(|s| s.router = Some(Ipv4Addr::new(10, 78, 0, 1))).contains("router 10.78.0.1"));
        assert!(with(|s| s.lease = Duration::from_secs(5)).contains("5s"));
        let elsewhere = subnet().check(Some(Ipv4Addr::new(192, 168, 1, 1))).unwrap_err();
        assert!(elsewhere.to_string().contains("server's address 192.168.1.1"), "{elsewhere}");
    }

    #[test]
    fn pool_larger_than_the_limit_is_rejected() {
        let mut subnet = subnet();
        subnet.netmask = Ipv4Addr::new(255, 0, 0, 0);
        subnet.last = Ipv4Addr::new(10, 255, 0, 0);
        assert!(matches!(subnet.check(None), Err(SubnetError::Size(_))));
    }
}
