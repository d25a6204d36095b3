//! The options of `-o`: those of fuse2fs and mount(8). Each is implemented or refused by name.

use super::fstab::{Foreign, foreign};
use crate::log::Level;
use crate::size;
use nextent::ErrorPolicy;
use nextent_fuse::{Allow, MountFlag};
use nextent_sync::Duration;

/// The parsed options.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) read_only: bool,
    pub(super) no_recovery: bool,
    pub(super) offset: u64,
    pub(super) errors: Option<ErrorPolicy>,
    pub(super) commit: Option<Duration>,
    /// For how long a lost connection to an NBD server is made again.
    pub(super) reconnect: Duration,
    /// After which time without progress an NBD server counts as lost.
    pub(super) timeout: Option<Duration>,
    /// Freed blocks are discarded.
    pub(super) discard: bool,
    /// The block of the superblock's backup to use, in units of 1 KiB.
    pub(super) superblock: Option<u64>,
    pub(super) cache_bytes: Option<u64>,
    pub(super) log_level: Option<Level>,
    pub(super) direct: bool,
    pub(super) no_acl: bool,
    pub(super) fake_root: bool,
    pub(super) minix_df: bool,
    /// Refused where the file system has no checksums of its journal.
    pub(super) journal_checksum: bool,
    /// The kernel caches no contents of files.
    pub(super) uncached: bool,
    /// Whether requests must, or must not, come over io_uring.
    pub(super) rings: Option<bool>,
    /// Unknown options are ignored, for `mount -s`.
    pub(super) sloppy: bool,
    /// Bind mounts may map the users of files.
    pub(super) idmapped: bool,
    pub(super) allow: Allow,
    pub(super) flags: Vec<MountFlag>,
    pub(super) source: Option<String>,
    pub(super) write_asked: bool,
    /// A mount is to be changed, not made.
    pub(super) remount: bool,
}

/// The options, for `--help` and the manual.
pub(super) const HELP: &str = "\
Options of -o, separated by commas; others are refused:

  ro, rw                read-only, or read and write (default)
  norecovery, noload    do not replay the journal; implies ro
  offset=BYTES          where the file system starts in the image
  errors=WHAT           what to do on damage: continue, remount-ro or panic (stop the journal);
                        default: the superblock's setting
  commit=SECONDS        the longest time until a change is committed (default: 5)
  discard, nodiscard    whether freed blocks are discarded after the commit that freed them is
                        durable: image files get holes (default: nodiscard)
  reconnect=SECONDS     how long to connect again to an NBD server whose connection is lost; the
                        writes since the last flush are kept in memory and repeated (default: 0,
                        which stops the journal)
  timeout=SECONDS       after which time without progress the connection to an NBD server counts as
                        lost (default: that of the address, or 60)
  sb=BLOCK              use the backup of the superblock at this block, in units of 1 KiB, and the
                        group descriptors behind it; the mount is then read-only
  cache_size=BYTES      limit for cached inodes and metadata blocks (default: an eighth of the
                        memory of the system and the control group, at most 64m)
  log_level=LEVEL       the messages to write: error, warning or info; default: info in a log,
                        warning on standard error
  direct                bypass the host's page cache for the image
  direct_io             do not cache contents of files in the kernel, except of mapped files: large
                        reads and writes become faster, small and repeated ones slower
  acl, noacl            whether access control lists are checked (default: acl)
  fakeroot              give every user the rights of root
  allow_other           admit other users, with the permissions of files
  allow_root            admit root besides the user who mounts; the kernel then caches no names and
                        attributes of files, since it would show them to other users
  idmap                 allow idmapped bind mounts (Linux 6.12; `mount --bind -o X-mount.idmap=`,
                        containers). The kernel then decides about all access and names no caller:
                        reserved blocks are for no user, each write removes set-id bits, and fstrim,
                        changes of the label and the shutdown call are refused. Not with fakeroot
                        and allow_root
  relatime, noatime, strictatime
                        update access times at the first read after a change and once a day
                        (default), never, or at each read; relatime takes an open for reading as a
                        read, since the kernel does not report reads that its cache answers;
                        strictatime turns these caches off and implies direct_io
  nodiratime, diratime  whether directories are left out (default: diratime)
  lazytime, nolazytime  accepted: times are in memory first, and on disk with the next commit
  minixdf, bsddf        whether df counts metadata blocks (default: bsddf, it does not)
  io_uring, no_io_uring require io_uring for requests, or do not use it; default: use it if the
                        kernel offers it (Linux 6.14 with Y in
                        /sys/module/fuse/parameters/enable_uring; with io_uring, root's mount sets
                        that while it connects)
  suid, dev, exec, nosuid, nodev, noexec, sync, dirsync
                        as for any file system; default: nosuid and nodev, but suid and dev if
                        root mounts by mount(8) or fstab
  fsname=NAME           the source that the table of mounts shows; a block device is then mounted
                        like an image file
  kernel                of fuse2fs: allow_other, suid and dev
  directio              of fuse2fs: direct
  journal_checksum      accepted if the file system has metadata checksums
  default_permissions, user_xattr, data=ordered, kernel_cache, use_ino, readdir_ino,
  big_writes, async_read, nonempty, async, defaults, block_validity, barrier, noquota
                        accepted; always in effect
  delalloc, nodelalloc, nobarrier, dioread_nolock, init_itable=N, stripe=N, max_batch_time=N,
  min_batch_time=N, max_read=N and other options of ext4 and fuse2fs that only tune
                        accepted; no effect
  auto, noauto, nofail, _netdev, user, users, owner, group, comment=TEXT, x-ANY
                        for mount(8) and systemd

A block device that root mounts has the type fuseblk: umount(8) waits until the file system is
closed, and since Linux 6.18 sync(1), sync(2) and syncfs(2) make all changes durable. For image
files, and before Linux 6.18, the kernel does not forward these calls. There, fsync(2) of a file or
directory (`sync FILE`) makes changes durable, and so does the commit interval (commit=SECONDS).
A fuseblk mount also takes swap files, written in full, without holes (dd, not fallocate), and
answers the call FIBMAP, in units of the device's block size.

Without root, `user_allow_other` in /etc/fuse.conf decides about allow_other and allow_root.

With -f, messages go to standard error, with levels if that is systemd's journal. In the background
they go to the system's log (/dev/log: the journal, or a syslog daemon). On SIGUSR1 the server
writes its status there, as `nextent status` shows it.

With -o remount the mount at MOUNTPOINT is changed while it is in use:
`nextent mount -o remount,ro MOUNTPOINT`, or `mount -o remount,ro MOUNTPOINT` where the helper
mount.fuse.nextent (for block devices, mount.fuseblk.nextent) is installed. These can change:

  ro                    refused while files are open for writing; then all changes are durable and
                        the image is clean, as if it were unmounted
  rw                    refused for a volume that can only be read, after damage, and if the image
                        was opened read-only: unmount and mount again
  discard, errors, log_level, suid, dev, exec, sync, dirsync, relatime, noatime, diratime, lazytime
                        as above, with their opposites; but strictatime cannot be turned on

Only root may change ro, rw and what the kernel implements. Other options must be as they are; a
different one is refused. Without a helper, mount(8) changes the kernel's flags only: files cannot
be changed, but the image is not clean.

SIGTERM, SIGINT and SIGHUP end the server: it unmounts, after half a second although files are in
use, and closes the file system.

FUSE does not carry some calls. On a mount these are refused:

  FIEMAP, as by filefrag(8)           unmount, and use `nextent stat IMAGE:/PATH`
  fallocate(1) with collapse, insert  unmount, and use `nextent fallocate`
  fsfreeze(8)                         unmount while the image is copied
  keys of fscrypt                     mount with Linux's ext4; without the key, encrypted files can
                                      be listed and removed
  a second mount of the same image    `mount --bind`

Exit codes are mount(8)'s: 0 mounted, 1 usage or permission, 2 no FUSE (or no io_uring) here,
32 not mounted. With NOTIFY_SOCKET set, as by systemd for Type=notify, READY=1 reports the mount.";

/// The options that completions offer.
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
    "discard",
    "nodiscard",
    "reconnect=",
    "timeout=",
    "sb=",
    "cache_size=",
    "log_level=error",
    "log_level=warning",
    "log_level=info",
    "direct",
    "direct_io",
    "acl",
    "noacl",
    "fakeroot",
    "allow_other",
    "allow_root",
    "idmap",
    "noatime",
    "relatime",
    "strictatime",
    "nodiratime",
    "lazytime",
    "minixdf",
    "bsddf",
    "io_uring",
    "no_io_uring",
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
    "remount",
];

impl Options {
    /// Parses a list of options.
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

    /// Whether an option exists.
    pub(super) fn knows(word: &str) -> bool {
        let unknown = |text: &String| text.starts_with("unknown");
        !Self::default().parse(word).as_ref().is_err_and(unknown)
    }

    /// Refuses options that contradict each other.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.no_recovery && self.write_asked {
            return Err("norecovery forbids rw: the journal must be replayed before writing".into());
        }
        let other = match self.allow {
            Allow::Root => Some("allow_root"),
            _ => self.fake_root.then_some("fakeroot"),
        };
        if let Some(other) = other.filter(|_| self.idmapped) {
            return Err(format!("idmap forbids {other}: the kernel names no caller"));
        }
        Ok(())
    }

    /// Takes an option without a value; whether it is known.
    fn word(&mut self, word: &str) -> Result<bool, String> {
        match word {
            "ro" => (self.read_only, self.write_asked) = (true, false),
            "rw" => (self.read_only, self.write_asked) = (self.no_recovery, true),
            "norecovery" | "noload" => (self.no_recovery, self.read_only) = (true, true),
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "direct" => self.direct = true,
            "acl" => self.no_acl = false,
            "noacl" => self.no_acl = true,
            "fakeroot" => self.fake_root = true,
            "idmap" => self.idmapped = true,
            "direct_io" => self.uncached = true,
            "minixdf" => self.minix_df = true,
            "bsddf" => self.minix_df = false,
            "io_uring" => self.rings = Some(true),
            "no_io_uring" => self.rings = Some(false),
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
            "relatime" | "atime" | "norelatime" | "nostrictatime" => {
                self.flag(MountFlag::RelAtime);
            }
            "strictatime" => self.flag(MountFlag::StrictAtime),
            "noatime" => self.flag(MountFlag::NoAtime),
            "nodiratime" => self.flag(MountFlag::NoDirAtime),
            "diratime" => self.flags.retain(|flag| *flag != MountFlag::NoDirAtime),
            "lazytime" => self.flag(MountFlag::LazyTime),
            "nolazytime" => self.flags.retain(|flag| *flag != MountFlag::LazyTime),
            // fuse2fs: what the kernel's mounts have.
            "kernel" => {
                self.allow = Allow::All;
                self.suid_and_dev();
            }
            "directio" => self.direct = true,
            "journal_checksum" => self.journal_checksum = true,
            "remount" => self.remount = true,
            _ => return foreign_word(word, None),
        }
        Ok(true)
    }

    /// Takes an option with a value; whether it is known.
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
                // Zero means the default, as in ext4.
                self.commit = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
            }
            "reconnect" => {
                let seconds: u32 = value.parse().map_err(|_| bad("a number of seconds".into()))?;
                self.reconnect = Duration::from_secs(u64::from(seconds));
            }
            "timeout" => {
                let seconds = value.parse::<u32>().ok().filter(|seconds| *seconds > 0);
                let seconds = seconds.ok_or_else(|| bad("a number of seconds".into()))?;
                self.timeout = Some(Duration::from_secs(u64::from(seconds)));
            }
            "sb" => {
                let block = value.parse::<u32>();
                self.superblock = Some(block.map_err(|_| bad("a block number".into()))?.into());
            }
            "cache_size" => self.cache_bytes = Some(size::bytes(value).map_err(bad)?),
            "log_level" => match Level::named(value) {
                Some(level) => self.log_level = Some(level),
                None => return Err(bad("error, warning or info".into())),
            },
            "fsname" => self.source = Some(value.to_owned()),
            "data" if value == "ordered" => {}
            "data" => return Err(bad("only data=ordered is supported".into())),
            _ => return foreign_word(name, Some(value)),
        }
        Ok(true)
    }

    /// Set-id programs and device files have an effect, unless later options say otherwise.
    pub(super) fn suid_and_dev(&mut self) {
        self.flag(MountFlag::Suid);
        self.flag(MountFlag::Dev);
    }

    /// Sets a flag; the last of several that exclude each other counts.
    fn flag(&mut self, flag: MountFlag) {
        let groups: [&[MountFlag]; 4] = [
            &[MountFlag::Suid, MountFlag::NoSuid],
            &[MountFlag::Dev, MountFlag::NoDev],
            &[MountFlag::Exec, MountFlag::NoExec],
            &[MountFlag::RelAtime, MountFlag::StrictAtime, MountFlag::NoAtime],
        ];
        self.flags.retain(|other| {
            *other != flag
                && !groups.iter().any(|group| group.contains(&flag) && group.contains(other))
        });
        self.flags.push(flag);
    }
}

/// Takes an option that changes nothing; whether it is known.
fn foreign_word(name: &str, value: Option<&str>) -> Result<bool, String> {
    match foreign(name, value) {
        Foreign::Accepted => Ok(true),
        Foreign::Refused(why) => Err(format!("mount option `{name}` is not supported: {why}")),
        Foreign::Unknown => Ok(false),
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
    fn known_options_are_accepted() {
        let all = parse("ro,noload,offset=1m,errors=panic,commit=7,direct,allow_other,nosuid,suid");
        let all = all.unwrap();
        assert!(all.read_only && all.no_recovery && all.direct);
        assert_eq!((all.offset, all.errors), (1 << 20, Some(ErrorPolicy::Abort)));
        assert_eq!(all.commit, Some(Duration::from_secs(7)));
        assert_eq!((all.allow, &all.flags[..]), (Allow::All, &[MountFlag::Suid][..]));
        assert!(parse("noload").unwrap().read_only);
        assert_eq!(parse("cache_size=32m").unwrap().cache_bytes, Some(32 << 20));
        assert_eq!(parse("").unwrap().cache_bytes, None);
        assert!(parse("discard").unwrap().discard);
        assert!(!parse("discard,nodiscard").unwrap().discard && !parse("").unwrap().discard);
        assert_eq!(parse("sb=32768").unwrap().superblock, Some(32768));
        assert_eq!(parse("").unwrap().superblock, None);
        assert_eq!(parse("").unwrap().rings, None);
        assert_eq!(parse("io_uring").unwrap().rings, Some(true));
        assert_eq!(parse("io_uring,no_io_uring").unwrap().rings, Some(false));
        let flags = |list| parse(list).unwrap().flags;
        assert_eq!(flags("noatime,relatime,strictatime"), [MountFlag::StrictAtime]);
        assert_eq!(flags("nodiratime,lazytime,noatime,diratime,nolazytime"), [MountFlag::NoAtime]);
        let other = parse("fakeroot,minixdf,use_ino,data=ordered,direct_io").unwrap();
        assert!(other.fake_root && other.minix_df && other.uncached && !other.read_only);
        let ext4 = "defaults,noauto,nofail,_netdev,user,users,owner,group,x-systemd.automount,\
            X-a=b,comment=c,async,barrier=1,nobarrier,journal_checksum,nodelalloc,noquota,stripe=4,\
            init_itable=0,max_batch_time=1,min_batch_time=1,user_xattr,acl,block_validity,\
            dioread_nolock";
        assert!(parse(ext4).unwrap().journal_checksum);
        let kernel = parse("kernel,directio,nodev").unwrap();
        assert_eq!((kernel.allow, kernel.direct), (Allow::All, true));
        assert_eq!(kernel.flags, [MountFlag::Suid, MountFlag::NoDev]);
        assert!(Options { sloppy: true, ..Options::default() }.parse("blub,ro,blub=1").is_ok());
        assert!(parse("remount,ro").unwrap().remount && !parse("ro").unwrap().remount);
        assert!(Options::knows("ro") && Options::knows("offset=x") && !Options::knows("blub=1"));
        assert!(!parse("ro,rw,,default_permissions,x-systemd.automount").unwrap().read_only);
    }

    #[test]
    fn completions_offer_accepted_options() {
        for word in WORDS {
            let text = if word.ends_with('=') { format!("{word}1") } else { (*word).to_owned() };
            assert!(parse(&text).is_ok(), "{text}");
            assert!(HELP.contains(word.split('=').next().unwrap_or(word)), "{word}");
        }
    }

    #[test]
    fn unknown_options_are_refused() {
        for (list, named) in [
            ("ro,blub", "`blub`"),
            ("blub=1", "`blub`"),
            ("sched_idle", "`sched_idle`"),
            ("no_sched_idle", "`no_sched_idle`"),
            ("errors=never", "remount-ro"),
            ("commit=soon", "seconds"),
            ("offset=x", "offset"),
            ("sb=x", "a block number"),
            ("sb=-1", "a block number"),
            ("cache_size=much", "cache_size"),
            ("log_level=much", "log_level"),
            ("noload,rw", "norecovery forbids rw"),
            ("idmap,allow_root", "idmap forbids allow_root"),
            ("fakeroot,idmap", "idmap forbids fakeroot"),
            ("data=journal", "only data=ordered"),
            ("no_default_opts", "`no_default_opts`"),
            ("defaults,usrquota", "`usrquota` is not supported: quotas"),
            ("data_err=abort", "`data_err`"),
        ] {
            let text = parse(list).unwrap_err();
            assert!(text.contains(named), "{list}: {text}");
        }
    }
}
