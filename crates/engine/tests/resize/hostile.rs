//! Damaged images: a resize refuses them before it writes, or does not touch what is damaged. It
//! never panics and always ends.

use nextent::check::{CheckOptions, Severity, check};
use nextent::resize::{ResizeOptions, minimum_blocks, resize};
use nextent_device::{BlockDevice, Event, MemoryDevice, RecordingDevice};
use nextent_sync::{Arc, Instant};
use nextent_testkit::need;

use super::damage::{Part, TIME_LIMIT, base};
use super::volume::with_size;

/// Small blocks, several groups, and no checksums.
const KINDS: [(&str, &[&str]); 3] = [
    ("ext4", &["-t", "ext4", "-b", "1024", "-g", "1024", "-J", "size=1", "-O", NO_SUMS]),
    ("ext3", &["-t", "ext3", "-b", "1024", "-g", "1024", "-J", "size=1", "-I", "128"]),
    ("ext2", &["-t", "ext2", "-b", "1024", "-g", "2048"]),
];
const NO_SUMS: &str = "^metadata_csum,^64bit,^resize_inode";

/// Whether the check finds a rule broken, so that a resize that moves something refuses the volume.
fn is_damaged(image: &MemoryDevice) -> bool {
    let mut options = CheckOptions::default();
    options.workers = 1;
    let report = check(Arc::new(image.snapshot()), &options, &|_| ());
    report.map_or(true, |report| {
        report.problems.iter().any(|problem| problem.severity == Severity::Error)
    })
}

/// Resizes a copy of `image`. Returns whether it was written.
fn try_resize(image: &MemoryDevice, blocks: u64, unchecked: bool) -> (nextent::Result<()>, bool) {
    let larger = with_size(image, (blocks * 1024).clamp(image.size(), 64 << 20));
    let recorded = Arc::new(RecordingDevice::new(larger));
    let mut options = ResizeOptions::default();
    options.unchecked = unchecked;
    let device: Arc<dyn BlockDevice> = recorded.clone();
    let result = resize(&device, blocks, &options, &|_| ()).map(drop);
    if let Err(error) = &result {
        let text = error.to_string();
        assert!(!text.is_empty() && !text.contains('\n'), "not one line: {text:?}");
    }
    let recording = recorded.recording();
    let written = recording.events().iter().any(|event| !matches!(event, Event::Flush { .. }));
    (result, written)
}

/// `recovers`: the volume needs recovery, which writes and may repair it.
fn exercise(what: &str, image: &MemoryDevice, recovers: bool) {
    let device: Arc<dyn BlockDevice> = Arc::new(image.snapshot());
    let _ = minimum_blocks(&device);
    let damaged = is_damaged(image);
    for blocks in [5000, 3000] {
        let (result, written) = try_resize(image, blocks, false);
        if damaged && !recovers {
            assert!(result.is_err() && !written, "{what}: {blocks} blocks: {result:?}, {written}");
        }
        let _ = try_resize(image, blocks, true);
    }
    let _ = try_resize(image, 20_000, false);
    let _ = try_resize(image, 40_000, true);
}

fn run((kind, args): (&str, &[&str]), part: Part, seeds: std::ops::Range<u64>) {
    let base = need!(base(args, part));
    for seed in seeds {
        let began = Instant::now();
        let what = format!("{kind} {part:?} seed {seed}");
        // Printed before the run, so that a hang has its seed in the output.
        println!("{what}");
        exercise(&what, &base.damaged(seed), part == Part::Journal);
        let took = began.elapsed();
        assert!(took < TIME_LIMIT, "{what} took {took:?}");
    }
}

/// Seeds of each kind and part.
fn seeds(first: u64) -> std::ops::Range<u64> {
    let count = std::env::var("NEXTENT_TRIALS").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    first..first + count
}

#[test]
fn damage_anywhere() {
    for kind in KINDS {
        run(kind, Part::Anything, seeds(0));
    }
}

#[test]
fn damaged_heads() {
    for kind in KINDS {
        run(kind, Part::Head, seeds(1000));
    }
}

#[test]
fn damaged_directories() {
    for kind in KINDS {
        run(kind, Part::Directories, seeds(2000));
    }
}

#[test]
fn damaged_maps() {
    for kind in KINDS {
        run(kind, Part::Maps, seeds(3000));
    }
}

#[test]
fn damaged_journals() {
    run(KINDS[0], Part::Journal, seeds(4000));
    run(KINDS[1], Part::Journal, seeds(5000));
}
