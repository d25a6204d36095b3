//! A fixed number of operations on one thread, without clock and timed commits, for counting
//! instructions.
//!
//! The thread is pinned. Otherwise a thread for each core would lay out the image, and their order
//! would decide how memory is allocated.

use super::pin::pin;
use crate::failure::Failure;
use crate::target::{Done, Engine, Image, ImageSpec, Medium, OpError, Session, Target};
use crate::workload::{Job, Params, PerWorkload, Step, Work, WorkerContext, choose_counted};
use nextent::inodes::ROOT_INO;
use nextent_sync::Duration;

/// Bytes of the image.
const IMAGE: u64 = 1 << 30;

/// Runs `operations` of `workload` (or of `start-stop`, which is `handles` without the touch) with
/// `design` on a fresh image in memory, on the calling thread.
///
/// # Errors
/// Unknown names, and errors of operations.
pub fn repeat(workload: &str, design: &str, operations: u64) -> Result<(), Failure> {
    let design = crate::designs::as_in_kernels(design)?;
    pin(0).map_err(|error| Failure::broken(format!("pinning to a core: {error}")))?;
    let image = Image::get(&ImageSpec {
        medium: Medium::Memory,
        bytes: IMAGE,
        bytes_per_inode: None,
        latency: Duration::ZERO,
    })?;
    let volume = image.open(design, Duration::ZERO)?;
    let engine = Engine::new(&volume, ROOT_INO);
    // A direct write needs a block of its own.
    let file_bytes =
        (16 << 20).max(if workload.starts_with("dio") { operations * 4096 } else { 0 });
    let params = Params { file_bytes, bs: 4096, depth: 1, ..Params::default() };
    let done = choose_counted(workload, Once { target: &engine, params: &params, operations })?;
    done.map_err(|error| Failure::broken(format!("{workload}: {error}")))?;
    volume.close().map_err(|error| Failure::broken(format!("close: {error}")))
}

struct Once<'a, T> {
    target: &'a T,
    params: &'a Params,
    operations: u64,
}

impl<T: Target> PerWorkload for Once<'_, T> {
    type Out = Done<()>;

    fn with<J: Job>(self) -> Done<()> {
        let session = self.target.session()?;
        let context =
            WorkerContext { thread: 0, threads: 1, space: session.space()?, params: self.params };
        let mut work = J::Work::prepare(&session, &context)?;
        for _ in 0..self.operations {
            if work.step(&session)? == Step::Over {
                return Err(OpError::Other("the workload ends before so many operations".into()));
            }
        }
        work.finish(&session).map(drop)
    }
}
