//! How much memory there is, and giving back what is free.

use crate::primitive;

/// Bytes that the process may still take: what the system has available, within the limits of the
/// process's control groups (versions 1 and 2). None where nobody says so, and under model checkers
/// and on simulated cores, where runs must not depend on the machine.
#[must_use]
pub fn available_memory() -> Option<u64> {
    primitive::available_memory()
}

/// Gives memory that the process has freed back to the system, where the C library keeps it. Takes
/// the locks of all its arenas, so it is for threads that nobody waits for.
pub fn release_memory() {
    primitive::release_memory();
}

/// A file that becomes ready with priority (`POLLPRI`) whenever threads have waited for memory for
/// a tenth of the last second or two: in the process's control group, or in the whole system. None
/// where the kernel does not tell, or not this process.
#[must_use]
pub fn memory_pressure() -> Option<std::fs::File> {
    primitive::memory_pressure()
}
