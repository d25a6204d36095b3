//! The lock order, checked while the program runs.
//!
//! In debug builds and under the model checkers every thread has a stack of the locks that it
//! holds: class and call site. A wait for a lock whose rank is not above all of them panics and
//! names both sides, whether or not the threads would have deadlocked this time. Release builds
//! have none of this: [`Held`] is empty there, and every function here is an empty inline one.
//!
//! Only this module touches the stack. A lock's guard carries a [`Held`], which removes its entry
//! when it is dropped, in any order.

use crate::LockClass;
use std::marker::PhantomData;
use std::panic::Location;

#[cfg(any(debug_assertions, feature = "model-shuttle", feature = "model-loom"))]
use checked as stack;
#[cfg(not(any(debug_assertions, feature = "model-shuttle", feature = "model-loom")))]
use unchecked as stack;

/// Where a lock was taken.
pub(crate) type Site = &'static Location<'static>;

/// An entry on the calling thread's stack, removed when dropped.
pub(crate) struct Held {
    entry: stack::Entry,
    /// The entry is on one thread's stack: it may not be dropped on another.
    _here: PhantomData<*const ()>,
}

// SAFETY: a shared reference to `Held` gives access to nothing.
unsafe impl Sync for Held {}

impl Held {
    /// Checks that the caller may wait for `class`, and records it as held.
    #[inline]
    #[track_caller]
    pub(crate) fn enter(class: &'static LockClass) -> Self {
        Self { entry: stack::enter(class, Location::caller()), _here: PhantomData }
    }

    /// Records `class` as held without a check: the caller did not wait for it.
    #[inline]
    #[track_caller]
    pub(crate) fn record(class: &'static LockClass) -> Self {
        Self { entry: stack::record(class, Location::caller()), _here: PhantomData }
    }

    /// Removes the entry and checks that [`resume`](Self::resume) may add it again, as a wait on a
    /// condition does with its mutex.
    #[inline]
    #[track_caller]
    pub(crate) fn suspend(&mut self) {
        stack::suspend(&self.entry, Location::caller());
    }

    /// Adds the entry that [`suspend`](Self::suspend) removed.
    #[inline]
    #[track_caller]
    pub(crate) fn resume(&mut self) {
        stack::resume(&mut self.entry, Location::caller());
    }
}

/// The part of a thread's order that binds the threads that work for it.
pub(crate) type Inherited = stack::Highest;

/// The entry of the highest rank that the calling thread holds.
#[inline]
pub(crate) fn highest() -> Inherited {
    stack::highest()
}

/// Binds the calling thread, until the result is dropped, by the order of another thread that waits
/// for it.
#[inline]
pub(crate) fn inherit(from: &Inherited) -> Option<Held> {
    stack::inherit(from).map(|entry| Held { entry, _here: PhantomData })
}

/// An entry in the lock order for something that is not a lock; see [`enter_rank`].
///
/// It belongs to the thread that made it, and ends when dropped.
#[must_use = "the rank is held until this is dropped"]
pub struct RankToken {
    _held: Held,
}

/// Enters the lock order as a lock of `class` would. Call it before a wait for what the class
/// stands for, such as the start of a journal handle, and keep the token for as long as that is
/// held.
///
/// # Panics
/// In debug and model builds, if the calling thread holds anything of `class`'s
/// rank or above, unless the rank is the same and `class` nests.
#[inline]
#[track_caller]
pub fn enter_rank(class: &'static LockClass) -> RankToken {
    RankToken { _held: Held::enter(class) }
}

#[cfg(any(debug_assertions, feature = "model-shuttle", feature = "model-loom"))]
mod checked {
    use super::{LockClass, Site};
    use std::cell::RefCell;

    #[derive(Clone, Copy)]
    struct Record {
        id: u64,
        class: &'static LockClass,
        site: Site,
    }

    #[derive(Default)]
    struct Stack {
        next_id: u64,
        held: Vec<Record>,
    }

    crate::primitive::thread_local! {
        static STACK: RefCell<Stack> = RefCell::new(Stack::default());
    }

    /// The stack entry of one guard.
    pub(super) struct Entry(Record);

    /// Class and call site of the highest rank of a thread.
    pub(crate) type Highest = Option<(&'static LockClass, Site)>;

    /// Runs `f` on the caller's stack; `None` while the thread is being torn down.
    fn with<R>(f: impl FnOnce(&mut Stack) -> R) -> Option<R> {
        STACK.try_with(|stack| f(&mut stack.borrow_mut())).ok()
    }

    impl Stack {
        fn push(&mut self, class: &'static LockClass, site: Site) -> Record {
            self.next_id += 1;
            let record = Record { id: self.next_id, class, site };
            self.held.push(record);
            record
        }

        fn pop(&mut self, id: u64) {
            if let Some(at) = self.held.iter().rposition(|record| record.id == id) {
                self.held.remove(at);
            }
        }

        fn highest(&self) -> Option<Record> {
            self.held.iter().max_by_key(|record| record.class.rank).copied()
        }
    }

    fn check(class: &'static LockClass, site: Site) {
        let Some(above) = with(|stack| stack.highest()).flatten() else { return };
        let allowed =
            class.rank > above.class.rank || (class.rank == above.class.rank && class.nests);
        // A second panic while unwinding would abort the process without a message.
        if !allowed && !std::thread::panicking() {
            panic!(
                "lock order: `{}` (rank {}) wanted at {site} while `{}` (rank {}) is held, \
                 taken at {}",
                class.name, class.rank, above.class.name, above.class.rank, above.site,
            );
        }
    }

    #[inline]
    pub(super) fn enter(class: &'static LockClass, site: Site) -> Entry {
        check(class, site);
        record(class, site)
    }

    #[inline]
    pub(super) fn record(class: &'static LockClass, site: Site) -> Entry {
        let record = with(|stack| stack.push(class, site));
        Entry(record.unwrap_or(Record { id: 0, class, site }))
    }

    pub(super) fn suspend(entry: &Entry, site: Site) {
        with(|stack| stack.pop(entry.0.id));
        check(entry.0.class, site);
    }

    pub(super) fn resume(entry: &mut Entry, site: Site) {
        let class = entry.0.class;
        if let Some(record) = with(|stack| stack.push(class, site)) {
            entry.0 = record;
        }
    }

    pub(super) fn highest() -> Highest {
        with(|stack| stack.highest()).flatten().map(|record| (record.class, record.site))
    }

    pub(super) fn inherit(from: &Highest) -> Option<Entry> {
        from.map(|(class, site)| record(class, site))
    }

    impl Drop for Entry {
        fn drop(&mut self) {
            with(|stack| stack.pop(self.0.id));
        }
    }
}

#[cfg(not(any(debug_assertions, feature = "model-shuttle", feature = "model-loom")))]
mod unchecked {
    use super::{LockClass, Site};

    pub(super) struct Entry;
    pub(crate) struct Highest;

    #[inline(always)]
    pub(super) fn enter(_: &'static LockClass, _: Site) -> Entry {
        Entry
    }

    #[inline(always)]
    pub(super) fn record(_: &'static LockClass, _: Site) -> Entry {
        Entry
    }

    #[inline(always)]
    pub(super) fn suspend(_: &Entry, _: Site) {}

    #[inline(always)]
    pub(super) fn resume(_: &mut Entry, _: Site) {}

    #[inline(always)]
    pub(super) fn highest() -> Highest {
        Highest
    }

    #[inline(always)]
    pub(super) fn inherit(_: &Highest) -> Option<Entry> {
        None
    }
}

#[cfg(all(test, not(any(feature = "model-shuttle", feature = "model-loom"))))]
mod tests;
