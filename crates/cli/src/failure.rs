//! Failures of commands: one line on stderr and an exit code.

use crate::log::{self, Level};
use std::fmt;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Result of a command or a part of it.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a command, or a part of it, failed.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
    /// The command cannot go on: the output is closed, or no change can succeed any more.
    ends_all: bool,
}

impl Failure {
    /// The arguments are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2, ends_all: false }
    }

    /// An operation failed.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, ends_all: false }
    }

    /// A failure whose message was printed already.
    pub(crate) fn reported(code: u8) -> Self {
        Self { message: String::new(), code, ends_all: false }
    }

    /// The same failure, as one that ends the command.
    pub(crate) fn fatal(mut self) -> Self {
        self.ends_all = true;
        self
    }

    fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// Whether the command cannot go on.
    pub(crate) fn ends_all(&self) -> bool {
        self.ends_all
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Prints the message, if there is one.
    pub(crate) fn print(&self) {
        if !self.is_quiet() {
            complain(&self.message);
        }
    }

    /// The same failure with another exit code.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Prints the message and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        self.print();
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
            ErrorKind::BrokenPipe => Self::reported(BROKEN_PIPE),
            _ => Self::new(format!("standard output: {error}")),
        };
        Self { ends_all: true, ..failure }
    }
}

/// Reports an error or a warning on one line; see [`log`](crate::log). Every message goes through
/// there, so that no name in it sends control characters to a terminal.
pub(crate) fn complain(text: &str) {
    log::write(Level::Error, text);
}

/// Makes panics print by [`complain`]: their text may have a name in it.
pub(crate) fn escape_panics() {
    std::panic::set_hook(Box::new(|panic| {
        complain(&panic.to_string());
        let trace = std::backtrace::Backtrace::capture();
        if trace.status() == std::backtrace::BacktraceStatus::Captured {
            let _ = writeln!(std::io::stderr(), "{trace}");
        }
    }));
}

/// The message of a usage error on one line, without the usage.
pub(crate) fn usage_text(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let words: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !line.is_empty())
        .collect();
    let line = words.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

/// The exit code that a shell shows for a program ended by SIGPIPE.
const BROKEN_PIPE: u8 = 141;

/// Adds the operation to an error.
pub(crate) trait Context<T> {
    /// Puts `what()` and a colon before the error's text.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure::new(format!("{}: {error}", what())))
    }
}

/// Writes a line to standard output, and returns from the function if that fails: `println!` would
/// panic. The caller escapes names.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($words)*)?
    }};
}
pub(crate) use say;
