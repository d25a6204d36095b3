//! Ends a log whose fast commits were applied in memory.
//!
//! Fast commits are deltas. Applied again to blocks of which only some reached the device, they
//! could do damage. So their result is written as one whole transaction:
//!
//! 1. the log is made empty, with the fast commits continuing it;
//! 2. one transaction with the number that they continue is written to the log. Its commit block
//!    makes the fast commits void;
//! 3. its blocks are written in place, and the log is marked empty.
//!
//! After a crash before that commit block, log and fast commits are replayed again; after a later
//! one, the log has one transaction.

use super::log::{JournalArea, check_features, clear_fast_commits, read_superblock};
use crate::{Error, Result};
use nextent_device::BlockDevice;
use nextent_num::{must_fit, to_u64, to_usize};
use nextent_ondisk::jbd2::{self, CommitBlock, DescriptorWriter, JournalFeatures, TagFormat};
use nextent_ondisk::{BlockNo, Tid};
use nextent_sync::{Arc, unix_time};

/// The form of the log's blocks.
pub(super) struct LogForm {
    pub(super) block_size: usize,
    pub(super) format: TagFormat,
    pub(super) seed: Option<u32>,
    pub(super) tid: Tid,
}

/// Makes `images` durable in place of the fast commits that continue the log before `tid`, writes
/// them in place and marks the log empty. The log's other blocks are in place and flushed.
///
/// Images that exceed a transaction of this log are written in place directly, as Linux does with
/// all: the fast commits then count until that is done.
pub(crate) fn supersede(
    device: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    tid: Tid,
    images: &[(BlockNo, Vec<u8>)],
) -> Result<()> {
    let mut sb = read_superblock(area)?;
    check_features(sb.features())?;
    let features = sb.features();
    let form = LogForm {
        block_size: area.block_size(),
        format: TagFormat::new(features),
        seed: features.has_checksums().then(|| jbd2::checksum_seed(&sb.uuid())),
        tid,
    };
    let end = sb.log_end().expect("parsing has checked it");
    let blocks = encode(&form, images);
    let narrow = !features.has(JournalFeatures::WIDE)
        && images.iter().any(|(no, _)| u32::try_from(no.0).is_err());
    if !narrow && blocks.len() + 2 <= to_usize(end - sb.first()) {
        // From here on the log is empty, and the fast commits continue it.
        sb.set_tail(sb.first(), tid);
        area.write_superblock(&sb.to_bytes())?;
        area.flush()?;
        let slices: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        area.write(sb.first(), &slices)?;
        area.flush()?;
        area.write(sb.first() + must_fit::<u32, _>(blocks.len()), &[&commit_block(&form)])?;
        area.flush()?; // the commit point
        clear_fast_commits(area, &sb)?;
        area.flush()?;
    }
    for (no, bytes) in images {
        let at = no.0 * to_u64(form.block_size);
        device.write_at(at, bytes).map_err(|e| Error::io("fast commit replay", *no, e))?;
    }
    area.flush()?;
    sb.set_tail(0, tid.next());
    area.write_superblock(&sb.to_bytes())?;
    area.flush()
}

/// Descriptors, each followed by its images.
pub(super) fn encode(form: &LogForm, images: &[(BlockNo, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    for chunk in images.chunks(form.format.tags_per_block(form.block_size)) {
        let mut descriptor = DescriptorWriter::new(form.block_size, form.format, form.tid);
        let descriptor_at = blocks.len();
        blocks.push(Vec::new());
        for (no, bytes) in chunk {
            let mut image = bytes.clone();
            let escaped = jbd2::needs_escape(&image);
            if escaped {
                jbd2::escape(&mut image);
            }
            let sum = form.seed.map_or(0, |seed| jbd2::image_checksum(seed, form.tid, &image));
            descriptor.push(*no, escaped, sum);
            blocks.push(image);
        }
        blocks[descriptor_at] = descriptor.finish(form.seed.unwrap_or(0));
    }
    blocks
}

pub(super) fn commit_block(form: &LogForm) -> Vec<u8> {
    let now = unix_time();
    let commit = CommitBlock { seconds: now.as_secs(), nanos: now.subsec_nanos(), crc32: None };
    commit.to_block(form.block_size, form.tid, form.seed)
}
