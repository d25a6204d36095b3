//! An entry in util-linux's table of mounts, so that umount(8) calls this program's helper.
//!
//! `umount(2)` returns before a FUSE server has closed its image. The helper waits for that (see
//! [`unmount`](mod@super::unmount)). umount(8) calls the helper of a FUSE file system's full type
//! only if the mount has an entry in `/run/mount/utab`. This module calls mount(8) and umount(8)
//! only to write that table, since it is theirs and they lock it.
//!
//! An entry exists from the mount until the server ends. Without root, without an installed helper
//! or without util-linux there is none, and `umount` does not wait.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The helper that umount(8) calls for [`TYPE`].
const HELPER: &str = "/sbin/umount.fuse.nextent";

/// The type of our mounts.
const TYPE: &str = "fuse.nextent";

/// An entry; removed when dropped.
pub(super) struct UtabEntry(PathBuf);

impl UtabEntry {
    /// Adds the mount of `source` at `point`, if umount(8) can use that.
    pub(super) fn new(source: &str, point: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new(HELPER).exists() {
            return None;
        }
        let point = point.canonicalize().ok()?;
        let how = format!("uhelper={TYPE}");
        let mut mount = only_the_table("mount");
        mount.args(["-t", TYPE, "-o", &how, "--", source]).arg(&point);
        done(mount).then_some(Self(point))
    }
}

impl Drop for UtabEntry {
    fn drop(&mut self) {
        let mut umount = only_the_table("umount");
        umount.arg("--").arg(&self.0);
        // umount(8) may have removed it already.
        done(umount);
    }
}

/// A call of `program` that only changes its table: no helper, no mount, no check of paths.
fn only_the_table(program: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["-i", "--fake", "--no-canonicalize"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn done(mut command: Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}
