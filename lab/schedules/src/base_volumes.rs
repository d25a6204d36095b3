//! The small volumes that schedules begin with.

use std::cell::OnceCell;

use nextent::check::{CheckOptions, check};
use nextent::inodes::{InodeNo, Inodes, ROOT_INO};
use nextent::mkfs::{self, MkfsOptions};
use nextent::{Cred, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_sim as sim;
use nextent_sync::Arc;
use uuid::Uuid;

use crate::plan::THREADS;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 1024;
/// Bytes of a volume: several allocation regions, and more free space than counts as low.
const BYTES: u64 = 6 << 20;
/// The features of each kind of volume.
const KINDS: [&str; 4] = ["orphan_file", "fast_commit", "", "fast_commit,orphan_file"];
/// The kinds with fast commits.
pub(crate) const FAST_KINDS: [usize; 2] = [1, 3];

/// A volume with its blocks and inodes, free and used together.
#[derive(Clone)]
pub(crate) struct BaseVolume {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) blocks: u64,
    pub(crate) inodes: u64,
}

/// One volume of each kind, made at its first use.
#[derive(Default)]
pub struct BaseVolumes([OnceCell<BaseVolume>; KINDS.len()]);

impl BaseVolumes {
    /// The volume of that kind.
    pub(crate) fn get(&self, kind: usize) -> Result<&BaseVolume, String> {
        let kind = kind % KINDS.len();
        if self.0[kind].get().is_none() {
            let base = make(KINDS[kind])?;
            let _ = self.0[kind].set(base);
        }
        Ok(self.0[kind].get().expect("it was set above"))
    }
}

/// Fills the device with bytes of an earlier use, so that a test fails if the engine reads a block
/// that it has not initialised.
fn fill_with_old_data(device: &MemoryDevice) -> Result<(), String> {
    let bytes: Vec<u8> = (0..=250u8).cycle().take(1 << 20).collect();
    for at in (0..BYTES).step_by(bytes.len()) {
        device.write_at(at, &bytes).map_err(|error| format!("old bytes: {error}"))?;
    }
    Ok(())
}

fn make(features: &str) -> Result<BaseVolume, String> {
    let device = Arc::new(MemoryDevice::new(BYTES));
    fill_with_old_data(&device)?;
    // One group, which all threads share, or three.
    let blocks_per_group = if features.is_empty() { 8192 } else { 2048 };
    let fixed = Uuid::from_bytes([7; 16]);
    // More than the smallest log that can have fast commits.
    let journal = (1 << 20) + (64 << 10);
    let mut options = MkfsOptions::default();
    options.block_size = Some(BLOCK as u32);
    options.inode_count = Some(128);
    options.blocks_per_group = Some(blocks_per_group);
    options.journal.size = Some(journal);
    options.features = features.into();
    options.extended.hash_seed = Some(fixed);
    options.extended.discard = false;
    options.uuid = Some(fixed);
    options.clock = Some(1_700_000_000);
    mkfs::make(&*device, &options).map_err(|error| format!("mkfs: {error}"))?;
    let clone = device.clone();
    let free = sim::explore(None, move || {
        let volume = Inodes::open(clone, &OpenOptions::default())?;
        for thread in 0..THREADS {
            volume.mkdir(&Cred::root(), ROOT_INO, &own_name(thread), 0o755)?;
        }
        volume.mkdir(&Cred::root(), ROOT_INO, b"shared", 0o777)?;
        volume.sync()?;
        let free = volume.statfs()?;
        volume.close()?;
        Ok::<_, nextent::Error>((free.blocks_free, free.files_free))
    })?
    .map_err(|error| format!("first use: {error}"))?;
    let report = check(device.clone(), &CheckOptions::default(), &|_| ())
        .map_err(|error| format!("first check: {error}"))?;
    let totals = report.totals;
    Ok(BaseVolume {
        device,
        blocks: free.0 + totals.blocks_used,
        inodes: free.1 + totals.inodes_used,
    })
}

/// The name of the directory of one thread.
pub(crate) fn own_name(thread: usize) -> Vec<u8> {
    format!("own{thread}").into_bytes()
}

/// Looks up a directory in the root.
pub(crate) fn dir(volume: &Inodes, name: &[u8]) -> Result<InodeNo, String> {
    let found = volume.lookup(&Cred::root(), ROOT_INO, name);
    found.map(|attr| attr.ino).map_err(|error| format!("looking for a directory: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent::inodes::NewNode;
    use nextent_device::{Event, RecordingDevice};

    /// The writes of an fsync of appended blocks. A fast commit is one write.
    fn writes_of_an_fsync(base: &BaseVolume) -> usize {
        let device = Arc::new(RecordingDevice::new(base.device.snapshot()));
        let clone = device.clone();
        let done = sim::explore(None, move || {
            let volume = Inodes::open(clone.clone(), &OpenOptions::default())?;
            let root = Cred::root();
            let file = volume.mknod(&root, ROOT_INO, b"f", NewNode::Regular, 0o600)?;
            // A fast commit needs an empty log: write everything in place first.
            volume.freeze()?;
            volume.thaw()?;
            volume.append(&root, file.ino, &[1; BLOCK])?;
            let before = clone.events();
            volume.fsync(file.ino)?;
            Ok::<_, nextent::Error>(before..clone.events())
        });
        let recording = device.recording();
        let events = recording.events()[done.unwrap().unwrap()].iter();
        events.filter(|event| matches!(event, Event::Write { .. })).count()
    }

    #[test]
    fn an_fsync_is_a_fast_commit_on_volumes_with_that_feature() {
        let bases = BaseVolumes::default();
        for (kind, features) in KINDS.iter().enumerate() {
            let fast = writes_of_an_fsync(bases.get(kind).unwrap()) == 1;
            assert_eq!(fast, features.contains("fast_commit"), "{features}");
        }
    }
}
