//! Parses the values of options.

use crate::size::Size;
use nextent::mkfs::{CreatorOs, ExtendedOptions, FsType, JournalOptions, OnError, Owner, Usage};
use nextent_num::must_fit;
use nextent_sync::unix_time;
use uuid::Uuid;

pub(super) fn fs_type(text: &str) -> Result<FsType, String> {
    match text {
        "ext2" => Ok(FsType::Ext2),
        "ext3" => Ok(FsType::Ext3),
        "ext4" => Ok(FsType::Ext4),
        _ => Err(format!("unknown type '{text}'; there are ext2, ext3 and ext4")),
    }
}

pub(super) fn usage(text: &str) -> Result<Usage, String> {
    Ok(match text {
        "default" => Usage::Default,
        "floppy" => Usage::Floppy,
        "small" => Usage::Small,
        "big" => Usage::Big,
        "huge" => Usage::Huge,
        "news" => Usage::News,
        "largefile" => Usage::LargeFile,
        "largefile4" => Usage::LargeFile4,
        "hurd" => Usage::Hurd,
        _ => return Err(format!("unknown usage '{text}'")),
    })
}

pub(crate) fn creator(text: &str) -> Result<CreatorOs, String> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "linux" | "0" => CreatorOs::Linux,
        "hurd" | "gnu" | "1" => CreatorOs::Hurd,
        "masix" | "2" => CreatorOs::Masix,
        "freebsd" | "3" => CreatorOs::FreeBsd,
        "lites" | "4" => CreatorOs::Lites,
        _ => return Err(format!("unknown creator '{text}'")),
    })
}

pub(crate) fn on_error(text: &str) -> Result<OnError, String> {
    Ok(match text {
        "continue" => OnError::Continue,
        "remount-ro" => OnError::ReadOnly,
        "panic" => OnError::Panic,
        _ => return Err(format!("'{text}' is not one of continue, remount-ro, panic")),
    })
}

pub(crate) fn uuid(text: &str) -> Result<Uuid, String> {
    match text {
        "random" => Ok(Uuid::new_v4()),
        "clear" | "null" => Ok(Uuid::nil()),
        "time" => Ok(uuid_from_time()),
        _ => Uuid::parse_str(text).map_err(|_| format!("'{text}' is not a UUID")),
    }
}

/// A UUID of version 1 with a random node.
fn uuid_from_time() -> Uuid {
    const GREGORIAN: u64 = 0x01b2_1dd2_1381_4000;
    let now = unix_time();
    let ticks = GREGORIAN.wrapping_add(must_fit(now.as_nanos() / 100));
    let random = Uuid::new_v4().into_bytes();
    let mut node = [0; 6];
    node.copy_from_slice(&random[10..]);
    // This bit marks a node that is not a network card's.
    node[0] |= 1;
    let counter = u16::from(random[0]) << 8 | u16::from(random[1]);
    uuid::Builder::from_gregorian_timestamp(ticks, counter, &node).into_uuid()
}

/// The time that reproducible builds set, in seconds since 1970.
pub(super) fn source_date_epoch() -> Result<Option<u64>, String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => match text.parse() {
            Ok(seconds) => Ok(Some(seconds)),
            Err(_) => Err(format!("SOURCE_DATE_EPOCH is '{text}', not seconds since 1970")),
        },
        Err(_) => Ok(None),
    }
}

fn pairs(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split(',').filter(|word| !word.is_empty()).map(|word| match word.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (word, None),
    })
}

fn needed<'a>(key: &str, value: Option<&'a str>) -> Result<&'a str, String> {
    value.ok_or_else(|| format!("{key} needs a value"))
}

fn number<T: std::str::FromStr>(key: &str, value: Option<&str>) -> Result<T, String> {
    let text = needed(key, value)?;
    text.parse().map_err(|_| format!("invalid {key} '{text}'"))
}

fn bytes(key: &str, value: Option<&str>, unit: u64) -> Result<u64, String> {
    let size: Size = needed(key, value)?.parse()?;
    size.bytes(unit).ok_or_else(|| format!("{key} is too large"))
}

/// A switch; without a value it is on.
fn switch(key: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(text) => Err(format!("{key} is 0 or 1, not '{text}'")),
    }
}

/// The keys of [`journal`].
#[cfg(any(test, feature = "generate"))]
pub(crate) const JOURNAL: &[&str] = &["size=", "fast_commit_size=", "location="];

/// The keys of [`extended`]; keys with `=` need a value.
#[cfg(any(test, feature = "generate"))]
pub(crate) const EXTENDED: &[&str] = &[
    "stride=",
    "stripe_width=",
    "resize=",
    "lazy_itable_init",
    "lazy_journal_init",
    "hash_seed=",
    "root_owner",
    "root_perms",
    "no_copy_xattrs",
    "discard",
    "nodiscard",
    "assume_storage_prezeroed",
    "num_backup_sb=",
    "packed_meta_blocks",
    "orphan_file_size=",
    "mmp_update_interval=",
    "test_fs",
    "desc_size=",
    "offset=",
];

/// The values of `-T`, `-e` and `-o`.
#[cfg(any(test, feature = "generate"))]
pub(crate) const USAGES: &[&str] =
    &["default", "floppy", "small", "big", "huge", "news", "largefile", "largefile4", "hurd"];
#[cfg(any(test, feature = "generate"))]
pub(crate) const ON_ERROR: &[&str] = &["continue", "remount-ro", "panic"];
#[cfg(any(test, feature = "generate"))]
pub(crate) const CREATORS: &[&str] = &["linux", "hurd", "masix", "freebsd", "lites"];

/// Parses `-J`. Sizes without a suffix are in MiB, the fast-commit area's in KiB.
pub(crate) fn journal(text: &str, block: u64, journal: &mut JournalOptions) -> Result<(), String> {
    for (key, value) in pairs(text) {
        match key {
            "size" => journal.size = Some(bytes(key, value, 1 << 20)?),
            "fast_commit_size" => journal.fast_commit_size = Some(bytes(key, value, 1 << 10)?),
            "location" => journal.location = Some(bytes(key, value, block)? / block),
            "device" => return Err("journals on another device are not supported".into()),
            _ => return Err(format!("unknown journal option '{key}'")),
        }
    }
    Ok(())
}

/// Parses `-E`; `block` is the block size, as far as the command line gives it.
pub(super) fn extended(
    text: &str,
    block: u64,
    extended: &mut ExtendedOptions,
    offset: &mut u64,
) -> Result<(), String> {
    for (key, value) in pairs(text) {
        match key {
            "stride" => extended.stride = number(key, value)?,
            "stripe_width" | "stripe-width" => extended.stripe_width = number(key, value)?,
            "resize" => extended.resize = Some(bytes(key, value, block)? / block),
            "lazy_itable_init" => extended.lazy_itable_init = Some(switch(key, value)?),
            "lazy_journal_init" => extended.lazy_journal_init = switch(key, value)?,
            "hash_seed" => extended.hash_seed = Some(uuid(needed(key, value)?)?),
            "root_owner" => {
                let (uid, gid) = owner(value)?;
                extended.root_owner = Owner { uid, gid };
            }
            "root_perms" => extended.root_mode = permissions(value)?,
            // Only the builder of images uses it.
            "no_copy_xattrs" if value.is_none() => {}
            "discard" => extended.discard = true,
            "nodiscard" => extended.discard = false,
            "assume_storage_prezeroed" => extended.prezeroed = switch(key, value)?,
            "num_backup_sb" => extended.backup_supers = number(key, value)?,
            "packed_meta_blocks" => extended.packed_meta_blocks = switch(key, value)?,
            "orphan_file_size" => extended.orphan_file_size = Some(bytes(key, value, 1)?),
            "test_fs" => extended.test_fs = true,
            "desc_size" | "desc-size" => extended.desc_size = Some(number(key, value)?),
            "offset" => *offset = bytes(key, value, 1)?,
            "encoding" | "encoding_flags" => {
                return Err(format!("{key} needs casefold, which is not supported"));
            }
            "root_selinux" => {
                return Err(
                    "root_selinux is not supported; use --file-contexts of nextent mkfs".into()
                );
            }
            "android_sparse" => {
                return Err("android_sparse is not supported; convert the image by img2simg".into());
            }
            "quotatype" => return Err("quotatype needs quota, which is not supported".into()),
            "mmp_update_interval" => {
                extended.mmp_update_interval = Some(number(key, value)?);
            }
            _ => return Err(format!("unknown extended option '{key}'")),
        }
    }
    Ok(())
}

/// Parses octal permission bits; without a value, those that the umask leaves.
fn permissions(value: Option<&str>) -> Result<u16, String> {
    let Some(text) = value else { return Ok(0o777 & !nextent_image::umask()) };
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("root_perms are octal permission bits, not '{text}'"))
}

/// Parses `USER:GROUP`; without a value, the calling user.
fn owner(value: Option<&str>) -> Result<(u32, u32), String> {
    let Some(text) = value else {
        let user = rustix::process::getuid().as_raw();
        return Ok((user, rustix::process::getgid().as_raw()));
    };
    let parsed = text
        .split_once(':')
        .and_then(|(user, group)| Some((user.parse().ok()?, group.parse().ok()?)));
    parsed.ok_or_else(|| format!("root_owner is USER:GROUP in numbers, not '{text}'"))
}

#[cfg(test)]
mod tests {
    use super::super::options::HELP;
    use super::*;

    /// Completions and `--help` have exactly the accepted keys.
    #[test]
    fn lists_are_those_that_are_parsed() {
        for key in EXTENDED {
            let text = match *key {
                "hash_seed=" => "hash_seed=clear".to_owned(),
                key if key.ends_with('=') => format!("{key}1"),
                key => key.to_owned(),
            };
            let mut options = ExtendedOptions::default();
            assert_eq!(extended(&text, 1024, &mut options, &mut 0), Ok(()), "{text}");
            assert!(HELP.contains(key.trim_end_matches('=')), "{key}");
        }
        for key in JOURNAL {
            let text = format!("{key}1");
            assert_eq!(journal(&text, 1024, &mut JournalOptions::default()), Ok(()), "{text}");
            assert!(HELP.contains(key), "{key}");
        }
        assert!(USAGES.iter().all(|word| usage(word).is_ok()));
        assert!(ON_ERROR.iter().all(|word| on_error(word).is_ok()));
        assert!(CREATORS.iter().all(|word| creator(word).is_ok()));
        for name in nextent::mkfs::written_features() {
            assert!(HELP.contains(&name), "{name}");
        }
    }
}
