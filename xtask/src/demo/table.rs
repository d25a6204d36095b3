//! The rows of the demonstration and their results.

use std::cell::Cell;
use std::time::Instant;

/// The result of a row.
pub(super) enum Outcome {
    Ok(String),
    Skipped(String),
    Failed(String),
}

impl Outcome {
    /// Success with the text of `say`, or failure with the error.
    pub(super) fn of(result: Result<String, String>, say: impl FnOnce(&str) -> String) -> Self {
        match result {
            Ok(output) => Self::Ok(say(&output)),
            Err(error) => Self::Failed(error),
        }
    }
}

/// The rows, which are printed one by one.
#[derive(Default)]
pub(super) struct Table {
    failed: Cell<usize>,
}

impl Table {
    /// Runs `act` and prints the row.
    pub(super) fn row(&self, name: &str, act: impl FnOnce() -> Outcome) {
        let began = Instant::now();
        let (word, text) = match act() {
            Outcome::Ok(text) => ("ok", text),
            Outcome::Skipped(text) => ("skipped", text),
            Outcome::Failed(text) => {
                self.failed.set(self.failed.get() + 1);
                ("FAILED", text)
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        println!("{name:<32} {word:<8} {seconds:>7.2} s  {text}");
    }

    /// An error if a row failed.
    pub(super) fn finish(self) -> Result<(), String> {
        let failed = self.failed.get();
        if failed == 0 {
            return Ok(());
        }
        Err(format!("{failed} rows failed"))
    }
}
