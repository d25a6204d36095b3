//! The error policy of a volume.

/// What a volume that is open for writing does when it finds damage.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// Records the damage in the superblock and fails the call.
    Continue,
    /// Also allows only reading from then on.
    ReadOnly,
    /// Also aborts the journal, so that no more changes reach the device.
    Abort,
}

impl ErrorPolicy {
    /// The policy that a superblock records.
    pub(crate) fn of_superblock(errors: u16) -> Self {
        match errors {
            2 => Self::ReadOnly,
            3 => Self::Abort,
            _ => Self::Continue,
        }
    }

    /// A number for the policy.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Continue => 0,
            Self::ReadOnly => 1,
            Self::Abort => 2,
        }
    }

    /// The policy of a number from [`code`](Self::code).
    pub(crate) fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Continue,
            1 => Self::ReadOnly,
            _ => Self::Abort,
        }
    }
}
