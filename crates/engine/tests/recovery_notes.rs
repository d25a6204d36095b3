//! Recovery copies the error that stopped the journal from the log to the superblock, even if power
//! cuts interrupt the recovery.

mod common;

use common::{Image, VolumeFs};
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::{BlockDevice, Loss, MemoryDevice, RecordingDevice};
use nextent_ondisk::jbd2::JournalSuperblock;
use nextent_ondisk::superblock::{Superblock, state};
use nextent_sync::Arc;
use nextent_testkit::{PosixFs, Skip, need};

const BLOCK: usize = 1024;
const EIO: i32 = -5;

fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).unwrap();
    Superblock::read(&bytes).unwrap()
}

/// The block number and contents of the journal's superblock: the only block that parses as one.
fn journal(device: &dyn BlockDevice) -> (u64, JournalSuperblock) {
    let mut bytes = vec![0; BLOCK];
    (0..device.size())
        .step_by(BLOCK)
        .find_map(|at| {
            device.read_at(at, &mut bytes).unwrap();
            let sb = JournalSuperblock::parse(&bytes, BLOCK as u32, u64::MAX);
            sb.ok().map(|sb| (at, sb))
        })
        .expect("the image has a journal")
}

/// A volume that was not closed, with an error in its log's superblock but not in its own.
fn stopped(args: &[&str]) -> Result<MemoryDevice, Skip> {
    let image = Image::make(16 << 20, args)?;
    let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    VolumeFs(&volume).create("/a", 0o644).unwrap();
    volume.sync().unwrap();
    VolumeFs(&volume).write("/a", 0, &[1; 5000]).unwrap();
    VolumeFs(&volume).fsync("/a").unwrap();
    drop(volume);
    let (at, mut sb) = journal(&*device);
    assert_ne!(sb.start(), 0, "the log holds a transaction");
    sb.set_errno(EIO);
    device.write_at(at, &sb.to_bytes()).unwrap();
    assert_eq!(superblock(&*device).state.get() & state::ERROR, 0);
    Ok(device.snapshot())
}

fn is_recorded(device: &MemoryDevice) -> bool {
    let device = Arc::new(device.snapshot());
    let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
    drop(volume);
    superblock(&*device).state.get() & state::ERROR != 0
}

fn check_all_cuts(args: &[&str]) {
    let start = need!(stopped(args));
    assert!(is_recorded(&start));
    let device = Arc::new(RecordingDevice::new(start));
    drop(Inodes::open(device.clone(), &OpenOptions::default()).unwrap());
    assert_eq!(journal(&*device).1.errno(), 0, "the error is noted once");
    let recording = device.recording();
    for cut in 0..=recording.events().len() {
        assert!(is_recorded(&recording.image_at(cut)), "all of the first {cut} events survive");
        let lost = recording.unstable_at(cut);
        // All writes since the flush, and each by itself: their order is undefined.
        for lost in lost.iter().map(|one| vec![*one]).chain([lost.clone()]) {
            let what = format!("cut {cut} without the writes {lost:?}");
            let image = recording.image_with(cut, &Loss { lost, torn: Vec::new() });
            assert!(is_recorded(&image), "{what}");
        }
    }
}

#[test]
fn recovery_records_the_logs_error_despite_power_cuts() {
    check_all_cuts(&["-t", "ext4", "-b", "1024"]);
}

#[test]
fn recovery_records_the_logs_error_despite_power_cuts_with_fast_commits() {
    check_all_cuts(&["-t", "ext4", "-b", "1024", "-O", "fast_commit"]);
}
