//! The tiny volumes that schedules begin with.

use std::cell::OnceCell;

use nextent::check::{CheckOptions, check};
use nextent::mkfs::{self, ExtendedOptions, JournalOptions, MkfsOptions};
use nextent::{Cred, InodeNo, OpenOptions, ROOT_INO, Volume};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_sync::{Arc, sim};
use uuid::Uuid;

use crate::plan::THREADS;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 1024;
/// Bytes of a volume: some regions of blocks, and more than is called low.
const BYTES: u64 = 6 << 20;
/// Kinds of volumes, by their features.
const KINDS: [&str; 4] = ["orphan_file", "fast_commit", "", "fast_commit,orphan_file"];
/// Those with fast commits.
pub(crate) const FAST_KINDS: [usize; 2] = [1, 3];

/// A volume, and what is free and used on it together.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) blocks: u64,
    pub(crate) inodes: u64,
}

/// One volume of each kind, made when it is first needed.
#[derive(Default)]
pub struct Bases([OnceCell<Base>; KINDS.len()]);

impl Bases {
    /// The volume of that kind.
    pub(crate) fn get(&self, kind: usize) -> Result<&Base, String> {
        let kind = kind % KINDS.len();
        if self.0[kind].get().is_none() {
            let base = make(KINDS[kind])?;
            let _ = self.0[kind].set(base);
        }
        Ok(self.0[kind].get().expect("it was set above"))
    }
}

/// Bytes that a device may have from another use: what is not initialised must not be read.
fn old_bytes(device: &MemoryDevice) -> Result<(), String> {
    let bytes: Vec<u8> = (0..=250u8).cycle().take(1 << 20).collect();
    for at in (0..BYTES).step_by(bytes.len()) {
        device.write_at(at, &bytes).map_err(|error| format!("old bytes: {error}"))?;
    }
    Ok(())
}

fn make(features: &str) -> Result<Base, String> {
    let device = Arc::new(MemoryDevice::new(BYTES));
    old_bytes(&device)?;
    // One group, where all meet, or three.
    let blocks_per_group = if features.is_empty() { 8192 } else { 2048 };
    let fixed = Uuid::from_bytes([7; 16]);
    // Above what a log must have beside fast commits.
    let journal = (1 << 20) + (64 << 10);
    let options = MkfsOptions {
        block_size: Some(BLOCK as u32),
        inode_count: Some(128),
        blocks_per_group: Some(blocks_per_group),
        journal: JournalOptions { size: Some(journal), ..JournalOptions::default() },
        features: features.into(),
        extended: ExtendedOptions {
            hash_seed: Some(fixed),
            discard: false,
            ..ExtendedOptions::default()
        },
        uuid: Some(fixed),
        clock: Some(1_700_000_000),
        ..MkfsOptions::default()
    };
    mkfs::make(&*device, &options).map_err(|error| format!("mkfs: {error}"))?;
    let theirs = device.clone();
    let free = sim::explore(None, move || {
        let volume = Volume::open(theirs, &OpenOptions::default())?;
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
    Ok(Base { device, blocks: free.0 + totals.blocks_used, inodes: free.1 + totals.inodes_used })
}

/// The directory of one thread.
pub(crate) fn own_name(thread: usize) -> Vec<u8> {
    format!("own{thread}").into_bytes()
}

/// A directory below the root.
pub(crate) fn dir(volume: &Volume, name: &[u8]) -> Result<InodeNo, String> {
    let found = volume.lookup(&Cred::root(), ROOT_INO, name);
    found.map(|attr| attr.ino).map_err(|error| format!("looking for a directory: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nextent::NewNode;
    use nextent_device::{Event, RecordingDevice};

    /// An fsync of appended blocks: one write, where fast commits are used.
    fn writes_of_an_fsync(base: &Base) -> usize {
        let device = Arc::new(RecordingDevice::new(base.device.snapshot()));
        let theirs = device.clone();
        let done = sim::explore(None, move || {
            let volume = Volume::open(theirs.clone(), &OpenOptions::default())?;
            let root = Cred::root();
            let file = volume.mknod(&root, ROOT_INO, b"f", NewNode::Regular, 0o600)?;
            // There is no fast commit before all is in place.
            volume.freeze()?;
            volume.thaw()?;
            volume.append(&root, file.ino, &[1; BLOCK])?;
            let before = theirs.events();
            volume.fsync(file.ino)?;
            Ok::<_, nextent::Error>(before..theirs.events())
        });
        let recording = device.recording();
        let events = recording.events()[done.unwrap().unwrap()].iter();
        events.filter(|event| matches!(event, Event::Write { .. })).count()
    }

    #[test]
    fn fast_commits_are_used_where_there_are_any() {
        let bases = Bases::default();
        for (kind, features) in KINDS.iter().enumerate() {
            let fast = writes_of_an_fsync(bases.get(kind).unwrap()) == 1;
            assert_eq!(fast, features.contains("fast_commit"), "{features}");
        }
    }
}
