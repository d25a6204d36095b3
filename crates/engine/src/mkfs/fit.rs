//! The smallest volume that holds given contents.
//!
//! A caller fills [`Filling::measuring`], a large volume that drops all writes, and takes its
//! [`Needs`]. [`Plan::fit`] then searches for the size. Each [`Plan`] knows exactly how many blocks
//! it leaves for files, so the search needs no model of the metadata.
//!
//! Invariants:
//!
//! - The sizes of blocks and inodes do not depend on the size of the volume, so that the needs of
//!   one volume are those of another. Without `-b` and `-T` they are mke2fs's for 512 MiB and more.
//! - The search rises: each step is the least increase that the missing blocks demand. So it finds
//!   the smallest volume, although a larger volume can have fewer free blocks (a larger journal).

use nextent_num::{to_u64, whole_part};
use uuid::Uuid;

use super::error::MkfsError;
use super::fill::Filling;
use super::options::MkfsOptions;
use super::plan::Plan;
use super::void::Void;
use nextent_ondisk::Incompat;

/// Sizes of volumes in which contents are measured, in blocks, to be tried in turn.
pub const MEASURED_BLOCKS: [u64; 3] = [1 << 26, (1 << 32) - 1, 1 << 36];

/// The most blocks that a search considers.
const MOST_BLOCKS: u64 = 1 << 48;

/// Bytes of a measured volume for each inode, and blocks, if these are more.
const MEASURED_RATIO: (u64, u64) = (16384, 4);

/// The space to be left free in a volume that is made as small as possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Free {
    /// Percent of all blocks of the finished volume, 0 to 99.
    Percent(f64),
    /// Bytes.
    Bytes(u64),
}

/// How closely a volume fits its contents.
///
/// Free blocks are those that the superblock counts: `reserved_percent` reserves some of them for
/// root. The default is 10 percent, at least 16 MiB.
///
/// The volume has inodes by the ratio of mke2fs (one for 16 KiB), but at least as many as the
/// contents need and a tenth more. With nothing free and without a ratio it has exactly as many as
/// the contents need, rounded up to whole blocks of each group's table.
/// [`inode_count`](MkfsOptions::inode_count) overrides this.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// The free space.
    pub free: Free,
    /// The least free space in bytes.
    pub at_least: u64,
}

impl Default for Fit {
    fn default() -> Self {
        Self { free: Free::Percent(10.0), at_least: 16 << 20 }
    }
}

impl Fit {
    /// So much free space, without a minimum.
    #[must_use]
    pub fn new(free: Free) -> Self {
        Self { free, at_least: 0 }
    }

    fn check(&self) -> Result<(), MkfsError> {
        match self.free {
            Free::Percent(percent) if !(0.0..=99.0).contains(&percent) => {
                let text = format!("invalid free space of {percent} percent: from 0 to 99");
                Err(MkfsError::option(text))
            }
            _ => Ok(()),
        }
    }

    /// The part of the blocks that is free.
    fn share(&self) -> f64 {
        match self.free {
            Free::Percent(percent) => percent / 100.0,
            Free::Bytes(_) => 0.0,
        }
    }

    /// The free blocks that follow from the share alone.
    fn by_share(&self, blocks: u64) -> u64 {
        whole_part((self.share() * blocks as f64).ceil())
    }

    /// Free blocks of a volume of `blocks`.
    fn blocks(&self, blocks: u64, block_size: u64) -> u64 {
        let bytes = match self.free {
            Free::Bytes(bytes) => bytes.max(self.at_least),
            Free::Percent(_) => self.at_least,
        };
        bytes.div_ceil(block_size).max(self.by_share(blocks))
    }

    /// Whether the volume is to be as small as possible, with no block free.
    #[must_use]
    pub fn leaves_nothing(&self) -> bool {
        self.at_least == 0 && matches!(self.free, Free::Percent(0.0) | Free::Bytes(0))
    }
}

/// What contents take in a volume, beyond what an empty one has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Needs {
    /// Blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Files have several extents, to which another layout may add extents and nodes.
    pub split: bool,
}

impl Needs {
    /// These needs and some more, for contents that grow between measuring and copying. Each
    /// `round` adds twice as much as the one before.
    #[must_use]
    pub fn with_spare(self, round: u32) -> Self {
        let more = |count: u64| (count / 128 + 64) << round.min(16);
        let (blocks, inodes) = (self.blocks + more(self.blocks), self.inodes + more(self.inodes));
        Self { blocks, inodes, ..self }
    }
}

/// The rules of a volume whose size follows from its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fitted {
    /// The fewest inodes.
    pub(super) inodes: u64,
    /// The volume has no more inodes than that, unless a ratio is given.
    pub(super) exact: bool,
}

impl MkfsOptions {
    /// The same options, with the random values chosen that are still open, so that all volumes
    /// made with them have the same directories.
    #[must_use]
    pub fn pinned(&self) -> Self {
        let mut options = self.clone();
        options.uuid.get_or_insert_with(Uuid::new_v4);
        options.extended.hash_seed.get_or_insert_with(Uuid::new_v4);
        options
    }
}

impl Plan {
    /// A volume of `blocks`, one of [`MEASURED_BLOCKS`], to count what contents take.
    ///
    /// # Errors
    ///
    /// As [`Plan::new`].
    pub fn measuring(options: &MkfsOptions, blocks: u64) -> Result<Self, MkfsError> {
        let mut options = options.clone();
        options.fitted = Some(Fitted { inodes: 0, exact: false });
        (options.inode_count, options.extended.resize) = (None, None);
        let block_size = block_size(&options)?;
        let (bytes_per_inode, blocks_per_inode) = MEASURED_RATIO;
        options.bytes_per_inode = Some(bytes_per_inode.max(block_size * blocks_per_inode));
        options.size = Some(blocks * block_size);
        Self::new(&options, blocks * block_size)
    }

    /// The smallest volume that holds contents with these `needs` and leaves the space of `fit`
    /// free.
    ///
    /// # Errors
    ///
    /// As [`Plan::new`]; fewer inodes are asked for than the contents need.
    pub fn fit(options: &MkfsOptions, fit: &Fit, needs: &Needs) -> Result<Self, MkfsError> {
        fit.check()?;
        let exact = fit.leaves_nothing();
        // The inodes that every volume has.
        let inodes = needs.inodes + 12;
        let inodes = if exact { inodes } else { inodes + inodes / 10 };
        let fitted = Some(Fitted { inodes, exact });
        let options = MkfsOptions { fitted, ..options.clone() };
        let block_size = block_size(&options)?;
        Search { options, fit, needs, block_size }.run()
    }

    /// Blocks beyond those that were measured: where a file's blocks reach a block that is taken,
    /// the file gets one more extent, and perhaps a node for it.
    fn spare_nodes(&self, needs: &Needs) -> u64 {
        let runs = to_u64(self.space.run_count());
        match self.geometry.features.has(Incompat::EXTENTS) {
            false => 0,
            true if needs.split => runs,
            // Four extents fit in the inode.
            true => runs.div_ceil(4),
        }
    }
}

impl Filling<'static> {
    /// A volume of `blocks`, one of [`MEASURED_BLOCKS`], that drops what is written, to count what
    /// contents take ([`Filling::needs`]). It cannot be finished.
    ///
    /// # Errors
    ///
    /// As [`Plan::new`].
    pub fn measuring(options: &MkfsOptions, blocks: u64) -> Result<Self, MkfsError> {
        let mut filling = Self::new(Plan::measuring(options, blocks)?, &Void)?;
        filling.measures = true;
        Ok(filling)
    }
}

/// The size of blocks, which does not depend on the size of a fitted volume.
fn block_size(options: &MkfsOptions) -> Result<u64, MkfsError> {
    super::resolve::block_size(options, 0).map(u64::from)
}

struct Search<'a> {
    options: MkfsOptions,
    fit: &'a Fit,
    needs: &'a Needs,
    block_size: u64,
}

/// What a size is good for.
enum Attempt {
    Fits(Box<Plan>),
    /// At least so many blocks are needed.
    Short(u64),
    /// There is no such volume, perhaps because it is too small for its metadata.
    Refused(MkfsError),
}

impl Search<'_> {
    fn attempt(&self, blocks: u64) -> Result<Attempt, MkfsError> {
        let mut options = self.options.clone();
        options.size = Some(blocks * self.block_size);
        let plan = match Plan::new(&options, blocks * self.block_size) {
            Ok(plan) => plan,
            Err(error @ (MkfsError::TooSmall(_) | MkfsError::Option(_))) => {
                return Ok(Attempt::Refused(error));
            }
            Err(error) => return Err(error),
        };
        // Without the last group where that would be too small.
        let blocks = plan.geometry.blocks_count;
        let (free, needs) = (plan.sb.free_blocks_count(), self.needs.blocks);
        let needs = needs + plan.spare_nodes(self.needs);
        let missing = (needs + self.fit.blocks(blocks, self.block_size)).saturating_sub(free);
        if missing > 0 {
            // Each block added is free at best, and a share of it is to stay free.
            let by_share = (needs + self.fit.by_share(blocks)).saturating_sub(free);
            let by_share = whole_part(by_share as f64 / (1.0 - self.fit.share()));
            return Ok(Attempt::Short(blocks + missing.max(by_share)));
        }
        let inodes = u64::from(plan.sb.free_inodes_count.get());
        if inodes >= self.needs.inodes {
            return Ok(Attempt::Fits(Box::new(plan)));
        }
        if let Some(asked) = options.inode_count.filter(|count| *count > 0) {
            let needed = self.needs.inodes + u64::from(plan.highest_inode);
            let text = format!("the contents need {needed} inodes, but -N asks for {asked}");
            return Err(MkfsError::option(text));
        }
        Ok(Attempt::Short(blocks + u64::from(plan.geometry.blocks_per_group)))
    }

    fn run(&self) -> Result<Plan, MkfsError> {
        let mut blocks = self.needs.blocks.max(1) + self.fit.blocks(0, self.block_size);
        // No volume of so many blocks or fewer holds the contents.
        let mut short = blocks - 1;
        let mut found = loop {
            let step = match self.attempt(blocks)? {
                Attempt::Fits(plan) => break plan,
                Attempt::Refused(error) if blocks > MOST_BLOCKS => return Err(error),
                Attempt::Refused(_) => blocks / 8 + 8,
                Attempt::Short(least) if least > MOST_BLOCKS => {
                    return Err(MkfsError::TooSmall("no volume is large enough".into()));
                }
                Attempt::Short(least) if least > blocks => {
                    (short, blocks) = (least - 1, least);
                    continue;
                }
                // The last group is too small for its own metadata.
                Attempt::Short(_) => blocks / 64 + 8,
            };
            (short, blocks) = (blocks, blocks + step);
        };
        while blocks - short > 1 {
            let middle = short + (blocks - short) / 2;
            match self.attempt(middle)? {
                Attempt::Fits(plan) => (found, blocks) = (plan, middle),
                _ => short = middle,
            }
        }
        Ok(*found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::FsType;

    fn needs(blocks: u64, inodes: u64) -> Needs {
        Needs { blocks, inodes, split: false }
    }

    /// Free blocks after contents with these needs.
    fn left(plan: &Plan, needs: &Needs) -> u64 {
        plan.sb.free_blocks_count() - needs.blocks
    }

    /// One block less does not do, unless the smaller volume does not exist.
    #[test]
    fn the_volume_is_the_smallest() {
        for features in ["", "^has_journal", "^flex_bg", "^64bit,^resize_inode"] {
            for block_size in [1024, 4096] {
                for count in [1, 50, 900, 7000, 8100, 32_600, 40_000, 300_000] {
                    let options = MkfsOptions {
                        features: features.into(),
                        block_size: Some(block_size),
                        ..MkfsOptions::default()
                    };
                    let (needs, none) = (needs(count, 200), Fit::new(Free::Bytes(0)));
                    let plan = Plan::fit(&options, &none, &needs).expect("it is planned");
                    let blocks = plan.geometry.blocks_count;
                    let rest = left(&plan, &needs);
                    let text = format!("{features} {block_size} {count}: {rest} of {blocks}");
                    // The last group must hold its metadata and 50 blocks.
                    assert!(rest <= 60 || rest * 100 <= blocks, "{text}");
                    assert!(plan.sb.free_inodes_count.get() >= 200, "{text}");
                    let exact = Fitted { inodes: 212, exact: true };
                    let options = MkfsOptions { fitted: Some(exact), ..options };
                    let fit = &Fit::new(Free::Bytes(0));
                    let block_size = u64::from(block_size);
                    let search = Search { options, fit, needs: &needs, block_size };
                    let less = search.attempt(blocks - 1).expect("it is no defect");
                    assert!(!matches!(less, Attempt::Fits(_)), "{text}");
                }
            }
        }
    }

    #[test]
    fn free_space_is_a_share_or_bytes() {
        for fs_type in [FsType::Ext2, FsType::Ext3, FsType::Ext4] {
            let options = MkfsOptions { fs_type, ..MkfsOptions::default() };
            let needs = needs(60_000, 5000);
            for percent in [1.0, 10.0, 50.0, 90.0] {
                let fit = Fit::new(Free::Percent(percent));
                let plan = Plan::fit(&options, &fit, &needs).expect("it is planned");
                let share = 100.0 * left(&plan, &needs) as f64 / plan.geometry.blocks_count as f64;
                assert!(share >= percent && share < percent + 0.2, "{share} for {percent}");
            }
            let fit = Fit::new(Free::Bytes(64 << 20));
            let plan = Plan::fit(&options, &fit, &needs).expect("it is planned");
            assert!((16384..16384 + 60).contains(&left(&plan, &needs)));
        }
        let least = Plan::fit(&MkfsOptions::default(), &Fit::default(), &needs(100, 5));
        let least = left(&least.expect("it is planned"), &needs(100, 5));
        assert!((4096..4096 + 60).contains(&least), "{least}");
    }

    #[test]
    fn inodes_are_enough() {
        let default = MkfsOptions::default();
        let fit = Fit::new(Free::Percent(10.0));
        let few = needs(100_000, 10);
        let plan = Plan::fit(&default, &fit, &few).expect("it is planned");
        let ratio = plan.geometry.blocks_count / u64::from(plan.geometry.inodes_count);
        assert!((3..=4).contains(&ratio), "one inode for 16 KiB, not one for {ratio} blocks");
        let many = needs(100_000, 200_000);
        let plan = Plan::fit(&default, &fit, &many).expect("it is planned");
        assert!(plan.geometry.inodes_count >= 220_000);
        let empty = Plan::fit(&default, &Fit::new(Free::Bytes(0)), &many).expect("it is planned");
        assert!((200_011..202_000).contains(&empty.geometry.inodes_count));
        let asked = MkfsOptions { inode_count: Some(1000), ..default };
        let error = Plan::fit(&asked, &fit, &many).expect_err("they are too few");
        assert!(error.to_string().contains("the contents need 2000"), "{error}");
    }

    #[test]
    fn refusals_end_the_search() {
        let options = MkfsOptions { block_size: Some(3), ..MkfsOptions::default() };
        assert!(Plan::fit(&options, &Fit::default(), &needs(1, 1)).is_err());
        let fit = Fit::new(Free::Percent(100.0));
        assert!(Plan::fit(&MkfsOptions::default(), &fit, &needs(1, 1)).is_err());
        let options = MkfsOptions { features: "^64bit".into(), ..MkfsOptions::default() };
        let error = Plan::fit(&options, &Fit::default(), &needs(1 << 33, 1));
        assert!(error.is_err_and(|error| error.to_string().contains("64bit")));
        let mut options = MkfsOptions::default();
        options.journal.size = Some(256 << 20);
        let plan = Plan::fit(&options, &Fit::new(Free::Bytes(0)), &needs(1, 1)).expect("it fits");
        assert!(plan.geometry.blocks_count < 140_000, "twice the journal");
    }
}
