//! Tests that cannot run here.
//!
//! Rust's harness knows no skipped test, so a skip is a line on stderr and,
//! where `NEXTENT_SKIPS` names a file, a line in it: `cargo xtask test` counts
//! those.

use std::fmt;
use std::io::Write;

/// Why a test cannot run: what is missing, in a word or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

impl Skip {
    /// A skip for want of `what`.
    pub fn missing(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// Says so where people and `cargo xtask test` see it.
    pub fn note(&self) {
        let name = test_name();
        eprintln!("skipped {name}: {self}");
        let Some(path) = std::env::var_os("NEXTENT_SKIPS") else { return };
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        if let Ok(mut file) = file {
            // One write, so that lines of several processes stay whole.
            let _ = file.write_all(format!("{name}: {self}\n").as_bytes());
        }
    }
}

/// The running test's name, which is its thread's.
fn test_name() -> String {
    nextent_sync::thread::current().name().unwrap_or("test").to_owned()
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}", self.0)
    }
}

/// The value of a `Result<T, Skip>`, or a noted return from the test.
#[macro_export]
macro_rules! need {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(skip) => {
                let skip: $crate::Skip = skip;
                skip.note();
                return;
            }
        }
    };
}
