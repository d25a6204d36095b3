//! Simulated threads, as the standard ones.

use super::stepping::quiet;
use super::world;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

type Outcome<T> = Rc<Cell<Option<std::thread::Result<T>>>>;

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
    /// What it panicked with; also if the caller unwinds, for whom nobody else may run.
    pub fn join(self) -> std::thread::Result<T> {
        world::join(self.task);
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
    // that was started in it.
    let code = unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'a>, Box<dyn FnOnce()>>(code) };
    (world::start(code), outcome)
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
    /// A thread like any other.
    #[must_use]
    pub fn new() -> Self {
        Self(None)
    }

    /// A name, by which a thread that waits for ever is told of.
    #[must_use]
    pub fn name(self, name: String) -> Self {
        Self(Some(name))
    }

    /// Starts it.
    ///
    /// # Errors
    /// Outside of a simulation.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if !world::inside() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let thread = spawn(f);
        if let Some(name) = self.0 {
            world::with(|world| world.set_name(thread.task, name));
        }
        Ok(thread)
    }
}

/// As [`std::thread::Scope`].
pub struct Scope<'scope, 'env: 'scope> {
    tasks: RefCell<Vec<usize>>,
    panic: RefCell<Option<Box<dyn Any + Send>>>,
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

/// As [`std::thread::scope`]; a panic of a thread that nobody joined is its joiner's to see.
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        tasks: RefCell::default(),
        panic: RefCell::default(),
        scope: PhantomData,
        env: PhantomData,
    };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    for task in scope.tasks.take() {
        world::join(task);
    }
    match (result, scope.panic.take()) {
        (Ok(value), None) => value,
        (Err(panic), _) | (Ok(_), Some(panic)) => resume_unwind(panic),
    }
}

/// As [`std::thread::Thread`], without a use.
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
    Thread(world::with(|world| world.caller()).unwrap_or(0))
}

/// Lets the others catch up.
pub fn yield_now() {
    give_way(50_000);
}

/// The same between two looks at a word.
pub(super) fn spin_loop() {
    give_way(5_000);
}

fn give_way(time: u64) {
    let _quiet = quiet();
    world::with(|world| {
        world.give_way();
        world.pass(time);
    });
    if world::inside() {
        world::let_others();
    }
}
