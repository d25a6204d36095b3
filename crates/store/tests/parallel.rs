//! A commit that is large enough to be rendered, sealed and summed on several cores writes the same
//! log as on one core, and a recovery restores its changes.
#![cfg(not(feature = "model-shuttle"))]

use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{BlockNo, Tid};
use nextent_store::{
    BlockRef, Dirty, Error, JournalRun, JournalSpec, JournalUse, RenderSink, Result, Seal, Store,
    StoreOptions, recover,
};
use nextent_sync::{Arc, Duration, available_cores};

const SIZE: usize = 1024;
const LOG: u32 = 20_000;
const LOG_AT: u64 = 10;
/// Blocks changed in range, then blocks that objects are rendered into.
const FIRST: u64 = LOG_AT + LOG as u64;
const IN_PLACE: u64 = 1500;
const TABLE: u64 = 300;
/// Objects of one table block.
const OBJECTS: usize = 8;
const SIZE_OF_ONE: usize = SIZE / OBJECTS - 1;
const VOLUME: u64 = FIRST + IN_PLACE + TABLE;

fn spec() -> JournalSpec {
    JournalSpec {
        runs: vec![JournalRun { start: BlockNo(LOG_AT), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast: false },
        volume_blocks: VOLUME,
    }
}

/// An object in one entry of a table block.
struct TableEntry {
    block: BlockRef,
    at: usize,
    value: u8,
}

impl Dirty for TableEntry {
    fn render(&self, _: Tid, out: &mut RenderSink) -> Result<()> {
        let range = self.at * SIZE_OF_ONE..(self.at + 1) * SIZE_OF_ONE;
        out.patch(&self.block, |bytes| bytes[range].fill(self.value));
        Ok(())
    }
}

fn value(no: u64, round: u64) -> u8 {
    (no * 31 + round * 7) as u8
}

/// Sums into the last byte: a block that was sealed too early has a wrong sum.
fn seal() -> Seal {
    let f = |seed: u32, _: BlockNo, block: &mut [u8]| {
        let (bytes, sum) = block.split_at_mut(SIZE - 1);
        sum[0] = bytes.iter().fold(seed as u8, |sum, byte| sum.wrapping_add(*byte));
    };
    Seal { f, seed: 5 }
}

fn expected(no: u64, round: u64) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    if no < FIRST + IN_PLACE {
        bytes.fill(value(no, round));
    } else {
        for at in 0..OBJECTS {
            bytes[at * SIZE_OF_ONE..(at + 1) * SIZE_OF_ONE].fill(value(no + at as u64, round));
        }
    }
    let sealed = seal();
    (sealed.f)(sealed.seed, BlockNo(no), &mut bytes);
    bytes
}

fn change(store: &Store, round: u64) {
    let handle = store.start((IN_PLACE + TABLE) as u32).unwrap();
    for no in FIRST..VOLUME {
        let block = store.read::<Error>(BlockNo(no), |_| Ok(())).unwrap();
        block.set_seal(seal());
        if no < FIRST + IN_PLACE {
            handle.update(&block, |bytes| bytes.fill(value(no, round)));
            continue;
        }
        handle.join(&block);
        for at in 0..OBJECTS {
            let value = value(no + at as u64, round);
            handle.dirty(Arc::new(TableEntry { block: block.clone(), at, value }));
        }
    }
    let tid = handle.tid();
    handle.stop();
    store.commit(tid).unwrap();
    assert_eq!(store.credit_overruns(), 0);
}

/// The device after three large commits, as a crash leaves it.
fn run() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(VOLUME * SIZE as u64));
    let sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    device.write_at(LOG_AT * SIZE as u64, &sb.to_bytes()).unwrap();
    let options = StoreOptions {
        block_size: SIZE,
        commit_interval: Duration::ZERO,
        ..StoreOptions::default()
    };
    let store = Store::with_journal(device.clone(), &options, &spec()).unwrap();
    (0..3).for_each(|round| change(&store, round));
    drop(store);
    device
}

fn block(device: &MemoryDevice, no: u64) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    device.read_at(no * SIZE as u64, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_log_does_not_depend_on_the_threads_that_made_it() {
    println!("{} cores", available_cores());
    let (one, two) = (run(), run());
    let differ = (LOG_AT..FIRST).filter(|no| block(&one, *no) != block(&two, *no)).count();
    // The three commit blocks hold the time.
    assert!(differ <= 3, "{differ} blocks of the log differ");
    let copy: Arc<dyn BlockDevice> = one.clone();
    recover(&copy, SIZE, &spec()).unwrap();
    for no in FIRST..VOLUME {
        assert!(block(&one, no) == expected(no, 2), "block {no}");
    }
}
