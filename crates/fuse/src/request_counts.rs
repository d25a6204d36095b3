//! Counts of requests and their latencies, by operation.
//!
//! Each thread counts in its own slot, so that threads share no cache line. A slot is allocated at
//! its first use. Relaxed: a reader needs no order between the numbers.

use nextent_num::{to_u64, to_usize};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Duration, OnceLock, PerCore};

/// Buckets of a histogram of latencies.
pub const BUCKETS: usize = 13;

/// The largest latency of each bucket, in microseconds; the last bucket has no bound.
pub const BOUNDS: [u64; BUCKETS - 1] =
    [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20, 4 << 20];

/// Operation numbers are below this.
const OPERATIONS: usize = 64;

/// The requests of one operation.
#[derive(Debug, Default)]
struct Counts {
    errors: AtomicU64,
    bytes: AtomicU64,
    /// Nanoseconds of all requests.
    time: AtomicU64,
    /// Requests by latency.
    buckets: [AtomicU64; BUCKETS],
}

/// The sums of all threads for one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) errors: u64,
    pub(crate) bytes: u64,
    pub(crate) time: Duration,
    pub(crate) buckets: [u64; BUCKETS],
}

/// The counts of one mount.
pub(crate) struct RequestCounts {
    threads: PerCore<OnceLock<Box<[Counts; OPERATIONS]>>>,
}

impl RequestCounts {
    pub(crate) fn new() -> Self {
        Self { threads: PerCore::new(|_| OnceLock::new()) }
    }

    /// Counts a request of `operation` that took `time` and moved `bytes` of a file's contents.
    pub(crate) fn count(&self, operation: u32, time: Duration, succeeded: bool, bytes: usize) {
        let own = self.threads.here();
        let own = own.get_or_init(|| Box::new(std::array::from_fn(|_| Counts::default())));
        let Some(counts) = own.get(to_usize(operation)) else { return };
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| bound * 1000 < nanoseconds);
        counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        counts.time.fetch_add(nanoseconds, Ordering::Relaxed);
        if !succeeded {
            counts.errors.fetch_add(1, Ordering::Relaxed);
        }
        if bytes > 0 {
            counts.bytes.fetch_add(to_u64(bytes), Ordering::Relaxed);
        }
    }

    /// The sums for `operation`.
    pub(crate) fn sums(&self, operation: u32) -> Sums {
        let mut sums = Sums::default();
        let threads = self.threads.used().filter_map(OnceLock::get);
        for counts in threads.filter_map(|own| own.get(to_usize(operation))) {
            let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
            sums.errors += read(&counts.errors);
            sums.bytes += read(&counts.bytes);
            sums.time += Duration::from_nanos(read(&counts.time));
            for (sum, bucket) in sums.buckets.iter_mut().zip(&counts.buckets) {
                *sum += read(bucket);
            }
        }
        sums
    }
}

#[cfg(all(test, not(feature = "model-shuttle")))]
mod tests {
    use super::*;
    use nextent_sync::{Arc, thread};

    #[test]
    fn the_counts_of_all_threads_are_added() {
        let counts = Arc::new(RequestCounts::new());
        let threads = (0..4).map(|_| {
            let counts = Arc::clone(&counts);
            thread::spawn(move || {
                for n in 0..1000 {
                    counts.count(15, Duration::from_micros(n), n % 10 != 0, 512);
                }
            })
        });
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        let sums = counts.sums(15);
        assert_eq!((sums.errors, sums.bytes), (400, 4 * 512_000));
        assert_eq!(sums.time, Duration::from_micros(4 * 499_500));
        assert_eq!(sums.buckets[..7], [8, 12, 48, 192, 768, 2972, 0]);
        assert_eq!(counts.sums(16), Sums::default());
    }

    #[test]
    fn a_latency_falls_into_the_bucket_that_it_does_not_exceed() {
        let counts = RequestCounts::new();
        for (time, bucket) in [(0, 0), (1_000, 0), (1_001, 1), (4_194_304_000, 11)] {
            let before = counts.sums(1).buckets[bucket];
            counts.count(1, Duration::from_nanos(time), true, 0);
            assert_eq!(counts.sums(1).buckets[bucket], before + 1, "{time}");
        }
        counts.count(1, Duration::from_secs(3600), true, 0);
        assert_eq!(counts.sums(1).buckets[BUCKETS - 1], 1);
        // A number that no operation has.
        counts.count(64, Duration::ZERO, true, 0);
    }
}
