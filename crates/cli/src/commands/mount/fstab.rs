//! Words of ext4, fuse2fs and mount(8) that lines of fstab(5) have and that change nothing here.
//!
//! A word is accepted if the mount keeps its promise anyway, or if it only tunes. A word whose
//! promise the mount does not keep is refused by name, with the reason.

/// What an option of another program means for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// It is accepted, and changes nothing.
    Accepted,
    /// Why it is refused.
    Refused(&'static str),
    Unknown,
}

/// Words without a value.
const ACCEPTED: &[&str] = &[
    // mount(8) and systemd, which pass them on.
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "nouser",
    "users",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "silent",
    "loud",
    "nomand",
    "noiversion",
    // libfuse.
    "default_permissions",
    "kernel_cache",
    "use_ino",
    "readdir_ino",
    "big_writes",
    "async_read",
    "nonempty",
    // Always in effect.
    "async",
    "defaults",
    "user_xattr",
    "noquota",
    "block_validity",
    "nojournal_checksum",
    "sysvgroups",
    "nogrpid",
    // Flushes are never left out.
    "barrier",
    "nobarrier",
    // Speed only.
    "delalloc",
    "nodelalloc",
    "dioread_lock",
    "dioread_nolock",
    "nodioread_nolock",
    "noblock_validity",
    "init_itable",
    "noinit_itable",
    "noauto_da_alloc",
    "no_mbcache",
    "nombcache",
    "prefetch_block_bitmaps",
    "no_prefetch_block_bitmaps",
    "timing",
];

/// Words with a value that only tune.
const TUNING: &[&str] = &[
    "stripe",
    "max_batch_time",
    "min_batch_time",
    "init_itable",
    "inode_readahead_blks",
    "journal_ioprio",
    "mb_optimize_scan",
    "barrier",
    "oom_score_adj",
    "max_read",
    "comment",
    "uhelper",
];

/// Words whose promises are not kept, with or without a value.
const REFUSED: &[(&str, &str)] = &[
    ("usrquota", NO_QUOTAS),
    ("grpquota", NO_QUOTAS),
    ("prjquota", NO_QUOTAS),
    ("quota", NO_QUOTAS),
    ("usrjquota", NO_QUOTAS),
    ("grpjquota", NO_QUOTAS),
    ("jqfmt", NO_QUOTAS),
    ("grpid", "new files get the group of their creator, or of a set-group directory"),
    ("bsdgroups", "new files get the group of their creator, or of a set-group directory"),
    ("nouser_xattr", "user attributes are always on"),
    ("journal_async_commit", "a commit waits for its blocks"),
    ("data_err", "only data_err=ignore is supported"),
    ("dax", "FUSE carries no direct access"),
    ("mand", "Linux has no mandatory locks"),
    ("iversion", "FUSE carries no version of inodes"),
    ("subtype", "the type of the mount is fuse.nextent"),
    ("lockfile", "the image itself is locked"),
    ("auto_unmount", "a killed server leaves its mount; unmount it"),
    ("no_default_opts", FUSE2FS),
    ("fuse2fs_debug", FUSE2FS),
    ("debug", FUSE2FS),
];

const NO_QUOTAS: &str = "quotas are not enforced";
const FUSE2FS: &str = "an option of fuse2fs that is not supported";

/// What the option `name`, with or without a value, means.
pub(super) fn foreign(name: &str, value: Option<&str>) -> Foreign {
    let accepted = match (name, value) {
        ("dax", Some("inode" | "never")) | ("data_err", Some("ignore")) => true,
        (_, None) => ACCEPTED.contains(&name),
        (_, Some(_)) => TUNING.contains(&name),
    };
    if accepted || name.starts_with("x-") || name.starts_with("X-") {
        return Foreign::Accepted;
    }
    let refused = REFUSED.iter().find(|(word, _)| *word == name);
    refused.map_or(Foreign::Unknown, |(_, why)| Foreign::Refused(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_both_accepted_and_refused() {
        for word in ACCEPTED {
            assert_eq!(foreign(word, None), Foreign::Accepted);
            assert!(!REFUSED.iter().any(|(refused, _)| refused == word), "{word}");
        }
        for word in TUNING {
            assert_eq!(foreign(word, Some("1")), Foreign::Accepted);
        }
        for (word, why) in REFUSED {
            assert_eq!(foreign(word, Some("1")), Foreign::Refused(why));
        }
        assert_eq!(foreign("dax", Some("never")), Foreign::Accepted);
        assert_eq!(foreign("dax", None), Foreign::Refused("FUSE carries no direct access"));
        assert_eq!(foreign("x-systemd.device-timeout", Some("5")), Foreign::Accepted);
        assert_eq!(foreign("stripe", None), Foreign::Unknown);
        assert_eq!(foreign("blub", Some("1")), Foreign::Unknown);
    }
}
