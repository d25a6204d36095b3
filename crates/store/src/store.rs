//! The store: a cache and a journal over one device.

use crate::cache::{BlockRef, Cache, Seal};
use crate::journal::{
    self, Handle, Jbd2Log, Journal, JournalArea, JournalRun, JournalStatistics, JournalUse, Log,
    Recovery,
};
use crate::{AdmissionFactory, Error, Result};
use nextent_device::BlockDevice;
use nextent_ondisk::{BlockNo, Tid};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::thread::JoinHandle;
use nextent_sync::{Arc, LockClass, Mutex};
use std::time::Duration;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Size of a block in bytes.
    pub block_size: usize,
    /// Bytes of metadata kept in memory beyond what is in use.
    pub cache_bytes: usize,
    /// Longest time between a change and the start of its commit; zero for no limit: a commit is
    /// then made on request, and when a transaction is full.
    pub commit_interval: Duration,
    /// The journal's replacement admission; there is none in a product build.
    #[doc(hidden)]
    pub admission: AdmissionFactory,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            block_size: 4096,
            cache_bytes: 64 << 20,
            commit_interval: Duration::from_secs(5),
            admission: AdmissionFactory::default(),
        }
    }
}

/// A journal inside the volume: its place and its format.
#[derive(Clone, Debug, Default)]
pub struct JournalSpec {
    /// All blocks of the journal, in order.
    pub runs: Vec<JournalRun>,
    /// Format options.
    pub form: JournalUse,
    /// Blocks of the volume; images beyond are refused.
    pub volume_blocks: u64,
}

impl JournalSpec {
    fn area(&self, device: &Arc<dyn BlockDevice>, block_size: usize) -> Result<JournalArea> {
        JournalArea::new(device.clone(), block_size, &self.runs, self.volume_blocks)
    }
}

/// The contents of a journal's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalState {
    /// The log holds transactions (or may): it must be replayed.
    pub needs_recovery: bool,
    /// Blocks of the journal.
    pub blocks: u32,
    /// The block where its log begins.
    pub first: u32,
    /// Next or oldest sequence.
    pub sequence: Tid,
    /// Error number that stopped the journal; 0 for none.
    pub errno: i32,
    /// Incompatible features, as on disk.
    pub incompat: u32,
}

/// Reads a journal's superblock.
///
/// # Errors
///
/// `Io`, or `Corrupt` if it is none.
pub fn inspect_journal(
    device: &Arc<dyn BlockDevice>,
    block_size: usize,
    spec: &JournalSpec,
) -> Result<JournalState> {
    let sb = journal::read_superblock(&spec.area(device, block_size)?)?;
    Ok(JournalState {
        needs_recovery: sb.start() != 0,
        blocks: sb.length(),
        first: sb.first(),
        sequence: sb.sequence(),
        errno: sb.errno(),
        incompat: sb.features().incompat,
    })
}

/// Replays a journal onto the device and marks it empty; does nothing if it is.
///
/// Checks every image before it writes the first. If fast commits continue the log, it is not
/// marked empty: apply them and call [`supersede`].
///
/// # Errors
///
/// `Io`; `Corrupt` naming the journal's block; `Unsupported` features.
pub fn recover(
    device: &Arc<dyn BlockDevice>,
    block_size: usize,
    spec: &JournalSpec,
) -> Result<Recovery> {
    journal::recover(device, &spec.area(device, block_size)?, spec.volume_blocks)
}

/// Ends a journal whose fast commits resulted in `images`, blocks beside those that [`recover`]
/// wrote in place. `tid` is [`Recovery::next`]. After a crash in between, both are done again, with
/// the same result.
///
/// # Errors
///
/// `Io`.
pub fn supersede(
    device: &Arc<dyn BlockDevice>,
    block_size: usize,
    spec: &JournalSpec,
    tid: Tid,
    images: &[(BlockNo, Vec<u8>)],
) -> Result<()> {
    journal::supersede(device, &spec.area(device, block_size)?, tid, images)
}

/// The most blocks that [`log_blocks`] can log.
///
/// # Errors
///
/// `Io`; `Corrupt` if the log is not empty or its superblock is damaged; `Unsupported` features.
pub fn log_room(
    device: &Arc<dyn BlockDevice>,
    block_size: usize,
    spec: &JournalSpec,
) -> Result<usize> {
    journal::log_room(&spec.area(device, block_size)?, &spec.form)
}

/// Makes `images` durable as the only transaction of an empty log. Once this returns, a recovery
/// writes all of them in place; after a crash before, all or none. The caller writes them in place
/// and calls [`empty_log`].
///
/// The superblock of the volume must say durably that the volume needs recovery, before this and
/// until the log is empty; so must its image, if it is one of the blocks.
///
/// # Errors
///
/// As [`log_room`].
///
/// # Panics
///
/// If there are more images than the log has room for.
pub fn log_blocks(
    device: &Arc<dyn BlockDevice>,
    block_size: usize,
    spec: &JournalSpec,
    images: &[(BlockNo, Vec<u8>)],
) -> Result<()> {
    let room = log_room(device, block_size, spec)?;
    assert!(images.len() <= room, "{} blocks in a log for {room}", images.len());
    journal::log_blocks(&spec.area(device, block_size)?, &spec.form, images)
}

/// Marks a log empty whose blocks are in place. Flushes the device before and after.
///
/// # Errors
///
/// `Io`, or `Corrupt` if there is no journal.
pub fn empty_log(
    device: &Arc<dyn BlockDevice>,
    block_size: usize,
    spec: &JournalSpec,
) -> Result<()> {
    journal::empty_log(&spec.area(device, block_size)?)
}

/// Clears the error number that stopped the journal. Call this once the volume's own superblock has
/// the error and is stable: a power cut before must not lose both.
///
/// # Errors
///
/// `Io`, or `Corrupt` if there is no journal.
pub fn clear_journal_error(
    device: &Arc<dyn BlockDevice>,
    block_size: usize,
    spec: &JournalSpec,
) -> Result<()> {
    journal::clear_error(&spec.area(device, block_size)?)
}

static THREADS: LockClass = LockClass::new("store.threads", 100);

/// Metadata blocks and atomic changes to them, for all threads at once.
///
/// A suspended store serves reads, and [`resume`](Self::resume) allows changes again.
///
/// Dropped without [`close`](Self::close), the store leaves the device as a crash would: a recovery
/// restores all durable changes from the log.
pub struct Store {
    cache: Arc<Cache>,
    journal: Arc<Journal>,
    /// The threads that commit and checkpoint; none in a closed or suspended store. Held while the
    /// store changes between these states. `[store.threads]`
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Handles are refused. Relaxed: the journal refuses them too.
    read_only: AtomicBool,
    /// Whether [`resume`](Self::resume) can allow changes.
    may_resume: bool,
}

impl Store {
    /// A store with a jbd2 journal, which must be empty: see [`recover`].
    ///
    /// # Errors
    ///
    /// `Io`, also if the system has no thread to give; `Corrupt` if the log is not empty or its
    /// superblock is damaged; `Unsupported` for unknown features or a log of a few blocks.
    pub fn with_journal(
        device: Arc<dyn BlockDevice>,
        options: &StoreOptions,
        spec: &JournalSpec,
    ) -> Result<Self> {
        let area = spec.area(&device, options.block_size)?;
        let log = Log::Jbd2(Box::new(Jbd2Log::open(area, &spec.form)?));
        let mut store = Self::with_log(device, log, options);
        store.start_threads()?;
        Ok(store)
    }

    /// A store with a jbd2 journal that is suspended, see [`suspend`](Self::suspend). Writes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`with_journal`](Self::with_journal).
    pub fn suspended_with_journal(
        device: Arc<dyn BlockDevice>,
        options: &StoreOptions,
        spec: &JournalSpec,
    ) -> Result<Self> {
        let area = spec.area(&device, options.block_size)?;
        let log = Log::Jbd2(Box::new(Jbd2Log::examine(area, &spec.form)?));
        Ok(Self::suspended(device, log, options))
    }

    /// A store without a journal that is suspended, see [`suspend`](Self::suspend).
    pub fn suspended_without_journal(device: Arc<dyn BlockDevice>, options: &StoreOptions) -> Self {
        Self::suspended(device, Log::InPlace, options)
    }

    fn suspended(device: Arc<dyn BlockDevice>, log: Log, options: &StoreOptions) -> Self {
        let mut store = Self::with_log(device, log, options);
        store.journal.begin_closed();
        store.may_resume = true;
        store
    }

    /// A store whose commits write blocks in place, for volumes without a journal.
    ///
    /// # Errors
    ///
    /// `Io` if the system has no thread to give.
    pub fn without_journal(device: Arc<dyn BlockDevice>, options: &StoreOptions) -> Result<Self> {
        let mut store = Self::with_log(device, Log::InPlace, options);
        store.start_threads()?;
        Ok(store)
    }

    /// A store that refuses handles; for reading only.
    pub fn read_only(device: Arc<dyn BlockDevice>, options: &StoreOptions) -> Self {
        Self::with_log(device, Log::InPlace, options)
    }

    /// A store without threads, which refuses handles.
    fn with_log(device: Arc<dyn BlockDevice>, log: Log, options: &StoreOptions) -> Self {
        let cache = Arc::new(Cache::new(device, options.block_size, options.cache_bytes));
        let journal =
            Arc::new(Journal::new(cache.clone(), log, options.commit_interval, &options.admission));
        let threads = Mutex::new(&THREADS, Vec::new());
        Self { cache, journal, threads, read_only: AtomicBool::new(true), may_resume: false }
    }

    /// Starts the threads that commit and checkpoint, and allows handles.
    fn start_threads(&mut self) -> Result<()> {
        self.threads = Mutex::new(&THREADS, journal::spawn(&self.journal)?);
        *self.read_only.get_mut() = false;
        self.may_resume = true;
        Ok(())
    }

    /// Size of a block in bytes.
    pub fn block_size(&self) -> usize {
        self.cache.block_size()
    }

    /// The device under the store; file data goes there directly.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }

    /// Whether handles are refused.
    #[inline]
    pub fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Whether changes go through a log.
    pub fn is_journaled(&self) -> bool {
        self.journal.is_logged()
    }

    /// The metadata block `no`; read, and checked by `check`, if it was not in memory. Takes
    /// `[cache.shard]`, and `[cache.load]` across the read.
    ///
    /// # Errors
    ///
    /// `Io` if the read fails, or the error of `check`; the next caller then reads and checks the
    /// block again.
    pub fn read<E: From<Error>>(
        &self,
        no: BlockNo,
        check: impl FnOnce(&[u8]) -> Result<(), E>,
    ) -> Result<BlockRef, E> {
        self.cache.read(no, check)
    }

    /// A new metadata block of zeros, changed in the handle's transaction.
    pub fn create(&self, handle: &Handle<'_>, no: BlockNo, seal: Seal) -> BlockRef {
        handle.create(no, seal)
    }

    /// Joins the running transaction, with credits to change `credits` blocks. Waits while an older
    /// transaction drains, and for the next one if this one is full.
    ///
    /// # Errors
    ///
    /// `ReadOnly`; `Aborted` after a journal error; `TooBig` if a transaction never has as many
    /// credits.
    ///
    /// # Panics
    ///
    /// In debug builds, if the thread has a handle or holds a lock of a rank above a handle's.
    #[inline]
    pub fn start(&self, credits: u32) -> Result<Handle<'_>> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        self.journal.start(credits)
    }

    /// Runs `work` with a handle of `credits` and stops the handle: [`start`](Self::start) for
    /// short and frequent work.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); `work` has not run then.
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    #[inline]
    pub fn with_handle<R>(&self, credits: u32, work: impl FnOnce(&Handle<'_>) -> R) -> Result<R> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        self.journal.with_handle(credits, work)
    }

    /// Most credits [`start`](Self::start) grants.
    pub fn max_credits(&self) -> u32 {
        self.journal.capacity() / 2
    }

    /// The transaction that handles join now.
    pub fn running(&self) -> Tid {
        self.journal.running()
    }

    /// Whether `tid` has been made durable.
    pub fn is_durable(&self, tid: Tid) -> bool {
        self.journal.is_durable(tid)
    }

    /// Makes `tid` and all transactions before it durable, with the data written before this call.
    /// Concurrent callers share one commit. Not under a handle.
    ///
    /// # Errors
    ///
    /// `Aborted` after a journal error.
    pub fn commit(&self, tid: Tid) -> Result<()> {
        self.journal.commit(tid)
    }

    /// The transaction of which [`commit_fast`](Self::commit_fast) can write now: all transactions
    /// before it are durable and rendered. `None` if there is none, or the volume has no fast
    /// commits.
    pub fn fast_tid(&self) -> Option<Tid> {
        self.journal.fast_tid()
    }

    /// Starts a background checkpoint if the next fast commit waits for one.
    pub fn allow_fast(&self) {
        self.journal.allow_fast();
    }

    /// The most bytes of one record of a fast commit.
    pub fn longest_record(&self) -> usize {
        self.journal.longest_record()
    }

    /// Makes `records` (see [`nextent_ondisk::fast_commit`]) durable as part of a fast commit of
    /// `tid`, and before them the data that flush `data` covers; false if that is impossible now
    /// and the caller must [`commit`](Self::commit).
    ///
    /// The caller made the records while [`fast_tid`](Self::fast_tid) was `tid`. Their replay
    /// depends on the transaction before it only, and they stay true until this returns. Not under
    /// a handle.
    ///
    /// # Errors
    ///
    /// `Aborted` after a journal error.
    pub fn commit_fast(&self, tid: Tid, records: Vec<Vec<u8>>, data: u64) -> Result<bool> {
        self.journal.commit_fast(tid, records, data)
    }

    /// Makes all earlier changes durable, and all earlier writes of data stable. Costs one flush if
    /// every change is durable already.
    ///
    /// # Errors
    ///
    /// `Aborted` after a journal error; `Io` if that one flush fails.
    pub fn sync_all(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.journal.sync_all()
    }

    /// Asks for a commit without waiting for it.
    pub fn commit_soon(&self) {
        if !self.is_read_only() {
            self.journal.commit_soon();
        }
    }

    /// The number of the flush that will make the caller's earlier writes to the device stable; see
    /// [`flushed`](Self::flushed).
    #[inline]
    pub fn next_flush(&self) -> u64 {
        self.cache.flushes().next()
    }

    /// Waits until the flush of that number, or a later one, has succeeded, and flushes if need be.
    /// Concurrent callers share flushes. Takes `[store.flush]` across I/O.
    ///
    /// # Errors
    ///
    /// `Io` if the device fails to flush, or has failed to at any time before.
    pub fn flushed(&self, number: u64) -> Result<()> {
        self.cache.flushes().reach(number)
    }

    /// Stops all changes for good. Later calls get `cause`, unless there was one before. Records
    /// the abort in the log, if the device still takes it. Takes `[journal.log]`.
    pub fn abort(&self, cause: &str) {
        self.journal.abort(cause);
        journal::record_error(&self.journal);
    }

    /// Stops all changes for good, as a crash would: no transaction commits any more. Later calls
    /// get `ReadOnly`.
    pub fn stop(&self) {
        self.journal.close();
    }

    /// The abort's cause as an error, or `Ok` while the journal works.
    ///
    /// # Errors
    ///
    /// `Aborted` after a journal error, `ReadOnly` after [`close`](Self::close).
    pub fn check(&self) -> Result<()> {
        self.journal.check()
    }

    /// Makes everything durable and in place, then keeps handles out until [`thaw`](Self::thaw).
    /// Each freeze needs a thaw of its own.
    ///
    /// # Errors
    ///
    /// `Aborted` after a journal error; the store is not frozen then.
    pub fn freeze(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        self.journal.freeze()?;
        journal::checkpoint(&self.journal).inspect_err(|error| {
            self.abort(&error.to_string());
            self.journal.thaw();
        })
    }

    /// Ends one freeze; false if there was none.
    pub fn thaw(&self) -> bool {
        self.journal.thaw()
    }

    /// Changes that used more credits than their handle had; for tests.
    pub fn credit_overruns(&self) -> u64 {
        self.journal.overruns()
    }

    /// What the journal has done since the store was opened. Takes `[journal.log]`.
    pub fn journal_statistics(&self) -> JournalStatistics {
        self.journal.statistics()
    }

    /// Whether flush `number` has succeeded, or a later one; see [`next_flush`](Self::next_flush).
    pub fn is_flushed(&self, number: u64) -> bool {
        self.cache.flushes().is_done(number)
    }

    /// Drops metadata blocks that have no reference and no change that is not in place. Unless
    /// `all`, drops only blocks not used since the last such call, or since the cache was last
    /// full. Takes `[cache.shard]`, one after another.
    pub fn drop_blocks(&self, all: bool) {
        self.cache.drop_blocks(all);
    }

    /// Metadata blocks in memory; for tests and reports.
    pub fn cached_blocks(&self) -> usize {
        self.cache.len()
    }

    /// Ends all freezes, and refuses new ones with `ReadOnly`. For a caller that has changes to
    /// make before a [`close`](Self::close) or [`suspend`](Self::suspend).
    pub fn end_freezes(&self) {
        if !self.is_read_only() {
            journal::end_freezes(&self.journal);
        }
    }

    /// Undoes [`end_freezes`](Self::end_freezes) for a caller that does not close after all. Ended
    /// freezes stay ended.
    pub fn allow_freezes(&self) {
        journal::allow_freezes(&self.journal);
    }

    /// Commits, writes everything in place and marks the log empty.
    ///
    /// Running handles go on until they stop, and are in the last commit. From then on the store
    /// refuses handles and freezes with `ReadOnly`. A second call waits for the first to end. Not
    /// under a handle.
    ///
    /// # Errors
    ///
    /// `Aborted` or `Io`: the log then still holds the blocks that are not in place. A second call
    /// returns the same.
    pub fn close(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        // Held until the end: a second caller waits here.
        let mut threads = self.threads.lock();
        if threads.is_empty() {
            return match self.journal.check() {
                Err(Error::ReadOnly) => Ok(()),
                outcome => outcome,
            };
        }
        journal::close(&self.journal, std::mem::take(&mut *threads))
    }

    /// Like [`close`](Self::close), but the store then behaves like one for reading only, until
    /// [`resume`](Self::resume). The caller does not suspend, resume and close concurrently.
    ///
    /// # Errors
    ///
    /// As [`close`](Self::close).
    pub fn suspend(&self) -> Result<()> {
        self.close()?;
        self.read_only.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Allows changes in a suspended store: marks the log in use, starts the threads and admits
    /// handles.
    ///
    /// # Errors
    ///
    /// `ReadOnly` for a store that was opened for reading only. `Io` or `Corrupt` if the log cannot
    /// be marked; the store stays suspended then. `Aborted` after a journal error. `Io` if the
    /// system has no thread to give; the journal is aborted then.
    pub fn resume(&self) -> Result<()> {
        let mut threads = self.threads.lock();
        if !self.may_resume || !threads.is_empty() {
            return Err(Error::ReadOnly);
        }
        self.journal.reopen()?;
        *threads = journal::spawn(&self.journal).inspect_err(|error| {
            self.abort(&error.to_string());
        })?;
        self.read_only.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if !threads.is_empty() {
            journal::stop(&self.journal);
            for thread in threads {
                let _ = thread.join();
            }
        }
    }
}
