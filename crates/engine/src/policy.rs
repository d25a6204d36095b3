//! What a volume does about damage.

/// What to do when damage is met while the volume is open for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPolicy {
    /// Note it in the superblock, fail the call, go on.
    Continue,
    /// Also allow reading only from then on.
    ReadOnly,
    /// Also abort the journal, so that nothing more reaches the device.
    Abort,
}
