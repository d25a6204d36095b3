//! What opening a volume recovered.

/// What opening a volume recovered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Transactions of the journal that were replayed.
    pub transactions: u32,
    /// Blocks that the replay wrote.
    pub blocks: u64,
    /// Blocks that the replay skipped because a later transaction had revoked them.
    pub revoked: u64,
    /// Records of fast commits that were replayed.
    pub fast_commits: u64,
    /// Orphans that were freed, and files whose truncation was completed.
    pub orphans: u32,
}

impl Recovered {
    /// Whether nothing needed recovery.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn take(&mut self, replayed: &nextent_store::Recovery) {
        self.transactions = replayed.transactions;
        self.blocks = replayed.replayed;
        self.revoked = replayed.revoked;
    }
}
