//! This process's umask.

use nextent::Cred;
use nextent_num::must_fit;

/// Root's rights in an image with this process's umask, for files with a default mode.
pub fn creator() -> Cred {
    Cred { umask: umask(), ..Cred::root() }
}

/// This process's umask. It can only be read by setting it, so files that other threads make at
/// that moment would not be masked.
pub fn umask() -> u16 {
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    must_fit(umask.as_raw_mode())
}
