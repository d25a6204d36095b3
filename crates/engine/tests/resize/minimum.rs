//! The fewest blocks: enough, nearly as few as resize2fs finds, and refused below.

use std::path::Path;

use nextent::Error;
use nextent_device::{Event, MemoryDevice, RecordingDevice};
use nextent_sync::Arc;
use nextent_testkit::{Rng, Skip, e2fs, need};

use super::contents::Contents;
use super::files::Fill;
use super::volume::{ImageFile, Numbers, Spec, make, minimum, resize, resized, verify};

/// The minimum that resize2fs estimates.
fn estimate(device: &MemoryDevice) -> Result<u64, Skip> {
    let file = ImageFile::of(device);
    let output = e2fs::run("resize2fs", [Path::new("-P"), &file.path()])?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.trim().rsplit(' ').next().and_then(|n| n.parse().ok()).expect(&text))
}

fn check(args: &str, seed: u64) -> Result<(), Skip> {
    let mut rng = Rng::new(seed);
    let fill = Fill { seed, names: rng.below(200) as usize, percent: 10 + rng.below(86) };
    let what = format!("{args}, {fill:?}");
    let mib = 10 + rng.below(10);
    let base = make(&Spec {
        name: "minimum",
        mib,
        args: args.into(),
        tune: &[],
        debugfs: &[],
        linux: None,
        fill,
    })?;
    let before = Contents::read(&base).unwrap_or_else(|text| panic!("{what}: {text}"));
    let old = Numbers::read(&base).unwrap();
    let fewest = minimum(&base).unwrap_or_else(|error| panic!("{what}: {error}"));
    let theirs = estimate(&base)?;
    let bound = theirs + theirs / 10 + 100;
    assert!(fewest <= bound.min(old.blocks), "{what}: {fewest} blocks, {theirs} of resize2fs");
    let small = resized(&base, fewest).unwrap_or_else(|error| panic!("{what}: {error}"));
    verify(&small, &before).unwrap_or_else(|text| panic!("{what}: {text}"));
    let again = minimum(&small).unwrap_or_else(|error| panic!("{what}: again: {error}"));
    assert!(again <= fewest, "{what}: first {fewest} blocks, then {again}");
    match resized(&base, fewest - 1) {
        Ok(smaller) => verify(&smaller, &before).unwrap_or_else(|text| panic!("{what}: {text}")),
        Err(Error::NoSpace) => {}
        Err(error) => panic!("{what}: one block below the minimum: {error}"),
    }
    refused(&what, &base, fewest / 2);
    Ok(())
}

/// A size far below the minimum is refused before the first write.
fn refused(what: &str, base: &MemoryDevice, blocks: u64) {
    let device = Arc::new(RecordingDevice::new(base.snapshot()));
    let result = resize(device.clone(), blocks);
    assert!(matches!(result, Err(Error::NoSpace)), "{what}: {blocks} blocks: {result:?}");
    let recording = device.recording();
    let changes = recording.events().iter().any(|event| !matches!(event, Event::Flush { .. }));
    assert!(!changes, "{what}: a refused resize wrote to the device");
}

#[test]
fn of_ext4() {
    for seed in 1..3 {
        need!(check("-t ext4 -b 1024 -g 1024 -N 3000 -J size=1", seed));
    }
}

#[test]
fn of_ext2() {
    for seed in 4..5 {
        need!(check("-t ext2 -b 1024 -g 2048 -N 1500", seed));
    }
}

#[test]
fn of_blocks_of_4k() {
    for seed in 6..7 {
        need!(check("-t ext4 -b 4096 -g 512 -N 1500 -J size=4", seed));
    }
}
