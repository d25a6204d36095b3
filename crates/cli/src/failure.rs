//! An error as the user sees it: one line on stderr and an exit code.

use crate::show;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Result of a command or a part of it.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a command ends badly.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
    /// Nothing after it makes sense: the output is gone, or nothing can be changed any more.
    ends_all: bool,
}

impl Failure {
    /// The arguments make no sense together.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2, ends_all: false }
    }

    /// Something did not work.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, ends_all: false }
    }

    /// What failed was told already.
    pub(crate) fn told(code: u8) -> Self {
        Self { message: String::new(), code, ends_all: false }
    }

    /// The same, and the command ends with it.
    pub(crate) fn fatal(mut self) -> Self {
        self.ends_all = true;
        self
    }

    fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// Whether nothing after it makes sense.
    pub(crate) fn ends_all(&self) -> bool {
        self.ends_all
    }

    /// The code to exit with.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Prints the line.
    pub(crate) fn tell(&self) {
        if !self.is_quiet() {
            complain(&self.message);
        }
    }

    /// The same with another exit code.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Prints the line; the code to exit with.
    pub(crate) fn report(self) -> ExitCode {
        self.tell();
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<std::io::Error> for Failure {
    /// An error of standard output: a closed pipe ends the command quietly.
    fn from(error: std::io::Error) -> Self {
        let failure = match error.kind() {
            ErrorKind::BrokenPipe => Self::told(BROKEN_PIPE),
            _ => Self::new(format!("standard output: {error}")),
        };
        Self { ends_all: true, ..failure }
    }
}

/// Prints a line for people on standard error. All that the program says there goes through here,
/// so that no name in it reaches a terminal as it is.
pub(crate) fn complain(text: &str) {
    let line = format!("nextent: {}\n", show::line(text));
    // A closed terminal hears nothing.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Has a panic say what it says in a line of ours: its text may have a name in it.
pub(crate) fn escape_panics() {
    std::panic::set_hook(Box::new(|panic| {
        complain(&panic.to_string());
        let trace = std::backtrace::Backtrace::capture();
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            let _ = writeln!(std::io::stderr(), "{trace}");
        }
    }));
}

/// The exit code of a program that the signal for a closed pipe has ended, as a shell shows it.
const BROKEN_PIPE: u8 = 141;

/// Adds what was being done to an error.
pub(crate) trait Context<T> {
    /// Puts `what()` and a colon before the error's text.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure::new(format!("{}: {error}", what())))
    }
}

/// Writes a line to standard output, and returns from the function when that cannot be done:
/// `println!` would panic there. Names are escaped by who gives them.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($words)*)?
    }};
}
pub(crate) use say;
