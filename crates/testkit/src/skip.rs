//! Tests that cannot run on this machine.
//!
//! Rust's test harness has no skipped tests. So a skip prints a line on stderr and, if
//! `NEXTENT_SKIPS` names a file, adds a line to it, which `cargo xtask test` counts.

use std::fmt;
use std::io::Write;

/// The missing tool, right or device, in a few words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

impl Skip {
    /// A skip because `what` is missing.
    pub fn missing(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// Prints the skip, and records it for `cargo xtask test`.
    pub fn note(&self) {
        let name = test_name();
        eprintln!("skipped {name}: {self}");
        let Some(path) = std::env::var_os("NEXTENT_SKIPS") else { return };
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        if let Ok(mut file) = file {
            // One write, so that lines of several processes do not mix.
            let _ = file.write_all(format!("{name}: {self}\n").as_bytes());
        }
    }
}

/// The name of the running test, which is that of its thread.
fn test_name() -> String {
    nextent_sync::thread::current().name().unwrap_or("test").to_owned()
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}", self.0)
    }
}

/// The value of a `Result<T, Skip>`; notes a skip and returns from the test.
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
