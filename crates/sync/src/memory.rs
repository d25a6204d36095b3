//! Available memory, and its return to the system.

use crate::primitive;

/// Bytes that the process may still allocate: available in the system, and within the limits of the
/// process's control groups (versions 1 and 2). `None` where the system does not say, and in models
/// and simulations, whose runs must not depend on the machine.
#[must_use]
pub fn available_memory() -> Option<u64> {
    primitive::available_memory()
}

/// Returns freed memory that the C library holds to the system. Takes the locks of all its arenas,
/// so it is for background threads.
pub fn release_memory() {
    primitive::release_memory();
}

/// A file that becomes ready with priority (`POLLPRI`) whenever threads have waited for memory for
/// a tenth of the last second or two: in the process's control group, or in the whole system.
/// `None` where the kernel does not offer it to this process.
#[must_use]
pub fn memory_pressure() -> Option<std::fs::File> {
    primitive::memory_pressure()
}
