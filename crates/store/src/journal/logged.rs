//! One transaction of given blocks, without a running journal.
//!
//! | step | function | after a crash |
//! |---|---|---|
//! | 1 | [`log_blocks`] marks the empty log in use | the log is empty |
//! | 2 | it writes the transaction and flushes | the log is empty |
//! | 3 | it writes the commit block and flushes | a replay writes all blocks in place |
//! | 4 | the caller writes the blocks in place | the same |
//! | 5 | [`empty_log`] marks the log empty | all blocks are in place |
//!
//! A replay happens only if the volume's superblock says that it needs recovery: the caller makes
//! that durable before step 1, and ends it after step 5.

use super::log::{JournalArea, JournalUse, check_features, clear_fast_commits, read_superblock};
use super::supersede::{LogForm, commit_block, encode};
use crate::{Error, Result};
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::BlockNo;
use nextent_ondisk::jbd2::{self, JournalFeatures, JournalSuperblock, TagFormat};

/// The superblock of an empty log, with the features of `form`.
fn superblock(area: &JournalArea, form: &JournalUse) -> Result<JournalSuperblock> {
    let mut sb = read_superblock(area)?;
    check_features(sb.features())?;
    if sb.start() != 0 {
        let what = "the log is not empty: it must be replayed first".to_owned();
        return Err(Error::Corrupt { block: 0, what });
    }
    sb.set_features(JournalFeatures { incompat: form.incompat(), ..JournalFeatures::default() });
    Ok(sb)
}

/// The most blocks that one transaction can hold.
pub(crate) fn log_room(area: &JournalArea, form: &JournalUse) -> Result<usize> {
    let sb = superblock(area, form)?;
    let end = sb.log_end().expect("without fast commits it is all of the journal");
    let per_descriptor = TagFormat::new(sb.features()).tags_per_block(area.block_size());
    // The commit block, and one that stays free.
    let rest = to_usize(end - sb.first()).saturating_sub(2);
    let descriptors = rest.div_ceil(per_descriptor + 1);
    Ok(rest - descriptors)
}

/// Makes `images` durable in the log, which must be empty and hold them.
pub(crate) fn log_blocks(
    area: &JournalArea,
    form: &JournalUse,
    images: &[(BlockNo, Vec<u8>)],
) -> Result<()> {
    let mut sb = superblock(area, form)?;
    clear_fast_commits(area, &read_superblock(area)?)?;
    let log = LogForm {
        block_size: area.block_size(),
        format: TagFormat::new(sb.features()),
        seed: form.checksums.then(|| jbd2::checksum_seed(&sb.uuid())),
        // Not the next number: older fast commits may have that.
        tid: sb.sequence().next(),
    };
    let blocks = encode(&log, images);
    sb.set_tail(sb.first(), log.tid);
    area.write_superblock(&sb.to_bytes())?;
    area.flush()?;
    let slices: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    area.write(sb.first(), &slices)?;
    area.flush()?;
    area.write(sb.first() + must_fit::<u32, _>(blocks.len()), &[&commit_block(&log)])?;
    area.flush() // the commit point
}

/// Marks the log empty behind its one transaction, whose blocks are in place. Flushes before and
/// after.
pub(crate) fn empty_log(area: &JournalArea) -> Result<()> {
    let mut sb = read_superblock(area)?;
    area.flush()?;
    let next = sb.sequence().next();
    sb.set_tail(0, next);
    area.write_superblock(&sb.to_bytes())?;
    area.flush()
}
