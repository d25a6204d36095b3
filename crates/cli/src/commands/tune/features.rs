//! `-O`: which features `tune` sets and clears, as tune2fs does.

use super::Wrong;
use super::changes::Changes;
use crate::show;
use nextent_ondisk::{Compat, Features, Incompat, RoCompat, Superblock, checksum};
use uuid::Uuid;

/// Features that are set and cleared.
const BOTH: [&str; 8] = [
    "dir_index",
    "fast_commit",
    "filetype",
    "metadata_csum_seed",
    "large_file",
    "huge_file",
    "dir_nlink",
    "extra_isize",
];
/// Features that are set only.
const SET: [&str; 7] =
    ["stable_inodes", "extent", "flex_bg", "large_dir", "encrypt", "ea_inode", "verity"];
/// Features that tune2fs changes and this program does not, and what to do instead.
const OTHERS: [(&str, &str); 11] = [
    ("64bit", "make the file system with mkfs -O"),
    ("casefold", "make the file system with mke2fs of e2fsprogs"),
    ("metadata_csum", "make the file system with mkfs -O"),
    ("mmp", "make the file system with mke2fs of e2fsprogs"),
    ("orphan_file", "make the file system with mkfs -O"),
    ("project", "make the file system with mke2fs of e2fsprogs"),
    ("quota", "make the file system with mke2fs of e2fsprogs"),
    ("read-only", "mount it with -o ro"),
    ("resize_inode", "make the file system with mkfs -O"),
    ("sparse_super", "make the file system with mkfs -O"),
    ("uninit_bg", "make the file system with mkfs -O"),
];

/// What a list of features asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// e2fsck must complete the change.
    pub(super) needs_check: bool,
    /// Make a journal, or remove it.
    pub(super) journal: Option<bool>,
}

/// Notes the features of `list` in `changes`.
pub(super) fn edit(list: &str, sb: &Superblock, changes: &mut Changes) -> Result<Asked, Wrong> {
    let mut asked = Asked::default();
    for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, on) = match word.strip_prefix('^') {
            Some(name) => (name, false),
            None => (word.strip_prefix('+').unwrap_or(word), true),
        };
        let invalid = || Wrong::Raw(format!("Invalid filesystem option set: {}", show::line(list)));
        let one = Features::named(name).map_err(|_| invalid())?;
        change(one, on, sb, (changes, &mut asked))?;
    }
    Ok(asked)
}

fn includes(features: &Features, one: Features) -> bool {
    features.has(one.compat) && features.has(one.incompat) && features.has(one.ro_compat)
}

/// Notes one feature.
fn change(
    one: Features,
    on: bool,
    sb: &Superblock,
    (changes, asked): (&mut Changes, &mut Asked),
) -> Result<(), Wrong> {
    let name = one.names().concat();
    let known = BOTH.contains(&name.as_str()) || (on && SET.contains(&name.as_str()));
    let other = OTHERS.iter().find(|(other, _)| *other == name);
    let journal = one.has(Compat::HAS_JOURNAL);
    let unknown = || {
        let verb = if on { "Setting" } else { "Clearing" };
        Wrong::Raw(format!("{verb} filesystem feature '{name}' not supported."))
    };
    let refused_later = other.is_some() || (name == "flex_bg" && !on);
    if !(known || journal || refused_later) {
        return Err(unknown());
    }
    if includes(&sb.features(), one) == on {
        return Ok(());
    }
    if journal {
        asked.journal = Some(on);
        return Ok(());
    }
    if let Some((_, instead)) = other {
        let sign = if on { "" } else { "^" };
        return Err(Wrong::Plain(format!("-O {sign}{name} is not supported: {instead}")));
    }
    special(one, on, sb, changes)?;
    let list = if on { &mut changes.set } else { &mut changes.clear };
    list.set(one.compat, true);
    list.set(one.incompat, true);
    list.set(one.ro_compat, true);
    let sizes = RoCompat::LARGE_FILE.with(RoCompat::HUGE_FILE);
    asked.needs_check |= one.incompat == Incompat::FILETYPE;
    asked.needs_check |= !on && one.ro_compat.intersects(sizes);
    Ok(())
}

/// The rules and further fields of single features.
fn special(one: Features, on: bool, sb: &Superblock, changes: &mut Changes) -> Result<(), Wrong> {
    if one.incompat == Incompat::FLEX_BG && !on {
        let text = "Clearing the flex_bg flag would cause the the filesystem to be\ninconsistent.";
        return Err(Wrong::Raw(text.into()));
    }
    if one.incompat == Incompat::CSUM_SEED {
        if on && !sb.features().metadata_csum() {
            let text = "Setting feature 'metadata_csum_seed' is only supported\n\
                        on filesystems with the metadata_csum feature enabled.";
            return Err(Wrong::Raw(text.into()));
        }
        if !on && sb.checksum_seed.get() != checksum::csum(checksum::START, &sb.uuid) {
            let text = "-O ^metadata_csum_seed is not supported after the UUID has changed";
            return Err(Wrong::Plain(text.into()));
        }
    }
    if one.compat == Compat::DIR_INDEX && on {
        // Half MD4.
        changes.hash = changes.hash.or(Some(1));
        changes.hash_seed = sb.hash_seed_uuid().is_nil().then(Uuid::new_v4);
    }
    Ok(())
}
