//! How long requests took, in buckets that grow with the value: eight to each doubling, so that a bucket is an eighth as
//! wide as the least value in it, from a microsecond to 17 seconds. 194 buckets hold it all.

/// Buckets of a histogram.
pub const BUCKETS: usize = 194;

/// Values below 2 to the power of this, in nanoseconds, share the first bucket.
const FIRST_EXPONENT: u32 = 10;

/// Buckets to each doubling: 2 to the power of this.
const STEPS_EXPONENT: u32 = 3;
const STEPS: u64 = 1 << STEPS_EXPONENT;

/// The bucket that a time falls into.
pub(crate) fn bucket_of(ns: u64) -> usize {
    let Some(above) = ns.max(1).ilog2().checked_sub(FIRST_EXPONENT) else { return 0 };
    let step = (ns >> above.saturating_add(FIRST_EXPONENT).saturating_sub(STEPS_EXPONENT)) & (STEPS - 1);
    let bucket = u64::from(above).saturating_mul(STEPS).saturating_add(step).saturating_add(1);
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The least time in nanoseconds that falls into a bucket.
#[must_use]
pub fn bucket_start_ns(bucket: usize) -> u64 {
    let Some(at) = (bucket as u64).checked_sub(1) else { return 0 };
    let (above, step) = (at >> STEPS_EXPONENT, at & (STEPS - 1));
    let shift = u32::try_from(above).unwrap_or(u32::MAX).saturating_add(FIRST_EXPONENT - STEPS_EXPONENT);
    STEPS.saturating_add(step).checked_shl(shift).unwrap_or(u64::MAX)
}

/// Where the bucket ends: the least time that falls into the next one. The last bucket has no end.
#[must_use]
pub fn bucket_end_ns(bucket: usize) -> u64 {
    if bucket >= BUCKETS - 1 { u64::MAX } else { bucket_start_ns(bucket.saturating_add(1)) }
}

/// Times of requests, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Empty, or [`BUCKETS`] of them.
    counts: Vec<u64>,
}

impl Histogram {
    /// A histogram from the counts of its buckets, `(bucket, count)`; buckets that do not exist are left out.
    #[must_use]
    pub fn from_counts(counts: impl IntoIterator<Item = (usize, u64)>) -> Self {
        let mut histogram = Self::default();
        for (bucket, count) in counts {
            histogram.add(bucket, count);
        }
        histogram
    }

    /// The buckets that are not empty, with their counts, shortest times first.
    pub fn counts(&self) -> impl Iterator<Item = (usize, u64)> {
        self.counts.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// How many times were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How many of them were surely less than `ns`: exact where a bucket begins there.
    #[must_use]
    pub fn count_below(&self, ns: u64) -> u64 {
        let below = self.counts().filter(|(bucket, _)| bucket_end_ns(*bucket) <= ns);
        below.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// The time that a share of `per_mille` thousandths of the requests did not exceed, to an eighth of itself; `None`
    /// where nothing was counted.
    #[must_use]
    pub fn quantile_ns(&self, per_mille: u64) -> Option<u64> {
        let all = u128::from(self.count());
        let rank = all.saturating_mul(u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut before = 0_u128;
        for (bucket, count) in self.counts() {
            let after = before.saturating_add(u128::from(count));
            if after >= rank {
                let (start, end) = (bucket_start_ns(bucket), bucket_end_ns(bucket));
                if end == u64::MAX {
                    return Some(start);
                }
                // As if they were spread evenly over the bucket.
                let width = u128::from(end.saturating_sub(start));
                let into = width.saturating_mul(rank.saturating_sub(before)).checked_div(u128::from(count));
                return Some(start.saturating_add(into.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0)));
            }
            before = after;
        }
        None
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        other.counts().for_each(|(bucket, count)| self.add(bucket, count));
    }

    /// What was counted since `earlier`, an older state of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bucket: usize| earlier.counts.get(bucket).copied().unwrap_or(0);
        Self::from_counts(self.counts().map(|(bucket, count)| (bucket, count.saturating_sub(before(bucket)))))
    }

    pub(crate) fn add(&mut self, bucket: usize, count: u64) {
        if count > 0 && self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        if let Some(place) = self.counts.get_mut(bucket) {
            *place = place.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bucket_begins_where_the_one_before_it_ends() {
        for bucket in 0..BUCKETS {
            assert_eq!(bucket_of(bucket_start_ns(bucket)), bucket, "start of {bucket}");
            if bucket < BUCKETS - 1 {
                assert_eq!(bucket_of(bucket_end_ns(bucket) - 1), bucket, "end of {bucket}");
            }
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_start_ns(BUCKETS - 1), 1 << 34, "the last bucket begins at 17 s");
    }

    #[test]
    fn quantile_is_within_an_eighth_of_the_true_one() {
        let mut histogram = Histogram::default();
        let times: Vec<u64> = (1..=10_000).map(|n| n * 1000).collect(); // 1 us to 10 ms
        times.iter().for_each(|ns| histogram.add(bucket_of(*ns), 1));
        for per_mille in [1, 10, 500, 900, 990, 999, 1000] {
            let exact = times[(per_mille as usize * 10) - 1];
            let found = histogram.quantile_ns(per_mille).unwrap();
            assert!(found.abs_diff(exact) <= exact / 8, "{per_mille}: {found} for {exact}");
        }
        assert_eq!(Histogram::default().quantile_ns(500), None);
    }

    #[test]
    fn difference_holds_what_came_in_between() {
        let mut histogram = Histogram::from_counts([(3, 5), (9, 1)]);
        let earlier = histogram.clone();
        histogram.merge(&Histogram::from_counts([(9, 2), (BUCKETS, 7)]));
        assert_eq!(histogram.since(&earlier), Histogram::from_counts([(9, 2)]));
        assert_eq!((histogram.count(), histogram.count_below(bucket_start_ns(9))), (8, 5));
    }
}
