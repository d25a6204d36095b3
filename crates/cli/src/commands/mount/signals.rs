//! The signals of a server.
//!
//! | signal | action |
//! |---|---|
//! | SIGTERM, SIGINT, SIGHUP | unmount as soon as no file is in use |
//! | SIGUSR1 | write the status, as `nextent status` shows it, where messages go |

use super::report::Reporter;
use crate::commands::status;
use crate::log;
use nextent_fuse::Unmount;
use nextent_sync::{Arc, Duration, thread};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

/// The time between two tries to unmount, while files are in use.
const TRIES: Duration = Duration::from_millis(200);

/// Starts the thread that handles signals.
///
/// # Errors
/// The system has no thread or no descriptor to give.
pub(super) fn handle(unmount: Unmount, reporter: Arc<Reporter>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    let mut unmount = Some(unmount);
    let handle = move || {
        for signal in signals.forever() {
            match signal {
                SIGUSR1 => write_status(&reporter),
                // A second signal changes nothing.
                _ => unmount.take().into_iter().for_each(end),
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

/// Unmounts in a thread, so that signals are still handled meanwhile.
fn end(mut unmount: Unmount) {
    thread::spawn(move || {
        while unmount().is_err() {
            thread::sleep(TRIES);
        }
    });
}
