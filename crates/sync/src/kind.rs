//! How a thread waits for a lock whose waiting is chosen when it is made.

use std::fmt;
use std::str::FromStr;

/// How a thread waits for a held lock: asleep, as in a PREEMPT_RT kernel, or spinning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// It sleeps until the holder wakes it.
    #[default]
    Sleep,
    /// It polls.
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
            _ => Err(format!("{word}: no such kind of lock: choose sleep or spin")),
        }
    }
}
