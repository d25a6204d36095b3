//! The asymmetric barrier by membarrier(2).
//!
//! The first barrier of either side decides which kind this process uses, and that never changes. A
//! fast side that only stops the compiler is sound, because every slow side that could pair with it
//! interrupts its core.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

const UNDECIDED: u8 = 0;
const SYMMETRIC: u8 = 1;
const ASYMMETRIC: u8 = 2;

/// [decided once by compare-exchange; relaxed, it guards nothing else]
static KIND: AtomicU8 = AtomicU8::new(UNDECIDED);

#[inline]
pub(crate) fn asymmetric_fast() {
    if KIND.load(Ordering::Relaxed) == ASYMMETRIC {
        compiler_fence(Ordering::SeqCst);
    } else {
        fast_undecided();
    }
}

#[cold]
fn fast_undecided() {
    decide();
    // Sound for either kind.
    fence(Ordering::SeqCst);
}

pub(crate) fn asymmetric_slow() {
    if decide() == ASYMMETRIC {
        system::interrupt_all();
    }
    fence(Ordering::SeqCst);
}

fn decide() -> u8 {
    let kind = KIND.load(Ordering::Relaxed);
    if kind != UNDECIDED {
        return kind;
    }
    let found = if system::register() { ASYMMETRIC } else { SYMMETRIC };
    match KIND.compare_exchange(UNDECIDED, found, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => found,
        Err(decided) => decided,
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod system {
    /// Announces that this process will use the expedited command.
    pub(super) fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    /// A full barrier on every core that runs a thread of this process.
    pub(super) fn interrupt_all() {
        // After registration the expedited command fails only if the kernel is out of memory; the
        // global command is slow but needs none.
        let done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
            || membarrier(libc::MEMBARRIER_CMD_GLOBAL);
        assert!(done, "membarrier failed although this process is registered");
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: membarrier takes three integers and accesses no memory of this process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod system {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn interrupt_all() {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Dekker's test: with the barriers at least one of the two sees the other's store.
    #[test]
    fn store_then_load_is_ordered() {
        for _ in 0..2_000 {
            let (fast, slow) = (AtomicU32::new(0), AtomicU32::new(0));
            let (a, b) = std::thread::scope(|scope| {
                let a = scope.spawn(|| {
                    fast.store(1, Ordering::Relaxed);
                    asymmetric_fast();
                    slow.load(Ordering::Relaxed)
                });
                slow.store(1, Ordering::Relaxed);
                asymmetric_slow();
                let b = fast.load(Ordering::Relaxed);
                (a.join().expect("no panic"), b)
            });
            assert!(a == 1 || b == 1);
        }
        assert_ne!(KIND.load(Ordering::Relaxed), UNDECIDED);
    }
}
