//! Counts the instructions that a thread executes between two calls of this back end, by the
//! processor's trap flag: a trap after each instruction.
//!
//! Promise: what is executed inside of a [`quiet`] section is not counted, and what is executed
//! outside of one is, while [`begin`] has turned counting on for the caller; [`Steps::overhead`]
//! of each section is, too, and known. Where a processor has no such flag, or the system no such
//! signal, [`begin`] says so and nothing is counted.
//!
//! All of it belongs to one real thread. Other simulated threads of it do not count: who switches
//! to them takes [`suspend`] along.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
use trap::{install, trap};

use std::cell::Cell;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Steps {
    /// Instructions.
    pub(super) instructions: u64,
    /// Read-modify-writes in one step among them.
    pub(super) changes: u64,
    /// Quiet sections.
    pub(super) sections: u64,
}

/// What the caller's thread counts. Reached by the signal's handler, too: no value here has a
/// destructor or is made late.
struct Counts {
    on: Cell<bool>,
    depth: Cell<u32>,
    sections: Cell<u64>,
    instructions: Cell<u64>,
    changes: Cell<u64>,
    /// Where the last instruction was: one that repeats itself traps each time.
    last: Cell<usize>,
}

std::thread_local! {
    static COUNTS: Counts = const {
        Counts {
            on: Cell::new(false),
            depth: Cell::new(0),
            sections: Cell::new(0),
            instructions: Cell::new(0),
            changes: Cell::new(0),
            last: Cell::new(0),
        }
    };
}

/// A section that is not counted, until dropped.
pub(crate) struct Quiet(());

/// Begins one; they may lie within each other.
#[inline(always)]
pub(crate) fn quiet() -> Quiet {
    COUNTS.with(|counts| {
        if counts.on.get() {
            if counts.depth.get() == 0 {
                trap(false);
                counts.sections.set(counts.sections.get() + 1);
            }
            counts.depth.set(counts.depth.get() + 1);
        }
    });
    Quiet(())
}

impl Drop for Quiet {
    #[inline(always)]
    fn drop(&mut self) {
        COUNTS.with(|counts| {
            if counts.on.get() {
                counts.depth.set(counts.depth.get() - 1);
                if counts.depth.get() == 0 {
                    trap(true);
                }
            }
        });
    }
}

/// Counts from now on; `false` where that cannot be done.
pub(super) fn begin() -> bool {
    if !install() {
        return false;
    }
    COUNTS.with(|counts| {
        counts.depth.set(0);
        counts.on.set(true);
    });
    trap(true);
    true
}

/// Counts no more.
pub(super) fn end() {
    trap(false);
    COUNTS.with(|counts| counts.on.set(false));
}

/// Whether the caller counts.
pub(super) fn is_on() -> bool {
    COUNTS.with(|counts| counts.on.get())
}

/// What was counted since the last call.
pub(super) fn take() -> Steps {
    COUNTS.with(|counts| Steps {
        instructions: counts.instructions.take(),
        changes: counts.changes.take(),
        sections: counts.sections.take(),
    })
}

impl Steps {
    /// Instructions that are counted of a section though nobody wants them: one with nothing in it.
    pub(super) fn overhead() -> f64 {
        const TIMES: u64 = 256;
        if !begin() {
            return 0.0;
        }
        take();
        for _ in 0..TIMES {
            std::hint::black_box(quiet());
        }
        end();
        take().instructions as f64 / TIMES as f64
    }
}

/// What the caller counts, put aside while others run: in a quiet section only.
pub(super) struct Suspended {
    on: bool,
    depth: u32,
}

/// Puts it aside.
pub(super) fn suspend() -> Suspended {
    COUNTS.with(|counts| Suspended { on: counts.on.replace(false), depth: counts.depth.get() })
}

impl Suspended {
    /// The caller runs again.
    pub(super) fn resume(self) {
        COUNTS.with(|counts| {
            counts.on.set(self.on);
            counts.depth.set(self.depth);
        });
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn install() -> bool {
    false
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn trap(_: bool) {}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod trap {
    use super::COUNTS;
    use std::sync::OnceLock;

    /// Turns the trap flag on or off: the instruction after the next one is the first to trap.
    #[inline(always)]
    pub(super) fn trap(on: bool) {
        if on {
            // SAFETY: changes the trap flag alone, whose signal is handled (`install` has been
            // called), and uses the stack as it may.
            unsafe { std::arch::asm!("pushfq", "or dword ptr [rsp], 0x100", "popfq") };
        } else {
            // SAFETY: as above.
            unsafe { std::arch::asm!("pushfq", "and dword ptr [rsp], 0xfffffeff", "popfq") };
        }
    }

    /// Handles the signal from now on; whether that could be had.
    pub(super) fn install() -> bool {
        static INSTALLED: OnceLock<bool> = OnceLock::new();
        *INSTALLED.get_or_init(|| {
            // SAFETY: all zeroes is a good value of this plain structure.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = stepped as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            // SAFETY: the handler is one for this form and does only what a handler may.
            unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()) == 0 }
        })
    }

    /// After each instruction: the next one is where the thread will go on.
    extern "C" fn stepped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the system gives a context that is the handler's for as long as it runs.
        let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
        let at = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        COUNTS.with(|counts| {
            if !counts.on.get() {
                // A trap of somebody else's, or a late one: never again.
                context.uc_mcontext.gregs[libc::REG_EFL as usize] &= !0x100;
                return;
            }
            if counts.last.replace(at) == at {
                return;
            }
            counts.instructions.set(counts.instructions.get() + 1);
            // SAFETY: the thread is about to execute what is there, at most 15 bytes, of which the
            // first four are looked at only as far as those before say that there are more.
            if unsafe { is_change(at as *const u8) } {
                counts.changes.set(counts.changes.get() + 1);
            }
        });
    }

    /// Whether the instruction at `at` changes a word in one step: it is locked, or an exchange
    /// with memory, which is so without a word.
    ///
    /// # Safety
    /// There is an instruction.
    unsafe fn is_change(at: *const u8) -> bool {
        // SAFETY: each byte is looked at only if those before it do not end the instruction.
        unsafe {
            const LOCK: u8 = 0xF0;
            if *at == LOCK || *at == 0x66 && *at.add(1) == LOCK {
                return true;
            }
            let after = usize::from(*at & 0xF0 == 0x40);
            matches!(*at.add(after), 0x86 | 0x87) && *at.add(after + 1) < 0xC0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_is_quiet_is_not_counted() {
        let overhead = Steps::overhead();
        if !begin() {
            return;
        }
        take();
        let mut sum = 1_u64;
        for n in 0..100_u64 {
            sum = std::hint::black_box(sum.wrapping_mul(n | 1));
        }
        let word = AtomicU64::new(sum);
        word.fetch_add(1, Ordering::SeqCst);
        word.swap(2, Ordering::SeqCst);
        end();
        let loud = take();
        // Of a build that is not optimised there are some dozens for each step.
        assert!((300..40_000).contains(&loud.instructions), "{loud:?}");
        assert_eq!((loud.changes, loud.sections), (2, 0));
        assert!(begin());
        take();
        {
            let _quiet = quiet();
            let _more = quiet();
            for n in 0..100_u64 {
                sum = std::hint::black_box(sum.wrapping_mul(n | 1));
            }
            let others = suspend();
            assert!(!is_on());
            others.resume();
        }
        end();
        let quiet = take();
        assert!(overhead > 1.0 && (quiet.instructions as f64) < 5.0 * overhead, "{quiet:?}");
        assert_eq!((quiet.changes, quiet.sections), (0, 1));
    }
}
