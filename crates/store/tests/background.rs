//! The background checkpoint writes blocks in place and moves the log's tail without a request, and
//! commits go on meanwhile.
#![cfg(not(feature = "model-shuttle"))]

use nextent_device::{BlockDevice, Fault, FaultDevice, MemoryDevice, OpKind, Rule};
use nextent_ondisk::BlockNo;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_store::{
    Error, JournalRun, JournalSpec, JournalUse, Store, StoreOptions, inspect_journal,
};
use nextent_sync::{Arc, Duration, Instant, thread};

const SIZE: usize = 1024;
const LOG: u32 = 400;

fn spec() -> JournalSpec {
    JournalSpec {
        runs: vec![JournalRun { start: BlockNo(20), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast: false },
        volume_blocks: 20 + u64::from(LOG),
    }
}

fn increment(store: &Store) {
    let handle = store.start(1).unwrap();
    let block = store.read::<Error>(BlockNo(1), |_| Ok(())).unwrap();
    handle.update(&block, |bytes| bytes[0] = bytes[0].wrapping_add(1));
    let tid = handle.tid();
    handle.stop();
    store.commit(tid).unwrap();
}

#[test]
fn commits_do_not_wait_for_a_background_checkpoint() {
    const DELAY: Duration = Duration::from_millis(700);
    let device = FaultDevice::new(MemoryDevice::new((20 + u64::from(LOG)) * SIZE as u64), 1);
    let device = Arc::new(device);
    let sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    device.write_at(20 * SIZE as u64, &sb.to_bytes()).unwrap();
    let options = StoreOptions {
        block_size: SIZE,
        commit_interval: Duration::ZERO,
        ..StoreOptions::default()
    };
    let store = Store::with_journal(device.clone(), &options, &spec()).unwrap();
    let in_place = 0..20 * SIZE as u64;
    device.add(Rule::on(OpKind::Write, Fault::Delay(DELAY)).within(in_place).times(1));
    let dynamic: Arc<dyn BlockDevice> = device.clone();
    let tail = || inspect_journal(&dynamic, SIZE, &spec()).unwrap().sequence;
    let first = tail();
    // Three blocks each: a third of the log is soon in use.
    let mut commits = 0;
    while device.struck() == 0 {
        increment(&store);
        commits += 1;
        assert!(commits < 100, "no checkpoint after {commits} commits");
        thread::sleep(Duration::from_millis(2));
    }
    let begin = Instant::now();
    (0..3).for_each(|_| increment(&store));
    assert!(begin.elapsed() < DELAY, "commits waited for the checkpoint");
    assert_eq!(tail(), first, "the tail moved before the blocks were in place");
    // No thread calls the store from here on.
    while tail() == first {
        assert!(begin.elapsed() < Duration::from_secs(30), "the tail does not move");
        thread::sleep(Duration::from_millis(10));
    }
    store.close().unwrap();
    let mut byte = [0];
    device.read_at(SIZE as u64, &mut byte).unwrap();
    assert_eq!(u64::from(byte[0]), commits + 3);
}
