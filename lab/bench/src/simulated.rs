//! One run on simulated cores: what the copy of this crate does that is compiled over them.
//!
//! Everything in an [`Orders`] and a [`Told`] is plain, so that the other copy may ask.

use crate::failure::Failure;

/// What is to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Orders {
    /// The workload's name.
    pub workload: String,
    /// The design's name.
    pub design: String,
    /// Cores that work.
    pub cores: usize,
    /// How far the run goes.
    pub course: Course,
    /// Cores of the machine, of a cluster and of a socket, log2 of the bytes of a line.
    pub shape: [usize; 4],
    /// Whether workers go to the sockets in turn, and there to the clusters in turn.
    pub spread: bool,
    /// Whether who waits for a spin lock looks at it until it is free.
    pub unfair: bool,
    /// Whether a line within a cluster goes whole to who loads it, and at once to who has asked.
    pub migrates: bool,
    /// Hundredths of its way that a line takes which rests, where lines migrate.
    pub rested: u64,
    /// By how many hundredths of its way a line is there sooner or later, where lines migrate.
    pub uneven: u64,
    /// Hundredths of a wake-up that whoever lets a lock go is busy with it.
    pub waker: u64,
    /// Of a thousand windows, in how many a core changes a line again that another wants, and
    /// another such line.
    pub windows: Option<[u64; 2]>,
    /// Picoseconds: a read-modify-write; a line from near, from the same socket, from another; a
    /// wake-up; an instruction that says that one waits, 0 if who waits looks all the time;
    /// offering the core.
    pub costs: [u64; 7],
    /// Lines that move when a queued lock is handed over, in hundredths.
    pub handoff: u64,
    /// Picoseconds of code that a core begins while it waits for a line.
    pub window: u64,
    /// Picoseconds of an instruction, where code says how many it computes.
    pub instruction: u64,
    /// Picoseconds of the sum of 64 bytes.
    pub sum: u64,
    /// Picoseconds of other code before each operation on a lock or atomic.
    pub step: u64,
    /// The same between two such operations, from one place to another, of which it is known.
    pub code: Vec<(usize, usize, u64)>,
    /// Operations of the first core that are stepped through for what lies between which places:
    /// from this one on, so many. What follows what is noted if there are any.
    pub stepped: [u64; 2],
    /// Picoseconds at the beginning of each operation of the workload.
    pub entry: u64,
    /// Picoseconds that a core spends between two operations, half of it to one and a half.
    pub rest: u64,
    /// What writes to the device cost while no other core writes, and while one does.
    pub writes: [WriteCosts; 2],
}

/// Picoseconds of writes to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteCosts {
    /// 4 KiB to 16 KiB that were never written.
    pub first: u64,
    /// Each 4 KiB more of them.
    pub more: u64,
    /// 4 KiB where they were written a moment ago.
    pub again: u64,
    /// The same a long time ago.
    pub late: u64,
    /// The same where others of these 16 KiB were written a moment ago.
    pub near: u64,
    /// The same where the 4 KiB before them were.
    pub next: u64,
}

/// How far a run goes, and on how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Course {
    /// Bytes of the image.
    pub image: u64,
    /// Operations of each core, on average, before those that count.
    pub warm: u64,
    /// Those that count.
    pub operations: u64,
    /// Blocks of a file of direct writes for each operation: who is quick has more of them.
    pub blocks: u64,
    /// Whether the cores' directories lie under the root, which spreads them over the volume's
    /// groups, and not side by side in one as those of `nextent-lab bench`.
    pub under_root: bool,
}

impl Course {
    /// So many operations that count, after two turns of `fallocate2`, on as many groups as the
    /// disks had that the published figures are of, or more.
    #[must_use]
    pub fn usual(operations: u64) -> Self {
        Self { image: 256 << 30, warm: 256, operations, blocks: 4, under_root: false }
    }

    /// Bytes of a file of direct writes.
    #[must_use]
    pub fn file_bytes(&self, cores: usize) -> u64 {
        self.blocks * (self.warm + self.operations) * cores as u64 * 4096
    }
}

impl Orders {
    /// The core of a worker.
    #[must_use]
    pub fn core(&self, worker: usize) -> usize {
        let [all, cluster, socket, _] = self.shape;
        if !self.spread {
            return worker;
        }
        let sockets = all.max(self.cores).div_ceil(socket);
        let (which, nth) = (worker % sockets, worker / sockets);
        let clusters = socket.div_ceil(cluster);
        which * socket + nth % clusters * cluster + nth / clusters
    }
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// Operations a second of all cores together.
    pub ops_per_s: f64,
    /// Operations on locks and atomics for each operation of the workload.
    pub primitives: f64,
    /// Read-modify-writes of each operation.
    pub changes: f64,
    /// Instructions of each operation that the code itself told of.
    pub stretches: f64,
    /// What lies between operations on locks and atomics, where that was asked for.
    pub spans: Vec<Span>,
    /// Picoseconds of all cores together, for shares.
    pub time: u64,
    /// What time was lost to, the worst first.
    pub why: Vec<Lost>,
}

/// The code between two operations on locks or atomics that followed each other.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Span {
    /// The place of the first.
    pub from: usize,
    /// And of the second.
    pub to: usize,
    /// How often they followed each other in an operation of the workload.
    pub times: f64,
    /// Instructions between them, but for those that the code itself told of; none if they were not
    /// counted.
    pub instructions: Option<f64>,
    /// Read-modify-writes among them that are not simulated.
    pub changes: f64,
}

/// Time lost for one reason at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Whether for a lock that was held; else for a cache line.
    pub waiting: bool,
    /// The lock's class; empty for an atomic.
    pub class: String,
    /// File and line.
    pub at: String,
    /// How often.
    pub count: u64,
    /// Picoseconds of all cores.
    pub time: u64,
}

/// Runs it.
///
/// # Errors
/// Unknown names, whatever an operation says, and [`Failure::Usage`] in a copy without simulated
/// cores.
pub fn simulated(orders: &Orders) -> Result<Told, Failure> {
    inner::run(orders)
}

/// Picoseconds of a turn where two cores change a word in turns.
///
/// # Errors
/// [`Failure::Usage`] in a copy without simulated cores.
pub fn simulated_turn(orders: &Orders) -> Result<u64, Failure> {
    inner::turn(orders)
}

#[cfg(feature = "simulated")]
pub(crate) use inner::Aside;

#[cfg(not(feature = "simulated"))]
mod inner {
    use super::{Failure, Orders, Told};

    const NONE: &str = "this program was built without simulated cores";

    pub(super) fn run(_: &Orders) -> Result<Told, Failure> {
        Err(Failure::usage(NONE))
    }

    pub(super) fn turn(_: &Orders) -> Result<u64, Failure> {
        Err(Failure::usage(NONE))
    }
}

#[cfg(feature = "simulated")]
#[path = "simulated/inner.rs"]
mod inner;

#[cfg(any(feature = "simulated", test))]
#[path = "simulated/recent.rs"]
mod recent;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_has_a_core_of_its_own() {
        let orders = |cores, spread| Orders {
            workload: String::new(),
            design: String::new(),
            cores,
            course: Course::usual(1),
            shape: [80, 4, 40, 7],
            spread,
            unfair: false,
            migrates: false,
            rested: 100,
            uneven: 0,
            waker: 50,
            windows: None,
            costs: [0; 7],
            handoff: 0,
            window: 0,
            instruction: 0,
            sum: 0,
            step: 0,
            code: Vec::new(),
            stepped: [0; 2],
            entry: 0,
            rest: 0,
            writes: [WriteCosts::default(); 2],
        };
        let places = |cores, spread| {
            let orders = orders(cores, spread);
            (0..cores).map(|worker| orders.core(worker)).collect::<Vec<_>>()
        };
        assert_eq!(places(5, false), [0, 1, 2, 3, 4]);
        assert_eq!(places(5, true), [0, 40, 4, 44, 8]);
        for cores in [80, 128, 256] {
            let mut all = places(cores, true);
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), cores);
        }
    }
}
