//! What threads of a schedule say when they panic: kept for whoever explores, not printed.

use super::world;
use std::sync::Once;

/// Begins to listen, once for the process. Panics elsewhere are told of as before.
pub(super) fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !world::listens() {
                return before(info);
            }
            let payload = info.payload();
            let said = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let said = said.or_else(|| payload.downcast_ref::<String>().cloned());
            let place = info.location().map_or_else(String::new, |at| format!(" ({at})"));
            world::with(|world| world.note(said.unwrap_or_default() + &place));
        }));
    });
}
