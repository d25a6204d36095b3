//! One simulation: its threads, their virtual clocks, and which of them runs next.
//!
//! A simulated thread is a coroutine with a clock. All coroutines run on one real thread.
//! Invariants:
//!
//! 1. The thread that runs next is the one with the lowest clock (the lowest number among equals),
//!    or the one that a random schedule chooses.
//! 2. A thread stops only in [`switch`]. So the state is plain data, which [`with`] lends out, and
//!    no switch happens inside of `with`.
//! 3. The same program on the same machine gives the same clocks, as far as its memory lies alike.

use crate::coherence::Lines;
use crate::machine::{CORES, Machine};
use crate::random::{RandomSchedule, Turns};
use crate::report::{Charges, Why};
use crate::table::NumberMap;
use crate::task::{Coroutine, Task, Wait};
use crate::waiters::Waiters;
use std::cell::{Cell, UnsafeCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::panic::Location;

/// A call site.
pub type Site = &'static Location<'static>;

/// Words of a coroutine's stack. Pages that are not used take no memory.
const STACK: usize = 1 << 18;

type Handle<'a> = generator::Scope<'a, 'static, (), ()>;

/// The holder of a lock: its number, the lock's class, and where it took the lock.
type Holder = (usize, Option<&'static str>, Option<Site>);

pub(crate) struct Simulation {
    pub(crate) machine: Machine,
    pub(crate) lines: Lines,
    pub(crate) tasks: Vec<Task>,
    /// Instead of virtual time.
    pub(crate) random: Option<RandomSchedule>,
    /// The holders of each lock, under a random schedule.
    holders: NumberMap<usize, Vec<Holder>>,
    /// What panicking threads said, if panics are collected.
    pub(crate) panics: Vec<String>,
    pub(crate) collects_panics: bool,
    pub(crate) injected_bug: Option<&'static str>,
    /// Threads that can run: from when on, the number, and which of its waits that ends.
    ready: BinaryHeap<Reverse<(u64, usize, u64)>>,
    current: usize,
    pub(crate) charges: Charges,
    pub(crate) waiters: Waiters,
    slots: Vec<bool>,
    pub(crate) slots_used: usize,
    gathered: Vec<usize>,
}

std::thread_local! {
    static CURRENT: Cell<*const UnsafeCell<Simulation>> = const { Cell::new(std::ptr::null()) };
}

/// Whether the caller is a simulated thread.
#[must_use]
pub fn inside() -> bool {
    !CURRENT.get().is_null()
}

/// Lends the simulation out; `None` outside of one.
pub(crate) fn with<R>(f: impl FnOnce(&mut Simulation) -> R) -> Option<R> {
    let current = CURRENT.get();
    if current.is_null() {
        return None;
    }
    // SAFETY: the pointer is to what `run` on this thread owns until it resets the pointer, and `f`
    // neither switches nor calls back here, so there is no other reference.
    Some(f(unsafe { &mut *(*current).get() }))
}

/// Cores of the machine; one outside of a simulation.
#[must_use]
pub fn cores() -> usize {
    with(|sim| sim.machine.cores).unwrap_or(1)
}

impl Simulation {
    fn new(machine: Machine) -> Self {
        Self {
            machine,
            lines: Lines::default(),
            tasks: Vec::new(),
            random: None,
            holders: HashMap::default(),
            panics: Vec::new(),
            collects_panics: false,
            injected_bug: None,
            ready: BinaryHeap::new(),
            current: 0,
            charges: Charges::default(),
            waiters: Waiters::default(),
            slots: vec![false; crate::SLOTS],
            slots_used: 0,
            gathered: Vec::new(),
        }
    }

    pub(crate) fn me(&mut self) -> &mut Task {
        let current = self.current;
        &mut self.tasks[current]
    }

    /// The caller's clock.
    pub(crate) fn now(&self) -> u64 {
        self.tasks[self.current].clock
    }

    /// The caller's number.
    pub(crate) fn caller(&self) -> usize {
        self.current
    }

    pub(crate) fn slot(&self) -> u16 {
        self.tasks[self.current].slot
    }

    /// Lets the caller execute code for so long.
    pub(crate) fn pass(&mut self, time: u64) {
        self.me().pass(time);
    }

    /// What the caller does next depends on its last access: nothing of it is begun before.
    pub(crate) fn wait_for_last_access(&mut self) {
        let now = self.now();
        self.me().restart(now);
    }

    pub(crate) fn is_charging(&self) -> bool {
        self.charges.on
    }

    /// From a wake-up to the sleeper's first instruction.
    pub(crate) fn wake_latency(&self) -> u64 {
        if self.charges.on { self.machine.wake } else { 0 }
    }

    fn add(&mut self, clock: u64, code: Option<Coroutine>) -> usize {
        let slot = self.slots.iter().position(|taken| !taken).unwrap_or(self.slots.len() - 1);
        self.slots[slot] = true;
        self.slots_used = self.slots_used.max(slot + 1);
        // Helper threads have cores of their own, far from those that are measured.
        let core = CORES - 1 - slot % CORES;
        let task = Task::new(clock, core, slot as u16, code);
        self.tasks.push(task);
        self.tasks.len() - 1
    }

    fn make_ready(&mut self, task: usize, clock: u64) {
        let wait = self.tasks[task].wait_number;
        match &mut self.random {
            Some(schedule) => schedule.push((clock, task, wait)),
            None => self.ready.push(Reverse((clock, task, wait))),
        }
    }

    pub(crate) fn set_clock(&mut self, task: usize, clock: u64) {
        self.tasks[task].restart(clock);
    }

    pub(crate) fn resume_at(&mut self, task: usize, clock: u64) {
        let one = &mut self.tasks[task];
        one.wait_number += 1;
        one.timed_out = clock > one.clock;
        one.be_at(clock);
        one.wait = Wait::Nothing;
        self.current = task;
    }

    /// Notes a panic, after which no other thread runs; the earlier panics.
    pub(crate) fn note_panic(&mut self, text: String) -> Option<String> {
        let before = (!self.panics.is_empty()).then(|| self.panics.join("\n"));
        self.panics.push(text);
        if let Some(schedule) = &mut self.random {
            schedule.stop("a thread panicked");
        }
        before
    }

    /// Begins a random schedule.
    pub(crate) fn shuffle(&mut self, turns: Turns) {
        let ready = std::mem::take(&mut self.ready).into_iter().map(|Reverse(ready)| ready);
        let now = self.now();
        self.random = Some(RandomSchedule::new(turns, now, ready.collect()));
    }

    /// Notes that `task` has the lock at `address`.
    pub(crate) fn note_holder(&mut self, address: usize, task: usize) {
        if self.random.is_some() {
            let one = &self.tasks[task];
            self.holders.entry(address).or_default().push((task, one.class, one.site));
        }
    }

    /// Notes that the caller releases the lock at `address`.
    pub(crate) fn note_release(&mut self, address: usize) {
        if let Some(holders) = self.holders.get_mut(&address) {
            let at = holders.iter().position(|holder| holder.0 == self.current).unwrap_or(0);
            if at < holders.len() {
                holders.swap_remove(at);
            }
        }
    }

    pub(crate) fn holders_of(
        &self,
        address: usize,
    ) -> impl Iterator<Item = (usize, &'static str, Site)> {
        let holders = self.holders.get(&address).into_iter().flatten();
        holders.filter_map(|(task, class, site)| Some((*task, (*class)?, (*site)?)))
    }

    pub(crate) fn name_of(&self, task: usize) -> String {
        self.tasks[task].name.clone().unwrap_or_else(|| format!("thread {task}"))
    }

    pub(crate) fn set_name(&mut self, task: usize, name: String) {
        self.tasks[task].name = Some(name);
    }

    /// Lowers the caller's priority below all others, under a random schedule.
    pub(crate) fn give_way(&mut self) {
        let current = self.current;
        if let Some(schedule) = &mut self.random {
            schedule.lower(current);
        }
    }

    /// The lowest clock of the threads that can run. Drops time limits of earlier waits.
    pub(crate) fn next_clock(&mut self) -> u64 {
        while let Some(Reverse((clock, task, wait))) = self.ready.peek().copied() {
            if self.tasks[task].waits_for(wait) {
                return clock;
            }
            self.ready.pop();
        }
        u64::MAX
    }

    /// Ends a wait of `task` at `clock`.
    pub(crate) fn wake(&mut self, task: usize, clock: u64) {
        let one = &mut self.tasks[task];
        one.wait_number += 1;
        one.be_at(clock);
        one.timed_out = false;
        let clock = one.clock;
        self.make_ready(task, clock);
    }

    /// Charges time to the caller's last access.
    pub(crate) fn charge(&mut self, why: Why, time: u64) {
        let task = &self.tasks[self.current];
        let (class, site) = (task.class, task.site);
        self.charges.add(why, class, site, time);
    }

    /// Charges a wait for a lock since then. Transfers of its line are charged as such: `lost` is
    /// what the caller had lost to transfers before.
    pub(crate) fn charge_wait(&mut self, since: u64, lost: u64) {
        if self.charges.on {
            let transfers = self.tasks[self.current].lost - lost;
            self.charge(Why::Lock, self.now().saturating_sub(since + transfers));
        }
    }
}

/// Notes the lock class and call site of the caller's next access.
pub fn at(class: Option<&'static str>, site: Site) {
    with(|sim| {
        let me = sim.me();
        (me.class, me.site) = (class, Some(site));
    });
}

/// Runs all threads with lower clocks than the caller's.
pub(crate) fn let_others() {
    with(|sim| {
        let (task, clock) = (sim.current, sim.now());
        sim.make_ready(task, clock);
    });
    switch();
}

/// Stops the caller until another thread wakes it, or until `limit`; whether the limit ended it.
pub(crate) fn block(wait: Wait, limit: Option<u64>) -> bool {
    with(|sim| {
        let task = sim.current;
        sim.me().wait = wait;
        if let Some(limit) = limit {
            sim.make_ready(task, limit);
        }
    });
    switch();
    with(|sim| sim.me().timed_out).unwrap_or(false)
}

fn switch() {
    // While a thread unwinds, no other thread may run in its place.
    if std::thread::panicking() {
        return;
    }
    let again = with(|sim| match sim.random {
        Some(_) => sim.chose_caller_again(),
        None => sim.next_clock() != u64::MAX && next_is_caller(sim),
    });
    if again == Some(true) {
        return;
    }
    let handle = with(|sim| sim.me().handle).expect("only simulated threads switch");
    // SAFETY: the handle is on the stack of the coroutine that runs here, which outlives this call,
    // and is used nowhere else.
    unsafe { (*handle.cast::<Handle<'_>>()).yield_with(()) };
}

/// Goes on with the caller if it is the next thread.
fn next_is_caller(sim: &mut Simulation) -> bool {
    let Some(Reverse((clock, task, _))) = sim.ready.peek().copied() else { return false };
    if task != sim.current {
        return false;
    }
    sim.ready.pop();
    sim.resume_at(task, clock);
    true
}

/// Starts a thread that runs `code`; its number.
pub(crate) fn start(code: Box<dyn FnOnce()>) -> usize {
    let coroutine = generator::Gn::<()>::new_scoped_opt_local(STACK, move |mut handle| {
        with(|sim| sim.me().handle = std::ptr::from_mut(&mut handle).cast());
        code();
        with(|sim| {
            let (task, now) = (sim.current, sim.now());
            sim.tasks[task].done = true;
            let slot = usize::from(sim.tasks[task].slot);
            sim.slots[slot] = false;
            let joiners = std::mem::take(&mut sim.tasks[task].joiners);
            joiners.into_iter().for_each(|joiner| sim.wake(joiner, now));
        });
    });
    with(|sim| {
        let clock = if sim.tasks.is_empty() { 0 } else { sim.now() };
        let task = sim.add(clock, Some(coroutine));
        sim.make_ready(task, clock);
        task
    })
    .expect("a thread is started inside of a simulation")
}

/// Waits until `task` has ended.
pub(crate) fn join(task: usize) {
    let waits = with(|sim| {
        if sim.tasks[task].done {
            let ended = sim.tasks[task].clock;
            sim.me().be_at(ended);
            return false;
        }
        let me = sim.current;
        sim.tasks[task].joiners.push(me);
        true
    });
    if waits == Some(true) {
        block(Wait::End(task), None);
    }
}

/// Runs `main` as the first thread of a simulation until it ends.
///
/// # Panics
/// If `main` does, or if all threads wait for each other.
pub fn run<R: 'static>(machine: Machine, main: impl FnOnce() -> R + 'static) -> R {
    run_with(machine, |_| (), main, |_| ())
}

pub(crate) fn run_with<R: 'static>(
    machine: Machine,
    before: impl FnOnce(&mut Simulation),
    main: impl FnOnce() -> R + 'static,
    after: impl FnOnce(&mut Simulation),
) -> R {
    assert!(!inside(), "a simulation in a simulation");
    let simulation = UnsafeCell::new(Simulation::new(machine));
    CURRENT.set(std::ptr::from_ref(&simulation));
    let _reset = Reset(Some(after));
    with(before);
    let result = std::rc::Rc::new(Cell::new(None));
    let theirs = result.clone();
    start(Box::new(move || {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(main));
        theirs.set(Some(caught));
    }));
    while !with(|sim| sim.tasks[0].done).unwrap_or(true) {
        run_next();
    }
    match result.take().expect("the first thread has ended") {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs the next thread until it stops.
fn run_next() {
    let (task, mut code) = with(|sim| {
        let next = if sim.random.is_some() {
            sim.next_by_random()
        } else if sim.next_clock() == u64::MAX {
            None
        } else {
            sim.ready.pop().map(|Reverse((clock, task, _))| (clock, task))
        };
        let (clock, task) = next.unwrap_or_else(|| panic!("{}", sim.deadlock_report()));
        sim.resume_at(task, clock);
        sim.follow_random_clock();
        (task, sim.tasks[task].code.take().expect("it does not run"))
    })
    .expect("inside");
    code.resume();
    with(|sim| {
        if !sim.tasks[task].done {
            sim.tasks[task].code = Some(code);
        }
    });
}

struct Reset<F: FnOnce(&mut Simulation)>(Option<F>);

impl<F: FnOnce(&mut Simulation)> Drop for Reset<F> {
    fn drop(&mut self) {
        if let Some(after) = self.0.take() {
            with(after);
        }
        // Threads that never ended are leaked: their stacks are not unwound.
        let left = with(|sim| {
            let codes = sim.tasks.iter_mut().filter_map(|task| task.code.take());
            codes.collect::<Vec<_>>()
        });
        CURRENT.set(std::ptr::null());
        left.into_iter().flatten().for_each(std::mem::forget);
    }
}

/// Waits until `threads` threads have called this, the caller being on `core`. From then on all
/// clocks are the same and every access is charged, with `step` picoseconds for the code before it
/// and `instruction` for an instruction that the code declares.
pub fn gather(core: usize, threads: usize, step: u64, instruction: u64) {
    let last = with(|sim| {
        let me = sim.current;
        sim.me().core = core;
        sim.gathered.push(me);
        sim.gathered.len() == threads
    });
    if last != Some(true) {
        block(Wait::Nothing, None);
        return;
    }
    with(|sim| {
        let all = std::mem::take(&mut sim.gathered);
        let latest = all.iter().map(|task| sim.tasks[*task].clock).max().unwrap_or(0);
        sim.lines = Lines::default();
        sim.charges.begin(step, instruction);
        let me = sim.current;
        sim.me().restart(latest);
        all.into_iter().filter(|task| *task != me).for_each(|task| sim.wake(task, latest));
    });
}

/// The caller's clock, in picoseconds.
#[must_use]
pub fn clock() -> u64 {
    with(|sim| sim.now()).unwrap_or(0)
}

/// Lets time pass on the caller's core.
pub fn work(time: u64) {
    with(|sim| {
        if sim.charges.on {
            sim.pass(time);
        }
    });
}

/// Runs `work` without charging it and without switching to other threads: for code that stands for
/// hardware.
pub fn uncharged<R>(work: impl FnOnce() -> R) -> R {
    let before = with(|sim| std::mem::replace(&mut sim.charges.on, false));
    let done = work();
    if before == Some(true) {
        with(|sim| sim.charges.on = true);
    }
    done
}
