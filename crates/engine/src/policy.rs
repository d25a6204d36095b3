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
