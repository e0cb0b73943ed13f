//! One client that replays a plan.
use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::bail;
use trace::schedule::Planned;
use trace::{Kind, Request};

use super::disk::Disk;
use crate::timeline::Millis;

/// The most requests under way at once of one client: what servers take from one connection.
const MAX_DEPTH: usize = 128;

/// What a client has done.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) took: Duration,
    pub(super) answers: Vec<Answered>,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) kind: Kind,
    pub(super) length: u64,
    pub(super) latency_us: u64,
    pub(super) ok: bool,
}

/// A plan that is being carried out.
pub(super) struct Replay<'a> {
    planned: &'a [Planned],
    disk: &'a mut dyn Disk,
    think: bool,
    /// By the disk's tag: what was sent, and when.
    in_flight: HashMap<u64, (Request, Instant)>,
    answers: Vec<Answered>,
    /// When each answer came.
    answered_at: Vec<Instant>,
    began: Instant,
}

impl<'a> Replay<'a> {
    pub(super) fn new(planned: &'a [Planned], disk: &'a mut dyn Disk, think: bool) -> Self {
        let (in_flight, answers, answered_at) = (HashMap::new(), Vec::new(), Vec::new());
        Self { planned, disk, think, in_flight, answers, answered_at, began: Instant::now() }
    }

    /// Sends everything and waits for all answers.
    pub(super) fn run(mut self) -> anyhow::Result<Done> {
        self.began = Instant::now();
        for planned in self.planned {
            while planned.after > self.answered_at.len() || !self.has_room() {
                self.receive()?;
            }
            if self.think {
                self.think(planned)?;
            }
            let request = self.fitted(&planned.request)?;
            let tag = self.disk.submit(&request)?;
            self.in_flight.insert(tag, (request, Instant::now()));
        }
        while !self.in_flight.is_empty() {
            self.receive()?;
        }
        Ok(Done { took: self.began.elapsed(), answers: self.answers })
    }

    fn has_room(&self) -> bool {
        self.in_flight.len() < MAX_DEPTH && self.disk.has_room()
    }

    /// Waits as long as the recorded machine did after the answer that it went by. Answers that come meanwhile are taken when they
    /// come, so a request may leave later than its time by the rest of one.
    fn think(&mut self, planned: &Planned) -> anyhow::Result<()> {
        let since = planned.after.checked_sub(1).and_then(|last| self.answered_at.get(last)).copied();
        let due = since.unwrap_or(self.began).checked_add(Duration::from_micros(planned.think_us));
        loop {
            let rest = due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()));
            if rest.is_zero() {
                return Ok(());
            }
            if self.in_flight.is_empty() {
                std::thread::sleep(rest);
            } else {
                self.receive()?;
            }
        }
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        if self.in_flight.is_empty() {
            bail!("the server takes no request and owes no answer");
        }
        for (tag, ok) in self.disk.receive()? {
            let now = Instant::now();
            let Some((request, sent)) = self.in_flight.remove(&tag) else {
                bail!("the server answers what was not asked");
            };
            let latency_us = Millis::from(now.saturating_duration_since(sent)).us();
            self.answers.push(Answered { kind: request.kind, length: request.length, latency_us, ok });
            self.answered_at.push(now);
        }
        Ok(())
    }

    /// A request in whole blocks of this disk; what lies beyond its end is asked for at its start, as far from there.
    fn fitted(&self, request: &Request) -> anyhow::Result<Request> {
        let (size, block) = (self.disk.size_bytes(), self.disk.block_bytes().max(1));
        if request.kind == Kind::Flush {
            return Ok(*request);
        }
        let down = |value: u64| value.saturating_sub(value.checked_rem(block).unwrap_or(0));
        let offset = down(request.offset);
        let length = request.end().saturating_sub(offset).max(1).next_multiple_of(block);
        let room = size.saturating_sub(length);
        if length > size {
            bail!("the disk of {size} bytes is smaller than a recorded request of {length}");
        }
        let offset = if offset > room { down(offset.checked_rem(room.max(1)).unwrap_or(0)) } else { offset };
        Ok(Request { offset, length, ..*request })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::schedule::plan;
    use trace::{Header, Stage, Trace};

    /// Answers the oldest request, and remembers how many were under way when each came.
    #[derive(Default)]
    struct Oldest {
        open: std::collections::VecDeque<u64>,
        depths: Vec<usize>,
        asked: Vec<(u64, u64)>,
    }

    impl Disk for Oldest {
        fn size_bytes(&self) -> u64 {
            1 << 20
        }

        fn block_bytes(&self) -> u64 {
            512
        }

        fn has_room(&self) -> bool {
            true
        }

        fn submit(&mut self, request: &Request) -> anyhow::Result<u64> {
            let tag = self.asked.len() as u64;
            self.asked.push((request.offset, request.length));
            self.open.push_back(tag);
            self.depths.push(self.open.len());
            Ok(tag)
        }

        fn receive(&mut self) -> anyhow::Result<Vec<(u64, bool)>> {
            Ok(vec![(self.open.pop_front().unwrap(), true)])
        }
    }

    fn replayed(requests: &[(u64, u64, u64, u64)], think: bool) -> (Oldest, Done) {
        let request = |(at_us, latency_us, offset, length): &(u64, u64, u64, u64)| Request {
            at_us: *at_us,
            kind: Kind::Read,
            offset: *offset,
            length: *length,
            stage: Stage::First,
            latency_us: *latency_us,
            ok: true,
        };
        let trace = Trace { header: Header::default(), requests: requests.iter().map(request).collect() };
        let (planned, mut disk) = (plan(&trace), Oldest::default());
        let done = Replay::new(&planned, &mut disk, think).run().unwrap();
        (disk, done)
    }

    #[test]
    fn as_many_are_under_way_as_in_the_recording() {
        let (disk, done) =
            replayed(&[(0, 50, 0, 512), (1, 50, 0, 512), (60, 5, 0, 512), (70, 5, 0, 512)], false);
        assert_eq!((disk.depths, done.answers.len()), (vec![1, 2, 1, 1], 4));
    }

    #[test]
    fn thinking_takes_at_least_its_time() {
        let requests = [(0, 10, 0, 512), (30_010, 10, 0, 512)];
        assert!(replayed(&requests, true).1.took >= Duration::from_millis(30));
        assert_eq!(replayed(&requests, false).1.answers.len(), 2);
    }

    #[test]
    fn requests_are_made_to_fit_the_disk() {
        let (disk, _) = replayed(&[(0, 1, 700, 100), (9, 1, (1 << 30) + 4096, 4096)], false);
        assert_eq!(disk.asked[0], (512, 512));
        let (offset, length) = disk.asked[1];
        assert!(offset % 512 == 0 && offset + length <= 1 << 20 && length == 4096, "{offset} {length}");
    }
}
