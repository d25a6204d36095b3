//! A small journaled volume for models: 120 blocks, of which a journal takes 60 from block 50 on.
#![allow(dead_code)] // each test file uses a part

use nextent_device::BlockDevice;
use nextent_ondisk::BlockNo;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_store::{
    AdmissionFactory, Error, Handle, JournalRun, JournalSpec, JournalUse, Result, Store,
    StoreOptions, recover,
};
use nextent_sync::Arc;
use nextent_testkit::ModelDisk;

pub(crate) const BLOCK_SIZE: usize = 1024;
const VOLUME_BLOCKS: u64 = 120;
const JOURNAL_START: u64 = 50;
const JOURNAL_LEN: u32 = 60;
const FAST_COMMIT_BLOCKS: u32 = 5;

/// The journal's place and form; `fast` for one that has fast commits.
pub(crate) fn journal_spec(fast: bool) -> JournalSpec {
    JournalSpec {
        runs: vec![JournalRun { start: BlockNo(JOURNAL_START), len: JOURNAL_LEN }],
        form: JournalUse { checksums: true, wide: true, fast },
        volume_blocks: VOLUME_BLOCKS,
    }
}

/// A disk with an empty journal.
pub(crate) fn disk(fast: bool) -> ModelDisk {
    let disk = ModelDisk::new(VOLUME_BLOCKS * BLOCK_SIZE as u64);
    let mut sb = JournalSuperblock::new(BLOCK_SIZE as u32, JOURNAL_LEN, [1; 16]);
    if fast {
        sb.set_fc_blocks(FAST_COMMIT_BLOCKS);
    }
    disk.write_at(JOURNAL_START * BLOCK_SIZE as u64, &sb.to_bytes()).unwrap();
    disk
}

/// A disk with an empty journal, and the spec of that journal.
pub(crate) fn volume(fast: bool) -> (Arc<ModelDisk>, JournalSpec) {
    (Arc::new(disk(fast)), journal_spec(fast))
}

/// Opens the volume, whose journal admits handles by `admission`.
pub(crate) fn open(
    device: &Arc<ModelDisk>,
    spec: &JournalSpec,
    admission: &AdmissionFactory,
) -> Arc<Store> {
    let options = StoreOptions {
        block_size: BLOCK_SIZE,
        cache_bytes: 64 * BLOCK_SIZE,
        admission: admission.clone(),
        ..StoreOptions::default()
    };
    Arc::new(Store::with_journal(device.clone(), &options, spec).unwrap())
}

/// For [`Store::read`]: all bytes are well.
pub(crate) fn unchecked(_: &[u8]) -> Result<()> {
    Ok(())
}

/// The first word of a block.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

/// The first word of block `no` on the device.
pub(crate) fn word_on(device: &dyn BlockDevice, no: u64) -> u64 {
    let mut bytes = [0; 8];
    device.read_at(no * BLOCK_SIZE as u64, &mut bytes).unwrap();
    word(&bytes)
}

/// Sets the first word of block `no`.
pub(crate) fn set_word(store: &Store, handle: &Handle<'_>, no: u64, value: u64) {
    let block = store.read::<Error>(BlockNo(no), unchecked).unwrap();
    handle.update(&block, |bytes| bytes[..8].copy_from_slice(&value.to_le_bytes()));
}

/// Adds one to the first word of block `no`.
pub(crate) fn increment(store: &Store, handle: &Handle<'_>, no: u64) {
    let block = store.read::<Error>(BlockNo(no), unchecked).unwrap();
    handle.update(&block, |bytes| {
        let next = word(bytes) + 1;
        bytes[..8].copy_from_slice(&next.to_le_bytes());
    });
}

/// Replays the log on a copy of the device as it is now.
pub(crate) fn recovered(device: &ModelDisk, spec: &JournalSpec) -> Arc<dyn BlockDevice> {
    let copy: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
    recover(&copy, BLOCK_SIZE, spec).unwrap();
    copy
}
