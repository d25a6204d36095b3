//! The log in jbd2's format: a circular log of transactions in one sequence.
//!
//! Only the committer writes at the head; only the holder of `[journal.checkpoint]` moves the tail.
//! `[journal.log]` guards the numbers that both use. It is held across I/O of the superblock only.

use super::super::commit::TransactionContent;
use super::super::parallel;
use super::fast::FastArea;
use super::map::JournalArea;
use super::{JournalUse, LogExtent};
use crate::flushes::Flushes;
use crate::{Error, Result, locks};
use nextent_num::{must_fit, to_usize};
use nextent_ondisk::Tid;
use nextent_ondisk::jbd2::{
    self, CommitBlock, DescriptorWriter, JournalFeatures, JournalSuperblock, RevokeWriter,
    TagFormat,
};
use nextent_sync::{Mutex, injected, unix_time};

/// Blocks that the circular log must have beside an area for fast commits.
const MIN_BESIDE_FAST: u32 = if cfg!(feature = "model-shuttle") { 50 } else { 1024 };
/// A transaction may fill one of this many parts of the log: two must fit beside transactions that
/// are not checkpointed yet.
const SHARES: u32 = 4;

/// The ends of the used part of the log. `[journal.log]`
struct LogEnds {
    sb: JournalSuperblock,
    /// Where the next transaction goes.
    head: u32,
    /// Where the oldest transaction that is not checkpointed begins.
    tail: u32,
}

/// A writable jbd2 log.
pub(crate) struct Jbd2Log {
    area: JournalArea,
    format: TagFormat,
    /// The features of the log while it is in use.
    features: JournalFeatures,
    /// Seed of the blocks' checksums, if they have any.
    seed: Option<u32>,
    /// The circular log is `first..end`.
    first: u32,
    end: u32,
    first_tid: Tid,
    ends: Mutex<LogEnds>,
    fast: Option<FastArea>,
}

impl Jbd2Log {
    /// Takes over an empty log and marks it in use.
    pub(crate) fn open(area: JournalArea, use_: &JournalUse) -> Result<Self> {
        let log = Self::examine(area, use_)?;
        log.mark_used(log.first_tid)?;
        Ok(log)
    }

    /// An empty log that is not in use: [`mark_used`](Self::mark_used) comes before the first
    /// transaction. Writes nothing.
    pub(crate) fn examine(area: JournalArea, use_: &JournalUse) -> Result<Self> {
        let mut sb = read_superblock(&area)?;
        check_features(sb.features())?;
        if sb.start() != 0 {
            let what = "the log is not empty: it must be replayed first".to_owned();
            return Err(Error::Corrupt { block: 0, what });
        }
        let incompat = use_.incompat();
        let form = |incompat| JournalFeatures { incompat, ..JournalFeatures::default() };
        let first = sb.first();
        if use_.fast {
            sb.set_features(form(incompat | JournalFeatures::FAST_COMMIT));
        }
        if !use_.fast || sb.log_end().is_none_or(|end| end < first + MIN_BESIDE_FAST) {
            sb.set_features(form(incompat));
        }
        let end = sb.log_end().expect("without fast commits it is all of the journal");
        if end - first < 16 {
            let what = format!("a log of {} blocks is too small", end - first);
            return Err(Error::Unsupported(what));
        }
        // One block is unused at either end.
        let fast = sb.features().has(JournalFeatures::FAST_COMMIT) && sb.fc_blocks() > 2;
        let fast = fast.then(|| FastArea::new(area.clone(), end + 1, sb.length() - 1));
        Ok(Self {
            format: TagFormat::new(sb.features()),
            features: sb.features(),
            seed: use_.checksums.then(|| jbd2::checksum_seed(&sb.uuid())),
            first,
            end,
            first_tid: sb.sequence().next(),
            ends: Mutex::new(&locks::LOG, LogEnds { sb, head: first, tail: first }),
            fast,
            area,
        })
    }

    /// Marks the empty log in use, for transactions from `tid` on, and flushes the device. No
    /// thread commits.
    pub(super) fn mark_used(&self, tid: Tid) -> Result<()> {
        clear_fast_commits(&self.area, &read_superblock(&self.area)?)?;
        self.fast.as_ref().map_or(Ok(()), FastArea::clear)?;
        let mut ends = self.ends.lock();
        let head = ends.head;
        ends.sb.set_features(self.features);
        ends.sb.set_tail(head, tid);
        ends.tail = head;
        self.area.write_superblock(&ends.sb.to_bytes())?;
        self.area.flush()
    }

    pub(super) fn first_tid(&self) -> Tid {
        self.first_tid
    }

    /// The blocks for fast commits.
    pub(super) fn fast(&self) -> Option<&FastArea> {
        self.fast.as_ref()
    }

    fn size(&self) -> u32 {
        self.end - self.first
    }

    /// Blocks beside the changed ones that a full transaction may need.
    fn overhead(&self, changed: u32) -> u32 {
        let per_descriptor: u32 = must_fit(self.format.tags_per_block(self.area.block_size()));
        // Commit block, descriptors, and the revoke blocks that credits for
        // freed blocks do not cover.
        2 + changed.div_ceil(per_descriptor)
    }

    pub(super) fn capacity(&self) -> u32 {
        let share = self.size() / SHARES;
        share - self.overhead(share).min(share - 1)
    }

    fn used(&self) -> u32 {
        let ends = self.ends.lock();
        self.distance(ends.tail, ends.head)
    }

    /// The used blocks of the circular log, and all of them.
    pub(super) fn usage(&self) -> (u64, u64) {
        (self.used().into(), self.size().into())
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { self.size() - (from - to) }
    }

    /// Whether two full transactions fit beside the used part of the log.
    pub(super) fn has_space(&self) -> bool {
        self.used() + 2 * (self.size() / SHARES) < self.size()
    }

    pub(super) fn wants_checkpoint(&self) -> bool {
        self.used() > self.size() / 3
    }

    /// Writes a transaction and its commit block, each flushed.
    pub(super) fn write(
        &self,
        content: &TransactionContent,
        flushes: &Flushes,
    ) -> Result<LogExtent> {
        let start = self.ends.lock().head;
        let blocks = self.encode(content);
        // The commit block and at least one free block must remain.
        let free = self.size() - self.used();
        if must_fit::<u32, _>(blocks.len()) + 2 > free {
            let what = format!("transaction of {} blocks overflows the log", blocks.len());
            return Err(Error::Corrupt { block: u64::from(start), what });
        }
        let images: Vec<&[u8]> = blocks.iter().map(|b| &**b).collect();
        let at = self.write_around(start, &images)?;
        // Data written before, and all of the above, before the commit block.
        if !injected("data-unflushed") {
            flushes.flush()?;
        }
        let end = self.write_around(at, &[&self.commit_block(content.tid)])?;
        flushes.flush()?; // the commit point
        self.ends.lock().head = end;
        Ok(LogExtent { start, end })
    }

    fn commit_block(&self, tid: Tid) -> Vec<u8> {
        let now = unix_time();
        CommitBlock { seconds: now.as_secs(), nanos: now.subsec_nanos(), crc32: None }.to_block(
            self.area.block_size(),
            tid,
            self.seed,
        )
    }

    /// Writes from `position` on, around the end of the log; returns the position after the last.
    fn write_around(&self, position: u32, blocks: &[&[u8]]) -> Result<u32> {
        let to_end = to_usize(self.end - position);
        let (before, after) = blocks.split_at(blocks.len().min(to_end));
        self.area.write(position, before)?;
        self.area.write(self.first, after)?;
        let end = position + must_fit::<u32, _>(blocks.len());
        Ok(if end >= self.end { end - self.size() } else { end })
    }

    /// Revoke blocks, then descriptors, each followed by its images.
    fn encode<'c>(&self, content: &'c TransactionContent) -> Vec<LogBlock<'c>> {
        let size = self.area.block_size();
        let seed = self.seed.unwrap_or(0);
        let mut out = Vec::new();
        let mut revoke = RevokeWriter::new(size, self.format, content.tid);
        for (n, no) in content.revokes.iter().enumerate() {
            if !revoke.push(*no) {
                out.push(LogBlock::Own(revoke.finish(seed)));
                revoke = RevokeWriter::new(size, self.format, content.tid);
                revoke.push(*no);
            }
            if n + 1 == content.revokes.len() {
                out.push(LogBlock::Own(revoke.finish(seed)));
                break;
            }
        }
        let tid = content.tid;
        let images = parallel::parts(&content.blocks, |part| -> Vec<_> {
            part.iter().map(|(_, image)| self.written(tid, image)).collect()
        });
        let mut images = images.into_iter().flatten();
        for chunk in content.blocks.chunks(self.format.tags_per_block(size)) {
            let mut descriptor = DescriptorWriter::new(size, self.format, tid);
            let at = out.len();
            out.push(LogBlock::Own(Vec::new()));
            for ((block, _), (written, sum)) in chunk.iter().zip(images.by_ref()) {
                descriptor.push(block.number(), matches!(written, LogBlock::Own(_)), sum);
                out.push(written);
            }
            out[at] = LogBlock::Own(descriptor.finish(seed));
        }
        out
    }

    /// An image as the log stores it, escaped if it must be, and its checksum.
    fn written<'c>(&self, tid: Tid, image: &'c [u8]) -> (LogBlock<'c>, u32) {
        let written = if jbd2::needs_escape(image) {
            let mut copy = image.to_vec();
            jbd2::escape(&mut copy);
            LogBlock::Own(copy)
        } else {
            LogBlock::Image(image)
        };
        let sum = self.seed.map_or(0, |seed| jbd2::image_checksum(seed, tid, &written));
        (written, sum)
    }

    /// Frees the log before `start`, where transaction `tid` is or will be.
    pub(super) fn set_tail(&self, flushes: &Flushes, tid: Tid, start: u32) -> Result<()> {
        let mut ends = self.ends.lock();
        ends.sb.set_tail(start, tid);
        self.area.write_superblock(&ends.sb.to_bytes())?;
        // Space is reused only after the superblock no longer points at it.
        flushes.flush()?;
        ends.tail = start;
        Ok(())
    }

    pub(super) fn mark_clean(&self, flushes: &Flushes, next: Tid) -> Result<()> {
        let mut ends = self.ends.lock();
        ends.sb.set_tail(0, next);
        let head = ends.head;
        ends.sb.set_head(head);
        // An empty log needs no area for fast commits; Linux leaves it so too.
        let mut features = ends.sb.features();
        features.incompat &= !JournalFeatures::FAST_COMMIT;
        ends.sb.set_features(features);
        self.area.write_superblock(&ends.sb.to_bytes())?;
        flushes.flush()
    }

    /// Records an abort for the next mount, if the device still takes it.
    pub(super) fn record_error(&self, errno: i32) {
        let mut ends = self.ends.lock();
        ends.sb.set_errno(errno);
        // The callers have the abort's cause; an error here has nowhere to go.
        let _ = self.area.write_superblock(&ends.sb.to_bytes());
    }
}

/// A block of the log: an image as it is, or bytes made for the log.
enum LogBlock<'c> {
    Image(&'c [u8]),
    Own(Vec<u8>),
}

impl std::ops::Deref for LogBlock<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            LogBlock::Image(image) => image,
            LogBlock::Own(bytes) => bytes,
        }
    }
}

/// Reads and checks the superblock of the journal in `area`.
pub(crate) fn read_superblock(area: &JournalArea) -> Result<JournalSuperblock> {
    let bytes = area.read(0)?;
    JournalSuperblock::parse(&bytes, must_fit(area.block_size()), u64::from(area.len()))
        .map_err(|e| Error::Corrupt { block: 0, what: e.to_string() })
}

/// Makes older fast commits unreadable. Their numbers make them void in any case, but e2fsck, up to
/// 1.47 at least, takes them for damage when it recovers the log.
pub(crate) fn clear_fast_commits(area: &JournalArea, sb: &JournalSuperblock) -> Result<()> {
    let first = sb.log_end().expect("parsing has checked it") + 1;
    if !sb.features().has(JournalFeatures::FAST_COMMIT) || first >= sb.length() {
        return Ok(());
    }
    let block = area.read(first)?;
    if block.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    area.write(first, &[&vec![0; block.len()]])
}

/// Refuses features that this crate does not know.
pub(crate) fn check_features(features: JournalFeatures) -> Result<()> {
    let unknown = features.incompat & !JournalFeatures::INCOMPAT_KNOWN;
    if unknown != 0 || features.ro_compat != 0 {
        let what = format!(
            "unknown features (incompat {unknown:#x}, ro_compat {:#x})",
            features.ro_compat
        );
        return Err(Error::Unsupported(what));
    }
    Ok(())
}
