//! What an open recovered.

/// What the last user of a volume left to recover, as the open found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Committed transactions in the journal.
    pub transactions: u32,
    /// Blocks written from the journal to their places.
    pub blocks: u64,
    /// Images in the journal passed over because their block was freed later.
    pub revoked: u64,
    /// Fast commits applied.
    pub fast_commits: u32,
    /// Files without a name freed, and truncations finished.
    pub orphans: u64,
}

impl RecoveryReport {
    /// Whether there was nothing to do.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
