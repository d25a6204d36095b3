//! Errors as the user sees them: one line on standard error and an exit code.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Result of a command or a part of it.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// The exit code that a shell reports for a program killed by the signal for a closed pipe.
const BROKEN_PIPE: u8 = 141;

/// The reason why a command fails.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Empty if the program has no line to print.
    message: String,
    code: u8,
}

impl Failure {
    /// The arguments cannot be used.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2 }
    }

    /// The operation failed.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// Prints the line and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        if !self.message.is_empty() {
            complain(&self.message);
        }
        ExitCode::from(self.code)
    }
}

impl From<std::io::Error> for Failure {
    /// An error of standard output. A closed pipe ends the command without a message.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            ErrorKind::BrokenPipe => Self { message: String::new(), code: BROKEN_PIPE },
            _ => Self::new(format!("standard output: {error}")),
        }
    }
}

#[cfg(feature = "measure")]
impl From<nextent_bench::Failure> for Failure {
    fn from(failure: nextent_bench::Failure) -> Self {
        match failure {
            nextent_bench::Failure::Usage(text) => Self::usage(text),
            nextent_bench::Failure::Broken(text) => Self::new(text),
        }
    }
}

#[cfg(feature = "measure")]
impl From<nextent_simulate::Failure> for Failure {
    fn from(failure: nextent_simulate::Failure) -> Self {
        match failure {
            nextent_simulate::Failure::Usage(text) => Self::usage(text),
            nextent_simulate::Failure::Broken(text) => Self::new(text),
        }
    }
}

/// Prints a line on standard error. Control characters, such as those in a path, are escaped, so
/// that a terminal does not obey them.
pub(crate) fn complain(text: &str) {
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    let line: String = text.trim_end().chars().map(escape).collect();
    complain_in_full(&format!("nextent-lab: {line}\n"));
}

/// Prints text of several lines on standard error. A closed stream is not an error.
pub(crate) fn complain_in_full(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Writes a line to standard output and returns from the function if that fails, where `println!`
/// would panic.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        writeln!(std::io::stdout(), $($words)*)?
    }};
}
pub(crate) use say;
