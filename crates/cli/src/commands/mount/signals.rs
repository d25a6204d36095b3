//! The signals of a server.
//!
//! | signal | action |
//! |---|---|
//! | SIGTERM, SIGINT, SIGHUP | end the mount, see [`ending`](super::ending) |
//! | SIGUSR1 | write the status, as `nextent status` shows it, where messages go |

use super::report::Reporter;
use crate::commands::status;
use crate::log;
use nextent_sync::{Arc, thread};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// Starts the thread that handles signals. It calls `end` for each signal that ends the server.
///
/// # Errors
/// The system has no thread or no descriptor to give.
pub(super) fn handle(
    end: impl Fn() + Send + 'static,
    reporter: Arc<Reporter>,
) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    let handle = move || {
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => write_status(&reporter),
                _ => end(),
            }
        }
    };
    thread::Builder::new().name("nextent-signals".to_owned()).spawn(handle).map(|_| ())
}

fn write_status(reporter: &Reporter) {
    if let Some(status) = reporter.status() {
        status::as_text(&status).lines().for_each(log::write_asked);
    }
}
