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
    pub(super) direct: bool,
    pub(super) no_acl: bool,
    pub(super) no_atime: bool,
    pub(super) allow: Allow,
    pub(super) flags: Vec<MountFlag>,
    pub(super) source: Option<String>,
}

impl Options {
    /// Takes in a list.
    pub(super) fn parse(&mut self, list: &str) -> Result<(), String> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((name, value)) => self.valued(name, value, word)?,
                None => self.word(word)?,
            }
        }
        Ok(())
    }

    /// Whether the words go together.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.no_recovery && !self.read_only {
            return Err("norecovery needs ro: nothing may be written beside a log".into());
        }
        Ok(())
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "norecovery" | "noload" => self.no_recovery = true,
            "direct" => self.direct = true,
            "acl" => self.no_acl = false,
            "noacl" => self.no_acl = true,
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
            "default_permissions" | "async" | "defaults" => {}
            // For mount(8) and systemd, which hand their own words on.
            "auto" | "noauto" | "nofail" | "_netdev" | "user" | "users" | "owner" | "group" => {}
            _ if word.starts_with("x-") => {}
            _ => return Err(format!("unknown mount option `{word}`")),
        }
        Ok(())
    }

    fn valued(&mut self, name: &str, value: &str, word: &str) -> Result<(), String> {
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
            "fsname" => self.source = Some(value.to_owned()),
            _ if name.starts_with("x-") => {}
            _ => return Err(format!("unknown mount option `{name}`")),
        }
        Ok(())
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
        assert!(!parse("ro,rw,,default_permissions,x-systemd.automount").unwrap().read_only);
    }

    #[test]
    fn words_that_are_not() {
        for (list, named) in [
            ("ro,blub", "`blub`"),
            ("blub=1", "`blub`"),
            ("errors=never", "remount-ro"),
            ("commit=soon", "seconds"),
            ("offset=x", "offset"),
            ("noload", "norecovery needs ro"),
        ] {
            let text = parse(list).unwrap_err();
            assert!(text.contains(named), "{list}: {text}");
        }
    }
}
