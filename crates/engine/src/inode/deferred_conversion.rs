//! Completing deferred conversions ([`rw_lock`](super::rw_lock)): makes them part of the map.
//!
//! Guarantees:
//!
//! - After [`Fs::complete_deferred`] the map of a file contains every write that ended before the
//!   call.
//! - A background thread completes conversions that are older than the limit of [`DeferredFiles`].
//!   It starts when the volume's first conversion is deferred. Callers that make data durable
//!   complete them earlier.
//! - Completing does not need `[inode.rw]`. The exclusive holder completes before it changes the
//!   map, and no writer defers meanwhile.
//!
//! Never called under a handle. After an error, unconverted blocks stay deferred and every caller
//! that needs them gets the error.

use std::ops::Range;

use nextent_ondisk::FileBlock;
use nextent_store::Handle;
use nextent_sync::thread::{self, JoinHandle};
use nextent_sync::{Arc, Condvar, Duration, Mutex, injected};

use super::change::Change;
use super::fs::Fs;
use super::object::Inode;
use super::rw_lock::SharedIo;
use super::{credits, locks};
use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::map::{self, Converted};

/// Runs that one handle converts at most: bounds how long a commit waits for it.
pub(crate) const RUNS_PER_HANDLE: usize = 256;

/// Attempts to take the exclusive lock without blocking. The caller may have I/O in flight itself,
/// so waiting could deadlock.
const EXCLUSIVE_TRIES: u32 = 100;
/// The time between two attempts.
const EXCLUSIVE_PAUSE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct FileList {
    inodes: Vec<Arc<Inode>>,
    thread: Option<JoinHandle<()>>,
    stop: bool,
}

/// The files of a volume with deferred conversions.
pub(crate) struct DeferredFiles {
    /// [volume.deferred-files]
    files: Mutex<FileList>,
    /// [volume.complete-deferred] Held while the conversions of the listed files are completed, so
    /// that a second caller waits for the first.
    round: Mutex<()>,
    changed: Condvar,
    /// How long a conversion may stay deferred; zero for no limit.
    time: Duration,
}

impl DeferredFiles {
    /// `interval` is the time between commits. A conversion is deferred for a fifth of it, so it is
    /// part of a commit little later than without deferral.
    pub(super) fn new(interval: Duration) -> Self {
        let files = Mutex::new(&locks::DEFERRED_FILES, FileList::default());
        let round = Mutex::new(&locks::COMPLETE_ALL, ());
        Self { files, round, changed: Condvar::new(), time: interval / 5 }
    }

    /// Adds a file; true if the background thread must be started.
    fn add(&self, inode: &Arc<Inode>) -> bool {
        let mut files = self.files.lock();
        files.inodes.push(Arc::clone(inode));
        if files.inodes.len() == 1 {
            self.changed.notify_one();
        }
        files.thread.is_none() && !files.stop && !self.time.is_zero()
    }

    /// Waits until the oldest entry has been listed for long enough; false at the end.
    fn wait(&self) -> bool {
        let mut files = self.files.lock();
        while files.inodes.is_empty() && !files.stop {
            self.changed.wait(&mut files);
        }
        if !files.stop {
            self.changed.wait_for(&mut files, self.time);
        }
        !files.stop
    }

    /// Stops the background thread and waits for it. Listed conversions stay deferred.
    pub(crate) fn stop(&self) {
        let mut files = self.files.lock();
        files.stop = true;
        let thread = files.thread.take();
        drop(files);
        self.changed.notify_all();
        if let Some(thread) = thread {
            // The thread has reported its panic itself.
            let _ = thread.join();
        }
    }
}

impl Fs {
    /// Lists `inode` because its first conversion since it was last taken off the list was
    /// deferred. Takes `[volume.deferred-files]`.
    pub(crate) fn list_deferred(self: &Arc<Self>, inode: &Arc<Inode>) {
        if self.deferred_files.add(inode) {
            self.start_completion_thread();
        }
    }

    #[cold]
    fn start_completion_thread(self: &Arc<Self>) {
        let mut files = self.deferred_files.files.lock();
        if files.thread.is_some() || files.stop {
            return;
        }
        let fs = Arc::clone(self);
        let run = move || {
            while fs.deferred_files.wait() {
                // The next caller that makes the file durable gets the error.
                let _ = fs.complete_all_deferred().map_err(|error| fs.report_error(error));
            }
        };
        // Without a thread the conversions stay deferred until a caller completes them.
        files.thread = thread::Builder::new().name("nextent-convert".to_owned()).spawn(run).ok();
    }

    /// Completes the deferred conversions of all files. Takes `[volume.complete-deferred]`; not
    /// under a handle.
    ///
    /// # Errors
    /// The first error of [`complete_deferred`](Self::complete_deferred).
    pub(crate) fn complete_all_deferred(&self) -> Result<()> {
        let _round = self.deferred_files.round.lock();
        let inodes = std::mem::take(&mut self.deferred_files.files.lock().inodes);
        let mut outcome = Ok(());
        for inode in inodes {
            let Some(io) = inode.rw.io_with_deferred() else { continue };
            io.clear_listed();
            let done = self.complete_deferred(&inode);
            if done.is_err() && io.set_listed() {
                self.deferred_files.add(&inode);
            }
            outcome = outcome.and(done);
        }
        outcome
    }

    /// Converts everything that was deferred in `inode` before this call. Not under a handle, nor
    /// `[inode.map]`; waits neither for `[inode.rw]` nor for transfers.
    ///
    /// # Errors
    /// Errors of the map and the journal. [`Error::NoSpace`] if the map needs a block, the reserved
    /// pool has none, and the exclusive lock, under which blocks can be zeroed instead, is not
    /// available.
    pub(crate) fn complete_deferred(&self, inode: &Arc<Inode>) -> Result<()> {
        match inode.rw.io_with_deferred() {
            Some(io) if !io.map_is_current() => self.complete_deferred_slow(inode, io),
            _ => Ok(()),
        }
    }

    #[cold]
    fn complete_deferred_slow(&self, inode: &Arc<Inode>, io: &SharedIo) -> Result<()> {
        let releases = self.blocks.releases();
        let mut done = io.complete_deferred(|runs| self.convert_deferred(inode, runs));
        if matches!(done, Err(Error::NoSpace)) && self.reclaim(releases)? {
            done = io.complete_deferred(|runs| self.convert_deferred(inode, runs));
        }
        if !matches!(done, Err(Error::NoSpace)) || injected("completion-unreserved") {
            return done;
        }
        for _ in 0..EXCLUSIVE_TRIES {
            if let Some(_exclusive) = inode.rw.try_write() {
                return self.complete_deferred_exclusive(inode);
            }
            nextent_sync::sleep(EXCLUSIVE_PAUSE);
        }
        done
    }

    /// Like [`complete_deferred`](Self::complete_deferred), for a caller that holds the file
    /// shared. Without `wait` it returns at once if another thread is completing.
    ///
    /// # Errors
    /// As [`complete_deferred`](Self::complete_deferred), but it does not try to lock the file
    /// exclusively.
    pub(crate) fn complete_deferred_shared(
        &self,
        inode: &Arc<Inode>,
        io: &SharedIo,
        wait: bool,
    ) -> Result<()> {
        let convert = |runs: &mut Vec<_>| self.convert_deferred(inode, runs);
        if wait { io.complete_deferred(convert) } else { io.try_complete_deferred(convert) }
    }

    /// Converts everything that was deferred. The caller holds the file exclusively, so where the
    /// map has no space for a split extent, the rest of the extent is zeroed.
    ///
    /// # Errors
    /// Errors of the device, the map and the journal.
    pub(crate) fn complete_deferred_exclusive(&self, inode: &Arc<Inode>) -> Result<()> {
        let Some(io) = inode.rw.io_with_deferred() else { return Ok(()) };
        // Zeroing the gaps between runs requires all runs at once.
        io.complete_deferred_as_one(|runs| match self.convert_deferred(inode, runs) {
            Err(Error::NoSpace) if !injected("completion-unreserved") => {
                let need = map::change_credits(&inode.map.read()) + credits::INODE;
                for at in 0..runs.len() {
                    let h = self.start_conversion(need)?;
                    self.convert_zeroed(&h, inode, at, runs)?;
                }
                Ok(())
            }
            done => done,
        })
    }

    /// Discards the deferred conversions of a file that is about to lose all its blocks. The caller
    /// holds it exclusively, and no handle.
    pub(crate) fn forget_deferred(inode: &Inode) {
        if let Some(io) = inode.rw.io_with_deferred() {
            let done: std::result::Result<(), ()> = io.complete_deferred_as_one(|runs| {
                runs.clear();
                Ok(())
            });
            debug_assert!(done.is_ok());
        }
    }

    fn convert_deferred(&self, inode: &Arc<Inode>, runs: &mut Vec<Range<FileBlock>>) -> Result<()> {
        let (all, mut changes) = (runs.len(), 0);
        let mut done = 0;
        let mut outcome = Ok(());
        while done < runs.len() && outcome.is_ok() {
            let end = runs.len().min(done + RUNS_PER_HANDLE);
            match self.convert_some(inode, &mut runs[done..end], |_| {}) {
                Ok(converted) => {
                    done += converted.done;
                    changes += converted.changes;
                }
                Err(error) => outcome = Err(error),
            }
        }
        runs.drain(..done);
        if changes < all / 2 || changes == 0 {
            inode.rw.note_needless_conversion();
        }
        outcome
    }

    /// Marks as many of `runs` (in rising order) as written as one handle can, after it has called
    /// `first`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the map needs a block and the reserved pool has none. The runs
    /// converted until then stay converted.
    pub(crate) fn convert_some(
        &self,
        inode: &Arc<Inode>,
        runs: &mut [Range<FileBlock>],
        first: impl FnOnce(&Handle<'_>),
    ) -> Result<Converted> {
        let need = credits::convert_shared(&inode.map.read());
        let h = self.start_conversion(need)?;
        let may = match injected("completion-unreserved") {
            true => Privilege::User,
            false => Privilege::Reserved,
        };
        let cx = self.map_cx(inode, may);
        first(&h);
        inode.change_map(&h, Change::Contents, |root| map::convert_runs(&cx, &h, root, runs))
    }
}
