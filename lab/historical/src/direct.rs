//! Direct writes of ext4, which hold the inode's lock shared or exclusively.
//!
//! The design's [`Rule`] chooses the mode by the written blocks. In all designs a write holds the
//! lock exclusively, with no other transfer in flight, if it allocates, grows the file or needs
//! parts of new blocks zeroed. The table calls that *drained*.
//!
//! | rule | overwrite of one run of written blocks | other allocated blocks | not whole blocks |
//! |---|---|---|---|
//! | [`EXCLUSIVE_UNLESS_WRITTEN`] | shared | exclusive | drained |
//! | [`SHARED_IF_ALLOCATED`] | shared | shared if one run, else exclusive | drained |
//! | [`SPLIT_AFTER`] | shared | shared | shared if written, else drained |

use nextent::lab_seams::{Begun, DirectWrites, Extents, Held, Plan, Write};
use nextent::{Error, Result};
use nextent_sync::thread;

/// Attempts to take a lock by a caller with transfers in flight.
const TRIES: u32 = 200;

/// Linux up to 6.2: only an aligned overwrite of one run of written blocks holds the lock shared.
pub(crate) static EXCLUSIVE_UNLESS_WRITTEN: Rule = Rule {
    lock_mode: |extents| match extents {
        Extents { aligned: true, one_run: true, unwritten: false } => LockMode::Shared,
        Extents { aligned: false, .. } => LockMode::ExclusiveDrained,
        _ => LockMode::Exclusive,
    },
    splits_before: true,
};

/// Linux 6.3: an aligned overwrite of one run of allocated blocks, written or not, holds the lock
/// shared.
pub(crate) static SHARED_IF_ALLOCATED: Rule = Rule {
    lock_mode: |extents| match extents {
        Extents { aligned: true, one_run: true, .. } => LockMode::Shared,
        Extents { aligned: false, .. } => LockMode::ExclusiveDrained,
        _ => LockMode::Exclusive,
    },
    splits_before: true,
};

/// Linux 7.0: an overwrite of written blocks needs no alignment to hold the lock shared. The
/// conversion splits an unwritten extent, with blocks of the reserved pool, so no handle runs
/// before the data is written.
pub(crate) static SPLIT_AFTER: Rule = Rule {
    lock_mode: |extents| match extents {
        Extents { aligned: false, unwritten: true, .. } => LockMode::ExclusiveDrained,
        _ => LockMode::Shared,
    },
    splits_before: false,
};

/// The lock of a write to allocated blocks inside a file, if it removes no privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockMode {
    /// Shared.
    Shared,
    /// Exclusive; other transfers may be in flight.
    Exclusive,
    /// Exclusive, with no other transfer in flight.
    ExclusiveDrained,
}

/// The rule of a design.
#[derive(Debug)]
pub(crate) struct Rule {
    lock_mode: fn(Extents) -> LockMode,
    /// Whether a handle splits unwritten extents before the data is written.
    splits_before: bool,
}

/// Takes a lock. A caller with transfers in flight does not wait but tries a few times, because the
/// lock holder may wait for those transfers. In that case the caller gives up at once.
fn take<'i>(
    write: &Write<'i>,
    attempt: impl Fn() -> Option<Held<'i>>,
    wait: impl FnOnce() -> Held<'i>,
) -> Option<Held<'i>> {
    if let Some(held) = attempt() {
        return Some(held);
    }
    if !write.has_transfers() {
        return Some(wait());
    }
    for _ in 0..TRIES {
        if write.has_exclusive_waiter() {
            return None;
        }
        thread::yield_now();
        if let Some(held) = attempt() {
            return Some(held);
        }
    }
    None
}

impl Rule {
    /// Splits the extents of `plan`, if the design does so before the data is written.
    fn planned<'i>(&self, write: &Write<'i>, held: Held<'i>, plan: Plan) -> Result<Begun<'i>> {
        if self.splits_before {
            write.split(&plan)?;
        }
        Ok(Begun::Planned(held, plan))
    }
}

impl DirectWrites for Rule {
    fn begin<'i>(&self, write: &Write<'i>) -> Result<Begun<'i>> {
        let shared = match write.may_wait() {
            true => take(write, || write.try_shared(), || write.shared()),
            false => Some(write.try_shared().ok_or(Error::WouldBlock)?),
        };
        let Some(shared) = shared else { return Ok(Begun::Blocked) };
        let mode = match write.extents()? {
            Some((extents, plan)) => {
                let mode = (self.lock_mode)(extents);
                if mode == LockMode::Shared {
                    if !write.may_wait() && (extents.unwritten || write.sets_times()) {
                        return Err(Error::WouldBlock);
                    }
                    return self.planned(write, shared, plan);
                }
                mode
            }
            None => LockMode::ExclusiveDrained,
        };
        drop(shared);
        if !write.may_wait() {
            return Err(Error::WouldBlock);
        }
        if mode == LockMode::Exclusive {
            let held = take(write, || write.try_exclusive(), || write.exclusive());
            let Some(exclusive) = held else { return Ok(Begun::Blocked) };
            // The file may have changed between the two locks.
            if let Some((extents, plan)) = write.extents()?
                && (self.lock_mode)(extents) != LockMode::ExclusiveDrained
            {
                return self.planned(write, exclusive, plan);
            }
        }
        // The exclusive holder waits for transfers in flight: none may be the caller's.
        if write.has_transfers() { Ok(Begun::Blocked) } else { Ok(write.exclusive_drained()) }
    }
}
