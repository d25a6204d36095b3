//! Asymmetric fences by membarrier(2).
//!
//! Which kind this process uses is decided once, by whichever fence comes
//! first, and never changes: a light fence that only stops the compiler is
//! sound because every heavy one that could meet it interrupts its core.

use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

const UNDECIDED: u8 = 0;
const SYMMETRIC: u8 = 1;
const ASYMMETRIC: u8 = 2;

/// [decided once by compare-exchange; relaxed, it guards nothing else]
static KIND: AtomicU8 = AtomicU8::new(UNDECIDED);

#[inline]
pub(crate) fn light_barrier() {
    if KIND.load(Ordering::Relaxed) == ASYMMETRIC {
        compiler_fence(Ordering::SeqCst);
    } else {
        light_slow();
    }
}

#[cold]
fn light_slow() {
    decide();
    // Right whichever kind was decided.
    fence(Ordering::SeqCst);
}

pub(crate) fn heavy_barrier() {
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
        // After registration the expedited command fails only when the kernel
        // is out of memory; the global one is slow but needs none.
        let done = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
            || membarrier(libc::MEMBARRIER_CMD_GLOBAL);
        assert!(done, "membarrier fails although this process was registered for it");
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: membarrier takes three integers and touches no memory of ours.
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

    /// Dekker's test: with the fences at most one of the two sees nothing.
    #[test]
    fn store_then_load_is_ordered() {
        for _ in 0..2_000 {
            let (light, heavy) = (AtomicU32::new(0), AtomicU32::new(0));
            let (a, b) = std::thread::scope(|scope| {
                let a = scope.spawn(|| {
                    light.store(1, Ordering::Relaxed);
                    light_barrier();
                    heavy.load(Ordering::Relaxed)
                });
                heavy.store(1, Ordering::Relaxed);
                heavy_barrier();
                let b = light.load(Ordering::Relaxed);
                (a.join().expect("no panic"), b)
            });
            assert!(a == 1 || b == 1);
        }
        assert_ne!(KIND.load(Ordering::Relaxed), UNDECIDED);
    }
}
