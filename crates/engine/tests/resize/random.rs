//! Random sequences of resizes and changes of files. `NEXTENT_SEED` and `NEXTENT_TRIALS` choose the
//! first seed and the number of sequences, `NEXTENT_STEPS` their length.

use nextent_device::MemoryDevice;
use nextent_sync::Arc;
use nextent_testkit::{Rng, Skip, need};

use super::common::close;
use super::contents::Contents;
use super::files::{self, Fill};
use super::volume::{Numbers, Spec, make, minimum, open, resized, verify};

/// The largest volume, in bytes.
const LARGEST: u64 = 72 << 20;

const KINDS: [&str; 8] = [
    "-t ext4 -b 1024 -g 1024 -J size=1 -E resize=40000",
    "-t ext4 -b 1024 -g 1024 -J size=1 -O ^resize_inode,^flex_bg",
    "-t ext4 -b 1024 -g 1024 -J size=1 -O meta_bg,^resize_inode",
    "-t ext4 -b 1024 -g 2048 -J size=1 -O orphan_file,metadata_csum_seed -G 2",
    "-t ext4 -b 2048 -g 512 -J size=2 -O sparse_super2,^resize_inode,^64bit",
    "-t ext4 -b 4096 -g 256 -J size=4 -O uninit_bg,^metadata_csum",
    "-t ext3 -b 1024 -g 512 -J size=1 -E resize=30000",
    "-t ext2 -b 1024 -g 1024 -I 128",
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn run(seed: u64, steps: u64) -> Result<(), Skip> {
    let mut rng = Rng::new(seed);
    let args = KINDS[(seed % KINDS.len() as u64) as usize];
    let fill = Fill { seed, names: rng.below(300) as usize, percent: 20 + rng.below(75) };
    let spec = Spec {
        name: "random",
        mib: 14 + rng.below(11),
        args: format!("{args} -N {}", 1500 + rng.below(2000)),
        tune: &[],
        debugfs: &[],
        linux: None,
        fill,
    };
    let mut what = format!("NEXTENT_SEED={seed}, {spec:?}:");
    let mut device = make(&spec)?;
    for _ in 0..steps {
        let now = Numbers::read(&device).unwrap();
        let most = LARGEST / now.block_size;
        match rng.below(10) {
            0..3 => {
                what.push_str(" change");
                device = changed(&device, &mut rng);
            }
            kind => {
                let fewest = minimum(&device).unwrap_or_else(|error| panic!("{what}: {error}"));
                let blocks = match kind {
                    3 => fewest,
                    4..6 => fewest + rng.below((now.blocks - fewest).max(1)),
                    6..8 => now.blocks + rng.below(3 * now.group_blocks),
                    _ => fewest + rng.below(most.saturating_sub(fewest).max(1)),
                };
                what.push_str(&format!(" {blocks}"));
                let before = Contents::read(&device).unwrap_or_else(|e| panic!("{what}: {e}"));
                let new = resized(&device, blocks).unwrap_or_else(|e| panic!("{what}: {e}"));
                verify(&new, &before).unwrap_or_else(|text| panic!("{what}: {text}"));
                device = new;
            }
        }
    }
    Ok(())
}

fn changed(device: &MemoryDevice, rng: &mut Rng) -> MemoryDevice {
    let device = Arc::new(device.snapshot());
    let volume = open(&device).unwrap();
    files::change(&volume, rng);
    close(&volume);
    drop(volume);
    device.snapshot()
}

#[test]
fn resizes_and_changes() {
    let first = number("NEXTENT_SEED", 1);
    for seed in first..first + number("NEXTENT_TRIALS", 8) {
        need!(run(seed, number("NEXTENT_STEPS", 4)));
    }
}
