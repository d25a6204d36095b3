//! Which operations are timed, so that timing slows nothing.
//!
//! Two readings of the clock cost some 50 ns. An operation in `stride` is timed, at intervals
//! without a pattern (so that no period of the workload hides from them or fills them), and the
//! stride is such that timing takes at most one part in a hundred: every operation of 5 us or more,
//! one in 50 of 100 ns.

use hdrhistogram::Histogram;
use nextent_sync::Instant;

use crate::workload::Random;

/// Operations this long are all timed.
const ALL_ABOVE_NANOS: u64 = 5_000;
/// The least share of operations timed.
const SPARSEST: u64 = 256;

/// One thread's choice of operations and their times.
pub(crate) struct Sampler {
    histogram: Histogram<u64>,
    random: Random,
    stride: u64,
    left: u64,
}

impl Sampler {
    pub(crate) fn new(thread: usize) -> Self {
        Self {
            // Two digits are 1 part in 100 off at most; an hour is longer than any operation.
            histogram: Histogram::new_with_bounds(1, 3_600_000_000_000, 2)
                .expect("the bounds are good"),
            random: Random::new(thread as u64 + 7),
            stride: SPARSEST / 2,
            left: 1,
        }
    }

    /// Chooses the stride by the usual operation so far, and forgets what was timed. The time that
    /// passed would not do: with more threads than cores most of it is others'. The next operation
    /// is timed in any case, so that a run of one operation has a latency too.
    pub(crate) fn begin(&mut self) {
        if !self.histogram.is_empty() {
            let nanos = self.histogram.value_at_quantile(0.5);
            self.stride = (ALL_ABOVE_NANOS / nanos.max(1)).clamp(1, SPARSEST);
        }
        self.histogram.reset();
        self.left = 1;
    }

    /// Whether the next operation is to be timed.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Notes a time.
    #[inline(never)]
    pub(crate) fn record(&mut self, since: Instant) {
        let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos);
        self.left = 1 + self.random.below(2 * self.stride - 1);
    }

    pub(crate) fn into_histogram(self) -> Histogram<u64> {
        self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stride_follows_the_operation() {
        let mut sampler = Sampler::new(0);
        let timed = |sampler: &mut Sampler, nanos: u64, often: u64| {
            sampler.histogram.record_n(nanos, often).unwrap();
        };
        timed(&mut sampler, 100, 1000);
        timed(&mut sampler, 4_000_000, 400);
        sampler.begin();
        assert_eq!(sampler.stride, 50);
        let (mut due, rounds) = (0, 100_000);
        for _ in 0..rounds {
            if sampler.is_due() {
                due += 1;
                sampler.record(nextent_sync::now());
            }
        }
        assert!((rounds / 60..rounds / 40).contains(&due), "{due}");
        timed(&mut sampler, 10_000, 1_000_000);
        sampler.begin();
        assert_eq!(sampler.stride, 1);
    }

    #[test]
    fn the_first_operation_counted_is_timed() {
        let mut sampler = Sampler::new(0);
        for _ in 0..100 {
            if sampler.is_due() {
                sampler.record(nextent_sync::now());
            }
            sampler.begin();
            assert!(sampler.is_due());
            sampler.record(nextent_sync::now());
        }
    }
}
