//! Which parts of a read have come: no byte twice, none outside, none missing.

/// The parts, as runs that do not touch, in order.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    runs: Vec<(u64, u64)>,
}

/// The most runs that are kept apart. Servers send the parts of a read in order, or nearly.
const MAX_RUNS: usize = 1024;

impl Coverage {
    /// Adds the bytes from `start` to `end`; `false` where some of them have come before, or the parts come in too many
    /// pieces.
    pub(super) fn add(&mut self, start: u64, end: u64) -> bool {
        // The usual case: behind all that has come.
        if let Some(last) = self.runs.last_mut()
            && last.1 == start
        {
            last.1 = end;
            return true;
        }
        let at = self.runs.partition_point(|run| run.0 < start);
        let before = at.checked_sub(1).and_then(|before| self.runs.get(before));
        let overlaps =
            before.is_some_and(|run| run.1 > start) || self.runs.get(at).is_some_and(|run| run.0 < end);
        if overlaps || self.runs.len() >= MAX_RUNS {
            return false;
        }
        self.runs.insert(at, (start, end));
        self.join(at.saturating_add(1));
        self.join(at);
        true
    }

    /// Whether everything from `start` to `end` has come, and nothing else.
    pub(super) fn is(&self, start: u64, end: u64) -> bool {
        self.runs == [(start, end)]
    }

    /// Joins a run with the one before, where they touch.
    fn join(&mut self, at: usize) {
        let Some(before) = at.checked_sub(1) else { return };
        if let (Some(&(start, middle)), Some(&(next, end))) = (self.runs.get(before), self.runs.get(at))
            && middle == next
        {
            self.runs.remove(at);
            if let Some(run) = self.runs.get_mut(before) {
                *run = (start, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_cover_once() {
        let mut rng = mutate::Rng::new(7);
        for _ in 0..200 {
            let mut parts: Vec<u64> = (0..20).collect();
            for at in (1..parts.len()).rev() {
                parts.swap(at, rng.below(at as u64 + 1) as usize);
            }
            let mut coverage = Coverage::default();
            for (count, part) in parts.iter().enumerate() {
                assert!(!coverage.is(100, 300), "complete after {count} parts");
                assert!(coverage.add(100 + part * 10, 110 + part * 10), "{parts:?}");
                assert!(!coverage.add(105 + part * 10, 106 + part * 10), "twice: {part}");
            }
            assert!(coverage.is(100, 300), "{parts:?}");
        }
    }
}
