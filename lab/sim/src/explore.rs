//! Runs under random schedules: injects a bug, and collects panics instead of printing them.

use crate::machine::{CORES, Machine};
use crate::random::{RandomSchedule, Turns};
use crate::simulation::{run_with, with};
use std::cell::Cell;
use std::sync::Once;

/// Installs a panic hook, once for the process. Panics outside of [`explore`] are printed as usual.
fn collect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !with(|sim| sim.collects_panics).unwrap_or(false) {
                return before(info);
            }
            let payload = info.payload();
            let message = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let message = message.or_else(|| payload.downcast_ref::<String>().cloned());
            let place = info.location().map_or_else(String::new, |at| format!(" ({at})"));
            let text = message.unwrap_or_default() + &place;
            if let Some(Some(before)) = with(|sim| sim.note_panic(text.clone())) {
                // A second panic while a thread unwinds aborts the process and loses both messages.
                eprintln!("{before}\nand then: {text}");
            }
        }));
    });
}

/// Runs `main` on a machine that costs nothing, with the bug of that name injected. `main` calls
/// [`shuffle`] where the random schedule is to begin.
///
/// # Errors
/// What a thread panicked with, or what each thread waits for when none can run.
pub fn explore<R: 'static>(
    bug: Option<&'static str>,
    main: impl FnOnce() -> R + 'static,
) -> Result<R, String> {
    collect_panics();
    let panics = std::rc::Rc::new(Cell::new(Vec::new()));
    let theirs = panics.clone();
    let machine = Machine { cores: CORES, cluster: CORES, socket: CORES, ..Machine::default() };
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run_with(
            machine,
            move |sim| (sim.injected_bug, sim.collects_panics) = (bug, true),
            main,
            move |sim| {
                theirs.set(std::mem::take(&mut sim.panics));
            },
        )
    }));
    let panics = panics.take();
    match ran {
        Ok(value) if panics.is_empty() => Ok(value),
        Ok(_) | Err(_) if !panics.is_empty() => Err(panics.join("\n")),
        Ok(_) => Err("a thread panicked".into()),
        Err(panic) => Err(panic.downcast_ref::<String>().cloned().unwrap_or_default()),
    }
}

/// Begins a random schedule. Nothing is charged under one.
pub fn shuffle(turns: Turns) {
    with(|sim| sim.shuffle(turns));
}

/// Steps of the random schedule so far.
pub fn steps() -> u64 {
    with(|sim| sim.random.as_ref().map_or(0, RandomSchedule::steps)).unwrap_or(0)
}

/// A hash of all choices so far: the same for the same schedule.
pub fn trace() -> u64 {
    with(|sim| sim.random.as_ref().map_or(0, RandomSchedule::trace)).unwrap_or(0)
}

/// Whether the bug of that name is injected in this run.
#[must_use]
pub fn is_injected(bug: &str) -> bool {
    with(|sim| sim.injected_bug == Some(bug)).unwrap_or(false)
}
