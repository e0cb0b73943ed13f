//! Memory that all connections of a server have in common, and the line of those that wait for some.
//!
//! A connection asks before it needs the memory. Where there is none it stands in line, and is woken when its bytes are
//! there: they are already its own then, and nobody who comes later gets them. Disks whose bytes lie in one store stall
//! together, and what waits for a store that hangs does not come back; so a store gets no more than it leaves free, and
//! has a line of its own: of one that hangs the others see nothing.
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a connection in line is told that its bytes are there: called once for each wait, from any thread.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The memory.
pub struct Budget {
    limit_bytes: u64,
    state: Mutex<State>,
    /// What the state says, to be looked at without its lock.
    used_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    used_bytes: u64,
    stores: BTreeMap<u32, Store>,
}

#[derive(Default)]
struct Store {
    used_bytes: u64,
    line: VecDeque<Arc<Place>>,
}

/// A place in the line of a store.
struct Place {
    bytes: u64,
    /// They are there. Written under the budget's lock.
    granted: AtomicBool,
    wake: Wake,
}

/// Some bytes of a budget; given back when dropped.
pub struct Share {
    budget: Arc<Budget>,
    store: u32,
    bytes: u64,
}

/// A connection's way to a budget. It has one place in line at most, and leaves it when dropped.
pub struct Claim {
    budget: Arc<Budget>,
    store: u32,
    wake: Wake,
    place: Option<Arc<Place>>,
}

impl Budget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, state: Mutex::default(), used_bytes: AtomicU64::new(0) })
    }

    /// The way to it for a connection whose disk lies in `store`.
    #[must_use]
    pub fn claim(self: &Arc<Self>, store: u32, wake: Wake) -> Claim {
        Claim { budget: Arc::clone(self), store, wake, place: None }
    }

    /// Nothing of it yet.
    #[must_use]
    pub fn share(self: &Arc<Self>, store: u32) -> Share {
        Share { budget: Arc::clone(self), store, bytes: 0 }
    }

    /// Whether any store may have `bytes` more without a question. It takes no lock: threads that find it so at the same
    /// moment may pass the mark by as much each.
    #[must_use]
    pub fn has_plenty(&self, bytes: u64) -> bool {
        let used = self.used_bytes.load(Ordering::Relaxed);
        used.saturating_add(bytes) <= self.limit_bytes.saturating_div(2)
    }

    /// What is in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code of others runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self, state: &mut State, store: u32, bytes: u64) {
        state.used_bytes = state.used_bytes.saturating_add(bytes);
        let store = state.stores.entry(store).or_default();
        store.used_bytes = store.used_bytes.saturating_add(bytes);
        self.used_bytes.store(state.used_bytes, Ordering::Relaxed);
    }

    fn give_back(&self, store: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.lock();
        state.used_bytes = state.used_bytes.saturating_sub(bytes);
        if let Some(store) = state.stores.get_mut(&store) {
            store.used_bytes = store.used_bytes.saturating_sub(bytes);
        }
        self.used_bytes.store(state.used_bytes, Ordering::Relaxed);
        self.serve_lines(state);
    }

    /// Grants what can be granted, and wakes those who have it.
    fn serve_lines(&self, mut state: MutexGuard<'_, State>) {
        let mut woken = Vec::new();
        // The store that has least goes first.
        while let Some((store, bytes)) = state.next_in_line(self.limit_bytes) {
            let place = state.stores.get_mut(&store).and_then(|store| store.line.pop_front());
            let Some(place) = place else { break };
            self.charge(&mut state, store, bytes);
            place.granted.store(true, Ordering::Release);
            woken.push(place);
        }
        state.stores.retain(|_, store| store.used_bytes > 0 || !store.line.is_empty());
        drop(state);
        for place in woken {
            (place.wake)();
        }
    }
}

impl State {
    /// Whether `store` may have `bytes` more: with them it has no more than are left, unless it has none so far.
    fn has_room(&self, store: u32, bytes: u64, limit_bytes: u64) -> bool {
        let Some(left) = limit_bytes.saturating_sub(self.used_bytes).checked_sub(bytes) else { return false };
        let has = self.stores.get(&store).map_or(0, |store| store.used_bytes);
        has == 0 || has.saturating_add(bytes) <= left
    }

    /// The store whose first in line can have what it waits for, and how much that is.
    fn next_in_line(&self, limit_bytes: u64) -> Option<(u32, u64)> {
        let first = self.stores.iter().filter_map(|(id, store)| {
            let bytes = store.line.front()?.bytes;
            self.has_room(*id, bytes, limit_bytes).then_some((store.used_bytes, *id, bytes))
        });
        first.min().map(|(_, id, bytes)| (id, bytes))
    }
}

impl Claim {
    /// `bytes` of the budget, the whole of it at most. Where they are not there, or others wait already, the connection
    /// stands in line from now on, and is woken when it should ask again.
    pub fn take(&mut self, bytes: u64) -> Option<Share> {
        let bytes = bytes.min(self.budget.limit_bytes);
        if let Some(mut share) = self.granted() {
            if share.bytes >= bytes {
                share.keep(bytes);
                return Some(share);
            }
        } else if self.place.is_some() {
            return None;
        }
        let mut state = self.budget.lock();
        let free = state.stores.get(&self.store).is_none_or(|store| store.line.is_empty());
        if free && state.has_room(self.store, bytes, self.budget.limit_bytes) {
            self.budget.charge(&mut state, self.store, bytes);
            drop(state);
            return Some(self.share_of(bytes));
        }
        let place = Arc::new(Place { bytes, granted: AtomicBool::new(false), wake: Arc::clone(&self.wake) });
        state.stores.entry(self.store).or_default().line.push_back(Arc::clone(&place));
        drop(state);
        self.place = Some(place);
        None
    }

    /// Wants nothing any more: leaves the line, and gives back what has been granted and not taken.
    pub fn forgo(&mut self) {
        if self.granted().is_some() {
            return;
        }
        let Some(place) = self.place.take() else { return };
        let mut state = self.budget.lock();
        if place.granted.load(Ordering::Acquire) {
            drop(state);
            self.budget.give_back(self.store, place.bytes);
            return;
        }
        if let Some(store) = state.stores.get_mut(&self.store) {
            store.line.retain(|other| !Arc::ptr_eq(other, &place));
        }
        // Who stood behind may need less.
        self.budget.serve_lines(state);
    }

    fn granted(&mut self) -> Option<Share> {
        let place = self.place.take_if(|place| place.granted.load(Ordering::Acquire))?;
        Some(self.share_of(place.bytes))
    }

    fn share_of(&self, bytes: u64) -> Share {
        Share { budget: Arc::clone(&self.budget), store: self.store, bytes }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.forgo();
    }
}

impl Share {
    /// How much it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back all above `bytes`.
    pub fn keep(&mut self, bytes: u64) {
        let more = self.bytes.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(more);
        self.budget.give_back(self.store, more);
    }

    /// Takes what is missing up to `bytes` although nobody was asked: for memory that is in use already.
    pub fn insist(&mut self, bytes: u64) {
        let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) else { return };
        self.budget.charge(&mut self.budget.lock(), self.store, more);
        self.bytes = bytes;
    }

    /// Adds another share of the same budget and store.
    pub fn join(&mut self, mut other: Self) {
        self.bytes = self.bytes.saturating_add(std::mem::take(&mut other.bytes));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give_back(self.store, self.bytes);
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Share")
            .field("store", &self.store)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A claim, and how often it was woken.
    fn claim(budget: &Arc<Budget>, store: u32) -> (Claim, Arc<AtomicUsize>) {
        let woken = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&woken);
        let wake: Wake = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        (budget.claim(store, wake), woken)
    }

    fn woken(count: &AtomicUsize) -> usize {
        count.load(Ordering::Relaxed)
    }

    #[test]
    fn claim_that_finds_no_room_gets_its_bytes_before_those_who_come_later() {
        let budget = Budget::new(100);
        let ((mut one, _), (mut two, second), (mut three, third)) =
            (claim(&budget, 0), claim(&budget, 0), claim(&budget, 0));
        let held = one.take(100).unwrap();
        assert!(two.take(60).is_none() && three.take(1).is_none() && two.take(60).is_none());
        assert_eq!((woken(&second), woken(&third)), (0, 0));
        drop(held);
        assert_eq!((woken(&second), woken(&third)), (1, 0), "60 of 100: a store leaves as much as it has");
        assert!(one.take(1).is_none(), "others wait already");
        assert_eq!(budget.used_bytes(), 60, "they are the second's although it has not come yet");
        drop(two.take(60).unwrap());
        assert_eq!(woken(&third), 1);
        assert!(three.take(1).is_some() && one.take(1).is_some());
    }

    #[test]
    fn store_that_hangs_leaves_as_much_as_it_has() {
        let budget = Budget::new(100);
        let (mut hangs, _) = claim(&budget, 1);
        let held: Vec<Share> = std::iter::from_fn(|| hangs.take(10)).collect();
        assert_eq!(held.len(), 5);
        let (mut other, _) = claim(&budget, 2);
        for _ in 0..100 {
            assert_eq!(other.take(25).unwrap().bytes(), 25);
        }
        let second: Vec<Share> = std::iter::from_fn(|| other.take(10)).collect();
        assert_eq!(second.len(), 2, "and the next one half of the rest");
    }

    #[test]
    fn claim_that_goes_gives_its_place_and_its_bytes_to_the_next() {
        let budget = Budget::new(100);
        let ((mut one, _), (mut two, _), (mut three, third)) =
            (claim(&budget, 0), claim(&budget, 0), claim(&budget, 0));
        let mut held = one.take(80).unwrap();
        assert!(two.take(90).is_none() && three.take(10).is_none());
        held.keep(10);
        assert_eq!(woken(&third), 0, "the one before it needs more than there is");
        drop(two);
        assert_eq!(woken(&third), 1);
        let (mut four, fourth) = claim(&budget, 0);
        assert!(four.take(40).is_none(), "10 and 10 and 40 would be more than the rest");
        drop(three);
        assert_eq!((woken(&fourth), budget.used_bytes()), (1, 50), "what was granted and never taken");
        drop((four, held));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn memory_that_is_in_use_already_is_counted_whatever_the_limit() {
        let budget = Budget::new(100);
        assert!(budget.has_plenty(50) && !budget.has_plenty(51));
        let mut share = budget.share(0);
        share.insist(120);
        let (mut other, count) = claim(&budget, 1);
        assert!(other.take(10).is_none() && !budget.has_plenty(0));
        share.keep(95);
        assert_eq!(woken(&count), 0);
        share.keep(90);
        let more = other.take(10).unwrap();
        let mut both = budget.share(1);
        both.join(more);
        assert_eq!((both.bytes(), budget.used_bytes()), (10, 100));
    }
}
