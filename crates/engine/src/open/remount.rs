//! Makes an open volume read-only, and writable again.
//!
//! | state of the volume | store | phase | superblock on the device |
//! |---|---|---|---|
//! | writable | open | `Writable` | `RECOVER`; without a journal: not `VALID` |
//! | read-only | suspended | `ReadOnly`, `Damaged` | clean, apart from noted damage |
//!
//! Invariant: while a volume is read-only its image is clean, and nothing is written to it.
//!
//! The thread that changes the state holds `[volume.close]`. It makes a volume read-only in these
//! steps:
//!
//! | step | action | an operation that runs meanwhile |
//! |---|---|---|
//! | 1 | complete the deferred conversions of all files | is allowed |
//! | 2 | enter the phase `Closing` | fails with `ReadOnly`, or goes on if it began before |
//! | 3 | wait for writes to files, then complete deferred conversions again | ends |
//! | 4 | suspend the store: it makes the last commit and a checkpoint, and marks the log empty | ends and is durable, or is refused a handle |
//! | 5 | if there are orphans: resume the store, enter the phase `Writable`, complete the deletions and truncations that these steps interrupted; begin again, or end with `Busy` | is allowed |
//! | 6 | enter the phase `ReadOnly`; mark the superblock clean; flush; end the claim of the volume | - |
//!
//! And writable again:
//!
//! | step | action | a crash after it |
//! |---|---|---|
//! | 1 | claim the volume, if it has multiple mount protection; mark the superblock in use; flush | leaves an empty log to be replayed |
//! | 2 | resume the store: the log is in use, handles are admitted | as any crash |
//! | 3 | change the superblock's fields in the first transaction | as any crash |
//! | 4 | enter the phase `Writable` | as any crash |
//!
//! Step 3 is necessary because the superblock's block also has totals, which the allocator changes:
//! a transaction with new totals and the old fields would clear `RECOVER`.

use nextent_ondisk::{RoCompat, Superblock};

use super::lifecycle::{end_heartbeat, mark_clean, mark_in_use, read_super, write_super};
use super::orphans;
use crate::error::{Cause, Error, Result};
use crate::inode::Fs;
use crate::mmp::Claim;
use crate::ops::Inodes;
use crate::policy::ErrorPolicy;

/// Why a volume with orphans cannot be made writable.
const UNFINISHED: &str = "it has files that its last use has not finished deleting; unmount it, \
    and mount it read-write";

/// Why a volume stays read-only whose superblock is not the one that it has in memory.
const CHANGED: &str = "another program has changed it since it was opened; unmount it, and mount \
    it read-write";

/// How often a change to read-only begins again because it interrupted deletions.
const MOST_ATTEMPTS: u32 = 8;

impl Inodes {
    /// Makes all changes durable and the image clean, and refuses changes from then on, like
    /// [`close`](Self::close). [`make_writable`](Self::make_writable) undoes it. Does nothing if
    /// the volume is read-only already.
    ///
    /// A concurrent operation either succeeds and becomes durable too, or fails with
    /// [`Error::ReadOnly`]. Files stay open. This waits for writes in flight, also for those of a
    /// [`Queue`](crate::inodes::Queue) that no thread completes. It does not wait for callers of
    /// [`fill_data`](Self::fill_data).
    ///
    /// # Errors
    /// [`Error::Busy`] if files without a name are open, pinned or being deleted; the volume stays
    /// writable then.
    /// So it does if a deferred conversion fails. [`Error::Io`], [`Error::Aborted`]: the next open
    /// recovers the image. [`Error::ReadOnly`] if the volume is closed.
    pub fn make_read_only(&self) -> Result<()> {
        self.while_open(|| match self.is_read_only_for_good() {
            true => Ok(()),
            false => make_read_only(&self.fs).map_err(|error| self.fs.report_error(error)),
        })
    }

    /// Allows changes of a volume that [`make_read_only`](Self::make_read_only) made read-only, or
    /// that was opened for reading only. Does nothing if the volume is writable.
    ///
    /// # Errors
    /// [`Error::StaysReadOnly`] with the reason. [`Error::Io`]; the volume stays read-only.
    /// [`Error::ReadOnly`] if the volume is closed.
    pub fn make_writable(&self) -> Result<()> {
        self.while_open(|| {
            let outcome = match self.stays_read_only() {
                Some(why) => Err(Error::StaysReadOnly(Cause::new(why))),
                None => make_writable(&self.fs),
            };
            outcome.map_err(|error| self.fs.report_error(error))
        })
    }

    /// Changes what the volume does about damage from now on. `None` is the superblock's policy.
    pub fn set_error_policy(&self, policy: impl Into<Option<ErrorPolicy>>) {
        let own = || ErrorPolicy::of_superblock(self.fs.sup.with(|sb| sb.errors.get()));
        self.fs.set_policy(policy.into().unwrap_or_else(own));
    }

    /// Whether freed blocks are discarded from now on, see
    /// [`OpenOptions::discard`](crate::OpenOptions::discard).
    pub fn set_discard(&self, yes: bool) {
        self.fs.blocks.set_discard(yes);
    }
}

fn make_read_only(fs: &Fs) -> Result<()> {
    if fs.store.is_read_only() {
        return Ok(());
    }
    for _ in 0..MOST_ATTEMPTS {
        let attempt = try_read_only(fs);
        if attempt.is_ok() || fs.is_read_only() {
            return attempt;
        }
        // The phase refused transactions that a deletion or a truncation needed.
        let completed = orphans::complete_interrupted(fs);
        match attempt {
            Err(Error::Busy) => completed?,
            done => return done,
        }
        if !fs.orphans.is_empty() {
            break;
        }
    }
    Err(Error::Busy)
}

/// Makes the volume read-only, if it has no orphans then. Else it is writable again.
fn try_read_only(fs: &Fs) -> Result<()> {
    // A frozen volume would hold the last changes back forever.
    fs.store.end_freezes();
    if let Err(error) = end_changes(fs) {
        fs.store.allow_freezes();
        fs.set_writable();
        return Err(error);
    }
    fs.store.suspend()?;
    // The next open of a damaged volume completes them, once it is checked.
    if !fs.orphans.is_empty() && !fs.is_damaged() {
        fs.store.resume()?;
        fs.set_writable();
        return Err(Error::Busy);
    }
    fs.set_read_only();
    mark_clean(fs)?;
    end_heartbeat(fs)
}

/// Fields of which each use of the volume that changes it changes one: counts of mounts, free
/// blocks and free inodes, and the times of the last mount, write and check.
fn uses(sb: &Superblock) -> [u64; 6] {
    [
        u64::from(sb.mnt_count.get()),
        sb.free_blocks_count(),
        u64::from(sb.free_inodes_count.get()),
        sb.mounted_at(),
        sb.written_at(),
        sb.checked_at(),
    ]
}

/// Waits for changes, and refuses new ones. Takes `[volume.complete-deferred]`.
fn end_changes(fs: &Fs) -> Result<()> {
    complete_deferred(fs)?;
    fs.begin_closing();
    fs.wait_for_writes();
    complete_deferred(fs)
}

/// Completes the deferred conversions of all files. On a damaged volume they stay undone, as after
/// a crash.
fn complete_deferred(fs: &Fs) -> Result<()> {
    match fs.complete_all_deferred() {
        Err(_) if fs.is_damaged() => Ok(()),
        done => done,
    }
}

fn make_writable(fs: &Fs) -> Result<()> {
    if !fs.store.is_read_only() {
        return Ok(());
    }
    let device = &**fs.store.device();
    let claim = Claim::take(fs.store.device(), &fs.geometry, &fs.sup.snapshot())?;
    let mut before = read_super(device)?;
    if uses(&before) != uses(&fs.sup.snapshot()) {
        return Err(Error::StaysReadOnly(Cause::new(CHANGED)));
    }
    if before.last_orphan.get() != 0 || before.features().has(RoCompat::ORPHAN_PRESENT) {
        return Err(Error::StaysReadOnly(Cause::new(UNFINISHED)));
    }
    if fs.orphans.file().is_none() {
        orphans::prepare(fs, true)?;
    }
    let mut sb = fs.sup.snapshot();
    mark_in_use(&mut sb, fs.now(), fs.store.is_journaled());
    let resumed = write_super(device, &mut sb).and_then(|()| Ok(fs.store.resume()?));
    if let Err(error) = resumed {
        // The caller gets the first error.
        let _ = write_super(device, &mut before);
        return Err(error);
    }
    if let Some(claim) = claim {
        *fs.heartbeat.lock() = Some(claim.start(&fs.store)?);
    }
    fs.sup.replace(sb);
    let h = fs.store.start(1)?;
    fs.sup.change(&h, |_| ());
    drop(h);
    fs.set_writable();
    Ok(())
}
