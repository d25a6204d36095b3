//! The seam at which the journal's admission can be replaced.
//!
//! A build with the hidden feature `lab` may pass an [`AdmissionFactory`] in the store's options.
//! The journal then admits handles by that replacement instead of by per-thread slots. In every
//! other build [`Replacement::get`] is the constant `None`, and the compiler removes its uses.
//!
//! A replacement keeps three invariants of the gate of slots:
//!
//! - J1: credits held and set aside never exceed the capacity of a transaction
//!   ([`take`](Admission::take)).
//! - J2: a handle joins only a transaction whose [`Access`] admits it.
//! - J3: a commit proceeds only while no handle is inside ([`switch`](Admission::switch)).
//!
//! The log's space (J4), the share of credits that may be set aside (J5) and aborts (J6) stay with
//! the journal. Changed blocks are listed per slot under every admission.

#![cfg_attr(not(feature = "lab"), allow(unreachable_pub))] // exported with the feature only

use nextent_ondisk::Tid;
use std::fmt;

/// A handle, by its right to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joiner {
    /// Started from nothing.
    Ordinary,
    /// Started from a reservation, whose credits the transaction already counts.
    Reserved,
}

/// The handles that may join the running transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// All handles.
    Open,
    /// Handles with a reservation: a commit drains the transaction.
    Reserved,
    /// No handle.
    Shut,
}

impl Access {
    /// Whether `joiner` may join.
    #[must_use]
    pub fn admits(self, joiner: Joiner) -> bool {
        match self {
            Self::Open => true,
            Self::Reserved => joiner == Joiner::Reserved,
            Self::Shut => false,
        }
    }
}

/// The outcome of an attempt to join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "lab"), allow(dead_code))] // made by replacements only
pub enum Joined {
    /// The handle is inside this transaction and has its credits.
    Inside(Tid),
    /// The transaction's access does not admit the handle.
    Refused,
    /// This transaction is open and has too few credits left.
    Full(Tid),
}

/// What the journal asks of a replacement for its admission.
///
/// The last four are called by the committer alone.
pub trait Admission: Send + Sync {
    /// Joins the running transaction with `credits`.
    fn start(&self, credits: i64, joiner: Joiner) -> Joined;

    /// Leaves with `unused` credits; true if a commit waits and this was the last handle inside.
    fn stop(&self, unused: i64) -> bool;

    /// Takes `n` more credits for a handle inside, or sets them aside.
    fn take(&self, n: i64) -> bool;

    /// Credits that can still be taken.
    fn left(&self) -> i64;

    /// Called before each use of a metadata block.
    fn before_use(&self) {}

    /// Sets the access of `tid`, and calls `publish` before a handle can join by it.
    fn set(&self, access: Access, tid: Tid, publish: &dyn Fn());

    /// Whether a handle is inside. The access is not `Open`.
    fn is_entered(&self) -> bool;

    /// Shuts `tid` and calls `publish`, as `set` does, if no handle is inside; false if one is.
    fn switch(&self, tid: Tid, publish: &dyn Fn()) -> bool;

    /// Begins a transaction that has `reserved` credits set aside. The access is not `Open`.
    fn reset(&self, reserved: i64);
}

/// Makes the replacement for one journal, whose first transaction is open.
#[derive(Clone, Default)]
pub struct AdmissionFactory(#[cfg(feature = "lab")] Option<MakeAdmission>);

/// Takes the first transaction and its capacity in credits.
#[cfg(feature = "lab")]
type MakeAdmission = nextent_sync::Arc<dyn Fn(Tid, i64) -> Box<dyn Admission> + Send + Sync>;

#[cfg(feature = "lab")]
impl AdmissionFactory {
    /// A factory that calls `make` with the first transaction and its capacity in credits.
    pub fn new(make: impl Fn(Tid, i64) -> Box<dyn Admission> + Send + Sync + 'static) -> Self {
        Self(Some(nextent_sync::Arc::new(make)))
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => nextent_sync::Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

#[cfg(not(feature = "lab"))]
impl AdmissionFactory {
    fn is_same(&self, _: &Self) -> bool {
        true
    }
}

impl PartialEq for AdmissionFactory {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
    }
}

impl Eq for AdmissionFactory {}

impl fmt::Debug for AdmissionFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionFactory").finish_non_exhaustive()
    }
}

/// A journal's replacement for its admission, if it has one.
pub(super) struct Replacement(#[cfg(feature = "lab")] Option<Box<dyn Admission>>);

#[cfg(feature = "lab")]
impl Replacement {
    pub(super) fn new(factory: &AdmissionFactory, tid: Tid, capacity: i64) -> Self {
        Self(factory.0.as_ref().map(|make| make(tid, capacity)))
    }

    #[inline]
    pub(super) fn get(&self) -> Option<&dyn Admission> {
        self.0.as_deref()
    }
}

#[cfg(not(feature = "lab"))]
impl Replacement {
    pub(super) fn new(_: &AdmissionFactory, _: Tid, _: i64) -> Self {
        Self()
    }

    #[inline(always)]
    pub(super) fn get(&self) -> Option<&dyn Admission> {
        None
    }
}
