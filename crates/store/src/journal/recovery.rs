//! Replay of a jbd2 log, as Linux and e2fsck do it.
//!
//! 1. Reads the whole log once, and notes the images and revokes of committed transactions.
//! 2. Checks every image.
//! 3. Writes each block's newest image that is not revoked.
//!
//! Memory is bounded by the log's length.

use super::log::{JournalArea, check_features, read_superblock};
use crate::{Error, Result};
use nextent_device::BlockDevice;
use nextent_num::to_u64;
use nextent_ondisk::fast_commit::{Next, Scanner};
use nextent_ondisk::jbd2::{
    self, BlockType, CommitBlock, JournalFeatures, JournalSuperblock, Tag, TagFormat,
};
use nextent_ondisk::{BlockNo, Tid};
use nextent_sync::Arc;
use nextent_sync::HashMap;
use std::collections::BTreeMap;

/// The result of a replay.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Committed transactions in the log.
    pub transactions: u32,
    /// Blocks written in place.
    pub replayed: u64,
    /// Images skipped because their block was freed later.
    pub revoked: u64,
    /// Sequence that follows the last transaction; valid fast commits have it.
    pub next: Tid,
    /// Error number that stopped the journal before; 0 for none. It stays in the log until
    /// [`clear_journal_error`](crate::clear_journal_error).
    pub errno: i32,
    /// Blocks of the fast-commit area, if records in them continue the log. The log is not marked
    /// empty then: see [`supersede`](crate::supersede).
    pub fast_commits: Vec<Vec<u8>>,
}

/// One image in the log.
struct LoggedImage {
    tid: Tid,
    tag: Tag,
    position: u32,
}

/// One pass over the log.
struct LogScan<'a> {
    area: &'a JournalArea,
    features: JournalFeatures,
    format: TagFormat,
    seed: u32,
    first: u32,
    end: u32,
    images: Vec<LoggedImage>,
    revokes: HashMap<BlockNo, Tid>,
    transactions: u32,
    /// When the last transaction was committed, in seconds as Linux compares them.
    last_commit: u64,
}

/// A transaction whose commit block is not read yet.
#[derive(Default)]
struct OpenTransaction {
    images: Vec<LoggedImage>,
    revokes: Vec<BlockNo>,
    /// A block of it has a wrong sum: garbage of an older lap, or damage.
    bad: Option<u32>,
    crc32: u32,
}

impl OpenTransaction {
    fn new() -> Self {
        Self { crc32: !0, ..Self::default() }
    }
}

/// Replays the log in `area` onto `device` and marks it empty, unless fast commits follow.
pub(crate) fn recover(
    device: &Arc<dyn BlockDevice>,
    area: &JournalArea,
    volume_blocks: u64,
) -> Result<Recovery> {
    let mut sb = read_superblock(area)?;
    check_features(sb.features())?;
    let mut report = Recovery { next: sb.sequence(), errno: sb.errno(), ..Recovery::default() };
    if sb.start() == 0 {
        return Ok(report);
    }
    let mut scan = LogScan::new(area, &sb);
    report.next = scan.run(sb.start(), sb.sequence())?;
    report.transactions = scan.transactions;
    report.fast_commits = fast_commits(area, &sb, report.next)?;
    let newest = scan.newest(volume_blocks, &mut report)?;
    for image in newest.values() {
        scan.check(image)?;
    }
    for (no, image) in &newest {
        let bytes = scan.load(image)?;
        device
            .write_at(no.0 * to_u64(area.block_size()), &bytes)
            .map_err(|e| Error::io("replay", *no, e))?;
        report.replayed += 1;
    }
    area.flush()?;
    if !report.fast_commits.is_empty() {
        return Ok(report);
    }
    sb.set_tail(0, report.next);
    area.write_superblock(&sb.to_bytes())?;
    area.flush()?;
    Ok(report)
}

/// Clears the error number that stopped the journal, if there is one.
pub(crate) fn clear_error(area: &JournalArea) -> Result<()> {
    let mut sb = read_superblock(area)?;
    if sb.errno() == 0 {
        return Ok(());
    }
    sb.set_errno(0);
    area.write_superblock(&sb.to_bytes())?;
    area.flush()
}

impl<'a> LogScan<'a> {
    fn new(area: &'a JournalArea, sb: &JournalSuperblock) -> Self {
        let features = sb.features();
        Self {
            area,
            features,
            format: TagFormat::new(features),
            seed: jbd2::checksum_seed(&sb.uuid()),
            first: sb.first(),
            end: sb.log_end().expect("parsing has checked it"),
            images: Vec::new(),
            revokes: HashMap::default(),
            transactions: 0,
            last_commit: 0,
        }
    }

    fn step(&self, position: u32, by: u32) -> u32 {
        let size = self.end - self.first;
        self.first + (position - self.first + by % size) % size
    }

    /// Reads transactions from `position` to the first that is not committed; returns its sequence.
    fn run(&mut self, mut position: u32, mut tid: Tid) -> Result<Tid> {
        let mut budget = self.end - self.first;
        let mut open = OpenTransaction::new();
        while budget > 0 {
            let block = self.area.read(position)?;
            let Some((kind, sequence)) = jbd2::header(&block) else { break };
            if sequence != tid {
                break;
            }
            let used = match kind {
                BlockType::Descriptor => self.descriptor(&block, position, tid, &mut open)?,
                BlockType::Revoke => self.revoke(&block, position, &mut open),
                BlockType::Commit => {
                    if !self.commit(&block, tid, position, &mut open)? {
                        break;
                    }
                    tid = tid.next();
                    1
                }
                BlockType::Superblock => break,
            };
            budget = budget.saturating_sub(used);
            position = self.step(position, used);
        }
        Ok(tid)
    }

    /// Notes a descriptor's images; returns the blocks it spans.
    fn descriptor(
        &self,
        block: &[u8],
        at: u32,
        tid: Tid,
        open: &mut OpenTransaction,
    ) -> Result<u32> {
        if self.format.tail() > 0 && jbd2::check_tail(self.seed, block).is_err() {
            open.bad.get_or_insert(at);
        }
        let sum_v1 = self.features.compat & JournalFeatures::CHECKSUM_V1 != 0;
        if sum_v1 {
            open.crc32 = jbd2::crc32_be(open.crc32, block);
        }
        let mut span = 1;
        for tag in jbd2::tags(block, self.format) {
            let Ok(tag) = tag else {
                open.bad.get_or_insert(at);
                break;
            };
            let position = self.step(at, span);
            if sum_v1 {
                open.crc32 = jbd2::crc32_be(open.crc32, &self.area.read(position)?);
            }
            open.images.push(LoggedImage { tid, tag, position });
            span += 1;
        }
        Ok(span)
    }

    fn revoke(&self, block: &[u8], at: u32, open: &mut OpenTransaction) -> u32 {
        let sound = self.format.tail() == 0 || jbd2::check_tail(self.seed, block).is_ok();
        match jbd2::revoked(block, self.format) {
            Ok(numbers) if sound => open.revokes.extend(numbers),
            _ => {
                open.bad.get_or_insert(at);
            }
        }
        1
    }

    /// Ends a transaction; false if it is not committed, which ends the log.
    fn commit(
        &mut self,
        block: &[u8],
        tid: Tid,
        at: u32,
        open: &mut OpenTransaction,
    ) -> Result<bool> {
        let Some(commit) = CommitBlock::parse(block) else { return Ok(false) };
        let unsealed = !self.is_sealed(block, open.crc32);
        if let Some(bad) = open.bad.or(unsealed.then_some(at)) {
            // Older than its predecessor: left from an earlier lap.
            if commit.seconds < self.last_commit {
                return Ok(false);
            }
            // With async commits the block may be there without the rest of its transaction.
            if open.bad.is_none() && self.features.has(JournalFeatures::ASYNC_COMMIT) {
                return Ok(false);
            }
            let what = format!("has a wrong checksum, but transaction {tid} is committed");
            return Err(Error::Corrupt { block: u64::from(bad), what });
        }
        self.last_commit = commit.seconds;
        self.transactions += 1;
        let closed = std::mem::replace(open, OpenTransaction::new());
        self.images.extend(closed.images);
        for no in closed.revokes {
            self.revokes.insert(no, tid);
        }
        Ok(true)
    }

    /// Whether a commit block's own sum is right, or that of its transaction in the first version.
    fn is_sealed(&self, block: &[u8], crc32: u32) -> bool {
        if self.features.has_checksums() {
            return CommitBlock::sum_matches(block, self.seed);
        }
        let sum_v1 = self.features.compat & JournalFeatures::CHECKSUM_V1 != 0;
        !sum_v1 || CommitBlock::crc32_matches(block, crc32)
    }

    /// Each block's newest image that no revoke makes void.
    fn newest(
        &self,
        volume_blocks: u64,
        report: &mut Recovery,
    ) -> Result<BTreeMap<BlockNo, LoggedImage>> {
        let mut newest = BTreeMap::new();
        for image in &self.images {
            let no = image.tag.block;
            if no.0 >= volume_blocks {
                let what = format!("holds an image of block {no}, beyond the volume");
                return Err(Error::Corrupt { block: u64::from(image.position), what });
            }
            let void = self.revokes.get(&no).is_some_and(|tid| tid.is_at_least(image.tid));
            if void || image.tag.deleted {
                report.revoked += 1;
                continue;
            }
            newest.insert(
                no,
                LoggedImage { tid: image.tid, tag: image.tag, position: image.position },
            );
        }
        Ok(newest)
    }

    fn check(&self, image: &LoggedImage) -> Result<()> {
        if self.format.tail() == 0 {
            return Ok(());
        }
        let bytes = self.area.read(image.position)?;
        let sum = jbd2::image_checksum(self.seed, image.tid, &bytes);
        if self.format.sum_matches(&image.tag, sum) {
            return Ok(());
        }
        let what = format!("image of block {} has a wrong checksum", image.tag.block);
        Err(Error::Corrupt { block: u64::from(image.position), what })
    }

    fn load(&self, image: &LoggedImage) -> Result<Vec<u8>> {
        let mut bytes = self.area.read(image.position)?;
        if image.tag.escaped {
            jbd2::unescape(&mut bytes);
        }
        Ok(bytes)
    }
}

/// The blocks of the fast-commit area; none if no record in them continues the log before `next`.
/// The first block after the log is unused.
fn fast_commits(area: &JournalArea, sb: &JournalSuperblock, next: Tid) -> Result<Vec<Vec<u8>>> {
    if !sb.features().has(JournalFeatures::FAST_COMMIT) {
        return Ok(Vec::new());
    }
    let from = sb.log_end().expect("parsing has checked it") + 1;
    let mut scanner = Scanner::new(next);
    let mut blocks = Vec::new();
    for position in from..sb.length() {
        let block = area.read(position)?;
        let follow = scanner.block(&block);
        blocks.push(block);
        if follow == Next::Stop {
            break;
        }
    }
    if scanner.valid_records() == 0 {
        blocks.clear();
    }
    Ok(blocks)
}
