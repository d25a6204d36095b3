//! The blocks that fast commits result in are written in place all or not at all, at every power
//! cut.
#![cfg(not(feature = "model-shuttle"))]

use nextent_device::{BlockDevice, MemoryDevice, RecordingDevice};
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::{BlockNo, Tid};
use nextent_store::{
    JournalRun, JournalSpec, JournalUse, empty_log, inspect_journal, log_blocks, log_room, recover,
    supersede,
};
use nextent_sync::Arc;
use nextent_testkit::Explorer;

const SIZE: usize = 1024;
const LOG: u32 = 60;

fn spec() -> JournalSpec {
    JournalSpec {
        runs: vec![JournalRun { start: BlockNo(200), len: LOG }],
        form: JournalUse { checksums: true, wide: true, fast: false },
        volume_blocks: 300,
    }
}

fn device() -> MemoryDevice {
    let device = MemoryDevice::new(300 * SIZE as u64);
    let mut sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    sb.set_tail(sb.first(), Tid(7));
    device.write_at(200 * SIZE as u64, &sb.to_bytes()).unwrap();
    device
}

/// Images of blocks, the first with the magic number of a log block.
fn images(count: u64) -> Vec<(BlockNo, Vec<u8>)> {
    let mut images: Vec<_> = (0..count).map(|n| (BlockNo(n + 3), vec![9; SIZE])).collect();
    images[0].1[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
    images
}

fn has(device: &dyn BlockDevice, (no, wanted): &(BlockNo, Vec<u8>)) -> bool {
    let mut bytes = vec![0; SIZE];
    device.read_at(no.0 * SIZE as u64, &mut bytes).unwrap();
    bytes == *wanted
}

#[test]
fn all_blocks_or_none_are_in_place() {
    let recording = Arc::new(RecordingDevice::new(device()));
    let shared: Arc<dyn BlockDevice> = recording.clone();
    let images = images(40);
    supersede(&shared, SIZE, &spec(), Tid(7), &images).unwrap();
    let state = inspect_journal(&shared, SIZE, &spec()).unwrap();
    assert!(!state.needs_recovery && state.sequence == Tid(8), "{state:?}");
    let explorer = Explorer { subsets: 8, ..Explorer::default() };
    let report = explorer.explore(&recording.recording(), |image, _| {
        let image: Arc<dyn BlockDevice> = Arc::new(image);
        let found = recover(&image, SIZE, &spec()).map_err(|error| error.to_string())?;
        let there = images.iter().filter(|wanted| has(&*image, wanted)).count();
        // The next sequence is 7 as long as the fast commits of 7 count.
        let whole = if found.next == Tid(7) { 0 } else { images.len() };
        if there == whole { Ok(()) } else { Err(format!("{there} images after {found:?}")) }
    });
    report.assert_none_failed();
}

#[test]
fn blocks_that_exceed_the_log_are_in_place_before_it_is_empty() {
    let recording = Arc::new(RecordingDevice::new(device()));
    let shared: Arc<dyn BlockDevice> = recording.clone();
    let images = images(90);
    supersede(&shared, SIZE, &spec(), Tid(7), &images).unwrap();
    let report = Explorer::default().explore(&recording.recording(), |image, _| {
        let image: Arc<dyn BlockDevice> = Arc::new(image);
        let state = inspect_journal(&image, SIZE, &spec()).map_err(|error| error.to_string())?;
        let there = images.iter().filter(|wanted| has(&*image, wanted)).count();
        match state.needs_recovery || there == images.len() {
            true => Ok(()),
            false => Err(format!("the log is empty, but only {there} images are in place")),
        }
    });
    report.assert_none_failed();
}

/// An empty log takes as many blocks as it says, and a recovery writes all of them or none.
#[test]
fn a_single_transaction_is_written_whole() {
    let empty = device();
    let mut sb = JournalSuperblock::new(SIZE as u32, LOG, [1; 16]);
    sb.set_tail(0, Tid(7));
    empty.write_at(200 * SIZE as u64, &sb.to_bytes()).unwrap();
    let recording = Arc::new(RecordingDevice::new(empty));
    let shared: Arc<dyn BlockDevice> = recording.clone();
    let room = log_room(&shared, SIZE, &spec()).unwrap();
    // The superblock, one block unused, and a commit block; a descriptor for 61 blocks.
    assert_eq!(room, LOG as usize - 4);
    let images = images(room as u64);
    log_blocks(&shared, SIZE, &spec(), &images).unwrap();
    recording.mark(1);
    for (no, bytes) in &images {
        shared.write_at(no.0 * SIZE as u64, bytes).unwrap();
    }
    empty_log(&shared, SIZE, &spec()).unwrap();
    let state = inspect_journal(&shared, SIZE, &spec()).unwrap();
    assert!(!state.needs_recovery && state.sequence == Tid(9), "{state:?}");
    let explorer = Explorer { subsets: 8, ..Explorer::default() };
    let report = explorer.explore(&recording.recording(), |image, info| {
        let image: Arc<dyn BlockDevice> = Arc::new(image);
        let found = recover(&image, SIZE, &spec()).map_err(|error| error.to_string())?;
        let there = images.iter().filter(|wanted| has(&*image, wanted)).count();
        let right = there == images.len() || there == 0 && info.marks.is_empty();
        if right { Ok(()) } else { Err(format!("{there} images after {found:?}")) }
    });
    report.assert_none_failed();
}
