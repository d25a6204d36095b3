//! Lock classes: a name and a rank for every lock.

/// A name for reports and a rank, shared by all locks of one kind.
///
/// A thread takes locks in rising rank. It may hold two locks of one rank only if the class nests;
/// the class's owner then defines their order. Debug and model builds panic on a violation, and
/// name both classes and both call sites. An attempt that does not wait is exempt.
#[derive(Debug)]
pub struct LockClass {
    /// Name in reports and in the panic of an inversion.
    pub name: &'static str,
    /// Position in the lock order; see `docs/LOCKS.md`.
    pub rank: u16,
    /// Whether several locks of this class may be held at once.
    pub nests: bool,
    /// Its row in the statistics plus one; 0 before it has one. [relaxed]
    #[cfg(feature = "lockstat")]
    pub(crate) number: std::sync::atomic::AtomicU16,
}

impl LockClass {
    /// A class of which a thread holds at most one lock.
    pub const fn new(name: &'static str, rank: u16) -> Self {
        Self::with(name, rank, false)
    }

    /// A class of which a thread may hold several locks, in an order that the class's owner
    /// defines.
    pub const fn nesting(name: &'static str, rank: u16) -> Self {
        Self::with(name, rank, true)
    }

    const fn with(name: &'static str, rank: u16, nests: bool) -> Self {
        Self {
            name,
            rank,
            nests,
            #[cfg(feature = "lockstat")]
            number: std::sync::atomic::AtomicU16::new(0),
        }
    }
}
