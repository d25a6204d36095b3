//! What a server has answered, for reports.

use nextent::inodes::Inodes;
use nextent_sync::Duration;

use crate::Server;
use crate::request_counts::{BUCKETS, Sums};
use crate::wire::Opcode;

/// The requests of one operation since the mount began.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestStatistics {
    /// The operation's name in the FUSE protocol, in lower case.
    pub operation: String,
    /// Requests that were answered.
    pub count: u64,
    /// Those of them whose answer was an error number, ENOENT included.
    pub errors: u64,
    /// Bytes of file contents that were read or written.
    pub bytes: u64,
    /// Time of all requests together, from the decoding of a request to its answer.
    pub time: Duration,
    /// Requests by latency; [`BOUNDS`](crate::BOUNDS) are the buckets' bounds.
    pub buckets: [u64; BUCKETS],
}

impl Server {
    /// The volume that is served.
    #[must_use]
    pub fn volume(&self) -> &Inodes {
        &self.volume
    }

    /// The operations that the kernel has requested so far.
    #[must_use]
    pub fn requests(&self) -> Vec<RequestStatistics> {
        let operations = (0..64).filter_map(|number| Some((number, Opcode::of(number)?)));
        let all = operations.map(|(number, opcode)| {
            let Sums { errors, bytes, time, buckets } = self.counts.sums(number);
            let operation = opcode.name().to_ascii_lowercase();
            let count = buckets.iter().sum();
            RequestStatistics { operation, count, errors, bytes, time, buckets }
        });
        all.filter(|statistics| statistics.count > 0).collect()
    }
}
