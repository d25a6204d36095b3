//! Random schedules for a checker: it names the bug to inject, and panics are returned to it.

use super::chance::{Chance, Turns};
use super::lines::{CORES, Machine};
use super::world::{run_with, with};
use std::cell::Cell;
use std::sync::Once;

/// Begins to listen, once for the process. Panics elsewhere are told of as before.
fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !with(|world| world.listens).unwrap_or(false) {
                return before(info);
            }
            let payload = info.payload();
            let said = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
            let place = info.location().map_or_else(String::new, |at| format!(" ({at})"));
            let text = said.unwrap_or_default() + &place;
            if let Some(Some(before)) = with(|world| world.note(text.clone())) {
                // The second of one thread ends the process, and nobody would hear of either.
                eprintln!("{before}\nand then: {text}");
            }
        }));
    });
}

/// As [`run`] on a machine without costs, with the bug `injected`, for turns by [`shuffle`].
///
/// # Errors
/// What a thread panicked with, or who waits for what when nobody can go on.
pub fn explore<R: 'static>(
    injected: Option<&'static str>,
    main: impl FnOnce() -> R + 'static,
) -> Result<R, String> {
    listen();
    let said = std::rc::Rc::new(Cell::new(Vec::new()));
    let theirs = said.clone();
    let machine = Machine { cores: CORES, cluster: CORES, socket: CORES, ..Machine::default() };
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run_with(
            machine,
            move |world| (world.injected, world.listens) = (injected, true),
            main,
            move |world| {
                theirs.set(std::mem::take(&mut world.notes));
            },
        )
    }));
    let notes = said.take();
    match ran {
        Ok(value) if notes.is_empty() => Ok(value),
        Ok(_) | Err(_) if !notes.is_empty() => Err(notes.join("\n")),
        Ok(_) => Err("a thread panicked".into()),
        Err(panic) => Err(panic.downcast_ref::<String>().cloned().unwrap_or_default()),
    }
}

/// From now on turns are by chance, and nothing is charged.
pub fn shuffle(turns: Turns) {
    with(|world| world.shuffle(turns));
}

/// Steps taken by chance so far.
pub fn steps() -> u64 {
    with(|world| world.chance.as_ref().map_or(0, Chance::steps)).unwrap_or(0)
}

/// A number for all turns so far: the same for the same schedule.
pub fn trace() -> u64 {
    with(|world| world.chance.as_ref().map_or(0, Chance::trace)).unwrap_or(0)
}

/// Whether the bug `name` is injected.
#[cfg_attr(not(feature = "mutants"), allow(dead_code))]
pub(crate) fn is_injected(name: &str) -> bool {
    with(|world| world.injected == Some(name)).unwrap_or(false)
}
