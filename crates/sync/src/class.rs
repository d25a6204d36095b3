//! Lock classes: a name and a rank for every lock.

/// What all locks of one kind share: a name for reports and a rank.
///
/// A thread takes locks in rising rank; two locks of one rank may be held
/// together only if the class says so (its owner then orders them itself).
/// Debug and model builds panic where that is broken, naming both classes and
/// both places; trying for a lock is exempt, since it does not wait.
#[derive(Debug)]
pub struct LockClass {
    /// Name in reports and in the panic of an inversion.
    pub name: &'static str,
    /// Position in the lock order; see `docs/LOCKS.md`.
    pub rank: u16,
    /// Whether several locks of this class may be held at once.
    pub nests: bool,
    /// Its row in the statistics plus one, once it has one. [relaxed]
    #[cfg(feature = "lockstat")]
    pub(crate) number: std::sync::atomic::AtomicU16,
}

impl LockClass {
    /// A class of which a thread holds at most one lock.
    pub const fn new(name: &'static str, rank: u16) -> Self {
        Self::with(name, rank, false)
    }

    /// A class of which a thread may hold several, in an order of its owner's.
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
