//! What stands after `-o`.

use crate::failure::{Failure, Result};
use crate::size;
use nextent::ErrorPolicy;
use nextent_fuse::KernelOption;
use nextent_sync::Duration;

/// The options of one mount.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) read_only: bool,
    /// Writing was asked for in so many words.
    pub(super) read_write: bool,
    pub(super) no_recovery: bool,
    pub(super) direct: bool,
    pub(super) allow_other: bool,
    /// Access lists count.
    pub(super) lists: bool,
    pub(super) offset: u64,
    pub(super) errors: Option<ErrorPolicy>,
    pub(super) commit: Option<Duration>,
    pub(super) kernel: Vec<KernelOption>,
}

impl Options {
    /// Understands `words`; later ones win.
    pub(super) fn parse(words: &[String]) -> Result<Self> {
        let mut options = Self {
            read_only: false,
            read_write: false,
            no_recovery: false,
            direct: false,
            allow_other: false,
            lists: true,
            offset: 0,
            errors: None,
            commit: None,
            kernel: Vec::new(),
        };
        for word in words.iter().filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((name, value)) => options.set(name, value)?,
                None => options.turn(word)?,
            }
        }
        if options.no_recovery && !options.read_only {
            return Err(Failure::usage("option norecovery goes with ro only"));
        }
        Ok(options)
    }

    fn turn(&mut self, word: &str) -> Result<()> {
        if let Some((_, option)) = KERNEL.iter().find(|(name, _)| *name == word) {
            self.kernel.push(*option);
            return Ok(());
        }
        match word {
            "ro" => (self.read_only, self.read_write) = (true, false),
            "rw" => (self.read_only, self.read_write) = (false, true),
            "norecovery" | "noload" => self.no_recovery = true,
            "direct" => self.direct = true,
            "allow_other" => self.allow_other = true,
            "acl" => self.lists = true,
            "noacl" => self.lists = false,
            // As it always is here.
            "default_permissions" | "bsddf" | "user_xattr" | "async" | "defaults" => {}
            other => return Err(Failure::usage(format!("unknown mount option {other}"))),
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let bad = || Failure::usage(format!("mount option {name}: {value} makes no sense"));
        match name {
            "offset" => self.offset = size::bytes(value).map_err(|_| bad())?,
            "commit" => {
                let seconds: u32 = value.parse().map_err(|_| bad())?;
                // 0 is the usual time, as with ext4.
                self.commit = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            "errors" => {
                self.errors = Some(match value {
                    "continue" => ErrorPolicy::Continue,
                    "remount-ro" => ErrorPolicy::ReadOnly,
                    "panic" => ErrorPolicy::Abort,
                    _ => return Err(bad()),
                });
            }
            other => return Err(Failure::usage(format!("unknown mount option {other}="))),
        }
        Ok(())
    }
}

/// What the kernel does itself.
const KERNEL: [(&str, KernelOption); 9] = [
    ("dev", KernelOption::Dev),
    ("nodev", KernelOption::NoDev),
    ("suid", KernelOption::Suid),
    ("nosuid", KernelOption::NoSuid),
    ("exec", KernelOption::Exec),
    ("noexec", KernelOption::NoExec),
    ("noatime", KernelOption::NoAtime),
    ("dirsync", KernelOption::DirSync),
    ("sync", KernelOption::Sync),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options> {
        Options::parse(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_understood() {
        let options = parse("ro,noload,offset=1m,errors=continue,commit=7,noexec,,noacl").unwrap();
        assert!(options.read_only && options.no_recovery && !options.lists);
        assert_eq!(options.offset, 1 << 20);
        assert_eq!(options.errors, Some(ErrorPolicy::Continue));
        assert_eq!(options.commit, Some(Duration::from_secs(7)));
        assert_eq!(options.kernel, [KernelOption::NoExec]);
        let last = parse("ro,rw").unwrap();
        assert!(last.read_write && !last.read_only);
    }

    #[test]
    fn what_is_unknown_is_named() {
        for (text, word) in [
            ("rw,quux", "quux"),
            ("minixdf", "minixdf"),
            ("colour=red", "colour="),
            ("errors=ignore", "errors"),
            ("commit=-1", "commit"),
            ("offset=x", "offset"),
            ("norecovery", "norecovery"),
        ] {
            assert!(parse(text).unwrap_err().to_string().contains(word), "{text}");
        }
    }
}
