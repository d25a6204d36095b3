//! The names that mount(8), umount(8), mkfs(8) and fsck(8) call this program by.

use std::ffi::OsString;
use std::path::Path;

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// A command, in the words of this program's own command line.
    Command(Vec<OsString>),
    /// An unmount, with umount(8)'s words.
    Unmount(Vec<OsString>),
}

/// What `words`, the name of the program first, ask for.
pub(crate) fn called(mut words: Vec<OsString>) -> Called {
    let name = words.first().and_then(|word| Path::new(word).file_name()).unwrap_or_default();
    let command = match name.to_str() {
        Some("mount.fuse.nextent" | "mount.nextent") => {
            return Called::Command(as_mount(words.split_off(1)));
        }
        Some("umount.fuse.nextent" | "umount.nextent") => {
            return Called::Unmount(words.split_off(1));
        }
        Some("mkfs.nextent") => "mkfs",
        Some("fsck.nextent" | "fsck.fuse.nextent") => "fsck",
        _ => return Called::Command(words),
    };
    words.insert(1, command.into());
    Called::Command(words)
}

/// mount(8) calls `NAME IMAGE DIRECTORY [-sfnv] [-N namespace] [-o options] [-t type]`.
fn as_mount(words: Vec<OsString>) -> Vec<OsString> {
    let mut own: Vec<OsString> = vec!["nextent".into(), "mount".into()];
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.to_str() {
            // The type is known, and names are not kept in a table of ours.
            Some("-t" | "-N") => drop(words.next()),
            Some("-n" | "-v" | "-s") => {}
            _ => own.push(word),
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn every_name_has_its_meaning() {
        for (given, meant) in [
            ("nextent ls a:/", "nextent ls a:/"),
            ("/usr/sbin/mkfs.nextent a 1g", "/usr/sbin/mkfs.nextent mkfs a 1g"),
            ("/sbin/fsck.nextent -n a", "/sbin/fsck.nextent fsck -n a"),
            ("/sbin/mount.fuse.nextent a /m -n -t x -o rw,dev", "nextent mount a /m -o rw,dev"),
        ] {
            assert_eq!(called(words(given)), Called::Command(words(meant)));
        }
        assert_eq!(called(words("umount.fuse.nextent /m -l")), Called::Unmount(words("/m -l")));
    }
}
