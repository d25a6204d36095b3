//! Simulated locks: a word at an address, and a queue of threads that wait.
//!
//! | lock | the next holder after a release | what a release costs |
//! |---|---|---|
//! | spinning | the first in the queue; the line with the word is transferred to it | a store |
//! | spinning, `unfair` machine | all that poll the word see the store, and the first that changes the word gets it; that may be the thread that released it | a store |
//! | sleeping | the first thread that takes it; a waiting thread sleeps | a read-modify-write |
//! | biased | as a sleeping one; the first thread that waits interrupts all cores | a store, or a read-modify-write for [`CALM`] releases after a thread waited |

use crate::access;
use crate::coherence::Access;
use crate::simulation::{Simulation, block, with};
use crate::task::Wait;
use crate::waiters::Waiter;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// The word of a lock that is held exclusively; below it, the number of shared holders.
const EXCLUSIVE: u32 = 1 << 31;
/// Releases of a biased lock without waiting threads, after which a release is a store again.
const CALM: u8 = 64;

/// How a thread waits for a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sleep,
    Spin,
    Biased,
}

/// A lock's word. Locks are as large as real ones, so that objects that contain them lie on as many
/// lines.
struct Word {
    held: Cell<u32>,
    /// Threads that poll it for exclusive use.
    wanted: Cell<u16>,
    /// Releases until a biased lock is calm.
    contended: Cell<u8>,
    kind: Kind,
}

impl Word {
    const fn new(kind: Kind) -> Self {
        Self { held: Cell::new(0), kind, wanted: Cell::new(0), contended: Cell::new(0) }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn is_free(&self, shared: bool) -> bool {
        if self.sees_release_at().is_some() {
            return false;
        }
        if shared { self.held.get() < EXCLUSIVE } else { self.held.get() == 0 }
    }

    /// When the caller will see that another thread released it, if it does not yet.
    fn sees_release_at(&self) -> Option<u64> {
        if self.kind != Kind::Spin {
            return None;
        }
        with(|sim| sim.sees_release_at(self.address())).flatten()
    }

    /// Whether the caller can take it. Readers stay behind threads that poll for exclusive use.
    fn is_open(&self, shared: bool) -> bool {
        self.is_free(shared) && !(shared && self.wanted.get() > 0)
    }

    fn take(&self, shared: bool) {
        self.held.set(if shared { self.held.get() + 1 } else { EXCLUSIVE });
    }

    fn has_no_waiter(&self) -> bool {
        with(|sim| sim.has_no_waiter(self.address())).unwrap_or(true)
    }

    fn lock(&self, shared: bool) {
        let address = self.address();
        let mut waiting: Option<(u64, u64)> = None;
        loop {
            access::access(address, Access::Rmw);
            // Readers stay behind waiting threads, one of which may want the lock exclusively.
            let behind = shared && waiting.is_none() && self.kind != Kind::Sleep;
            if self.is_open(shared) && (!behind || self.has_no_waiter()) {
                self.take(shared);
                with(|sim| sim.note_holder(address, sim.caller()));
                break;
            }
            // The critical section was begun in vain.
            with(Simulation::wait_for_last_access);
            let here = || with(|sim| (sim.now(), sim.me().lost)).unwrap_or_default();
            waiting.get_or_insert_with(here);
            if self.kind == Kind::Biased && self.contended.replace(CALM) == 0 {
                // The holder may have released it by the time all cores were interrupted.
                crate::interrupt_all();
                continue;
            }
            if self.is_polled() {
                let wants = u16::from(!shared);
                self.wanted.set(self.wanted.get() + wants);
                self.poll(shared);
                self.wanted.set(self.wanted.get() - wants);
                continue;
            }
            if self.wait_in_queue(shared) {
                break;
            }
        }
        if let Some((since, lost)) = waiting {
            with(|sim| sim.charge_wait(since, lost));
        }
    }

    /// Waits until a holder releases the lock; whether the lock was handed to the caller.
    fn wait_in_queue(&self, shared: bool) -> bool {
        with(|sim| {
            let waiter = Waiter { task: sim.caller(), shared };
            sim.queue(self.address()).push_back(waiter);
        })
        .expect("a lock is waited for inside of a simulation");
        block(Wait::Lock(self.address()), None);
        with(|sim| std::mem::take(&mut sim.me().handed)).unwrap_or(false)
    }

    /// Polls the word until the lock is open.
    fn poll(&self, shared: bool) {
        loop {
            access::access(self.address(), Access::Load);
            with(Simulation::wait_for_last_access);
            if self.is_open(shared) {
                return;
            }
            match self.sees_release_at() {
                Some(seen) => drop(block(Wait::Lock(self.address()), Some(seen))),
                None => drop(self.wait_in_queue(shared)),
            }
        }
    }

    fn try_lock(&self, shared: bool) -> bool {
        // Kernels load the word of a spin lock before they try to take it.
        let free = self.is_free(shared);
        if self.kind == Kind::Spin && !free {
            access::access(self.address(), Access::Load);
        } else {
            access::access(self.address(), Access::Rmw);
        }
        let free = self.is_free(shared);
        if free {
            self.take(shared);
            with(|sim| sim.note_holder(self.address(), sim.caller()));
        }
        free
    }

    fn is_locked(&self) -> bool {
        access::access(self.address(), Access::Load);
        !self.is_free(false)
    }

    fn unlock(&self, shared: bool) {
        let address = self.address();
        match self.kind {
            _ if shared => access::access(address, Access::Rmw),
            Kind::Spin if self.is_polled() => access::store(address),
            Kind::Spin => access::access(address, Access::Store),
            Kind::Biased if self.calm_down() => access::access(address, Access::Store),
            Kind::Biased | Kind::Sleep => access::access(address, Access::Rmw),
        }
        let held = if shared { self.held.get() - 1 } else { 0 };
        self.held.set(held);
        with(|sim| sim.note_release(address));
        if held == 0 {
            self.pass_on();
        }
    }

    /// Counts a release of a biased lock; whether it was calm already.
    fn calm_down(&self) -> bool {
        let contended = self.contended.get();
        if contended > 0 && self.has_no_waiter() {
            self.contended.set(contended - 1);
        }
        contended == 0
    }

    /// Whether waiting threads poll the word instead of having the lock handed over.
    fn is_polled(&self) -> bool {
        self.kind == Kind::Spin && with(|sim| sim.machine.unfair).unwrap_or(false)
    }

    fn pass_on(&self) {
        let address = self.address();
        if self.is_polled() {
            return self.show_release();
        }
        with(|sim| {
            let Some(first) = sim.take_waiter(address) else { return };
            self.end_wait(sim, first);
            let shared = first.shared;
            while shared && sim.queue(address).front().is_some_and(|next| next.shared) {
                let next = sim.take_waiter(address).expect("there is one");
                self.end_wait(sim, next);
            }
        });
    }

    /// Lets all polling threads load the word once the store of the release is done.
    fn show_release(&self) {
        with(|sim| {
            let waiters = sim.take_waiters(self.address());
            let mut seen = sim.now();
            if sim.is_charging() {
                // After the releasing thread, if that takes the lock again at once.
                seen = sim.stores_done() + 1;
                sim.note_spin_release(self.address(), seen);
            }
            waiters.iter().for_each(|waiter| sim.wake(waiter.task, seen));
        });
    }

    /// Gives the line of a spin lock to a thread; how long the transfer takes.
    fn hand_over(&self, sim: &mut Simulation, task: usize) -> u64 {
        if !sim.is_charging() {
            return 0;
        }
        let (from, to) = (sim.me().core, sim.tasks[task].core);
        sim.lines.hand_over(sim.machine.line(self.address()), to);
        sim.machine.distance(from, to)
    }

    /// Ends the wait of a thread. A spin lock is handed to it.
    fn end_wait(&self, sim: &mut Simulation, waiter: Waiter) {
        let after = if self.kind == Kind::Spin {
            self.take(waiter.shared);
            sim.note_holder(self.address(), waiter.task);
            sim.tasks[waiter.task].handed = true;
            self.hand_over(sim, waiter.task)
        } else {
            sim.wake_latency()
        };
        let now = sim.now();
        sim.wake(waiter.task, now + after);
    }
}

/// How a family of locks waits. A value is what a real lock has beside a [`Word`].
pub trait Family: Sized {
    /// The word of a new lock.
    #[doc(hidden)]
    const KIND: u8;
    /// A value.
    const PADDING: Self;
}

/// Sleeping locks.
pub struct Sleeping;
/// Locks that sleep or spin, as they are made.
pub struct Chosen;
/// The same, reader-writer locks.
pub struct ChosenShared(#[allow(dead_code)] u64); // only its size matters
/// Biased locks.
pub struct Biased(#[allow(dead_code)] u32); // only its size matters

impl Family for Sleeping {
    const KIND: u8 = 0;
    const PADDING: Self = Self;
}

impl Family for Chosen {
    const KIND: u8 = 0;
    const PADDING: Self = Self;
}

impl Family for ChosenShared {
    const KIND: u8 = 0;
    const PADDING: Self = Self(0);
}

impl Family for Biased {
    const KIND: u8 = 1;
    const PADDING: Self = Self(0);
}

/// A lock and what it guards.
pub struct Lock<F, T: ?Sized> {
    #[allow(dead_code)] // only its size matters
    padding: F,
    word: Word,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only under the lock or by exclusive ownership, and the word by one
// real thread: all threads of a simulation are coroutines of it, and outside of a simulation no
// other thread is started.
unsafe impl<F, T: ?Sized + Send> Send for Lock<F, T> {}
// SAFETY: as above.
unsafe impl<F, T: ?Sized + Send> Sync for Lock<F, T> {}

/// Holds a lock, shared or not.
pub struct Guard<'a, F, T: ?Sized, const SHARED: bool> {
    lock: &'a Lock<F, T>,
    /// It stays with its thread.
    here: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value.
unsafe impl<F, T: ?Sized + Sync, const SHARED: bool> Sync for Guard<'_, F, T, SHARED> {}

impl<F: Family, T> Lock<F, T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        let kind = if F::KIND == 0 { Kind::Sleep } else { Kind::Biased };
        Self { padding: F::PADDING, word: Word::new(kind), value: UnsafeCell::new(value) }
    }

    const fn spinning(value: T) -> Self {
        Self { padding: F::PADDING, word: Word::new(Kind::Spin), value: UnsafeCell::new(value) }
    }

    /// Unwraps the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<F, T: ?Sized> Lock<F, T> {
    fn guard<const SHARED: bool>(&self) -> Guard<'_, F, T, SHARED> {
        Guard { lock: self, here: PhantomData }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> Guard<'_, F, T, false> {
        self.word.lock(false);
        self.guard()
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_, F, T, false>> {
        self.word.try_lock(false).then(|| self.guard())
    }

    /// Whether a thread holds the lock now.
    pub fn is_locked(&self) -> bool {
        self.word.is_locked()
    }

    /// Waits for the lock, shared.
    pub fn read(&self) -> Guard<'_, F, T, true> {
        self.word.lock(true);
        self.guard()
    }

    /// Takes the lock shared, if no thread holds it exclusively.
    pub fn try_read(&self) -> Option<Guard<'_, F, T, true>> {
        self.word.try_lock(true).then(|| self.guard())
    }

    /// As [`lock`](Self::lock).
    pub fn write(&self) -> Guard<'_, F, T, false> {
        self.lock()
    }

    /// As [`try_lock`](Self::try_lock).
    pub fn try_write(&self) -> Option<Guard<'_, F, T, false>> {
        self.try_lock()
    }

    /// Access by exclusive ownership.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<F, T: ?Sized, const SHARED: bool> Guard<'_, F, T, SHARED> {
    /// Releases the lock for a wait.
    pub(crate) fn release(&mut self) {
        self.lock.word.unlock(SHARED);
    }

    /// Takes the lock again after a wait.
    pub(crate) fn acquire(&mut self) {
        self.lock.word.lock(SHARED);
    }
}

impl<F, T: ?Sized, const SHARED: bool> Drop for Guard<'_, F, T, SHARED> {
    fn drop(&mut self) {
        self.lock.word.unlock(SHARED);
    }
}

impl<F, T: ?Sized, const SHARED: bool> Deref for Guard<'_, F, T, SHARED> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock for as long as it lends the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<F, T: ?Sized> DerefMut for Guard<'_, F, T, false> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock exclusively and is itself borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

/// Names of a back end's locks.
macro_rules! names {
    ($($lock:ident $family:ident: $($guard:ident $shared:literal)*;)*) => {$(
        #[allow(missing_docs)]
        pub type $lock<T> = Lock<$family, T>;
        $(
            #[allow(missing_docs)]
            pub type $guard<'a, T> = Guard<'a, $family, T, $shared>;
        )*
    )*};
}

names! {
    Mutex Sleeping: MutexGuard false;
    RwLock Sleeping: RwLockReadGuard true RwLockWriteGuard false;
    BiasedMutex Biased: BiasedMutexGuard false;
    BiasedRwLock Biased: BiasedRwLockReadGuard true BiasedRwLockWriteGuard false;
    KindMutex Chosen: KindMutexGuard false;
    KindRwLock ChosenShared: KindRwLockReadGuard true KindRwLockWriteGuard false;
}

/// A mutex that spins, or sleeps.
pub const fn kind_mutex<T>(spins: bool, value: T) -> KindMutex<T> {
    if spins { Lock::spinning(value) } else { Lock::new(value) }
}

/// A reader-writer lock that spins, or sleeps.
pub const fn kind_rwlock<T>(spins: bool, value: T) -> KindRwLock<T> {
    if spins { Lock::spinning(value) } else { Lock::new(value) }
}
