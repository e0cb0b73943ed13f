//! How many connections there may be, in all and from one address.
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The connections that there are.
pub struct Slots {
    max: usize,
    max_per_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One connection's slot; free again when dropped.
pub struct Slot {
    slots: Arc<Slots>,
    address: IpAddr,
}

impl Slots {
    /// Room for `max` connections, `max_per_address` of them from one address.
    #[must_use]
    pub fn new(max: usize, max_per_address: usize) -> Arc<Self> {
        Arc::new(Self { max, max_per_address, taken: Mutex::default() })
    }

    /// A slot for a connection from `address`.
    ///
    /// # Errors
    /// Which limit was met.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> Result<Slot, String> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.max {
            return Err(format!("there are {} connections already", self.max));
        }
        let here = taken.by_address.entry(address).or_default();
        if *here >= self.max_per_address {
            return Err(format!("there are {} connections from this address already", self.max_per_address));
        }
        *here = here.saturating_add(1);
        taken.all = taken.all.saturating_add(1);
        Ok(Slot { slots: Arc::clone(self), address })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        if let Some(here) = taken.by_address.get_mut(&self.address) {
            *here = here.saturating_sub(1);
            if *here == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_counted_by_address_and_freed_by_drop() {
        let slots = Slots::new(3, 2);
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let first = slots.take(a).unwrap();
        let _second = slots.take(a).unwrap();
        assert!(slots.take(a).is_err());
        let _third = slots.take(b).unwrap();
        assert!(slots.take(b).is_err());
        drop(first);
        assert!(slots.take(a).is_ok());
    }
}
