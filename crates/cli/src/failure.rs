//! An error as the user sees it: one line on stderr and an exit code.

use std::fmt;
use std::process::ExitCode;

/// Result of a command or a part of it.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a command ends badly.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    code: u8,
}

impl Failure {
    /// The arguments make no sense together.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2 }
    }

    /// Something did not work.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1 }
    }

    /// The same with another exit code.
    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// Prints the line; the code to exit with.
    pub(crate) fn report(self) -> ExitCode {
        // One line, whatever a cause has in its text.
        eprintln!("nextent: {}", self.message.replace('\n', " "));
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

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
