//! Samples the latency of operations without slowing them.
//!
//! Two readings of the clock take about 50 ns. One operation in `stride` is timed, so that timing
//! costs at most one part in a hundred: each operation of 5 us or more, one in 50 of 100 ns. The
//! intervals are random, so that they do not follow a period of the workload.

use hdrhistogram::Histogram;
use nextent_sync::Instant;

use crate::workload::Random;

/// Operations of at least this length are all timed.
const ALL_ABOVE_NANOS: u64 = 5_000;
/// The largest stride.
const SPARSEST: u64 = 256;

/// One thread's sampled latencies.
pub(crate) struct Sampler {
    histogram: Histogram<u64>,
    random: Random,
    stride: u64,
    left: u64,
}

impl Sampler {
    pub(crate) fn new(thread: usize) -> Self {
        Self {
            // Two digits are exact to 1 part in 100; no operation takes an hour.
            histogram: Histogram::new_with_bounds(1, 3_600_000_000_000, 2)
                .expect("the bounds are good"),
            random: Random::new(thread as u64 + 7),
            stride: SPARSEST / 2,
            left: 1,
        }
    }

    /// Sets the stride from the median latency so far, and clears the samples. Elapsed time divided
    /// by operations would not do: with more threads than cores a thread waits for its core. The
    /// next operation is timed, so that a run of one operation has a latency, too.
    pub(crate) fn begin(&mut self) {
        if !self.histogram.is_empty() {
            let nanos = self.histogram.value_at_quantile(0.5);
            self.stride = (ALL_ABOVE_NANOS / nanos.max(1)).clamp(1, SPARSEST);
        }
        self.histogram.reset();
        self.left = 1;
    }

    /// Whether to time the next operation.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Records a latency.
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
