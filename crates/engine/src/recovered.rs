//! What opening a volume found to do.

/// What was recovered when the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Transactions of the journal that were put in place.
    pub transactions: u32,
    /// Blocks written for them.
    pub blocks: u64,
    /// Blocks passed over because they had been freed since.
    pub revoked: u64,
    /// Records of fast commits that were replayed.
    pub fast_commits: u64,
    /// Files without a name that were freed, and files whose shortening was completed.
    pub orphans: u32,
}

impl Recovered {
    /// Whether there was nothing to do.
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
