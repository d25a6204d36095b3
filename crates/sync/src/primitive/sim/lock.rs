//! Simulated locks: a word at an address, and who waits for it in the world's queues.
//!
//! A spinning lock is a queued one: whoever lets go hands it to the first in the queue, at the cost
//! of the lines that move for it. On a machine without tickets all who wait look at the word, which
//! makes each store to it dear, and whoever is first has it: that may be who has just let it go,
//! which goes on before its store is done, and nobody else sees the lock free before. Where it is
//! told what a pause takes, who spins looks now and then, with a pause between, and may be too late
//! when it sees the lock free; else it looks when there is something new.
//! A sleeping one is free once it is let go, and anyone may come before those who wait. On most
//! machines who has waited for less than a wake-up takes has spun and tries at once, as in a kernel
//! that knows whether the holder runs; others are woken. Where pauses are told, who waits
//! looks at the word ten times and then sleeps, as `parking_lot` does.
//! Letting a sleeping lock go is a read-modify-write, but for our own: there the first to sleep
//! interrupts all cores, and from then on it is one until the lock was calm for a while.
//! What a lock guards moves with it: the first lines of the value.

use super::data::data;
use super::lines::Use;
use super::stepping::quiet;
use super::task::Wait;
use super::waits::{Rest, Waiter};
use super::{uses, world};
use crate::LockKind;
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::slice::Iter;

/// Held exclusively; below it the number of those who share.
const EXCLUSIVE: u32 = 1 << 31;
/// Bytes of a value that are taken to be used under its lock. How many are was not counted.
const GUARDED: usize = 128;
/// What who waits for a sleeping lock does before each look at it.
const RESTS: [Rest; 10] = [
    Rest::Pauses(2),
    Rest::Pauses(4),
    Rest::Pauses(8),
    Rest::Offer,
    Rest::Offer,
    Rest::Offer,
    Rest::Offer,
    Rest::Offer,
    Rest::Offer,
    Rest::Offer,
];
/// A pause lasts at least for this part of it after what was before it is done: a load of a line
/// from elsewhere, which takes 33 ns, and a pause of 26 take 38 together.
const LAST_OF_PAUSE: u64 = 6;
/// Who sees a lock free after a pause went on with code for the opposite meanwhile and begins anew.
/// That takes as long as so many instructions: branches by chance 6.5 to 6.8 ns more on a machine
/// of Zen 3 where they are guessed wrongly, and an instruction 0.15. Two cores of handles are as
/// measured there with 4 to 10 ns.
const GUESSED_WRONG: u64 = 45;
/// Holds of one of our own locks that nobody slept for, after which it is calm.
const CALM: u8 = 64;
/// What finding the queue of those who sleep takes, and locking it: instructions.
const FINDING_THE_QUEUE: u64 = 300;

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Sleep,
    Spin,
    /// The first to sleep interrupts all cores.
    Own,
}

/// A lock's word. Small, so that objects with locks lie on as many lines as real ones.
pub(crate) struct Word {
    held: Cell<u32>,
    /// Who looks at it to have it alone.
    wanted: Cell<u16>,
    /// Holds until one of our own locks is calm again; letting go is a change until then.
    sharp: Cell<u8>,
    how: How,
}

impl Word {
    const fn new(how: How) -> Self {
        Self { held: Cell::new(0), how, wanted: Cell::new(0), sharp: Cell::new(0) }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn is_free(&self, shares: bool) -> bool {
        if self.unseen().is_some() {
            return false;
        }
        if shares { self.held.get() < EXCLUSIVE } else { self.held.get() == 0 }
    }

    /// When the caller will see that another has let go, if it does not yet.
    fn unseen(&self) -> Option<u64> {
        if self.how != How::Spin {
            return None;
        }
        world::with(|world| world.unseen(self.address())).flatten()
    }

    fn take(&self, shares: bool) {
        self.held.set(if shares { self.held.get() + 1 } else { EXCLUSIVE });
    }

    fn lock(&self, shares: bool) {
        let _quiet = quiet();
        let address = self.address();
        let (mut since, mut rests) = (None, RESTS.iter());
        self.look_up_kind();
        loop {
            uses::access(address, Use::Change);
            // Readers stay behind those who wait: one of them may want the lock for itself.
            let behind = shares && since.is_none() && self.how != How::Sleep;
            let nobody = || world::with(|world| world.nobody_waits(address)).unwrap_or(true);
            if self.is_open(shares) && (!behind || nobody()) {
                self.take(shares);
                world::with(|world| world.note_holder(address, world.caller()));
                break;
            }
            // What was begun in the hope to have it was in vain.
            world::with(|world| world.follow());
            let here = || world::with(|world| (world.now(), world.lost())).unwrap_or_default();
            let (began, _) = *since.get_or_insert_with(here);
            // Who waits for one of our own rests once before.
            let bars = !shares && (self.how != How::Own || rests.len() < RESTS.len());
            if bars && self.bar(began) {
                break;
            }
            // Who wants it alone is content with those who share it: they are barred then.
            if self.look_now_and_then(&mut rests, address, || self.held.get() < EXCLUSIVE) {
                continue;
            }
            if self.how == How::Own && self.sharp.replace(CALM) == 0 {
                // It may be free by then.
                world::interrupt_all();
                continue;
            }
            if self.is_looked_at() {
                let wants = u16::from(!shares);
                self.wanted.set(self.wanted.get() + wants);
                self.look(shares, began);
                self.wanted.set(self.wanted.get() - wants);
                continue;
            }
            if self.is_left_meanwhile() {
                continue;
            }
            if self.queue_up(address, shares, began) {
                break;
            }
            // Who was woken for one of our own tries once and sleeps again.
            if self.how != How::Own {
                rests = RESTS.iter();
            }
        }
        if let Some((since, lost)) = since {
            world::with(|world| world.charge_wait(since, lost));
        }
    }

    /// Looks up how it waits, which in a program lies beside the word, before it is taken and
    /// before it is let go. A kernel's lock need not.
    fn look_up_kind(&self) {
        if self.how == How::Spin && is_looking() {
            uses::access(self.address(), Use::Load);
        }
    }

    /// Keeps others from a lock that some share, and waits for these, as `parking_lot` does;
    /// `false` if the lock is otherwise.
    fn bar(&self, since: u64) -> bool {
        if self.how == How::Spin || self.held.get() >= EXCLUSIVE || !is_looking() {
            return false;
        }
        self.held.set(self.held.get() | EXCLUSIVE);
        let alone = || self.held.get() == EXCLUSIVE;
        while !alone() && !self.look_now_and_then(&mut RESTS.iter(), self.last(), alone) {
            self.queue_up(self.last(), false, since);
        }
        true
    }

    /// Where one waits who has barred the lock, for the last of those who share it.
    fn last(&self) -> usize {
        self.address() + 1
    }

    /// Rests before each look until what is waited for `is_there`; `false` if it is time to sleep
    /// in that queue.
    fn look_now_and_then(
        &self,
        rests: &mut Iter<'_, Rest>,
        queue: usize,
        is_there: impl Fn() -> bool,
    ) -> bool {
        for rest in rests {
            let looks = world::with(|world| {
                let rest = world.rest(*rest).filter(|_| self.how != How::Spin)?;
                // Behind one who sleeps everybody sleeps.
                let awake = self.how == How::Own || world.nobody_waits(queue);
                awake.then(|| world.pass(rest))
            });
            if looks.flatten().is_none() {
                return false;
            }
            self.see();
            if is_there() {
                return true;
            }
        }
        false
    }

    /// One look at the word of a lock that somebody holds.
    fn see(&self) {
        world::with(|world| world.me().looks = true);
        uses::access(self.address(), Use::Load);
        world::with(|world| world.me().looks = false);
    }

    /// Who is about to sleep looks once more when it has found the queue, which holders of a real
    /// lock that let go look into; whether it need not sleep.
    fn is_left_meanwhile(&self) -> bool {
        if self.how == How::Spin || !is_looking() {
            return false;
        }
        world::with(|world| world.pass(FINDING_THE_QUEUE * world.instruction));
        self.see();
        self.held.get() < EXCLUSIVE
    }

    /// Stops until somebody lets go; whether the lock was handed over.
    fn queue_up(&self, address: usize, shares: bool, since: u64) -> bool {
        world::with(|world| {
            let waiter = Waiter { task: world.caller(), shares, since };
            world.queue(address).push_back(waiter);
        })
        .expect("a lock is waited for inside of a simulation");
        world::block(Wait::Lock(self.address()), None);
        world::with(|world| world.was_handed()).unwrap_or(false)
    }

    /// Whether it is free, and nobody looks at it to have it alone whom readers let go first.
    fn is_open(&self, shares: bool) -> bool {
        self.is_free(shares) && !(shares && self.wanted.get() > 0)
    }

    /// Looks at the word until the lock is free.
    fn look(&self, shares: bool, since: u64) {
        loop {
            let asked = world::with(|world| world.now()).unwrap_or_default();
            self.see();
            world::with(|world| world.follow());
            if self.is_open(shares) {
                world::with(|world| world.guess_wrong(GUESSED_WRONG));
                return;
            }
            if self.pause(asked) {
                continue;
            }
            match self.unseen() {
                Some(seen) => drop(world::block(Wait::Lock(self.address()), Some(seen))),
                None => drop(self.queue_up(self.address(), shares, since)),
            }
        }
    }

    /// Rests until the next look, where that is told; else one looks again when there is something
    /// new to be seen. A pause begins when the look was `asked` for, and ends somewhat after the
    /// line is there.
    fn pause(&self, asked: u64) -> bool {
        let pauses = world::with(|world| {
            let pause = world.pause()?;
            let waited = world.now() - asked;
            world.pass(pause.saturating_sub(waited).max(pause / LAST_OF_PAUSE));
            // Nothing is begun before it is over.
            world.follow();
            Some(())
        });
        let pauses = pauses.flatten().is_some();
        if pauses {
            world::let_others();
        }
        pauses
    }

    fn try_lock(&self, shares: bool) -> bool {
        let _quiet = quiet();
        // A spinning lock is looked at first, as kernels do.
        let free = self.is_free(shares);
        if self.how == How::Spin && !free {
            self.see();
        } else {
            uses::access(self.address(), Use::Change);
        }
        let free = self.is_free(shares);
        if free {
            self.take(shares);
            world::with(|world| world.note_holder(self.address(), world.caller()));
        }
        free
    }

    fn is_locked(&self) -> bool {
        let _quiet = quiet();
        uses::access(self.address(), Use::Load);
        !self.is_free(false)
    }

    fn unlock(&self, shares: bool) {
        let _quiet = quiet();
        let address = self.address();
        self.look_up_kind();
        world::with(|world| world.me().leaves = true);
        match self.how {
            _ if shares => uses::access(address, Use::Change),
            How::Spin if self.is_looked_at() => uses::store(address),
            How::Own if self.calm_down() => uses::access(address, Use::Store),
            How::Spin => uses::access(address, Use::Store),
            How::Own | How::Sleep => uses::access(address, Use::Change),
        }
        let held = if shares { self.held.get() - 1 } else { 0 };
        self.held.set(held);
        world::with(|world| world.note_release(address));
        match held {
            0 => self.pass_on(),
            EXCLUSIVE => self.wake_who_bars(),
            _ => {}
        }
    }

    /// One more of our own is let go; whether it was calm already.
    fn calm_down(&self) -> bool {
        let sharp = self.sharp.get();
        let nobody = || world::with(|world| world.nobody_waits(self.address())).unwrap_or(true);
        if sharp > 0 && nobody() {
            self.sharp.set(sharp - 1);
        }
        sharp == 0
    }

    /// Whether who waits looks at the word until it is free, instead of having it handed over.
    fn is_looked_at(&self) -> bool {
        self.how == How::Spin && world::with(|world| world.machine.unfair).unwrap_or(false)
    }

    fn pass_on(&self) {
        let address = self.address();
        if self.is_looked_at() {
            return self.show();
        }
        world::with(|world| {
            let Some(first) = world.take_waiter(address) else { return };
            // Where who waits has gone to sleep others have it again and again before, so from
            // time to time it is handed over there, too.
            let looking = self.how == How::Sleep && world.is_looking();
            let handed = self.how == How::Spin || looking && world.is_due(address);
            self.hand(world, first, handed);
            let shares = first.shares;
            while shares && world.queue(address).front().is_some_and(|next| next.shares) {
                let next = world.take_waiter(address).expect("there is one");
                self.hand(world, next, handed);
            }
        });
    }

    /// The last of those who shared the lock has left.
    fn wake_who_bars(&self) {
        world::with(|world| {
            if let Some(waiter) = world.take_waiter(self.last()) {
                self.hand(world, waiter, false);
            }
        });
    }

    /// All who look at the word look again once the store is done: that takes it from them.
    fn show(&self) {
        world::with(|world| {
            let waiters = world.take_waiters(self.address());
            if !world.is_charging() {
                waiters.iter().for_each(|waiter| world.wake(waiter.task, world.now()));
                return;
            }
            // After who has let go, if that takes it again as soon as its store is done.
            let seen = world.stored() + 1;
            world.note_left(self.address(), seen);
            waiters.iter().for_each(|waiter| world.wake(waiter.task, seen));
        });
    }

    /// Ends the wait of one who waits; with `handed` the lock is that one's.
    fn hand(&self, world: &mut world::World, waiter: Waiter, handed: bool) {
        let (now, machine) = (world.now(), world.machine);
        let (from, to) = (world.core_of(world.caller()), world.core_of(waiter.task));
        let line = machine.distance(from, to);
        let spins = now.saturating_sub(waiter.since) < machine.wake && !world.is_looking();
        if handed {
            self.take(waiter.shares);
            world.note_holder(self.address(), waiter.task);
            world.give_line(self.address(), to);
            world.note_handed(waiter.task);
        }
        let (after, mine) = match self.how {
            _ if !world.is_charging() => (0, 0),
            How::Spin => (line * machine.handoff / 100, 0),
            _ if spins => (line, 0),
            // Who wakes another makes a system call.
            _ => (world.waking(), machine.wake * machine.waker / 100),
        };
        world.wake(waiter.task, now + after);
        world.pass(mine);
    }
}

/// Whether who waits for a sleeping lock looks at it for a while that is told.
fn is_looking() -> bool {
    world::with(|world| world.is_looking()).unwrap_or(false)
}

/// The lines of what a lock guards come with it.
fn guarded<T: ?Sized>(value: *mut T, which: Use) {
    let _quiet = quiet();
    // SAFETY: the caller holds the lock, and only the size is looked at.
    let bytes = size_of_val(unsafe { &*value }).min(GUARDED);
    data(value.addr_of(), bytes, which);
}

trait Address {
    fn addr_of(self) -> usize;
}

impl<T: ?Sized> Address for *mut T {
    fn addr_of(self) -> usize {
        self.cast::<()>().addr()
    }
}

/// How a family of locks waits; a value is what a real lock has more than a [`Word`].
pub(crate) trait Family: Sized {
    /// Of one that is made without a choice.
    #[allow(clippy::declare_interior_mutable_const)] // an initial value
    const WORD: Word;
    /// The value.
    const REST: Self;
}

/// Sleeps.
pub(crate) struct Usual;
/// As it is told.
pub(crate) struct Kinds;
/// The same, of those that may be shared.
pub(crate) struct SharedKinds(#[allow(dead_code)] u64); // only its size matters
/// Sleeps at a price.
pub(crate) struct Owns(#[allow(dead_code)] u32); // only its size matters

impl Family for Usual {
    #[allow(clippy::declare_interior_mutable_const)] // an initial value
    const WORD: Word = Word::new(How::Sleep);
    const REST: Self = Self;
}

impl Family for Kinds {
    #[allow(clippy::declare_interior_mutable_const)] // an initial value
    const WORD: Word = Word::new(How::Sleep);
    const REST: Self = Self;
}

impl Family for SharedKinds {
    #[allow(clippy::declare_interior_mutable_const)] // an initial value
    const WORD: Word = Word::new(How::Sleep);
    const REST: Self = Self(0);
}

impl Family for Owns {
    #[allow(clippy::declare_interior_mutable_const)] // an initial value
    const WORD: Word = Word::new(How::Own);
    const REST: Self = Self(0);
}

/// A lock and what it guards.
pub(crate) struct Lock<F, T: ?Sized> {
    #[allow(dead_code)] // only its size matters
    rest: F,
    word: Word,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only under the lock or by exclusive ownership, and the word by one
// real thread: all threads of a simulation are coroutines of it, and without a simulation nobody
// starts another.
unsafe impl<F, T: ?Sized + Send> Send for Lock<F, T> {}
// SAFETY: as above.
unsafe impl<F, T: ?Sized + Send> Sync for Lock<F, T> {}

/// Holds a lock, shared or not.
pub(crate) struct Guard<'a, F, T: ?Sized, const SHARES: bool> {
    lock: &'a Lock<F, T>,
    /// Not to be sent.
    here: PhantomData<*const ()>,
}

// SAFETY: a shared guard gives shared access to the value.
unsafe impl<F, T: ?Sized + Sync, const SHARES: bool> Sync for Guard<'_, F, T, SHARES> {}

impl<F: Family, T> Lock<F, T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { rest: F::REST, word: F::WORD, value: UnsafeCell::new(value) }
    }

    const fn of_kind(kind: LockKind, value: T) -> Self {
        let how = match kind {
            LockKind::Sleep => How::Sleep,
            LockKind::Spin => How::Spin,
        };
        Self { rest: F::REST, word: Word::new(how), value: UnsafeCell::new(value) }
    }

    pub(crate) fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<F, T: ?Sized> Lock<F, T> {
    fn guard<const SHARES: bool>(&self) -> Guard<'_, F, T, SHARES> {
        guarded(self.value.get(), if SHARES { Use::Load } else { Use::Store });
        Guard { lock: self, here: PhantomData }
    }

    pub(crate) fn lock(&self) -> Guard<'_, F, T, false> {
        self.word.lock(false);
        self.guard()
    }

    pub(crate) fn try_lock(&self) -> Option<Guard<'_, F, T, false>> {
        self.word.try_lock(false).then(|| self.guard())
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.word.is_locked()
    }

    pub(crate) fn read(&self) -> Guard<'_, F, T, true> {
        self.word.lock(true);
        self.guard()
    }

    pub(crate) fn try_read(&self) -> Option<Guard<'_, F, T, true>> {
        self.word.try_lock(true).then(|| self.guard())
    }

    pub(crate) fn write(&self) -> Guard<'_, F, T, false> {
        self.lock()
    }

    pub(crate) fn try_write(&self) -> Option<Guard<'_, F, T, false>> {
        self.try_lock()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<F, T: ?Sized, const SHARES: bool> Guard<'_, F, T, SHARES> {
    /// Lets go for a wait.
    pub(super) fn leave(&mut self) {
        self.lock.word.unlock(SHARES);
    }

    /// Takes the lock again.
    pub(super) fn enter(&mut self) {
        self.lock.word.lock(SHARES);
        guarded(self.lock.value.get(), Use::Store);
    }
}

impl<F, T: ?Sized, const SHARES: bool> Drop for Guard<'_, F, T, SHARES> {
    fn drop(&mut self) {
        self.lock.word.unlock(SHARES);
    }
}

impl<F, T: ?Sized, const SHARES: bool> Deref for Guard<'_, F, T, SHARES> {
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

pub(crate) type Mutex<T> = Lock<Usual, T>;
pub(crate) type MutexGuard<'a, T> = Guard<'a, Usual, T, false>;
pub(crate) type RwLock<T> = Lock<Usual, T>;
pub(crate) type RwLockReadGuard<'a, T> = Guard<'a, Usual, T, true>;
pub(crate) type RwLockWriteGuard<'a, T> = Guard<'a, Usual, T, false>;
pub(crate) type OwnMutex<T> = Lock<Owns, T>;
pub(crate) type OwnMutexGuard<'a, T> = Guard<'a, Owns, T, false>;
pub(crate) type OwnRwLock<T> = Lock<Owns, T>;
pub(crate) type OwnRwLockReadGuard<'a, T> = Guard<'a, Owns, T, true>;
pub(crate) type OwnRwLockWriteGuard<'a, T> = Guard<'a, Owns, T, false>;
pub(crate) type KindMutex<T> = Lock<Kinds, T>;
pub(crate) type KindMutexGuard<'a, T> = Guard<'a, Kinds, T, false>;
pub(crate) type KindRwLock<T> = Lock<SharedKinds, T>;
pub(crate) type KindRwLockReadGuard<'a, T> = Guard<'a, SharedKinds, T, true>;
pub(crate) type KindRwLockWriteGuard<'a, T> = Guard<'a, SharedKinds, T, false>;

/// A lock that waits as `kind` says.
pub(crate) const fn kind_mutex<T>(kind: LockKind, value: T) -> KindMutex<T> {
    Lock::of_kind(kind, value)
}

/// A reader-writer lock that waits as `kind` says.
pub(crate) const fn kind_rwlock<T>(kind: LockKind, value: T) -> KindRwLock<T> {
    Lock::of_kind(kind, value)
}

#[cfg(test)]
mod tests {
    use super::super::lines::Machine;
    use super::super::world::{clock, gather, run, settle, work};
    use super::*;
    use crate::Arc;
    use crate::primitive::thread;

    /// What letting a lock go takes that another sleeps for, where a wake-up takes 10 us.
    fn letting_go(waker: u64) -> u64 {
        let machine = Machine { waker, ..Machine::default() };
        let machine = Machine { cores: 2, cluster: 2, socket: 2, line_shift: 6, ..machine };
        let machine = Machine { pause: 10_000, offer: 100_000, wake: 10_000_000, ..machine };
        run(machine, || {
            let lock = Arc::new(kind_mutex(LockKind::Sleep, ()));
            let others = lock.clone();
            let other = thread::spawn(move || {
                gather(1, 2, 0, 0);
                drop(others.lock());
            });
            let held = lock.lock();
            gather(0, 2, 0, 0);
            work(5_000_000);
            let began = clock();
            drop(held);
            let took = clock() - began;
            other.join().expect("it does not panic");
            settle();
            took
        })
    }

    /// How long who waits is at it, where the lock is let go so long after it was asked for and an
    /// instruction takes 1 ns.
    fn waiting(held: u64) -> u64 {
        let machine =
            Machine { cores: 2, cluster: 2, socket: 2, line_shift: 6, ..Machine::default() };
        let machine = Machine { pause: 10_000, offer: 100_000, wake: 10_000_000, ..machine };
        run(machine, move || {
            let lock = Arc::new(kind_mutex(LockKind::Sleep, ()));
            let others = lock.clone();
            let held_here = lock.lock();
            let other = thread::spawn(move || {
                gather(1, 2, 0, 1000);
                let began = clock();
                drop(others.lock());
                clock() - began
            });
            gather(0, 2, 0, 1000);
            work(held);
            drop(held_here);
            let took = other.join().expect("it does not panic");
            settle();
            took
        })
    }

    #[test]
    fn who_is_about_to_sleep_looks_once_more() {
        // The last look while it rests is after 14 pauses and 7 offers, and that one after 300
        // instructions more.
        let slept = [700_000, 1_000_000, 1_600_000].map(|held| waiting(held) > 5_000_000);
        assert_eq!(slept, [false, false, true]);
    }

    #[test]
    fn who_wakes_another_is_busy_for_the_part_of_it_that_is_told() {
        assert_eq!([0, 22, 50].map(letting_go), [0, 2_200_000, 5_000_000]);
    }
}
