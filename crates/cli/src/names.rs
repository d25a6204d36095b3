//! Other names of the program, by which mount(8), fsck(8) and mkfs(8) call their helpers. Those of
//! e2fsprogs are in [`e2fsprogs`](crate::e2fsprogs).

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The arguments of this process, rewritten as those of `nextent`.
pub(crate) fn arguments() -> Vec<OsString> {
    translate(std::env::args_os().collect())
}

/// The arguments of umount(8)'s helper, if this process was called by its name.
#[cfg(all(feature = "mount", target_os = "linux"))]
pub(crate) fn unmount() -> Option<Vec<OsString>> {
    let mut args = std::env::args_os();
    let called = args.next()?;
    let name = Path::new(&called).file_name()?.to_str()?;
    matches!(name, "umount.fuse.nextent" | "umount.nextent").then(|| args.collect())
}

fn translate(args: Vec<OsString>) -> Vec<OsString> {
    #[cfg(all(feature = "mount", target_os = "linux"))]
    if let Some(words) = crate::e2fsprogs::mount_words(&args) {
        return words;
    }
    let called = args.first().map(|name| Path::new(name).file_name().unwrap_or_default());
    let command = match called.and_then(OsStr::to_str) {
        Some("mkfs.nextent") => "mkfs",
        Some("fsck.nextent") => "fsck",
        Some("mount.fuse.nextent" | "mount.fuseblk.nextent" | "mount.nextent") => {
            return mount(args);
        }
        _ => return args,
    };
    let rest = args.into_iter().skip(1);
    [OsString::from("nextent"), command.into()].into_iter().chain(rest).collect()
}

/// Rewrites mount(8)'s arguments: `-n` (no mtab), `-v` and `-t TYPE` are dropped, `-s` ignores
/// unknown options, `-f` mounts nothing.
fn mount(args: Vec<OsString>) -> Vec<OsString> {
    let mut ours: Vec<OsString> = vec!["nextent".into(), "mount".into(), "--by-mount".into()];
    let mut rest = args.into_iter().skip(1);
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-t") => {
                rest.next();
            }
            Some(flags) if is_flags(flags) => {
                let said = [('s', "--sloppy"), ('f', "--fake")];
                let said = said.iter().filter(|(letter, _)| flags.contains(*letter));
                ours.extend(said.map(|(_, word)| OsString::from(word)));
            }
            _ => ours.push(arg),
        }
    }
    ours
}

fn is_flags(word: &str) -> bool {
    let letters = word.strip_prefix('-').unwrap_or_default();
    !letters.is_empty() && letters.chars().all(|letter| "sfnv".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_arguments() {
        for (called, ours) in [
            ("nextent ls -l a:/", "nextent ls -l a:/"),
            ("/sbin/mkfs.nextent -q a 1g", "nextent mkfs -q a 1g"),
            ("fsck.nextent -n a", "nextent fsck -n a"),
            ("fuse2fs -o ro a b -f", "nextent mount --caller-locks -o ro -f -- a b"),
            ("nextent fuse4fs a b", "nextent mount --caller-locks -- a b"),
            ("/sbin/mount.fuse.nextent a b -n -o ro,dev", "nextent mount --by-mount a b -o ro,dev"),
            ("mount.fuse.nextent a b -sv -o x", "nextent mount --by-mount a b --sloppy -o x"),
            (
                "mount.fuseblk.nextent /dev/a b -o remount,ro",
                "nextent mount --by-mount /dev/a b -o remount,ro",
            ),
            ("mount.fuse.nextent a b -fn", "nextent mount --by-mount a b --fake"),
            (
                "mount.fuse.nextent a b -v -t fuse.nextent -o rw",
                "nextent mount --by-mount a b -o rw",
            ),
        ] {
            let args = called.split(' ').map(OsString::from).collect();
            assert_eq!(translate(args), ours.split(' ').collect::<Vec<_>>());
        }
    }
}
