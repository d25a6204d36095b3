//! How a lock of the museum waits.

use std::fmt;
use std::str::FromStr;

/// How a thread waits for a lock that is held: what PREEMPT_RT changed for all of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// It sleeps and is woken.
    #[default]
    Sleep,
    /// It looks again and again.
    Spin,
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sleep => "sleep",
            Self::Spin => "spin",
        })
    }
}

impl FromStr for LockKind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "sleep" => Ok(Self::Sleep),
            "spin" => Ok(Self::Spin),
            _ => Err(format!("{word}: no such kind of lock; there are sleep and spin")),
        }
    }
}
