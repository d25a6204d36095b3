//! Which images may be opened, and how.

use nextent_ondisk::{Compat, Features, Incompat, RoCompat};

use crate::error::{Error, Result};

/// Incompatible features that are read and written.
const INCOMPAT: Incompat = Incompat::FILETYPE
    .with(Incompat::RECOVER)
    .with(Incompat::META_BG)
    .with(Incompat::EXTENTS)
    .with(Incompat::BIT64)
    .with(Incompat::FLEX_BG)
    .with(Incompat::CSUM_SEED);

/// Incompatible features of images that are read only.
const INCOMPAT_READ: Incompat =
    Incompat::INLINE_DATA.with(Incompat::LARGEDIR).with(Incompat::EA_INODE).with(Incompat::MMP);

/// Features that do not keep anyone from reading, and are written.
const RO_COMPAT: RoCompat = RoCompat::SPARSE_SUPER
    .with(RoCompat::LARGE_FILE)
    .with(RoCompat::HUGE_FILE)
    .with(RoCompat::GDT_CSUM)
    .with(RoCompat::DIR_NLINK)
    .with(RoCompat::EXTRA_ISIZE)
    .with(RoCompat::METADATA_CSUM)
    .with(RoCompat::PROJECT)
    .with(RoCompat::ORPHAN_PRESENT);

/// Compatible features under which nothing may be changed without knowing them.
const COMPAT_READ: Compat =
    Compat::LAZY_BG.with(Compat::EXCLUDE_INODE).with(Compat::EXCLUDE_BITMAP);

/// Whether an image may be opened; if only for reading, why.
///
/// # Errors
/// [`Error::Unsupported`] that names the features.
pub(super) fn check(features: &Features) -> Result<Option<String>> {
    if features.has(Incompat::JOURNAL_DEV) {
        return Err(Error::unsupported("this is an external journal, not a file system"));
    }
    let unknown = features.incompat.without(INCOMPAT).without(INCOMPAT_READ);
    if !unknown.is_empty() {
        return Err(Error::unsupported(format!("feature {unknown}")));
    }
    let metadata = RoCompat::METADATA_CSUM.with(RoCompat::GDT_CSUM);
    if features.ro_compat.contains(metadata) {
        return Err(Error::unsupported("features metadata_csum and uninit_bg together"));
    }
    let mut names: Vec<String> = Vec::new();
    for word in [
        features.incompat.without(INCOMPAT).to_string(),
        features.ro_compat.without(RO_COMPAT).to_string(),
        Compat::from_bits(features.compat.bits() & COMPAT_READ.bits()).to_string(),
    ] {
        if !word.is_empty() {
            names.push(word);
        }
    }
    let reason = format!("feature {} can only be read", names.join(" "));
    Ok((!names.is_empty()).then_some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(list: &str) -> Features {
        let mut features = Features::EMPTY;
        features.apply(list).unwrap();
        features
    }

    #[test]
    fn defaults_are_written() {
        let list = "has_journal,ext_attr,resize_inode,dir_index,orphan_file,filetype,extent,64bit,\
            flex_bg,metadata_csum_seed,sparse_super,large_file,huge_file,dir_nlink,extra_isize,\
            metadata_csum";
        assert_eq!(check(&features(list)).unwrap(), None);
        assert_eq!(check(&features("")).unwrap(), None);
    }

    #[test]
    fn the_rest_is_named() {
        let refused = check(&features("filetype,encrypt")).unwrap_err();
        assert_eq!(refused.to_string(), "not supported: feature encrypt");
        let reason = check(&features("filetype,inline_data,bigalloc")).unwrap().unwrap();
        assert_eq!(reason, "feature inline_data bigalloc can only be read");
        assert!(check(&features("FEATURE_I31")).is_err());
    }
}
