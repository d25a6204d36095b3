//! One run on simulated cores, in the copy of this crate that is compiled over them.
//!
//! Setting up, closing and checking the image are not charged. Each thread repeats operations until
//! all threads together have made those that warm up and those that count, so that fast threads
//! make more of them, as under a clock.

mod device;

pub use device::Device;

use crate::failure::Failure;
use crate::target::{Done, Engine, Image, ImageSpec, Medium, OpError, Session, Target};
use crate::workload::{Job, Params, PerWorkload, Step, Work, WorkerContext, choose_counted};
use device::SimulatedDevice;
use nextent::inodes::ROOT_INO;
use nextent_device::MemoryDevice;
use nextent_sim::{Found, Machine};
use nextent_sync::{Arc, Duration, thread};

/// Commits come at least so often.
const COMMIT: Duration = Duration::from_secs(5);

/// What is to be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulated {
    /// The workload's name.
    pub workload: String,
    /// The design's name.
    pub design: String,
    /// Cores that work.
    pub cores: usize,
    /// The length of the run.
    pub length: Length,
    /// The machine.
    pub machine: Machine,
    /// Whether threads go to the sockets in turn, and there to the clusters in turn.
    pub spread: bool,
    /// Picoseconds of an instruction that code declares.
    pub instruction: u64,
    /// Picoseconds of other code before each access to a lock or an atomic.
    pub step: u64,
    /// Picoseconds at the beginning of each operation.
    pub entry: u64,
    /// The device that holds the image.
    pub device: Device,
}

/// How long a run is, and on what image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Bytes of the image.
    pub image: u64,
    /// Operations of each core, on average, before those that count.
    pub warm_up: u64,
    /// Operations of each core, on average, that count.
    pub operations: u64,
    /// Direct writes that the file has room for, for each operation: fast threads need more.
    pub blocks: u64,
    /// Bytes of a direct write.
    pub write: u64,
    /// Direct writes of each thread in flight; with 1 the calls block.
    pub depth: usize,
    /// Whether the threads' directories lie under the root, which spreads them over the groups.
    pub under_root: bool,
}

impl Length {
    /// So many operations after two rounds of `fallocate2`, on at least as many groups as the disks
    /// of the published figures had.
    #[must_use]
    pub fn of(operations: u64) -> Self {
        Self {
            image: 256 << 30,
            warm_up: 256,
            operations,
            blocks: 4,
            write: 4096,
            depth: 1,
            under_root: false,
        }
    }

    /// Bytes of a file of direct writes.
    fn file_bytes(&self, cores: usize) -> u64 {
        self.blocks * (self.warm_up + self.operations) * cores as u64 * self.write
    }
}

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Operations a second of all cores together.
    pub ops_per_s: f64,
    /// Operations that counted.
    pub operations: u64,
    /// Picoseconds of all cores together.
    pub time: u64,
    /// What the simulation charged.
    pub found: Found,
}

impl Simulated {
    /// The core of a thread.
    #[must_use]
    pub fn core(&self, thread: usize) -> usize {
        let Machine { cores, cluster, socket, .. } = self.machine;
        if !self.spread {
            return thread;
        }
        let sockets = cores.max(self.cores).div_ceil(socket);
        let (which, nth) = (thread % sockets, thread / sockets);
        let clusters = socket.div_ceil(cluster);
        which * socket + nth % clusters * cluster + nth / clusters
    }

    /// Runs it.
    ///
    /// # Errors
    /// Unknown names, and whatever an operation says.
    pub fn run(&self) -> Result<Outcome, Failure> {
        // More cores than the machine has may be asked for.
        let machine = Machine { cores: self.machine.cores.max(self.cores), ..self.machine };
        let this = self.clone();
        nextent_sim::run(machine, move || this.run_inside())
    }

    fn run_inside(&self) -> Result<Outcome, Failure> {
        let design = crate::designs::as_in_kernels(&self.design)?;
        let spec = ImageSpec {
            medium: Medium::Memory,
            bytes: self.length.image,
            bytes_per_inode: None,
            latency: Duration::ZERO,
        };
        let device = SimulatedDevice::new(MemoryDevice::new(spec.bytes), self.device);
        let image = Image::on(Arc::new(device), &spec)?;
        let volume = image.open(design, COMMIT)?;
        let engine = match self.length.under_root {
            true => Engine::new(&volume, ROOT_INO),
            false => Engine::in_own_directory(&volume)?,
        };
        let direct = self.workload.starts_with("dio");
        let file_bytes = if direct { self.length.file_bytes(self.cores) } else { 16 << 20 };
        // The files of the published containers are taken to lie in one directory.
        let shared = self.workload == "fallocate2";
        let Length { write, depth, .. } = self.length;
        let params = Params { file_bytes, bs: write, depth, shared, ..Params::default() };
        let threads = Threads { target: &engine, params: &params, run: self };
        let done = choose_counted(&self.workload, threads)?;
        let outcome =
            done.map_err(|error| Failure::broken(format!("{}: {error}", self.workload)))?;
        volume.close().map_err(|error| Failure::broken(format!("close: {error}")))?;
        drop(volume);
        image.checked(&format!("{} on {}", self.workload, self.design))?;
        Ok(outcome)
    }
}

struct Threads<'a, T> {
    target: &'a T,
    params: &'a Params,
    run: &'a Simulated,
}

impl<T: Target> PerWorkload for Threads<'_, T> {
    type Out = Done<Outcome>;

    fn with<J: Job>(self) -> Done<Outcome> {
        let space = self.target.session()?.space()?;
        let threads = self.run.cores;
        let (counts, found) = thread::scope(|scope| {
            let all = &self;
            let members: Vec<_> = (0..threads)
                .map(|thread| {
                    let context = WorkerContext { thread, threads, space, params: all.params };
                    scope.spawn(move || all.member::<J>(&context))
                })
                .collect();
            let counts: Vec<_> = members.into_iter().map(|member| member.join()).collect();
            (counts, nextent_sim::finish())
        });
        let mut outcome = Outcome { found, ..Outcome::default() };
        for count in counts {
            let count = count.map_err(|_| OpError::Other("a thread panicked".into()))?;
            let (operations, time) = count?;
            outcome.operations += operations;
            outcome.time += time;
            if time > 0 {
                outcome.ops_per_s += operations as f64 / (time as f64 * 1e-12);
            }
        }
        Ok(outcome)
    }
}

impl<T: Target> Threads<'_, T> {
    /// The operations of one thread that count, and picoseconds for them.
    fn member<J: Job>(&self, context: &WorkerContext<'_>) -> Done<(u64, u64)> {
        let session = self.target.session()?;
        let work = J::Work::prepare(&session, context);
        let run = self.run;
        nextent_sim::gather(run.core(context.thread), context.threads, run.step, run.instruction);
        let mut work = work?;
        let all = context.threads as u64;
        let Length { warm_up, operations, .. } = run.length;
        let (warm_up, enough) = (warm_up * all, (warm_up + operations) * all);
        let (mut count, mut began) = (0_u64, None);
        loop {
            let before = nextent_sim::count_operation();
            if before >= enough {
                break;
            }
            if before >= warm_up && began.is_none() {
                began = Some(nextent_sim::clock());
                nextent_sim::begin_measurement();
            }
            nextent_sim::work(run.entry);
            if work.step(&session)? == Step::Over {
                if began.is_none() {
                    let text = "the workload ends before the operations that count";
                    return Err(OpError::Other(text.into()));
                }
                break;
            }
            count += u64::from(began.is_some());
        }
        nextent_sim::end_measurement();
        Ok((count, began.map_or(0, |began| nextent_sim::clock() - began)))
    }
}
