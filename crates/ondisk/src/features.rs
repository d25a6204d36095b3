//! The three feature words of the superblock, as typed sets with the names that e2fsprogs uses.
//!
//! A feature's word says what a program may do that does not know the feature:
//!
//! | word | the program may |
//! |---|---|
//! | compat | read and write |
//! | ro_compat | read only |
//! | incompat | neither |
//!
//! This module accepts every bit. The code that opens a volume decides which features it supports.
//! Source: ext4 disk layout documentation, "The Super Block"; the names are those that
//! `dumpe2fs` prints and `mke2fs -O` accepts.

use std::fmt;

macro_rules! feature_word {
    (
        $(#[$doc:meta])* $name:ident, $word:ident, $letter:literal,
        { $( $(#[$bit_doc:meta])* $bit:ident = $value:literal, $text:literal; )* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            $( $(#[$bit_doc])* pub const $bit: Self = Self($value); )*

            /// No feature.
            pub const EMPTY: Self = Self(0);

            const NAMES: &'static [(u32, &'static str)] = &[$(($value, $text)),*];

            /// The set with these bits, unknown ones included.
            #[must_use]
            pub const fn from_bits(bits: u32) -> Self {
                Self(bits)
            }

            /// The stored word.
            #[must_use]
            pub const fn bits(self) -> u32 {
                self.0
            }

            /// Whether every feature of `other` is in this set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any feature of `other` is in this set.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// The features of either set.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// The features of this set that are not in `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Whether the set is empty.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The names of the features, lowest bit first. A bit without a name gets e2fsprogs'
            /// form for it, for example `FEATURE_I31`.
            pub fn names(self) -> impl Iterator<Item = String> {
                (0..32u32).filter(move |bit| self.0 >> bit & 1 == 1).map(|bit| {
                    match Self::NAMES.iter().find(|(value, _)| *value == 1 << bit) {
                        Some((_, text)) => (*text).to_owned(),
                        None => format!("FEATURE_{}{bit}", $letter),
                    }
                })
            }

            fn find(name: &str) -> Option<Self> {
                let known = Self::NAMES.iter().find(|(_, text)| text.eq_ignore_ascii_case(name));
                if let Some((bits, _)) = known {
                    return Some(Self(*bits));
                }
                let number = name.strip_prefix(concat!("FEATURE_", $letter))?;
                let bit: u32 = number.parse().ok().filter(|bit| *bit < 32)?;
                Some(Self(1 << bit))
            }
        }

        impl FeatureBit for $name {
            fn is_in(self, features: &Features) -> bool {
                features.$word.contains(self)
            }
            fn set_in(self, features: &mut Features, on: bool) {
                let word = features.$word;
                features.$word = if on { word.with(self) } else { word.without(self) };
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.names().collect::<Vec<_>>().join(" "))
            }
        }
    };
}

feature_word! {
    /// Features that a program may ignore.
    Compat, compat, "C", {
        /// Blocks are preallocated for directories.
        DIR_PREALLOC = 0x1, "dir_prealloc";
        /// Inodes of AFS servers.
        IMAGIC_INODES = 0x2, "imagic_inodes";
        /// There is a journal.
        HAS_JOURNAL = 0x4, "has_journal";
        /// There are extended attributes.
        EXT_ATTR = 0x8, "ext_attr";
        /// Inode 7 reserves blocks for growth of the descriptor table.
        RESIZE_INODE = 0x10, "resize_inode";
        /// Directories may have a hash index.
        DIR_INDEX = 0x20, "dir_index";
        /// Group descriptors may be unset; never widely used.
        LAZY_BG = 0x40, "lazy_bg";
        /// Snapshots exclude an inode; never merged.
        EXCLUDE_INODE = 0x80, "FEATURE_C7";
        /// Snapshots exclude bitmaps; never merged.
        EXCLUDE_BITMAP = 0x100, "snapshot_bitmap";
        /// Only the two groups in `backup_bgs` hold backups.
        SPARSE_SUPER2 = 0x200, "sparse_super2";
        /// The journal has an area for fast commits.
        FAST_COMMIT = 0x400, "fast_commit";
        /// Inode numbers and the UUID must never change.
        STABLE_INODES = 0x800, "stable_inodes";
        /// A file lists the orphans.
        ORPHAN_FILE = 0x1000, "orphan_file";
    }
}

feature_word! {
    /// Features that allow a program without them to read only.
    RoCompat, ro_compat, "R", {
        /// Only groups 0, 1 and powers of 3, 5 and 7 hold backups.
        SPARSE_SUPER = 0x1, "sparse_super";
        /// File sizes have 64 bits.
        LARGE_FILE = 0x2, "large_file";
        /// Directories as B-trees; never used.
        BTREE_DIR = 0x4, "FEATURE_R2";
        /// Block counts of inodes have 48 bits and may count file system blocks.
        HUGE_FILE = 0x8, "huge_file";
        /// Group descriptors carry a crc16 and may be uninitialized.
        GDT_CSUM = 0x10, "uninit_bg";
        /// A directory may have more than 65000 subdirectories (link count 1).
        DIR_NLINK = 0x20, "dir_nlink";
        /// Inodes are large enough for nanoseconds and creation times.
        EXTRA_ISIZE = 0x40, "extra_isize";
        /// There is a snapshot; never merged.
        HAS_SNAPSHOT = 0x80, "FEATURE_R7";
        /// Quota files are hidden inodes, always kept.
        QUOTA = 0x100, "quota";
        /// Blocks are allocated in clusters.
        BIGALLOC = 0x200, "bigalloc";
        /// Every metadata structure has a crc32c.
        METADATA_CSUM = 0x400, "metadata_csum";
        /// Replicas; never merged.
        REPLICA = 0x800, "replica";
        /// The volume is read only for ever.
        READONLY = 0x1000, "read-only";
        /// Project quota.
        PROJECT = 0x2000, "project";
        /// Files share blocks; the volume is read only.
        SHARED_BLOCKS = 0x4000, "shared_blocks";
        /// Files may have a Merkle tree after their end.
        VERITY = 0x8000, "verity";
        /// The orphan file may hold entries.
        ORPHAN_PRESENT = 0x10000, "orphan_present";
    }
}

feature_word! {
    /// Features that a program must know to read or write.
    Incompat, incompat, "I", {
        /// Compressed files; never merged.
        COMPRESSION = 0x1, "compression";
        /// Directory entries carry the file type.
        FILETYPE = 0x2, "filetype";
        /// The journal holds changes that are not yet in place.
        RECOVER = 0x4, "needs_recovery";
        /// This is an external journal.
        JOURNAL_DEV = 0x8, "journal_dev";
        /// Descriptor blocks lie in the groups they describe.
        META_BG = 0x10, "meta_bg";
        /// Files may map their blocks by extents.
        EXTENTS = 0x40, "extent";
        /// Block numbers have 64 bits, descriptors 64 bytes.
        BIT64 = 0x80, "64bit";
        /// A heartbeat block protects against a second mount.
        MMP = 0x100, "mmp";
        /// Bitmaps and inode tables may lie in other groups.
        FLEX_BG = 0x200, "flex_bg";
        /// Large attribute values are stored in inodes.
        EA_INODE = 0x400, "ea_inode";
        /// Data in directory entries; never merged.
        DIRDATA = 0x1000, "dirdata";
        /// The checksum seed is stored, so that the UUID may change.
        CSUM_SEED = 0x2000, "metadata_csum_seed";
        /// Directories may exceed 2 GiB or have three index levels.
        LARGEDIR = 0x4000, "large_dir";
        /// Small files and directories may be inside their inode.
        INLINE_DATA = 0x8000, "inline_data";
        /// Encrypted files.
        ENCRYPT = 0x10000, "encrypt";
        /// Directories that ignore case.
        CASEFOLD = 0x20000, "casefold";
    }
}

/// One or more features of one word. [`Features::has`] takes any of the three types.
pub trait FeatureBit: Copy {
    /// Whether `features` contains all of these.
    fn is_in(self, features: &Features) -> bool;
    /// Adds these (`on`) or removes them.
    fn set_in(self, features: &mut Features, on: bool);
}

/// The three words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features {
    /// Features that a program may ignore.
    pub compat: Compat,
    /// Features that a program must know to read or write.
    pub incompat: Incompat,
    /// Features that a program must know to write.
    pub ro_compat: RoCompat,
}

/// The error for a word of a feature list that is no feature's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown file system feature '{0}'")]
pub struct UnknownFeature(pub String);

impl Features {
    /// No feature.
    pub const EMPTY: Self =
        Self { compat: Compat::EMPTY, incompat: Incompat::EMPTY, ro_compat: RoCompat::EMPTY };

    /// Whether all of `bit` is present.
    #[must_use]
    pub fn has(&self, bit: impl FeatureBit) -> bool {
        bit.is_in(self)
    }

    /// Adds `bit` or removes it.
    pub fn set(&mut self, bit: impl FeatureBit, on: bool) {
        bit.set_in(self, on);
    }

    /// These features and those of `bit`.
    #[must_use]
    pub fn with(mut self, bit: impl FeatureBit) -> Self {
        bit.set_in(&mut self, true);
        self
    }

    /// Whether every metadata structure has a crc32c.
    #[must_use]
    pub const fn metadata_csum(&self) -> bool {
        self.ro_compat.contains(RoCompat::METADATA_CSUM)
    }

    /// Whether descriptors have a checksum of either kind. Their "uninitialized" flags have a
    /// meaning only then.
    #[must_use]
    pub const fn group_csum(&self) -> bool {
        self.ro_compat.intersects(RoCompat::METADATA_CSUM.with(RoCompat::GDT_CSUM))
    }

    /// The names of all features, in the order in which `dumpe2fs` prints the words: compat,
    /// incompat, ro_compat.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.compat.names().chain(self.incompat.names()).chain(self.ro_compat.names()).collect()
    }

    /// The set of the feature with this name. e2fsprogs' alternative names count.
    ///
    /// # Errors
    ///
    /// [`UnknownFeature`] if no feature has the name.
    pub fn named(name: &str) -> Result<Features, UnknownFeature> {
        let canonical = match name.to_ascii_lowercase().as_str() {
            "extents" => "extent",
            "uninit_groups" | "gdt_csum" => "uninit_bg",
            "fname_encoding" => "casefold",
            "exclude_bitmap" => "snapshot_bitmap",
            "largedir" => "large_dir",
            _ => name,
        };
        let mut set = Features::EMPTY;
        if let Some(bit) = Compat::find(canonical) {
            set.compat = bit;
        } else if let Some(bit) = Incompat::find(canonical) {
            set.incompat = bit;
        } else if let Some(bit) = RoCompat::find(canonical) {
            set.ro_compat = bit;
        } else {
            return Err(UnknownFeature(name.to_owned()));
        }
        Ok(set)
    }

    /// Applies a list in the syntax of `mke2fs -O`: names separated by commas or blanks, `^` before
    /// a feature to remove, and `none` to remove all.
    ///
    /// # Errors
    ///
    /// [`UnknownFeature`] for the first unknown word. `self` is then unchanged.
    pub fn apply(&mut self, list: &str) -> Result<(), UnknownFeature> {
        let mut result = *self;
        for word in list.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
            if word.eq_ignore_ascii_case("none") || word.eq_ignore_ascii_case("clear") {
                result = Features::EMPTY;
                continue;
            }
            let (name, on) = match word.strip_prefix(['^', '-']) {
                Some(name) => (name, false),
                None => (word.strip_prefix('+').unwrap_or(word), true),
            };
            let set = Features::named(name)?;
            result.set(set.compat, on);
            result.set(set.incompat, on);
            result.set(set.ro_compat, on);
        }
        *self = result;
        Ok(())
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_applied_in_order() {
        let mut features = Features::EMPTY;
        features.apply("has_journal,extents,^has_journal,metadata_csum 64bit").unwrap();
        assert_eq!(features.to_string(), "extent 64bit metadata_csum");
        features.apply("none,FEATURE_I31,read-only").unwrap();
        assert_eq!(features.names(), ["FEATURE_I31", "read-only"]);
        let before = features;
        assert_eq!(features.apply("filetype,nonsense"), Err(UnknownFeature("nonsense".into())));
        assert_eq!(features, before);
    }

    #[test]
    fn a_bit_is_only_found_in_its_own_word() {
        let features = Features::EMPTY.with(Incompat::BIT64).with(RoCompat::GDT_CSUM);
        assert!(features.has(Incompat::BIT64) && !features.has(Compat::from_bits(0x80)));
        assert!(features.group_csum() && !features.metadata_csum());
    }
}
