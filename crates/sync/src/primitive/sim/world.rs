//! One simulation: its threads, their clocks, and who runs next.
//!
//! All of it belongs to one real thread, which runs one simulated thread at a time: a coroutine
//! that stops only in [`switch`]. So what is here is plain data, reached by [`with`], which no
//! switch happens inside of.

use super::between::{Between, Span};
use super::chance::{Chance, Turns};
use super::lines::{CORES, Lines, Machine};
use super::stepping::{self, quiet};
use super::table::Spreading;
use super::task::{Coroutine, Task, Wait};
use super::waits::Waits;
use crate::LockClass;
use crate::rank::Site;
use std::cell::{Cell, UnsafeCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Words of a thread's stack; only those used are ever there.
const STACK: usize = 1 << 18;

type Handle<'a> = generator::Scope<'a, 'static, (), ()>;

/// What is charged to a class and a place: how often, and picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// How often.
    pub count: u64,
    /// Picoseconds, of all cores together.
    pub time: u64,
}

/// Why time was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A cache line came from another core.
    Line,
    /// Someone held a lock.
    Lock,
}

type Key = (Why, usize, usize);

/// Who has a lock, and took it where.
type Holder = (usize, Option<&'static LockClass>, Option<Site>);

pub(crate) struct World {
    pub(crate) machine: Machine,
    pub(super) lines: Lines,
    pub(super) tasks: Vec<Task>,
    /// If turns are not by time.
    pub(super) chance: Option<Chance>,
    /// Who holds which lock, while turns are by chance.
    holders: HashMap<usize, Vec<Holder>, Spreading>,
    /// What panicking threads said.
    pub(super) notes: Vec<String>,
    /// Whether somebody hears of panics.
    pub(super) listens: bool,
    pub(super) injected: Option<&'static str>,
    /// Clock, number, turn.
    ready: BinaryHeap<Reverse<(u64, usize, u64)>>,
    pub(super) current: usize,
    /// Whether operations cost anything yet.
    pub(super) charging: bool,
    /// What is computed before each operation on a lock or atomic.
    pub(super) step: u64,
    /// The same where it is known what lies between which uses.
    pub(super) between: Between,
    pub(super) operations: u64,
    /// Read-modify-writes.
    pub(super) changes: u64,
    /// Picoseconds of an instruction, and how many were told of since [`forget`].
    pub(super) instruction: u64,
    pub(super) told: u64,
    pub(super) waits: Waits,
    why: HashMap<Key, (Charge, Option<&'static LockClass>, Option<Site>), Spreading>,
    slots: Vec<bool>,
    pub(crate) slots_used: usize,
    gathered: Vec<usize>,
    tally: u64,
    forgot: bool,
    over: bool,
}

std::thread_local! {
    static WORLD: Cell<*const UnsafeCell<World>> = const { Cell::new(std::ptr::null()) };
}

/// Whether the caller is in a simulation.
pub(crate) fn inside() -> bool {
    !WORLD.get().is_null()
}

/// Works on the simulation; nothing outside of one.
pub(crate) fn with<R>(f: impl FnOnce(&mut World) -> R) -> Option<R> {
    let world = WORLD.get();
    if world.is_null() {
        return None;
    }
    // SAFETY: the pointer is to what `run` on this thread owns until it resets the pointer, and `f`
    // neither switches nor calls back here, so there is no other reference.
    Some(f(unsafe { &mut *(*world).get() }))
}

/// Cores of the machine.
pub(crate) fn cores() -> usize {
    with(|world| world.machine.cores).unwrap_or(1)
}

impl World {
    pub(super) fn me(&mut self) -> &mut Task {
        let current = self.current;
        &mut self.tasks[current]
    }

    pub(crate) fn now(&self) -> u64 {
        self.tasks[self.current].clock
    }

    pub(crate) fn caller(&self) -> usize {
        self.current
    }

    pub(crate) fn slot(&self) -> u16 {
        self.tasks[self.current].slot
    }

    pub(crate) fn pass(&mut self, time: u64) {
        self.me().pass(time);
    }

    /// What follows from the last use is not begun before that is done.
    pub(crate) fn follow(&mut self) {
        let now = self.now();
        self.me().begin_anew(now);
    }

    pub(crate) fn is_charging(&self) -> bool {
        self.charging
    }

    fn add(&mut self, clock: u64, code: Option<Coroutine>) -> usize {
        let slot = self.slots.iter().position(|taken| !taken).unwrap_or(self.slots.len() - 1);
        self.slots[slot] = true;
        self.slots_used = self.slots_used.max(slot + 1);
        // Helpers are on cores of their own, far from those that are measured.
        let core = CORES - 1 - slot % CORES;
        let task = Task::new(clock, core, slot as u16, self.tasks.len(), code);
        self.tasks.push(task);
        self.tasks.len() - 1
    }

    fn make_ready(&mut self, task: usize, clock: u64) {
        let turn = self.tasks[task].turn;
        match &mut self.chance {
            Some(chance) => chance.push((clock, task, turn)),
            None => self.ready.push(Reverse((clock, task, turn))),
        }
    }

    pub(super) fn set_clock(&mut self, task: usize, clock: u64) {
        self.tasks[task].begin_anew(clock);
    }

    pub(super) fn resume_at(&mut self, task: usize, clock: u64) {
        let one = &mut self.tasks[task];
        one.turn += 1;
        one.timed_out = clock > one.clock;
        one.be_at(clock);
        one.wait = Wait::Nothing;
        self.current = task;
    }

    /// Notes what a panicking thread says; nobody else goes on. What was said before.
    pub(super) fn note(&mut self, text: String) -> Option<String> {
        let before = (!self.notes.is_empty()).then(|| self.notes.join("\n"));
        self.notes.push(text);
        if let Some(chance) = &mut self.chance {
            chance.stop("a thread panicked");
        }
        before
    }

    /// From now on turns are by chance.
    pub(super) fn shuffle(&mut self, turns: Turns) {
        let ready = std::mem::take(&mut self.ready).into_iter().map(|Reverse(ready)| ready);
        let now = self.now();
        self.chance = Some(Chance::new(turns, now, ready.collect()));
    }

    /// Notes that `task` has the lock at `address`.
    pub(crate) fn note_holder(&mut self, address: usize, task: usize) {
        if self.chance.is_some() {
            let one = &self.tasks[task];
            self.holders.entry(address).or_default().push((task, one.class, one.site));
        }
    }

    /// Notes that the caller lets go of it.
    pub(crate) fn note_release(&mut self, address: usize) {
        if let Some(holders) = self.holders.get_mut(&address) {
            let at = holders.iter().position(|holder| holder.0 == self.current).unwrap_or(0);
            if at < holders.len() {
                holders.swap_remove(at);
            }
        }
    }

    pub(super) fn holders_of(
        &self,
        address: usize,
    ) -> impl Iterator<Item = (usize, &'static str, Site)> {
        let holders = self.holders.get(&address).into_iter().flatten();
        holders.filter_map(|(task, class, site)| Some((*task, class.as_ref()?.name, (*site)?)))
    }

    pub(super) fn name_of(&self, task: usize) -> String {
        self.tasks[task].name.clone().unwrap_or_else(|| format!("thread {task}"))
    }

    pub(super) fn set_name(&mut self, task: usize, name: String) {
        self.tasks[task].name = Some(name);
    }

    /// The caller gives way to all.
    pub(super) fn give_way(&mut self) {
        let current = self.current;
        if let Some(chance) = &mut self.chance {
            chance.lower(current);
        }
    }

    /// The clock of whoever is next, dropping limits that are void.
    pub(super) fn next_clock(&mut self) -> u64 {
        while let Some(Reverse((clock, task, turn))) = self.ready.peek().copied() {
            if self.tasks[task].turn == turn && !self.tasks[task].done {
                return clock;
            }
            self.ready.pop();
        }
        u64::MAX
    }

    /// Ends a wait of `task`'s at `clock`.
    pub(crate) fn wake(&mut self, task: usize, clock: u64) {
        let one = &mut self.tasks[task];
        one.turn += 1;
        one.be_at(clock);
        one.timed_out = false;
        let clock = one.clock;
        self.make_ready(task, clock);
    }

    pub(crate) fn core_of(&self, task: usize) -> usize {
        self.tasks[task].core
    }

    pub(crate) fn charge(&mut self, why: Why, time: u64) {
        if self.over {
            return;
        }
        let task = &self.tasks[self.current];
        let (class, site) = (task.class, task.site);
        let class_key = class.map_or(0, |class| std::ptr::from_ref(class).addr());
        let site_key = site.map_or(0, |site| std::ptr::from_ref(site).addr());
        let entry = self.why.entry((why, class_key, site_key)).or_default();
        entry.0.count += 1;
        entry.0.time += time;
        (entry.1, entry.2) = (class, site);
    }

    /// Charges a wait for a lock since then; what was lost to its line meanwhile, where `lost` had
    /// been before, is charged to that.
    pub(crate) fn charge_wait(&mut self, since: u64, lost: u64) {
        if self.charging {
            let lines = self.lost() - lost;
            self.charge(Why::Lock, self.now().saturating_sub(since + lines));
        }
    }

    /// Puts the line at an address where a lock was handed to.
    pub(crate) fn give_line(&mut self, address: usize, core: usize) {
        if self.charging {
            self.lines.give(self.machine.line(address), core);
        }
    }

    /// What the caller has lost to the coming of lines.
    pub(crate) fn lost(&self) -> u64 {
        self.tasks[self.current].lost
    }
}

/// Notes whose time is about to pass.
pub(crate) fn at(class: Option<&'static LockClass>, site: Site) {
    let _quiet = quiet();
    with(|world| {
        let me = world.me();
        (me.class, me.site) = (class, Some(site));
    });
}

/// Whether the caller is charged for what it does.
pub(crate) fn is_charging() -> bool {
    let _quiet = quiet();
    with(|world| world.charging).unwrap_or(false)
}

/// Runs all who are behind the caller.
pub(crate) fn let_others() {
    with(|world| {
        let (task, clock) = (world.current, world.now());
        world.make_ready(task, clock);
    });
    switch();
}

/// Stops the caller until someone makes it ready, at `limit` at the latest; whether that ended it.
pub(crate) fn block(wait: Wait, limit: Option<u64>) -> bool {
    with(|world| {
        let task = world.current;
        world.me().wait = wait;
        if let Some(limit) = limit {
            world.make_ready(task, limit);
        }
    });
    switch();
    with(|world| world.me().timed_out).unwrap_or(false)
}

fn switch() {
    // While a thread unwinds, nobody else may run in it.
    if std::thread::panicking() {
        return;
    }
    let again = with(|world| match world.chance {
        Some(_) => world.chosen_again(),
        None => world.next_clock() != u64::MAX && next_is_me(world),
    });
    if again == Some(true) {
        return;
    }
    let handle = with(|world| world.me().handle).expect("only threads of a simulation switch");
    let counting = stepping::suspend();
    // SAFETY: the handle is on the stack of the coroutine that runs here, which outlives this call,
    // and is used nowhere else.
    unsafe { (*handle.cast::<Handle<'_>>()).yield_with(()) };
    counting.resume();
}

/// Goes on with the caller itself if it is its turn.
fn next_is_me(world: &mut World) -> bool {
    let Some(Reverse((clock, task, _))) = world.ready.peek().copied() else { return false };
    if task != world.current {
        return false;
    }
    world.ready.pop();
    world.resume_at(task, clock);
    true
}

/// Starts a thread that runs `code`; its number.
pub(crate) fn start(code: Box<dyn FnOnce()>) -> usize {
    let coroutine = generator::Gn::<()>::new_scoped_opt_local(STACK, move |mut handle| {
        with(|world| world.me().handle = std::ptr::from_mut(&mut handle).cast());
        code();
        with(|world| {
            let (task, now) = (world.current, world.now());
            world.tasks[task].done = true;
            let slot = usize::from(world.tasks[task].slot);
            world.slots[slot] = false;
            let joiners = std::mem::take(&mut world.tasks[task].joiners);
            joiners.into_iter().for_each(|joiner| world.wake(joiner, now));
        });
    });
    with(|world| {
        let clock = if world.tasks.is_empty() { 0 } else { world.now() };
        let task = world.add(clock, Some(coroutine));
        world.make_ready(task, clock);
        task
    })
    .expect("a thread is started inside of a simulation")
}

/// Waits until `task` has ended.
pub(crate) fn join(task: usize) {
    let waits = with(|world| {
        if world.tasks[task].done {
            let ended = world.tasks[task].clock;
            let me = world.me();
            me.be_at(ended);
            return false;
        }
        let me = world.current;
        world.tasks[task].joiners.push(me);
        true
    });
    if waits == Some(true) {
        block(Wait::End(task), None);
    }
}

/// Interrupts all cores.
pub(crate) fn interrupt_all() {
    let _quiet = quiet();
    with(|world| {
        if world.charging {
            let wake = world.machine.wake;
            world.pass(wake);
        }
    });
}

/// What was found out.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Operations on locks, atomics and conditions that were charged.
    pub operations: u64,
    /// Read-modify-writes, whether they count as such operations or not.
    pub changes: u64,
    /// Instructions that code told of (`computes`).
    pub told: u64,
    /// What lies between two uses, of the thread that was stepped through.
    pub spans: Vec<Span>,
    /// Class, place and what they cost, the worst first.
    pub why: Vec<(Why, Option<&'static LockClass>, Option<Site>, Charge)>,
}

/// Runs `main` as the first thread of a simulation until it ends.
///
/// # Panics
/// If `main` does, or if all threads wait for each other.
pub fn run<R: 'static>(machine: Machine, main: impl FnOnce() -> R + 'static) -> R {
    run_with(machine, |_| (), main, |_| ())
}

pub(super) fn run_with<R: 'static>(
    machine: Machine,
    before: impl FnOnce(&mut World),
    main: impl FnOnce() -> R + 'static,
    after: impl FnOnce(&mut World),
) -> R {
    assert!(!inside(), "a simulation in a simulation");
    let world = UnsafeCell::new(World {
        machine,
        lines: Lines::default(),
        tasks: Vec::new(),
        chance: None,
        holders: HashMap::default(),
        notes: Vec::new(),
        listens: false,
        injected: None,
        ready: BinaryHeap::new(),
        current: 0,
        charging: false,
        step: 0,
        between: Between::default(),
        operations: 0,
        changes: 0,
        instruction: 0,
        told: 0,
        waits: Waits::default(),
        why: HashMap::default(),
        slots: vec![false; super::SLOTS],
        slots_used: 0,
        gathered: Vec::new(),
        tally: 0,
        forgot: false,
        over: false,
    });
    WORLD.set(std::ptr::from_ref(&world));
    let _reset = Reset(Some(after));
    with(before);
    let result = std::rc::Rc::new(Cell::new(None));
    let theirs = result.clone();
    start(Box::new(move || {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(main));
        theirs.set(Some(caught));
    }));
    while !with(|world| world.tasks[0].done).unwrap_or(true) {
        step_on();
    }
    match result.take().expect("the first thread has ended") {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs the thread that is furthest behind until it stops.
fn step_on() {
    let (task, mut code) = with(|world| {
        let next = if world.chance.is_some() {
            world.next_by_chance()
        } else if world.next_clock() == u64::MAX {
            None
        } else {
            world.ready.pop().map(|Reverse((clock, task, _))| (clock, task))
        };
        let (clock, task) = next.unwrap_or_else(|| panic!("{}", world.stuck()));
        world.resume_at(task, clock);
        world.follow_chance();
        (task, world.tasks[task].code.take().expect("it does not run"))
    })
    .expect("inside");
    code.resume();
    with(|world| {
        if !world.tasks[task].done {
            world.tasks[task].code = Some(code);
        }
    });
}

struct Reset<F: FnOnce(&mut World)>(Option<F>);

impl<F: FnOnce(&mut World)> Drop for Reset<F> {
    fn drop(&mut self) {
        if let Some(after) = self.0.take() {
            with(after);
        }
        // Threads that never ended are left as they are: their stacks are not unwound.
        let left = with(|world| {
            let codes = world.tasks.iter_mut().filter_map(|task| task.code.take());
            codes.collect::<Vec<_>>()
        });
        WORLD.set(std::ptr::null());
        left.into_iter().flatten().for_each(std::mem::forget);
    }
}

/// Waits until `threads` of them are here, the caller to be on `core`; from then on all is charged,
/// `step` picoseconds for the code before each operation, and all clocks are the same.
pub fn gather(core: usize, threads: usize, step: u64, instruction: u64) {
    let last = with(|world| {
        let me = world.current;
        world.me().core = core;
        world.gathered.push(me);
        world.gathered.len() == threads
    });
    if last != Some(true) {
        block(Wait::Nothing, None);
        return;
    }
    with(|world| {
        let all = std::mem::take(&mut world.gathered);
        let latest = all.iter().map(|task| world.tasks[*task].clock).max().unwrap_or(0);
        world.lines = Lines::default();
        world.charging = true;
        (world.step, world.instruction) = (step, instruction);
        let me = world.current;
        world.me().begin_anew(latest);
        all.into_iter().filter(|task| *task != me).for_each(|task| world.wake(task, latest));
    });
}

/// Counts for all threads together; what was counted before. Costs nothing and moves no line.
pub fn tally(more: u64) -> u64 {
    let _quiet = quiet();
    with(|world| {
        world.tally += more;
        world.tally - more
    })
    .unwrap_or(0)
}

/// Forgets what was charged so far; only the first call does.
pub fn forget() {
    let _quiet = quiet();
    with(|world| {
        if std::mem::replace(&mut world.forgot, true) {
            return;
        }
        (world.operations, world.changes, world.told) = (0, 0, 0);
        world.why.clear();
    });
}

/// What is charged from now on is not told of: the measured part is over.
pub fn over() {
    with(|world| world.over = true);
}

/// Stops charging, and says what was charged.
pub fn settle() -> Found {
    with(|world| {
        world.charging = false;
        let mut keys: Vec<_> = world.why.iter().map(|(key, value)| (key.0, *value)).collect();
        // Two that are alike in all of this are alike, so the order is the same in each process.
        keys.sort_by_key(|(why, (charge, class, site))| {
            let place = site.map_or(("", 0, 0), |at| (at.file(), at.line(), at.column()));
            let class = class.map(|class| class.name);
            (Reverse(charge.time), charge.count, place, class, *why == Why::Lock)
        });
        let why = keys.into_iter().map(|(why, (charge, class, site))| (why, class, site, charge));
        let (operations, changes, told) = (world.operations, world.changes, world.told);
        let spans = world.between.found();
        Found { operations, changes, told, spans, why: why.collect() }
    })
    .unwrap_or_default()
}

/// The caller's clock, in picoseconds.
pub fn clock() -> u64 {
    let _quiet = quiet();
    with(|world| world.now()).unwrap_or(0)
}

/// Lets time pass on the caller's core alone.
pub fn work(time: u64) {
    let _quiet = quiet();
    with(|world| {
        if world.charging {
            world.pass(time);
        }
    });
}

/// Any time from three quarters to five quarters of that, by the caller's generator.
pub fn about(mean: u64) -> u64 {
    let _quiet = quiet();
    with(|world| world.me().about(mean)).unwrap_or(mean)
}

/// Rests for half of that time to one and a half.
pub fn rest(mean: u64) {
    let _quiet = quiet();
    with(|world| {
        if world.charging && mean > 0 {
            let time = world.me().uneven(mean);
            world.pass(time);
        }
    });
}

/// Works without being charged, and without anybody else's turn in between: for what stands for
/// something that is not simulated.
pub fn unpaid<R>(work: impl FnOnce() -> R) -> R {
    let _quiet = quiet();
    let before = with(|world| std::mem::replace(&mut world.charging, false));
    let done = work();
    if before == Some(true) {
        with(|world| world.charging = true);
    }
    done
}
