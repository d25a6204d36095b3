//! Compares every estimate with what the smallest journals grant.

use super::*;
use crate::OpenOptions;
use crate::map::MapKind;
use crate::mkfs::{self, FsType, JournalOptions, MkfsOptions};
use crate::ops::Inodes;
use nextent_device::MemoryDevice;
use nextent_ondisk::extent;
use nextent_sync::Arc;

/// Roots of every depth that the format allows.
fn roots() -> Vec<MapRoot> {
    let mut roots = vec![MapRoot::empty(MapKind::Indirect)];
    for depth in 0..=extent::MAX_DEPTH {
        let mut bytes = [0; 60];
        extent::NodeMut::init(&mut bytes, depth);
        roots.push(MapRoot::unchecked(MapKind::Extents, &bytes));
    }
    roots
}

/// The most expensive insertion of a name: an index as deep as the format allows.
const DEEPEST: InsertCost = InsertCost { changes: 4, appends: 5 };

/// The estimates of all operations; those that change a map change one like `root`.
fn estimates(root: &MapRoot, geometry: &Geometry) -> Vec<(&'static str, u32)> {
    let entry = entry(DEEPEST, root, geometry);
    let most = map::max_insert_len(root, geometry);
    let mut all = vec![
        ("create", create(entry)),
        ("link", link(entry)),
        ("rename", rename(entry)),
        ("rename, leaving a whiteout", rename_leaving_whiteout(entry)),
        ("create, replayed", FIRST_BLOCK + entry),
        ("tmpfile", TMPFILE),
        ("unlink", UNLINK),
        ("setattr", XATTR + INODE),
        ("reap", REAP),
        ("removal", REMOVAL),
        ("punch", PUNCH),
        ("write", insert_run(root, geometry, most)),
        ("shared write", insert_run_shared(root, geometry, most)),
        ("convert", convert_shared(root)),
        ("remove", remove(root, geometry) + ORPHAN),
        ("shift", shift(root)),
    ];
    for contents in [map::BlockKind::Data, map::BlockKind::Metadata] {
        let at_once = map::remove_all_credits(root, geometry, contents);
        all.push(("truncate", at_once.unwrap_or(0) + RUN + 2 * ORPHAN));
    }
    all
}

/// A volume with the smallest journal that mkfs makes, and the credits that a handle may get there.
fn smallest(block_size: u32, blocks_per_group: Option<u32>, features: &str) -> (Geometry, u32) {
    let journal = JournalOptions { size: Some(1024 * u64::from(block_size)), ..Default::default() };
    let options = MkfsOptions {
        fs_type: FsType::Ext4,
        block_size: Some(block_size),
        blocks_per_group,
        inode_count: Some(512),
        features: features.to_owned(),
        journal,
        ..MkfsOptions::default()
    };
    let device = Arc::new(MemoryDevice::new(12_000 * u64::from(block_size)));
    mkfs::make(&*device, &options).expect("it is made");
    let volume = Inodes::open(device, &OpenOptions::default()).expect("it opens");
    (volume.geometry().clone(), volume.fs.store.max_credits())
}

#[test]
fn every_estimate_fits_the_smallest_journal() {
    let features = ["", "^metadata_csum,^64bit", "fast_commit", "orphan_file", "^flex_bg"];
    let mut highest = 0;
    for block_size in [1024, 2048, 4096, 65536] {
        for (blocks_per_group, features) in [Some(256), Some(512), Some(2048), None]
            .into_iter()
            .flat_map(|groups| features.map(|features| (groups, features)))
        {
            let (geometry, granted) = smallest(block_size, blocks_per_group, features);
            assert!(LARGEST <= granted, "{block_size} {features}: {granted} are granted");
            for root in roots() {
                for (what, credits) in estimates(&root, &geometry) {
                    let depth = root.depth();
                    let place = format!("{what}: {credits}, a map of depth {depth}, {geometry:?}");
                    assert!(credits <= LARGEST, "{place}");
                    highest = highest.max(credits);
                }
            }
        }
    }
    assert!(highest + 10 >= LARGEST, "the highest estimate is {highest}");
}
