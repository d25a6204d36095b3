//! Crashes between fast commits, recovered by e2fsck. The images have blocks of 1, 2 and 4 KiB and
//! many groups, so that the log has the first use of a group when fast commits follow.

mod common;

use common::{Image, VolumeFs, VolumeTree};
use nextent::OpenOptions;
use nextent::inodes::Inodes;
use nextent_device::{MemoryDevice, RecordingDevice};
use nextent_sync::atomic::{AtomicUsize, Ordering};
use nextent_sync::{Arc, Duration, thread};
use nextent_testkit::tree::{Compare, diff, walk};
use nextent_testkit::{
    CutInfo, Explorer, PosixFs, append_with_promises, change_with_promises, check_changes,
    check_promises, e2fs, need, run_together,
};

const KINDS: [&[&str]; 7] = [
    &["-b", "1024", "-O", "fast_commit"],
    &["-b", "2048", "-g", "4096", "-O", "fast_commit"],
    &["-b", "4096", "-g", "4096", "-O", "fast_commit"],
    &["-b", "1024", "-O", "fast_commit,orphan_file"],
    &["-b", "4096", "-g", "4096", "-O", "fast_commit,orphan_file"],
    &["-b", "1024", "-O", "fast_commit,^metadata_csum,uninit_bg"],
    &["-b", "2048", "-g", "4096", "-O", "fast_commit,^metadata_csum"],
];

fn make(kind: &[&str]) -> Result<(Image, MemoryDevice), nextent_testkit::Skip> {
    let args = [&["-t", "ext4", "-J", "size=8", "-G", "1"], kind].concat();
    let image = Image::make(96 << 20, &args)?;
    let base = MemoryDevice::load(&image.path()).unwrap();
    Ok((image, base))
}

/// Recovers `image` by e2fsck, as Linux distributions do at boot.
fn recovered(image: &MemoryDevice) -> Result<Arc<MemoryDevice>, String> {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = dir.path().join("image");
    image.save(&path).map_err(|error| error.to_string())?;
    match e2fs::e2fsck_recover(&path) {
        Ok(report) if !report.is_clean() => Err(format!("e2fsck: {}", report.text)),
        _ => Ok(Arc::new(MemoryDevice::load(&path).map_err(|error| error.to_string())?)),
    }
}

fn open(device: Arc<MemoryDevice>) -> Result<Inodes, String> {
    Inodes::open(device, &OpenOptions::default()).map_err(|error| format!("open: {error}"))
}

const HOW: Compare =
    Compare { times: true, root: false, owners: true, dir_sizes: true, xattrs: true, holes: true };

/// The image after a power cut now.
fn image_now(device: &RecordingDevice<MemoryDevice>) -> MemoryDevice {
    let recording = device.recording();
    recording.image_at(recording.events().len())
}

fn has_fast_commits(image: &MemoryDevice) -> bool {
    open(Arc::new(image.snapshot())).unwrap().recovery().fast_commits > 0
}

/// Repeats a sync until it is a fast commit. Syncs are full commits until the checkpoint thread has
/// written all transactions in place, which may take long on a busy machine.
fn sync_until_fast(device: &RecordingDevice<MemoryDevice>, sync: impl Fn()) {
    for _ in 0..1000 {
        if has_fast_commits(&image_now(device)) {
            return;
        }
        thread::sleep(Duration::from_millis(10));
        sync();
    }
}

/// Recovers the image after each of many syncs. Before a sync the test makes directories and files
/// in other groups, unlinks files, and then grows a file, which a fast commit records.
#[test]
fn after_each_sync() {
    for kind in KINDS {
        let (_image, base) = need!(make(kind));
        let device = Arc::new(RecordingDevice::new(base));
        let options = OpenOptions::new().commit_interval(Duration::from_secs(600));
        let volume = Inodes::open(device.clone(), &options).unwrap();
        let fs = VolumeFs(&volume);
        fs.create("/kept", 0o644).unwrap();
        fs.fsync("/kept").unwrap();
        let mut fast = 0;
        for n in 0..7u64 {
            let dir = format!("/dir{n}");
            fs.mkdir(&dir, 0o755).unwrap();
            for file in ["a", "b", "c"] {
                fs.create(&format!("{dir}/{file}"), 0o644).unwrap();
                fs.write(&format!("{dir}/{file}"), 0, &vec![n as u8 + 1; 30_000]).unwrap();
            }
            fs.unlink(&format!("{dir}/b")).unwrap();
            if n == 5 {
                fs.truncate(&format!("{dir}/c"), 5 << 30).unwrap();
            }
            fs.fsync(&dir).unwrap();
            for grown in 0..3 {
                let write_and_sync = || {
                    fs.write("/kept", (n * 3 + grown) * 2000, &[9; 2000]).unwrap();
                    fs.fsync("/kept").unwrap();
                };
                write_and_sync();
                if fast == 0 && grown == 2 {
                    sync_until_fast(&device, write_and_sync);
                }
                let wanted = walk(&VolumeTree(&volume)).unwrap();
                let cut = image_now(&device);
                fast += usize::from(has_fast_commits(&cut));
                let text = |error| panic!("{kind:?}, round {n}, {grown}: {error}");
                let done = recovered(&cut).unwrap_or_else(text);
                let found = open(done).unwrap();
                let differs = diff(&wanted, &walk(&VolumeTree(&found)).unwrap(), &HOW);
                assert!(differs.is_empty(), "{kind:?}, round {n}, {grown}: {differs:?}");
            }
        }
        assert!(fast > 0, "{kind:?}: no fast commits");
        common::close(&volume);
    }
}

/// Whether the log has a durable full commit and, still, the fast commits before it. e2fsck 1.47.0
/// then stops and loses the log. Linux never erases them; the engine does at the next flush.
fn has_void_fast_commits(image: &MemoryDevice) -> Result<bool, String> {
    let bytes = image.to_bytes();
    let block = 1024 << bytes[1024 + 24];
    let some = bytes.chunks(block).any(|block| block.starts_with(&[9, 0, 8, 0, 0, 0, 0, 0]));
    Ok(some && open(Arc::new(image.snapshot()))?.recovery().fast_commits == 0)
}

/// Number of changes of every kind per file.
const STEPS: usize = 30;

#[test]
fn power_cuts() {
    for (seed, kind) in (40..).zip(KINDS) {
        let (_image, base) = need!(make(kind));
        let device = Arc::new(RecordingDevice::new(base));
        let volume = Inodes::open(device.clone(), &OpenOptions::default()).unwrap();
        let fs = VolumeFs(&volume);
        thread::scope(|scope| {
            let (fs, device) = (&fs, &device);
            scope.spawn(move || append_with_promises(fs, device, 0, 12, 3000).unwrap());
            let file = seed as u32 * 2;
            scope.spawn(move || change_with_promises(fs, device, file, STEPS).unwrap());
            run_together(fs, 2, 30, seed).unwrap();
        });
        common::close(&volume);
        let judged = AtomicUsize::new(0);
        let explorer = Explorer { seed, most: 40, ..Explorer::default() };
        let check = |image: MemoryDevice, info: &CutInfo| {
            if has_void_fast_commits(&image)? {
                return Ok(());
            }
            judged.fetch_add(1, Ordering::Relaxed);
            let volume = open(recovered(&image)?)?;
            check_promises(&VolumeFs(&volume), info)?;
            check_changes(&VolumeFs(&volume), info, STEPS)
        };
        let report = explorer.explore(&device.recording(), check);
        let judged = judged.into_inner();
        eprintln!("{kind:?}: {judged} of {} images judged", report.checked);
        report.assert_none_failed();
        assert!(judged * 2 > report.checked, "{kind:?}: {judged} of {}", report.checked);
    }
}
