//! The options that a remount can change. A word that would change another option is refused.

use super::super::options::Options;
use nextent_fuse::{Allow, MountFlag};
use nextent_sync::Duration;

/// The interval without the option `commit`.
const COMMIT: Duration = Duration::from_secs(5);

/// The options `now` of a mount, changed by `words`.
///
/// # Errors
/// A line that names a word which is unknown, or cannot be changed while the mount is served.
pub(super) fn changed(now: &Options, words: &[String]) -> Result<Options, String> {
    let mut next = Options { write_asked: false, sloppy: false, ..now.clone() };
    for word in words {
        next.parse(word)?;
    }
    next.check()?;
    match fixed(now, &next) {
        Some(word) => Err(format!(
            "mount option `{word}` cannot be changed by a remount: unmount and mount again"
        )),
        None => Ok(next),
    }
}

/// An option that differs and cannot be changed.
fn fixed(now: &Options, next: &Options) -> Option<&'static str> {
    // A new option must be added here, or below.
    let Options {
        // They can be changed.
        read_only: _,
        errors: _,
        discard: _,
        log_level: _,
        flags: _,
        // They are no options of the mount.
        sloppy: _,
        write_asked: _,
        remount: _,
        no_recovery,
        offset,
        reconnect,
        timeout,
        commit,
        superblock,
        cache_bytes,
        direct,
        no_acl,
        fake_root,
        minix_df,
        journal_checksum,
        uncached,
        rings,
        allow,
        idmapped,
        source,
    } = next;
    let strict = |options: &Options| options.flags.contains(&MountFlag::StrictAtime);
    let differs = [
        ("norecovery", now.no_recovery != *no_recovery),
        ("offset", now.offset != *offset),
        ("reconnect", now.reconnect != *reconnect),
        ("timeout", now.timeout != *timeout),
        ("commit", now.commit.unwrap_or(COMMIT) != commit.unwrap_or(COMMIT)),
        ("sb", now.superblock != *superblock),
        ("cache_size", now.cache_bytes != *cache_bytes),
        ("direct", now.direct != *direct),
        (if *no_acl { "noacl" } else { "acl" }, now.no_acl != *no_acl),
        ("fakeroot", now.fake_root != *fake_root),
        (if *minix_df { "minixdf" } else { "bsddf" }, now.minix_df != *minix_df),
        ("journal_checksum", now.journal_checksum != *journal_checksum),
        ("direct_io", now.uncached != *uncached),
        // The kernel and the server agree on it when they connect.
        ("strictatime", !strict(now) && strict(next)),
        (if *rings == Some(true) { "io_uring" } else { "no_io_uring" }, now.rings != *rings),
        (if *allow == Allow::Root { "allow_root" } else { "allow_other" }, now.allow != *allow),
        ("idmap", now.idmapped != *idmapped),
        ("fsname", now.source != *source),
    ];
    differs.into_iter().find(|(_, differs)| *differs).map(|(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent::ErrorPolicy;

    fn after(now: &str, words: &str) -> Result<Options, String> {
        let mut options = Options { rings: Some(false), ..Options::default() };
        options.parse(now).unwrap();
        let words: Vec<_> = words.split(',').map(str::to_owned).collect();
        changed(&options, &words)
    }

    #[test]
    fn options_that_a_remount_changes() {
        let all = after("commit=9,discard", "ro,nodiscard,noatime,errors=panic,log_level=error");
        let all = all.unwrap();
        assert!(all.read_only && !all.discard);
        assert_eq!(
            (all.errors, &all.flags[..]),
            (Some(ErrorPolicy::Abort), &[MountFlag::NoAtime][..])
        );
        assert!(!after("ro", "rw").unwrap().read_only);
        assert_eq!(after("strictatime", "relatime").unwrap().flags, [MountFlag::RelAtime]);
    }

    #[test]
    fn options_of_now_may_be_repeated() {
        let now = "commit=9,cache_size=8m,noacl,direct_io,allow_other,fsname=disk,strictatime";
        for words in [now, "ro,no_io_uring", "x-systemd.automount,nofail,_netdev,data=ordered"] {
            assert!(after(now, words).is_ok(), "{words}");
        }
        assert!(after("", "commit=5,acl,bsddf").is_ok());
    }

    #[test]
    fn other_options_are_refused_by_name() {
        for (words, named) in [
            ("commit=7", "`commit`"),
            ("ro,offset=4k", "`offset`"),
            ("norecovery", "`norecovery`"),
            ("sb=32768", "`sb`"),
            ("cache_size=8m", "`cache_size`"),
            ("direct", "`direct`"),
            ("noacl", "`noacl`"),
            ("fakeroot", "`fakeroot`"),
            ("idmap", "`idmap`"),
            ("minixdf", "`minixdf`"),
            ("direct_io", "`direct_io`"),
            ("strictatime", "`strictatime`"),
            ("io_uring", "`io_uring`"),
            ("allow_other", "`allow_other`"),
            ("allow_root", "`allow_root`"),
            ("fsname=disk", "`fsname`"),
            ("blub", "unknown mount option `blub`"),
            ("usrquota", "`usrquota`"),
        ] {
            let text = after("", words).unwrap_err();
            assert!(text.contains(named), "{words}: {text}");
        }
        assert!(after("norecovery", "rw").unwrap_err().contains("norecovery forbids rw"));
    }
}
