//! The rows of the show and how they came out.

use std::cell::Cell;
use std::time::Instant;

/// How a row came out.
pub(super) enum Outcome {
    Ok(String),
    Skipped(String),
    Failed(String),
}

impl Outcome {
    /// Good with what `say` makes of the output, or failed with the error.
    pub(super) fn of(result: Result<String, String>, say: impl FnOnce(&str) -> String) -> Self {
        match result {
            Ok(output) => Self::Ok(say(&output)),
            Err(error) => Self::Failed(error),
        }
    }
}

/// Rows, printed as they come.
#[derive(Default)]
pub(super) struct Table {
    failed: Cell<usize>,
}

impl Table {
    /// Acts and prints the row.
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
