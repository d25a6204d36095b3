//! Any bytes as an image. Each call has a result or an error of one line. No call may panic, hang
//! or allocate more memory than the image's size.

mod common;
mod damage;

use damage::{KINDS, Part, TIME_LIMIT, base, exercise};
use nextent_device::MemoryDevice;
use nextent_sync::Instant;
use nextent_testkit::{Rng, need};

fn run((kind, args): (&str, &[&str]), part: Part, seeds: std::ops::Range<u64>) {
    let base = need!(base(args, part));
    for seed in seeds {
        let began = Instant::now();
        // Printed before the run, so that a hang has its seed in the output.
        println!("{kind} {part:?} seed {seed}");
        exercise(&base.damaged(seed));
        let took = began.elapsed();
        assert!(took < TIME_LIMIT, "{kind}: {part:?} seed {seed} took {took:?}");
    }
}

#[test]
fn random_bytes() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let len = rng.below(1 << 17) as usize;
        let mut bytes = rng.bytes(len);
        if len > 2048 && seed % 2 == 0 {
            // A valid magic number, so that the other fields are read.
            bytes[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        }
        exercise(&MemoryDevice::from_bytes(&bytes));
    }
}

#[test]
fn damage_anywhere() {
    for kind in KINDS {
        run(kind, Part::Anything, 0..40);
    }
}

#[test]
fn damaged_heads() {
    for kind in KINDS {
        run(kind, Part::Head, 100..160);
    }
}

#[test]
fn damaged_directories() {
    for kind in KINDS {
        run(kind, Part::Directories, 200..240);
    }
}

#[test]
fn damaged_maps() {
    for kind in KINDS {
        run(kind, Part::Maps, 300..340);
    }
}

#[test]
fn damaged_journals() {
    run(KINDS[0], Part::Journal, 400..460);
    run(KINDS[1], Part::Journal, 500..530);
}
