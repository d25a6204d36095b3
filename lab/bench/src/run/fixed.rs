//! So many operations on one thread, for counting instructions: no clock, no commit by time.
//!
//! All on one core: an image is else laid out by as many threads as there are cores, and who of
//! them comes first decides how memory is got.

use super::pin::pin;
use crate::failure::Failure;
use crate::simulated::WriteCosts;
use crate::target::{Done, Engine, Image, Medium, OpError, Session, Target, Wanted};
use crate::workload::{Chosen, Job, Params, Seat, Step, Work, choose_counted};
use nextent::ROOT_INO;
use nextent_sync::Duration;

/// Bytes of the image.
const IMAGE: u64 = 1 << 30;

/// Runs `operations` of `workload` (or of `start-stop`, which is `handles` without the touch) with
/// `design` on a fresh image in memory, on the calling thread.
///
/// # Errors
/// Unknown names, and whatever an operation says.
pub fn repeat(workload: &str, design: &str, operations: u64) -> Result<(), Failure> {
    let design = crate::designs::as_in_kernels(design)?;
    pin(0).map_err(|error| Failure::broken(format!("staying on one core: {error}")))?;
    let image = Image::get(&Wanted {
        medium: Medium::Memory,
        bytes: IMAGE,
        bytes_per_inode: None,
        latency: Duration::ZERO,
        writes: [WriteCosts::default(); 2],
        stock: None,
    })?;
    let volume = image.open(design, Duration::ZERO)?;
    let engine = Engine::new(&volume, ROOT_INO);
    // Direct writes find each block of a file once.
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

impl<T: Target> Chosen for Once<'_, T> {
    type Out = Done<()>;

    fn with<J: Job>(self) -> Done<()> {
        let session = self.target.session()?;
        let seat = Seat { thread: 0, threads: 1, space: session.space()?, params: self.params };
        let mut work = J::Work::prepare(&session, &seat)?;
        for _ in 0..self.operations {
            if work.step(&session)? == Step::Over {
                return Err(OpError::Other("fewer operations than that are to be had".into()));
            }
        }
        work.finish(&session).map(drop)
    }
}
