//! Messages with levels, on standard error or in the system's log.
//!
//! | destination | a message |
//! |---|---|
//! | standard error | `nextent: TEXT`, or the name of another tool that this program is called by |
//! | standard error, if that is systemd's journal | `<PRIORITY>TEXT`, from which the journal takes the level |
//! | the system's log, for a server in the background | a datagram to `/dev/log`, which systemd's journal and syslog daemons read |
//!
//! Every message is escaped, so that no name in it sends control characters to a terminal. Sources:
//! RFC 3164 for the datagram, sd-daemon(3) for the prefix.

use crate::show;
use nextent_sync::OnceLock;
use nextent_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::io::Write;
use std::os::unix::net::UnixDatagram;

/// The importance of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Something failed.
    Error,
    /// Something works, but not as asked for.
    Warning,
    /// The life of a server.
    Info,
}

/// The system's log.
const SYSTEM_LOG: &str = "/dev/log";
/// The facility of syslog(3) for daemons, in its place above the priority.
const DAEMON: u8 = 3 << 3;

/// The least important priority that is written. Relaxed: set before the server serves.
static LEAST: AtomicU8 = AtomicU8::new(4);
/// The name before messages on standard error, if not `nextent`.
static NAME: OnceLock<String> = OnceLock::new();
/// Where messages go, if not to standard error as text.
static DESTINATION: OnceLock<Destination> = OnceLock::new();

/// The script whose lines messages are about.
static SCRIPT: OnceLock<String> = OnceLock::new();
/// The line of the script; 0 for none. Relaxed: the threads that a line starts are joined in it.
static LINE: AtomicU64 = AtomicU64::new(0);

enum Destination {
    /// Standard error is systemd's journal.
    Journal,
    /// The system's log, if there is one.
    System(Option<UnixDatagram>),
}

impl Level {
    /// The level with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "error" => Some(Self::Error),
            "warning" => Some(Self::Warning),
            "info" => Some(Self::Info),
            _ => None,
        }
    }

    /// The priority of syslog(3).
    fn priority(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
        }
    }
}

/// [`Level::Info`] in a log, [`Level::Warning`] on standard error.
pub(crate) fn default_level() -> Level {
    if DESTINATION.get().is_some() { Level::Info } else { Level::Warning }
}

/// Messages on standard error begin with `name` from now on.
pub(crate) fn set_name(name: &str) {
    let _ = NAME.set(name.to_owned());
}

/// Writes messages up to `level` from now on. Before, errors and warnings are written.
pub(crate) fn set_level(level: Level) {
    LEAST.store(level.priority(), Ordering::Relaxed);
}

/// Writes a message of one line.
pub(crate) fn write(level: Level, text: &str) {
    if level.priority() > LEAST.load(Ordering::Relaxed) {
        return;
    }
    match (LINE.load(Ordering::Relaxed), SCRIPT.get()) {
        (line @ 1.., Some(script)) => put(level, &format!("{script}:{line}: {text}")),
        _ => put(level, text),
    }
}

/// Puts `script` and `line` before each message from now on. A process has one script.
pub(crate) fn at_line(script: &str, line: u64) {
    SCRIPT.get_or_init(|| script.to_owned());
    LINE.store(line, Ordering::Relaxed);
}

/// Ends what [`at_line`] began.
pub(crate) fn behind_script() {
    LINE.store(0, Ordering::Relaxed);
}

/// Writes a line that the user has asked for, whatever the level.
pub(crate) fn write_asked(text: &str) {
    put(Level::Info, text);
}

fn put(level: Level, text: &str) {
    let priority = level.priority();
    let text = show::line(text);
    let line = match DESTINATION.get() {
        None => format!("{}: {text}\n", NAME.get().map_or("nextent", String::as_str)),
        Some(Destination::Journal) => format!("<{priority}>{text}\n"),
        Some(Destination::System(None)) => return,
        Some(Destination::System(Some(log))) => {
            let line = format!("<{}>nextent[{}]: {text}", DAEMON | priority, std::process::id());
            // The log may have been restarted.
            if log.send(line.as_bytes()).is_err() && log.connect(SYSTEM_LOG).is_ok() {
                let _ = log.send(line.as_bytes());
            }
            return;
        }
    };
    // Standard error may be closed.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Finds out whether standard error is systemd's journal, as for a service.
pub(crate) fn find_journal() {
    let said = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let is_it = rustix::fs::fstat(rustix::stdio::stderr())
        .is_ok_and(|found| said == format!("{}:{}", found.st_dev, found.st_ino));
    if is_it {
        let _ = DESTINATION.set(Destination::Journal);
    }
}

/// Sends messages to the system's log from now on; a server in the background calls this. Keeps the
/// journal if that is standard error.
pub(crate) fn use_system_log() {
    let connect = || {
        let log = UnixDatagram::unbound().ok()?;
        // A log that does not read must not stop the server.
        log.set_nonblocking(true).ok()?;
        let _ = log.connect(SYSTEM_LOG);
        Some(log)
    };
    let _ = DESTINATION.set(Destination::System(connect()));
}
