//! The kernel's flags of a mount, as words.

use nextent_fuse::Mounted;
use rustix::mount::MountFlags;

/// The flags that mount(2) sets at a remount. It clears those that it is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelFlags(MountFlags);

/// A word that sets flags, and those that it sets and clears.
type Word = (&'static str, MountFlags, MountFlags);

const NONE: MountFlags = MountFlags::empty();
const ATIME: MountFlags =
    MountFlags::NOATIME.union(MountFlags::RELATIME).union(MountFlags::STRICTATIME);

const WORDS: &[Word] = &[
    ("ro", MountFlags::RDONLY, NONE),
    ("rw", NONE, MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID, NONE),
    ("suid", NONE, MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV, NONE),
    ("dev", NONE, MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC, NONE),
    ("exec", NONE, MountFlags::NOEXEC),
    ("sync", MountFlags::SYNCHRONOUS, NONE),
    ("async", NONE, MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC, NONE),
    ("noatime", MountFlags::NOATIME, ATIME),
    ("relatime", MountFlags::RELATIME, ATIME),
    ("atime", MountFlags::RELATIME, ATIME),
    ("norelatime", MountFlags::RELATIME, ATIME),
    ("nostrictatime", MountFlags::RELATIME, ATIME),
    ("strictatime", MountFlags::STRICTATIME, ATIME),
    ("nodiratime", MountFlags::NODIRATIME, NONE),
    ("diratime", NONE, MountFlags::NODIRATIME),
    ("lazytime", MountFlags::LAZYTIME, NONE),
    ("nolazytime", NONE, MountFlags::LAZYTIME),
];

impl KernelFlags {
    /// The flags that the table of mounts shows.
    pub(super) fn shown(mounted: &Mounted) -> Self {
        // Without a word the kernel means strictatime.
        let strict = Self(MountFlags::STRICTATIME);
        let of_mount = strict.with(mounted.flags.split(',').filter(|word| *word != "rw"));
        of_mount.with(mounted.options.split(',').filter(|word| *word != "rw"))
    }

    /// These flags, changed by words, of which the last counts. Other words change nothing.
    pub(super) fn with<W: AsRef<str>>(self, words: impl IntoIterator<Item = W>) -> Self {
        words.into_iter().fold(self, |Self(flags), word| {
            match WORDS.iter().find(|(name, ..)| *name == word.as_ref()) {
                Some((_, set, cleared)) => Self(flags.difference(*cleared).union(*set)),
                None => Self(flags),
            }
        })
    }

    pub(super) fn is_read_only(self) -> bool {
        self.0.contains(MountFlags::RDONLY)
    }

    pub(super) fn bits(self) -> MountFlags {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts() {
        let flags = |words: &str| KernelFlags(MountFlags::STRICTATIME).with(words.split(','));
        assert_eq!(flags("ro,nosuid,relatime,suid,rw"), flags("relatime"));
        assert_eq!(flags("noatime,relatime,strictatime"), flags(""));
        assert_eq!(flags("sync,dirsync,async,discard").0, flags("dirsync").0);
        assert!(flags("rw,ro").is_read_only() && !flags("ro,rw").is_read_only());
    }
}
