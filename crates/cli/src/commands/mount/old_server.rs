//! Waits for the server of an earlier mount of the same image.
//!
//! `umount(2)` returns before that server has closed the image. So `umount m && nextent mount IMAGE
//! m` finds the image locked for some milliseconds, or longer on a slow disk.

use crate::disk::Disk;
use crate::target::Place;
use nextent_device::{FileOptions, OpenError, User};
use nextent_sync::{Duration, now, sleep};

/// The longest time to wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time between two tries.
const PERIOD: Duration = Duration::from_millis(10);

/// Opens `image`. Waits while only processes use it, which may be the server of a mount that has
/// ended. Does not wait for a mount, swap space or another device: these do not end by themselves.
///
/// # Errors
/// The last refusal.
pub(super) fn open_after(image: &Place, how: &FileOptions) -> Result<Disk, OpenError> {
    let begun = now();
    loop {
        match image.open(how.clone()) {
            Err(error) if may_end(&error) && begun.elapsed() < PATIENCE => sleep(PERIOD),
            done => return done,
        }
    }
}

/// Whether the use that caused `error` may end by itself.
fn may_end(error: &OpenError) -> bool {
    match error {
        OpenError::Locked { users, .. } | OpenError::Busy { users, .. } => {
            users.0.iter().all(|user| matches!(user, User::Process { .. }))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent_device::Users;

    #[test]
    fn only_processes_end_by_themselves() {
        let process = || User::Process { pid: 7, name: "nextent".into() };
        let mount = User::Mount { point: "/m".into(), kind: "fuse.nextent".into() };
        let locked = |users| OpenError::Locked { path: "image".into(), users: Users(users) };
        assert!(may_end(&locked(vec![process()])) && may_end(&locked(vec![])));
        assert!(!may_end(&locked(vec![mount, process()])));
        let used = OpenError::Used { path: "image".into(), users: Users(vec![process()]) };
        assert!(!may_end(&used));
    }
}
