//! Faults that the checker of schedules must find: the one table of them.
//!
//! Each is a line in the code above that asks [`planted`] and goes wrong if it is told to. Only
//! the copy under `lab/copies/simulated` that is built with the feature `mutants` is ever told to;
//! in every other build the question is the constant `false`, and there is no code for it.

/// What can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A handle looks whether the gate is open before it pins its slot, not after.
    GateRecheck,
    /// Credits leased by slots are recalled without waiting for those who are inside.
    RecallUnfenced,
    /// Windows are voided for want of space, but their holders are not told.
    WindowEpoch,
    /// The bit of an inode number is found under the lock and claimed under it anew, unlooked.
    BitUnrepeated,
    /// The conversion after a direct write may not use the reserved pool.
    CompletionUnreserved,
    /// The state lock of an inode is held while a handle starts.
    StateAcrossStart,
    /// A freed block may be handed out before the commit that frees it.
    FreedTooEarly,
    /// A file that loses its last name while it is open is no orphan.
    OrphanForgotten,
    /// A commit leaves out what one slot has changed.
    SlotForgotten,
    /// Escrow is drawn from the centre by a load and a store.
    EscrowLostUpdate,
    /// Who settles a file does not say so until the map has all that was put off.
    SettlingUnseen,
    /// A freed metadata block is not revoked.
    RevokeForgotten,
    /// An inode that changes while its last state is being committed does not keep that.
    FrozenForgotten,
    /// Names change without another edition of their directory.
    EditionForgotten,
    /// Who waits for a commit does not look again under the room's lock.
    LostWakeup,
    /// A commit writes its blocks without flushing data before.
    DataUnflushed,
    /// A permission check believes an access list that it read while attributes changed.
    AttributesUnvalidated,
    /// Blocks that a fast commit names are handed out again in its transaction.
    PromiseForgotten,
    /// A fast commit is made of an inode whose names changed.
    NamesStayFast,
    /// A fast commit is made of an inode whose attributes changed.
    AttributesStayFast,
    /// A fast commit is made of an inode that lost blocks.
    LostBlocksStayFast,
    /// A close checkpoints and marks the log empty while other threads go on to commit.
    CommitBesideClose,
    /// The inode of a number is read though its place in the table was never initialised.
    TableUnbounded,
    /// A directory that was removed while it is open is listed from its index.
    NamelessListed,
    /// The removal of a name asks for fewer credits than it uses.
    EstimateTooLow,
}

/// Who waits shall sleep at once, so that sleeping is tried: under model checkers.
pub const FEW_LOOKS: bool = cfg!(any(feature = "model-shuttle", feature = "mutants"));

impl Fault {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 25] = [
        Self::GateRecheck,
        Self::RecallUnfenced,
        Self::WindowEpoch,
        Self::BitUnrepeated,
        Self::CompletionUnreserved,
        Self::StateAcrossStart,
        Self::FreedTooEarly,
        Self::OrphanForgotten,
        Self::SlotForgotten,
        Self::EscrowLostUpdate,
        Self::SettlingUnseen,
        Self::RevokeForgotten,
        Self::FrozenForgotten,
        Self::EditionForgotten,
        Self::LostWakeup,
        Self::DataUnflushed,
        Self::AttributesUnvalidated,
        Self::PromiseForgotten,
        Self::NamesStayFast,
        Self::AttributesStayFast,
        Self::LostBlocksStayFast,
        Self::CommitBesideClose,
        Self::TableUnbounded,
        Self::NamelessListed,
        Self::EstimateTooLow,
    ];
}

/// Whether `fault` is planted in this run.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[must_use]
pub const fn planted(_: Fault) -> bool {
    false
}

/// Whether `fault` is planted in this run.
#[cfg(feature = "mutants")]
#[must_use]
pub fn planted(fault: Fault) -> bool {
    crate::primitive::sim::explore::has_fault(fault)
}
