//! The workloads, each written once against [`Session`].
//!
//! A workload is a [`Job`]. Each thread has a [`Work`], its state between two operations. It is
//! prepared before the threads start and finished after the clock has stopped.

mod append;
mod churn;
pub(crate) mod dbench;
mod direct;
mod extend;
mod frag;
mod fsync;
mod handles;
mod names;
mod read;

use crate::failure::Failure;
use crate::target::{Done, OpError, Session, Space};
use crate::workloads::Workload;
use nextent_sync::{Arc, Duration, now, thread};
use std::ffi::CStr;

/// How long threads wait for the thread that creates the files.
const PATIENCE: Duration = Duration::from_secs(300);

/// The largest file of `churn` in bytes.
pub(crate) const fn churn_most() -> u64 {
    churn::MOST as u64
}

/// The size of a file of `read` in bytes.
pub(crate) const fn read_bytes() -> u64 {
    read::FILE as u64
}

/// The parameters of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    /// All threads work in one directory.
    pub(crate) shared: bool,
    /// The size of files in bytes.
    pub(crate) file_bytes: u64,
    /// Bytes of a direct write.
    pub(crate) bs: u64,
    /// Direct writes in flight of each thread; with 1 the calls block.
    pub(crate) depth: usize,
    /// The load to replay.
    pub(crate) load: Option<Arc<dbench::Load>>,
}

/// What a thread of a workload knows about the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerContext<'a> {
    /// The thread's number, from 0.
    pub(crate) thread: usize,
    /// The number of threads.
    pub(crate) threads: usize,
    /// The space before the first operation.
    pub(crate) space: Space,
    pub(crate) params: &'a Params,
}

impl WorkerContext<'_> {
    /// The directory of this thread, or the one that all share.
    fn dir<S: Session>(&self, session: &S) -> Done<S::Dir> {
        let mut name = Name::new(b"t");
        let name = if self.params.shared { c"shared" } else { name.numbered(self.thread as u64) };
        session.ensure_dir(session.root(), name)
    }

    /// This thread's share of the free inodes. A tenth is left for directories.
    fn inodes(&self) -> u64 {
        (self.space.free_inodes * 9 / 10 / self.threads as u64).max(1)
    }
}

/// Waits until another thread has created a file of that name.
fn wait_for<S: Session>(session: &S, dir: &S::Dir, name: &CStr) -> Done<()> {
    let began = now();
    loop {
        match session.stat(dir, name) {
            Err(OpError::NotFound) if began.elapsed() < PATIENCE => {}
            found => return found.map(drop),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// One operation, which read or wrote so many bytes.
    Did(u64),
    /// The thread has no operation left.
    Over,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// When the time is over.
    ByTime,
    /// When the time is over, or the first thread has no operation left. There is no warm-up.
    WithFirst,
    /// When no thread has an operation left.
    WithLast,
}

/// The figures of a thread at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndFigures {
    /// Extents of its file, if the workload counts them.
    pub(crate) extents: Option<u64>,
    /// Bytes of that file.
    pub(crate) file_bytes: u64,
    /// Operations with an unexpected result.
    pub(crate) unexpected: u64,
}

/// One thread's state in a workload.
pub(crate) trait Work<S: Session>: Sized {
    /// Creates the files that the operations need.
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self>;
    /// Runs one operation.
    fn step(&mut self, session: &S) -> Done<Step>;
    /// Ends the work and returns its figures.
    fn finish(self, _: &S) -> Done<EndFigures> {
        Ok(EndFigures::default())
    }
}

/// A workload.
pub(crate) trait Job {
    /// One thread's state, on sessions of any target.
    type Work<S: Session>: Work<S>;
    /// When a run ends.
    const ENDS: Ends = Ends::ByTime;
}

/// Code that is compiled once for each workload.
pub(crate) trait PerWorkload {
    /// Its result.
    type Out;
    /// Runs it for one workload.
    fn with<J: Job>(self) -> Self::Out;
}

/// Runs the code for the given workload.
pub(crate) fn choose<C: PerWorkload>(workload: Workload, code: C) -> C::Out {
    match workload {
        Workload::Fallocate2 => code.with::<extend::Fallocate2>(),
        Workload::Fallocate1 => code.with::<extend::Fallocate1>(),
        Workload::Churn => code.with::<churn::Churn>(),
        Workload::Create => code.with::<names::Create>(),
        Workload::Unlink => code.with::<names::Unlink>(),
        Workload::Append => code.with::<append::Append>(),
        Workload::Read => code.with::<read::Read>(),
        Workload::Stat => code.with::<names::StatNames>(),
        Workload::Frag => code.with::<frag::Frag>(),
        Workload::Dbench => code.with::<dbench::Dbench>(),
        Workload::Handles => code.with::<handles::Handles>(),
        Workload::Fsync => code.with::<fsync::Fsync>(),
        Workload::DioOverwrite => code.with::<direct::Overwrite>(),
        Workload::DioRewrite => code.with::<direct::Rewrite>(),
    }
}

/// Runs the code for a workload, or for `start-stop`, which is `handles` without touching a block
/// and serves only for counting instructions.
pub(crate) fn choose_counted<C: PerWorkload>(name: &str, code: C) -> Result<C::Out, Failure> {
    match name {
        "start-stop" => Ok(code.with::<handles::StartStop>()),
        _ => Ok(choose(crate::plan::workload(name)?, code)),
    }
}

/// A name that ends in a number, built without allocation.
pub(crate) struct Name {
    bytes: [u8; 40],
    prefix: usize,
}

impl Name {
    pub(crate) fn new(prefix: &[u8]) -> Self {
        let mut bytes = [0; 40];
        bytes[..prefix.len()].copy_from_slice(prefix);
        Self { bytes, prefix: prefix.len() }
    }

    /// The name with `number`.
    pub(crate) fn numbered(&mut self, number: u64) -> &CStr {
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let end = self.prefix + digits;
        let mut rest = number;
        for byte in self.bytes[self.prefix..end].iter_mut().rev() {
            *byte = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.bytes[end] = 0;
        CStr::from_bytes_with_nul(&self.bytes[..=end]).expect("one zero, at the end")
    }
}

/// Pseudo-random numbers (xorshift64), the same for the same seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Random non-zero bytes, so that no layer can store them as a hole.
pub(crate) fn filled(len: usize) -> Vec<u8> {
    let mut random = Random::new(len as u64);
    (0..len).map(|_| random.below(255) as u8 + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count() {
        let mut name = Name::new(b"f");
        assert_eq!(name.numbered(0), c"f0");
        assert_eq!(name.numbered(1234), c"f1234");
        assert_eq!(name.numbered(9), c"f9");
        assert_eq!(name.numbered(u64::MAX), c"f18446744073709551615");
    }
}
