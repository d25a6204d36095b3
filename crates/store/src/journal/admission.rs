//! How threads get into a transaction and out of it, chosen when a store is opened.

use nextent_sync::LockKind;

/// What starting and stopping a handle takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Admission {
    /// The caller's slot: no lock, no line that another core stores to.
    #[default]
    Slots,
    /// jbd2 until 2.6.34: two locks of the journal, one in the other, at the start and at the stop.
    StateLock,
    /// The same without the outer lock at the stop: what a hack of 2010 measured.
    StateLockHack,
    /// jbd2 from 2.6.36 on: a lock for readers and writers at the start, none at the stop, and
    /// counts that all share.
    RwLock,
}

/// An admission and how its locks wait, where it has any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GateSpec {
    /// What starting and stopping takes.
    pub admission: Admission,
    /// How its locks wait.
    pub locks: LockKind,
}
