//! A slow read from the device beside the creation of the same block, with real threads. The model
//! of the same race is in `cache_models.rs`.
#![cfg(not(feature = "model-shuttle"))]

use nextent_device::{BlockDevice, Fault, FaultDevice, MemoryDevice, OpKind, Rule};
use nextent_ondisk::BlockNo;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_store::{Error, JournalRun, JournalSpec, JournalUse, Seal, Store, StoreOptions};
use nextent_sync::{Arc, Duration, thread};

const SIZE: usize = 1024;
const LOG: u32 = 400;

#[test]
fn a_slow_read_does_not_overwrite_a_new_block() {
    let spec = JournalSpec {
        runs: vec![JournalRun { start: BlockNo(20), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast: false },
        volume_blocks: 20 + u64::from(LOG),
    };
    let memory = MemoryDevice::new((20 + u64::from(LOG)) * SIZE as u64);
    let device = Arc::new(FaultDevice::new(memory, 1));
    let sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    device.write_at(20 * SIZE as u64, &sb.to_bytes()).unwrap();
    device.write_at(5 * SIZE as u64, &[0x11; SIZE]).unwrap();
    let options = StoreOptions {
        block_size: SIZE,
        commit_interval: Duration::ZERO,
        ..StoreOptions::default()
    };
    let store = Store::with_journal(device.clone(), &options, &spec).unwrap();
    device.add(Rule::on(OpKind::Read, Fault::Delay(Duration::from_millis(300))).times(1));
    thread::scope(|scope| {
        let reader = scope.spawn(|| store.read::<Error>(BlockNo(5), |_| Ok(())).map(drop));
        thread::sleep(Duration::from_millis(100));
        let handle = store.start(2).unwrap();
        let block = store.create(&handle, BlockNo(5), Seal::NONE);
        handle.update(&block, |bytes| bytes.fill(0xAA));
        handle.stop();
        reader.join().unwrap().unwrap();
        assert_eq!(block.image()[0], 0xAA);
        store.sync_all().unwrap();
    });
    store.close().unwrap();
    let mut byte = [0];
    device.read_at(5 * SIZE as u64, &mut byte).unwrap();
    assert_eq!(byte[0], 0xAA);
}
