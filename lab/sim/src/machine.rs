//! The cost model's parameters: the shape of a machine and what its operations take.

/// Cores at most, including those of the engine's helper threads.
pub(crate) const CORES: usize = 384;

/// A machine. Times are in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Cores.
    pub cores: usize,
    /// Cores of a cluster, which are nearest to each other.
    pub cluster: usize,
    /// Cores of a socket.
    pub socket: usize,
    /// log2 of the bytes of a cache line.
    pub line_shift: u32,
    /// Whether a spin lock goes to any thread that polls it, as before there were ticket locks.
    pub unfair: bool,
    /// A read-modify-write of a line that the core has.
    pub rmw: u64,
    /// Transfer of a line from a core of the same cluster.
    pub near: u64,
    /// Transfer of a line from another cluster of the same socket.
    pub socket_far: u64,
    /// Transfer of a line from another socket.
    pub across: u64,
    /// From a wake-up to the first instruction of the thread that slept.
    pub wake: u64,
    /// Code that a core begins while it waits for a line: what its reorder buffer holds.
    pub window: u64,
}

impl Machine {
    /// Transfer latency of a line from one core to another.
    pub(crate) fn distance(&self, from: usize, to: usize) -> u64 {
        if from / self.socket != to / self.socket {
            self.across
        } else if from / self.cluster != to / self.cluster {
            self.socket_far
        } else {
            self.near
        }
    }

    /// The line of an address.
    pub(crate) fn line(&self, address: usize) -> usize {
        address >> self.line_shift
    }
}
