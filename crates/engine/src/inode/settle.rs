//! Settling: what was put off in a file ([`long`](super::long)) becomes part of its map.
//!
//! Promises: after [`Fs::settle`] the map of a file says all that was written to it before. What
//! is put off is settled within [`Unsettled`]'s time by a thread of its own, which is there from
//! the first time on that something is put off, and by whoever makes things durable before. Needs
//! no `[inode.rw]`: who has the file alone and changes its map settles first, and nothing is put
//! off meanwhile.
//!
//! Invariants: never under a handle; an error leaves what could not be converted put off, and
//! everybody who asks hears of it.

use std::ops::Range;

use nextent_ondisk::FileBlock;
use nextent_store::Handle;
use nextent_sync::thread::{self, JoinHandle};
use nextent_sync::{Arc, Condvar, Duration, Mutex, injected};

use super::change::Change;
use super::fs::Fs;
use super::long::Refs;
use super::object::Inode;
use super::{credits, locks};
use crate::alloc::Privilege;
use crate::error::{Error, Result};
use crate::map::{self, Converted};

/// Most runs that are converted in one handle: bounds how long a commit waits for it.
pub(crate) const RUNS: usize = 256;

/// How often a file is asked for alone by who must not wait for transfers, which may be its own.
const TRIES: u32 = 100;
/// The time between two of those.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Files {
    inodes: Vec<Arc<Inode>>,
    thread: Option<JoinHandle<()>>,
    stop: bool,
}

/// The files of a volume in which something is put off.
pub(crate) struct Unsettled {
    /// [volume.unsettled]
    files: Mutex<Files>,
    /// [volume.settle-all] Held while those that were taken from the list are settled: whoever asks
    /// for all waits for the one at work, too.
    round: Mutex<()>,
    changed: Condvar,
    /// How long something is put off; zero for no limit.
    time: Duration,
}

impl Unsettled {
    /// With commits `interval` apart, what is put off is part of a commit little later than if it
    /// had not been.
    pub(super) fn new(interval: Duration) -> Self {
        let files = Mutex::new(&locks::UNSETTLED, Files::default());
        let round = Mutex::new(&locks::ROUND, ());
        Self { files, round, changed: Condvar::new(), time: interval / 5 }
    }

    /// Adds a file; true if there is no thread yet that should be.
    fn add(&self, inode: &Arc<Inode>) -> bool {
        let mut files = self.files.lock();
        files.inodes.push(Arc::clone(inode));
        if files.inodes.len() == 1 {
            self.changed.notify_one();
        }
        files.thread.is_none() && !files.stop && !self.time.is_zero()
    }

    /// Waits until the oldest of the files has waited for long enough; false at the end.
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

    /// Ends the thread, and waits for that. What is put off stays so.
    pub(crate) fn stop(&self) {
        let mut files = self.files.lock();
        files.stop = true;
        let thread = files.thread.take();
        drop(files);
        self.changed.notify_all();
        if let Some(thread) = thread {
            // A panic there was told when it happened.
            let _ = thread.join();
        }
    }
}

impl Fs {
    /// Notes that something was put off in `inode`, for the first time since it was settled as one
    /// of those noted. Takes `[volume.unsettled]`.
    pub(crate) fn note_unsettled(self: &Arc<Self>, inode: &Arc<Inode>) {
        if self.unsettled.add(inode) {
            self.start_settling();
        }
    }

    #[cold]
    fn start_settling(self: &Arc<Self>) {
        let mut files = self.unsettled.files.lock();
        if files.thread.is_some() || files.stop {
            return;
        }
        let fs = Arc::clone(self);
        let run = move || {
            while fs.unsettled.wait() {
                // Whoever makes the file durable hears of it.
                let _ = fs.settle_all().map_err(|error| fs.met(error));
            }
        };
        // Without a thread it stays put off until somebody asks.
        files.thread = thread::Builder::new().name("nextent-settle".to_owned()).spawn(run).ok();
    }

    /// Settles every file in which something is put off. Takes `[volume.settle-all]`; not under a
    /// handle.
    ///
    /// # Errors
    /// The first of what [`settle`](Self::settle) says.
    pub(crate) fn settle_all(&self) -> Result<()> {
        let _round = self.unsettled.round.lock();
        let inodes = std::mem::take(&mut self.unsettled.files.lock().inodes);
        let mut outcome = Ok(());
        for inode in inodes {
            let Some(refs) = inode.rw.deferring() else { continue };
            refs.unlist();
            let done = self.settle(&inode);
            if done.is_err() && refs.relist() {
                self.unsettled.add(&inode);
            }
            outcome = outcome.and(done);
        }
        outcome
    }

    /// Converts what was put off in `inode` before this call. Not under a handle, nor
    /// `[inode.map]`; waits neither for `[inode.rw]` nor for transfers.
    ///
    /// # Errors
    /// What the map or the journal says; [`Error::NoSpace`] if the map needs a block, not even the
    /// reserved pool has one, and the file is in use such that its blocks cannot be zeroed instead.
    pub(crate) fn settle(&self, inode: &Arc<Inode>) -> Result<()> {
        match inode.rw.deferring() {
            Some(refs) if !refs.is_settled() => self.settle_somehow(inode, refs),
            _ => Ok(()),
        }
    }

    #[cold]
    fn settle_somehow(&self, inode: &Arc<Inode>, refs: &Refs) -> Result<()> {
        let mut done = refs.settle(|runs| self.convert_deferred(inode, runs));
        if matches!(done, Err(Error::NoSpace)) && self.reclaim()? {
            done = refs.settle(|runs| self.convert_deferred(inode, runs));
        }
        if !matches!(done, Err(Error::NoSpace)) || injected("completion-unreserved") {
            return done;
        }
        for _ in 0..TRIES {
            if let Some(_alone) = inode.rw.try_write() {
                return self.settle_alone(inode);
            }
            nextent_sync::sleep(PAUSE);
        }
        done
    }

    /// The same by who has the file shared; without `wait` nothing is done if somebody is at it.
    ///
    /// # Errors
    /// As [`settle`](Self::settle), without a look for a moment to have the file alone.
    pub(crate) fn settle_beside_others(
        &self,
        inode: &Arc<Inode>,
        refs: &Refs,
        wait: bool,
    ) -> Result<()> {
        let convert = |runs: &mut Vec<_>| self.convert_deferred(inode, runs);
        if wait { refs.settle(convert) } else { refs.try_settle(convert) }
    }

    /// Converts what was put off, by who has the file alone: where the map has no room the rest of
    /// an extent is zeroed.
    ///
    /// # Errors
    /// What the device, the map or the journal says.
    pub(crate) fn settle_alone(&self, inode: &Arc<Inode>) -> Result<()> {
        let Some(refs) = inode.rw.deferring() else { return Ok(()) };
        // Zeroing what is in none of the runs takes all of them.
        refs.settle_as_one(|runs| match self.convert_deferred(inode, runs) {
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

    /// Forgets what was put off in a file that is about to lose all its blocks; the caller has it
    /// alone, and no handle.
    pub(crate) fn forget_deferred(inode: &Inode) {
        if let Some(refs) = inode.rw.deferring() {
            let done: std::result::Result<(), ()> = refs.settle_as_one(|runs| {
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
            let end = runs.len().min(done + RUNS);
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
            inode.rw.note_idle();
        }
        outcome
    }

    /// Makes as many of `runs` (which rise) written as one handle can, after what `first` does in
    /// it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the map needs a block and not even the reserved pool has one; what was
    /// done until then is done.
    pub(crate) fn convert_some(
        &self,
        inode: &Arc<Inode>,
        runs: &mut [Range<FileBlock>],
        first: impl FnOnce(&Handle<'_>),
    ) -> Result<Converted> {
        let need = credits::convert_in_shared(&inode.map.read());
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
