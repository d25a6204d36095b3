//! Mount namespaces of test scripts.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Shell code that detaches the mounts of images from a new namespace, except the one at `$KEEP`.
///
/// A namespace begins as a copy of its parent, so it also holds the mounts of tests that run at the
/// same time. Until it ends, their servers and loop devices go on after the tests have unmounted
/// them. It has no single quotes.
pub const DETACH: &str = r#"while read -r _ _ _ _ at rest; do
    case "$rest" in
        *" - fuse "* | *" - fuse."* | *" - fuseblk"* | *" - ext"[234]" /dev/loop"*)
            [ "$at" = "$KEEP" ] || umount -l -c -i "$at" 2> /dev/null;;
    esac
done < /proc/self/mountinfo; "#;

/// A command in a mount namespace of its own, in which no other test's images are mounted, except
/// at `keep`. The caller adds the command's words.
pub fn namespace(keep: Option<&Path>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(format!("{DETACH}unset KEEP; exec \"$@\"")).arg("sh");
    command.env("KEEP", keep.map_or(OsStr::new(""), Path::as_os_str));
    command
}
