//! A panic in the committer aborts the journal: other callers get the cause instead of waiting for
//! ever.
#![cfg(not(feature = "model-shuttle"))]

use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::fast_commit;
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{BlockNo, InodeNo};
use nextent_store::{Error, JournalRun, JournalSpec, JournalUse, Result, Store, StoreOptions};
use nextent_sync::atomic::{AtomicU64, Ordering};
use nextent_sync::{Arc, Duration, thread};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SIZE: usize = 1024;
const LOG: u32 = 2048;
const START: u64 = 20;
/// The first of the journal's blocks for fast commits.
const FAST: u64 = START + LOG as u64 - 16;

/// A device that panics at the first write at or after an offset.
struct PanickingDevice {
    inner: MemoryDevice,
    from: AtomicU64,
}

impl BlockDevice for PanickingDevice {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let from = self.from.load(Ordering::Relaxed);
        if offset >= from {
            self.from.store(u64::MAX, Ordering::Relaxed);
            panic!("the device panics");
        }
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.write_zeroes(offset, len)
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

fn open() -> (Arc<PanickingDevice>, Arc<Store>) {
    let inner = MemoryDevice::new((START + u64::from(LOG)) * SIZE as u64);
    let device = Arc::new(PanickingDevice { inner, from: AtomicU64::new(u64::MAX) });
    let spec = JournalSpec {
        runs: vec![JournalRun { start: BlockNo(START), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast: true },
        volume_blocks: START + u64::from(LOG),
    };
    let mut sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    sb.set_fc_blocks(16);
    device.write_at(START * SIZE as u64, &sb.to_bytes()).unwrap();
    let options = StoreOptions {
        block_size: SIZE,
        commit_interval: Duration::ZERO,
        ..StoreOptions::default()
    };
    let store = Arc::new(Store::with_journal(device.clone(), &options, &spec).unwrap());
    (device, store)
}

fn change(store: &Store) -> Result<nextent_ondisk::Tid> {
    let handle = store.start(1)?;
    let block = store.read::<Error>(BlockNo(1), |_| Ok(()))?;
    handle.update(&block, |bytes| bytes[0] = bytes[0].wrapping_add(1));
    Ok(handle.tid())
}

/// Calls that wait for the end of a commit return, with the cause of the abort.
fn assert_all_return(store: &Arc<Store>) {
    let (send, receive) = std::sync::mpsc::channel();
    let theirs = Arc::clone(store);
    let other = thread::spawn(move || {
        let aborted = |outcome: Result<()>| matches!(outcome, Err(Error::Aborted(_)));
        let synced = aborted(theirs.sync_all());
        let changed = aborted(change(&theirs).map(drop));
        let frozen = aborted(theirs.freeze());
        let closed = aborted(theirs.close());
        send.send([synced, changed, frozen, closed]).unwrap();
    });
    let answer = receive.recv_timeout(Duration::from_secs(10));
    assert_eq!(answer, Ok([true; 4]), "sync, change, freeze, close");
    other.join().unwrap();
}

#[test]
fn a_panic_in_a_fast_commit_reaches_all_callers() {
    let (device, store) = open();
    let tid = change(&store).unwrap();
    assert_eq!(store.fast_tid(), Some(tid));
    device.from.store(FAST * SIZE as u64, Ordering::Relaxed);
    let records = vec![fast_commit::inode(InodeNo(12), &[0; 128])];
    let fast = || store.commit_fast(tid, records, store.next_flush());
    assert!(catch_unwind(AssertUnwindSafe(fast)).is_err(), "the write panics");
    assert_all_return(&store);
}

#[test]
fn a_panic_in_a_full_commit_reaches_all_callers() {
    let (device, store) = open();
    let tid = change(&store).unwrap();
    device.from.store((START + 1) * SIZE as u64, Ordering::Relaxed);
    let full = || store.commit(tid);
    assert!(catch_unwind(AssertUnwindSafe(full)).is_err(), "the write panics");
    assert_all_return(&store);
}

#[test]
fn a_panic_in_the_last_commit_reaches_all_callers() {
    let (device, store) = open();
    change(&store).unwrap();
    device.from.store((START + 1) * SIZE as u64, Ordering::Relaxed);
    let close = || store.close();
    assert!(catch_unwind(AssertUnwindSafe(close)).is_err(), "the write panics");
    assert_all_return(&store);
}
