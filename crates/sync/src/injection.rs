//! A hook that lets a test build inject bugs into the code above.
//!
//! A line of code asks [`injected`] with the name of a bug and misbehaves if the answer is true.
//! Only a build with the feature `mutants` can answer true: there an external back end knows the
//! name of the one bug that is on. In every other build the answer is the constant `false`, and the
//! compiler removes the line.

/// Whether limits and numbers of polls are as small as possible.
///
/// True under model checkers that explore schedules: a thread that waits sleeps at once, and
/// caches and lists fill after a few operations, so that a short run reaches the code behind.
pub const SMALL_LIMITS: bool = cfg!(any(feature = "model-shuttle", feature = "mutants"));

/// Whether the bug `name` is injected in this run.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[must_use]
pub const fn injected(name: &'static str) -> bool {
    let _ = name;
    false
}

/// Whether the bug `name` is injected in this run.
#[cfg(feature = "mutants")]
#[must_use]
pub fn injected(name: &'static str) -> bool {
    crate::primitive::is_injected(name)
}
