//! Shuttle models of the metadata cache: reads from the device beside the creation of the same
//! block.
//!
//! An unlocked reader (an access check, say) may read a block that is freed and reused meanwhile.
//! Whatever it reads, the block's new contents must survive in memory, in the log and in place.
//!
//! Run with `cargo test -p nextent-store --features model-shuttle --test cache_models`.
#![cfg(feature = "model-shuttle")]

mod small_journal;

use nextent_device::BlockDevice;
use nextent_ondisk::BlockNo;
use nextent_store::{AdmissionFactory, Error, JournalSpec, Seal, Store};
use nextent_sync::{Arc, thread};
use nextent_testkit::ModelDisk;
use small_journal::{BLOCK_SIZE, recovered, unchecked};

/// The block that is freed and created again.
const SHARED: BlockNo = BlockNo(9);
const OLD: u8 = 0x11;
const NEW: u8 = 0xAA;

fn volume() -> (Arc<ModelDisk>, JournalSpec) {
    let (device, spec) = small_journal::volume(false);
    device.write_at(SHARED.0 * BLOCK_SIZE as u64, &[OLD; BLOCK_SIZE]).unwrap();
    (device, spec)
}

fn open(device: &Arc<ModelDisk>, spec: &JournalSpec) -> Arc<Store> {
    small_journal::open(device, spec, &AdmissionFactory::default())
}

/// Creates the shared block, fills it and commits.
fn create(store: &Store) {
    let handle = store.start(2).unwrap();
    let block = store.create(&handle, SHARED, Seal::NONE);
    handle.update(&block, |bytes| bytes.fill(NEW));
    let tid = handle.tid();
    handle.stop();
    assert_eq!(block.image()[0], NEW, "a reader stored stale bytes over a new block");
    store.commit(tid).unwrap();
    assert_eq!(block.image()[0], NEW, "a reader stored stale bytes over a new block");
}

/// The shared block has its new contents after a crash now, and after the close.
fn assert_new(device: &Arc<ModelDisk>, spec: &JournalSpec, store: &Store) {
    let copy = recovered(device, spec);
    store.close().unwrap();
    for disk in [copy, device.clone() as Arc<dyn BlockDevice>] {
        let mut byte = [0];
        disk.read_at(SHARED.0 * BLOCK_SIZE as u64, &mut byte).unwrap();
        assert_eq!(byte[0], NEW, "the committed contents are lost");
    }
}

/// A reader reads the block from the device while another thread creates it.
#[test]
fn a_read_beside_a_creation_keeps_the_new_block() {
    let model = || {
        let (device, spec) = volume();
        let store = open(&device, &spec);
        let reader = store.clone();
        let reader = thread::spawn(move || {
            let block = reader.read::<Error>(SHARED, unchecked).unwrap();
            assert!([0, OLD, NEW].contains(&block.image()[0]));
        });
        create(&store);
        reader.join().unwrap();
        assert_eq!(store.read::<Error>(SHARED, unchecked).unwrap().image()[0], NEW);
        assert_new(&device, &spec, &store);
    };
    shuttle::check_random(model, 1000);
    shuttle::check_pct(model, 1000, 3);
}

/// The block is freed, its commit withdraws it, and it is created anew, while two readers read it
/// at any moment.
#[test]
fn a_block_that_changes_hands_keeps_the_newest_contents() {
    let model = || {
        let (device, spec) = volume();
        let store = open(&device, &spec);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let store = store.clone();
                thread::spawn(move || {
                    let block = store.read::<Error>(SHARED, unchecked).unwrap();
                    assert!([0, OLD, NEW].contains(&block.image()[0]));
                })
            })
            .collect();
        let handle = store.start(2).unwrap();
        handle.forget(SHARED);
        let tid = handle.tid();
        handle.stop();
        store.commit(tid).unwrap();
        create(&store);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_new(&device, &spec, &store);
    };
    shuttle::check_random(model, 1000);
    shuttle::check_pct(model, 1000, 4);
}
