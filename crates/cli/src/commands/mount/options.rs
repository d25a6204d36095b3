//! `-o`: fuse2fs's and mount(8)'s words. Each has a meaning here or is refused by name.

use crate::size;
use nextent::ErrorPolicy;
use nextent_fuse::{Allow, MountFlag};
use nextent_sync::Duration;

/// What the words say.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) read_only: bool,
    pub(super) no_recovery: bool,
    pub(super) offset: u64,
    pub(super) errors: Option<ErrorPolicy>,
    pub(super) commit: Option<Duration>,
    pub(super) cache_bytes: Option<u64>,
    pub(super) direct: bool,
    pub(super) no_acl: bool,
    pub(super) no_atime: bool,
    pub(super) fake_root: bool,
    pub(super) minix_df: bool,
    /// The kernel keeps no contents of files.
    pub(super) uncached: bool,
    /// Whether requests must, or must not, come over io_uring.
    pub(super) rings: Option<bool>,
    /// Whether threads that serve count as idle while nobody else wants their core.
    pub(super) idle: Option<bool>,
    /// Unknown words are passed over, as `mount -s` asks.
    pub(super) sloppy: bool,
    pub(super) allow: Allow,
    pub(super) flags: Vec<MountFlag>,
    pub(super) source: Option<String>,
    pub(super) write_asked: bool,
}

/// The words, for `--help` and the manual.
pub(super) const HELP: &str = "\
Words of -o, separated by commas; others are refused by name:

  ro, rw                for reading only, or for both (the default)
  norecovery, noload    leave the journal alone; for reading only
  offset=BYTES          where in the image the file system begins
  errors=WHAT           what damage leads to: continue, remount-ro or panic (the journal
                        stops); without it what the superblock says
  commit=SECONDS        the longest that a change waits for its commit (5)
  cache_size=BYTES      inodes and metadata blocks kept in memory without need (an eighth of what
                        the system and the control group have, at most 96m)
  direct                bypass the host's page cache with the image
  direct_io             keep no contents of files in the kernel, but of those that are mapped:
                        large reads and writes are faster, small and repeated ones slower
  acl, noacl            whether access control lists decide (they do)
  fakeroot              everyone may do what root may
  allow_other           let others in, under the permissions of files
  allow_root            let root in, beside the user who mounts; the kernel then keeps no names
                        and attributes of files, as it would give those to others
  noatime, relatime     keep times of reading as they are, or as relatime has them (the default)
  minixdf, bsddf        whether df counts the file system's own blocks (it does not)
  io_uring, no_io_uring whether requests come over io_uring, without which the mount fails, or
                        not; without a word they do where the kernel offers it (Linux 6.14,
                        /sys/module/fuse/parameters/enable_uring set to Y; with io_uring root's
                        mount sets it for as long as it takes to agree on that)
  sched_idle, no_sched_idle
                        whether threads that serve requests are SCHED_IDLE while nobody else
                        wants their core, so that Linux wakes who asked where it slept; over
                        /dev/fuse one of them then answers alone, on that core, while only one
                        asks (they are, where root or RLIMIT_NICE lets them come back)
  suid, dev, exec, nosuid, nodev, noexec, sync, dirsync
                        as for any file system; without a word nosuid and nodev
  fsname=NAME           what the table of mounts shows as the source; a block device is then
                        mounted as an image file is
  default_permissions, user_xattr, data=ordered, kernel_cache, use_ino, readdir_ino,
  big_writes, async_read, nonempty, async, defaults
                        taken, for so it is in any case
  auto, noauto, nofail, _netdev, user, users, owner, group, x-ANY
                        for mount(8) and systemd

A block device that root mounts is of type fuseblk: umount(8) waits until the file system is
closed, and from Linux 6.18 on sync(1), sync(2) and syncfs(2) make all changes durable. For image
files, and before that, the kernel forwards neither call: fsync(2) of a file or directory (`sync
FILE`) does, and all changes are durable after the commit interval (commit=SECONDS).

Without root, `user_allow_other` in /etc/fuse.conf decides about allow_other and allow_root.

Exit codes are mount(8)'s: 0 mounted, 1 usage or permission, 2 no FUSE (or no io_uring) here,
32 not mounted. With NOTIFY_SOCKET set, as systemd does for Type=notify, READY=1 says that it is
mounted.";

/// The words that completions offer.
#[cfg(any(test, feature = "generate"))]
pub(crate) const WORDS: &[&str] = &[
    "ro",
    "rw",
    "norecovery",
    "noload",
    "offset=",
    "errors=continue",
    "errors=remount-ro",
    "errors=panic",
    "commit=",
    "cache_size=",
    "direct",
    "direct_io",
    "acl",
    "noacl",
    "fakeroot",
    "allow_other",
    "allow_root",
    "noatime",
    "relatime",
    "minixdf",
    "bsddf",
    "io_uring",
    "no_io_uring",
    "sched_idle",
    "no_sched_idle",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "sync",
    "async",
    "dirsync",
    "fsname=",
    "default_permissions",
    "defaults",
    "nofail",
    "noauto",
    "_netdev",
];

impl Options {
    /// Takes in a list.
    pub(super) fn parse(&mut self, list: &str) -> Result<(), String> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let known = match word.split_once('=') {
                Some((name, value)) => self.valued(name, value, word)?,
                None => self.word(word)?,
            };
            if !known && !self.sloppy {
                let name = word.split('=').next().unwrap_or(word);
                return Err(format!("unknown mount option `{name}`"));
            }
        }
        Ok(())
    }

    /// Whether the words go together.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.no_recovery && self.write_asked {
            return Err("norecovery forbids rw: nothing may be written beside a log".into());
        }
        Ok(())
    }

    /// Whether the word is known.
    fn word(&mut self, word: &str) -> Result<bool, String> {
        match word {
            "ro" => (self.read_only, self.write_asked) = (true, false),
            "rw" => (self.read_only, self.write_asked) = (self.no_recovery, true),
            "norecovery" | "noload" => (self.no_recovery, self.read_only) = (true, true),
            "direct" => self.direct = true,
            "acl" => self.no_acl = false,
            "noacl" => self.no_acl = true,
            "fakeroot" => self.fake_root = true,
            "direct_io" => self.uncached = true,
            "minixdf" => self.minix_df = true,
            "bsddf" => self.minix_df = false,
            "io_uring" => self.rings = Some(true),
            "no_io_uring" => self.rings = Some(false),
            "sched_idle" => self.idle = Some(true),
            "no_sched_idle" => self.idle = Some(false),
            "allow_other" => self.allow = Allow::All,
            "allow_root" => self.allow = Allow::Root,
            "suid" => self.flag(MountFlag::Suid),
            "nosuid" => self.flag(MountFlag::NoSuid),
            "dev" => self.flag(MountFlag::Dev),
            "nodev" => self.flag(MountFlag::NoDev),
            "exec" => self.flag(MountFlag::Exec),
            "noexec" => self.flag(MountFlag::NoExec),
            "sync" => self.flag(MountFlag::Sync),
            "dirsync" => self.flag(MountFlag::DirSync),
            "atime" | "relatime" => self.no_atime = false,
            "noatime" => self.no_atime = true,
            // So it is in any case.
            "default_permissions" | "async" | "defaults" | "user_xattr" | "kernel_cache" => {}
            "use_ino" | "readdir_ino" | "big_writes" | "async_read" | "nonempty" => {}
            // For mount(8) and systemd, which hand their own words on.
            "auto" | "noauto" | "nofail" | "_netdev" | "user" | "users" | "owner" | "group" => {}
            _ if word.starts_with("x-") => {}
            "remount" => {
                return Err("a mount cannot change: remount: unmount and mount again".into());
            }
            "no_default_opts" | "fuse2fs_debug" | "debug" => {
                return Err(format!(
                    "mount option `{word}` is fuse2fs's own, without meaning here"
                ));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the name is known.
    fn valued(&mut self, name: &str, value: &str, word: &str) -> Result<bool, String> {
        let bad = |why: String| format!("mount option `{word}`: {why}");
        match name {
            "offset" => self.offset = size::bytes(value).map_err(bad)?,
            "errors" => {
                self.errors = Some(match value {
                    "continue" => ErrorPolicy::Continue,
                    "remount-ro" => ErrorPolicy::ReadOnly,
                    "panic" => ErrorPolicy::Abort,
                    _ => return Err(bad("continue, remount-ro or panic".into())),
                });
            }
            "commit" => {
                let seconds: u32 = value.parse().map_err(|_| bad("a number of seconds".into()))?;
                // Zero stands for the default, as it does to ext4.
                self.commit = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
            }
            "cache_size" => self.cache_bytes = Some(size::bytes(value).map_err(bad)?),
            "fsname" => self.source = Some(value.to_owned()),
            "data" if value == "ordered" => {}
            "data" => return Err(bad("data is always ordered here".into())),
            _ if name.starts_with("x-") => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The last word of a kind counts.
    fn flag(&mut self, flag: MountFlag) {
        let pairs = [
            (MountFlag::Suid, MountFlag::NoSuid),
            (MountFlag::Dev, MountFlag::NoDev),
            (MountFlag::Exec, MountFlag::NoExec),
        ];
        self.flags.retain(|other| {
            *other != flag && !pairs.contains(&(flag, *other)) && !pairs.contains(&(*other, flag))
        });
        self.flags.push(flag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<Options, String> {
        let mut options = Options::default();
        options.parse(list)?;
        options.check().map(|()| options)
    }

    #[test]
    fn words_that_are_known() {
        let all = parse("ro,noload,offset=1m,errors=panic,commit=7,direct,allow_other,nosuid,suid");
        let all = all.unwrap();
        assert!(all.read_only && all.no_recovery && all.direct);
        assert_eq!((all.offset, all.errors), (1 << 20, Some(ErrorPolicy::Abort)));
        assert_eq!(all.commit, Some(Duration::from_secs(7)));
        assert_eq!((all.allow, &all.flags[..]), (Allow::All, &[MountFlag::Suid][..]));
        assert!(parse("noload").unwrap().read_only);
        assert_eq!(parse("cache_size=32m").unwrap().cache_bytes, Some(32 << 20));
        assert_eq!(parse("").unwrap().cache_bytes, None);
        assert_eq!(parse("").unwrap().rings, None);
        assert_eq!(parse("io_uring").unwrap().rings, Some(true));
        assert_eq!(parse("io_uring,no_io_uring").unwrap().rings, Some(false));
        assert_eq!(parse("sched_idle").unwrap().idle, Some(true));
        assert_eq!(parse("sched_idle,no_sched_idle").unwrap().idle, Some(false));
        assert_eq!(parse("").unwrap().idle, None);
        let other = parse("fakeroot,minixdf,use_ino,data=ordered,direct_io").unwrap();
        assert!(other.fake_root && other.minix_df && other.uncached && !other.read_only);
        assert!(Options { sloppy: true, ..Options::default() }.parse("blub,ro,blub=1").is_ok());
        assert!(!parse("ro,rw,,default_permissions,x-systemd.automount").unwrap().read_only);
    }

    #[test]
    fn words_that_completions_offer() {
        for word in WORDS {
            let text = if word.ends_with('=') { format!("{word}1") } else { (*word).to_owned() };
            assert!(parse(&text).is_ok(), "{text}");
            assert!(HELP.contains(word.split('=').next().unwrap_or(word)), "{word}");
        }
    }

    #[test]
    fn words_that_are_not() {
        for (list, named) in [
            ("ro,blub", "`blub`"),
            ("blub=1", "`blub`"),
            ("errors=never", "remount-ro"),
            ("commit=soon", "seconds"),
            ("offset=x", "offset"),
            ("cache_size=much", "cache_size"),
            ("noload,rw", "norecovery forbids rw"),
            ("data=journal", "always ordered"),
            ("no_default_opts", "`no_default_opts`"),
            ("remount,ro", "remount"),
        ] {
            let text = parse(list).unwrap_err();
            assert!(text.contains(named), "{list}: {text}");
        }
    }
}
