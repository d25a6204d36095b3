//! Simulated threads, with the interface of the standard ones, and their clock.

use crate::simulation::{self, block, inside, let_others};
use crate::task::Wait;
use std::cell::{Cell, RefCell};
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

pub use std::thread::panicking;

/// How long a thread yields, and pauses between two polls, in picoseconds. It decides which thread
/// runs next and belongs to no machine.
const YIELD: u64 = 50_000;
const PAUSE: u64 = 5_000;

type Outcome<T> = Rc<Cell<Option<std::thread::Result<T>>>>;

/// A time in picoseconds; one that does not fit is as long as can be.
pub(crate) fn picoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000).min(u64::MAX / 4)
}

/// Lets `time` pass on the caller's core.
pub fn sleep(time: Duration) {
    if inside() {
        let until = simulation::clock().saturating_add(picoseconds(time));
        block(Wait::Nothing, Some(until));
    }
}

/// As [`std::thread::JoinHandle`].
pub struct JoinHandle<T> {
    task: usize,
    outcome: Outcome<T>,
}

// SAFETY: all threads of a simulation are coroutines of one real thread, and nothing of it leaves
// that thread.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// Waits for its end.
    ///
    /// # Errors
    /// What it panicked with; also if the caller unwinds, during which no other thread may run.
    pub fn join(self) -> std::thread::Result<T> {
        simulation::join(self.task);
        self.outcome.take().unwrap_or_else(|| Err(Box::new("it has not ended")))
    }
}

fn launch<'a, T: 'a>(code: impl FnOnce() -> T + 'a) -> (usize, Outcome<T>) {
    let outcome: Outcome<T> = Rc::new(Cell::new(None));
    let theirs = Rc::clone(&outcome);
    let code: Box<dyn FnOnce() + 'a> = Box::new(move || {
        theirs.set(Some(catch_unwind(AssertUnwindSafe(code))));
    });
    // SAFETY: the code runs before `'a` ends: `spawn` asks for `'static`, and a scope waits for all
    // threads that were started in it.
    let code = unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'a>, Box<dyn FnOnce()>>(code) };
    (simulation::start(code), outcome)
}

/// As [`std::thread::spawn`].
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (task, outcome) = launch(f);
    JoinHandle { task, outcome }
}

/// As [`std::thread::Builder`].
#[derive(Debug, Default)]
pub struct Builder(Option<String>);

impl Builder {
    /// A thread without a name.
    #[must_use]
    pub fn new() -> Self {
        Self(None)
    }

    /// A name, which reports of deadlocks use.
    #[must_use]
    pub fn name(self, name: String) -> Self {
        Self(Some(name))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// Outside of a simulation.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if !inside() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let thread = spawn(f);
        if let Some(name) = self.0 {
            simulation::with(|sim| sim.set_name(thread.task, name));
        }
        Ok(thread)
    }
}

/// As [`std::thread::Scope`].
pub struct Scope<'scope, 'env: 'scope> {
    tasks: RefCell<Vec<usize>>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

// SAFETY: as for `JoinHandle`.
unsafe impl Sync for Scope<'_, '_> {}

/// As [`std::thread::ScopedJoinHandle`].
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<T>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for its end.
    ///
    /// # Errors
    /// What it panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        self.handle.join()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread that ends before the scope does.
    pub fn spawn<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let (task, outcome) = launch(f);
        self.tasks.borrow_mut().push(task);
        ScopedJoinHandle { handle: JoinHandle { task, outcome }, scope: PhantomData }
    }
}

/// As [`std::thread::scope`]; a panic of a thread that was not joined is not passed on.
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope { tasks: RefCell::default(), scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    for task in scope.tasks.take() {
        simulation::join(task);
    }
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// As [`std::thread::Thread`]: a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(usize);

impl Thread {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> usize {
        self.0
    }
}

/// The caller.
#[must_use]
pub fn current() -> Thread {
    Thread(simulation::with(|sim| sim.caller()).unwrap_or(0))
}

/// Cores of the simulated machine.
///
/// # Errors
/// Never.
pub fn available_parallelism() -> io::Result<std::num::NonZeroUsize> {
    let cores = std::num::NonZeroUsize::new(simulation::cores());
    cores.ok_or(io::ErrorKind::Unsupported.into())
}

/// Lets the other threads catch up.
pub fn yield_now() {
    give_way(YIELD);
}

/// Lets the other threads catch up between two polls.
pub(crate) fn spin_loop() {
    give_way(PAUSE);
}

fn give_way(time: u64) {
    simulation::with(|sim| {
        sim.give_way();
        sim.pass(time);
    });
    if inside() {
        let_others();
    }
}
