//! Direct writes as ext4 did them: the lock of the inode shared or exclusive, by what is written.
//!
//! A write begins under the lock, shared if the design's [`Rule`] allows that for where the bytes
//! go, else exclusively. A write that needs parts of fresh blocks zeroed, allocates or grows the
//! file is left to the exclusive holder, with no other transfer in flight, in all of them.
//!
//! | rule | overwrite of one run of written blocks | other allocated blocks | not whole blocks |
//! |---|---|---|---|
//! | [`ALONE_UNLESS_WRITTEN`] | shared | exclusive | alone |
//! | [`SHARED_IF_ALLOCATED`] | shared | shared if one run, else exclusive | alone |
//! | [`SPLIT_AFTER`] | shared | shared | shared if written, else alone |

use nextent::lab_seams::{Begun, DirectWrites, Extents, Held, Plan, Write};
use nextent::{Error, Result};
use nextent_sync::thread;

/// How often a lock is tried by a caller that has transfers in flight.
const TRIES: u32 = 200;

/// Linux up to 6.2: only an aligned overwrite of one run of blocks that hold data shares the file.
pub(crate) static ALONE_UNLESS_WRITTEN: Rule = Rule {
    access: |extents| match extents {
        Extents { aligned: true, one_run: true, unwritten: false } => Access::Shared,
        Extents { aligned: false, .. } => Access::Alone,
        _ => Access::Exclusive,
    },
    splits_before: true,
};

/// Linux 6.3: an aligned overwrite of one run of allocated blocks shares the file, unwritten or
/// not.
pub(crate) static SHARED_IF_ALLOCATED: Rule = Rule {
    access: |extents| match extents {
        Extents { aligned: true, one_run: true, .. } => Access::Shared,
        Extents { aligned: false, .. } => Access::Alone,
        _ => Access::Exclusive,
    },
    splits_before: true,
};

/// Linux 7.0: blocks that hold data need no alignment to be shared, and an unwritten extent is
/// split when it is converted, from the reserved pool; nothing is journaled before the data.
pub(crate) static SPLIT_AFTER: Rule = Rule {
    access: |extents| match extents {
        Extents { aligned: false, unwritten: true, .. } => Access::Alone,
        _ => Access::Shared,
    },
    splits_before: false,
};

/// How a write of allocated blocks inside a file holds the file, if it drops no privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// The lock shared.
    Shared,
    /// The lock exclusively, with other transfers in flight.
    Exclusive,
    /// The lock exclusively, with no other transfer in flight.
    Alone,
}

/// What a design decides.
#[derive(Debug)]
pub(crate) struct Rule {
    access: fn(Extents) -> Access,
    /// Unwritten extents are split in a handle before the data.
    splits_before: bool,
}

/// Takes a lock: waits for it, or, if the caller has transfers in flight, tries it a few times. Its
/// holder may wait for those transfers, so the caller gives up at once if the holder does.
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
    /// What comes before the data of `plan`.
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
        let access = match write.extents()? {
            Some((extents, plan)) => {
                let access = (self.access)(extents);
                if access == Access::Shared {
                    if !write.may_wait() && (extents.unwritten || write.sets_times()) {
                        return Err(Error::WouldBlock);
                    }
                    return self.planned(write, shared, plan);
                }
                access
            }
            None => Access::Alone,
        };
        drop(shared);
        if !write.may_wait() {
            return Err(Error::WouldBlock);
        }
        if access == Access::Exclusive {
            let held = take(write, || write.try_exclusive(), || write.exclusive());
            let Some(exclusive) = held else { return Ok(Begun::Blocked) };
            // The file may have changed between the two locks.
            if let Some((extents, plan)) = write.extents()?
                && (self.access)(extents) != Access::Alone
            {
                return self.planned(write, exclusive, plan);
            }
        }
        // The exclusive holder waits for transfers in flight: none may be the caller's.
        if write.has_transfers() { Ok(Begun::Blocked) } else { Ok(write.exclusive_drained()) }
    }
}
