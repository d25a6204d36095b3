//! Any bytes in any block: an answer or an error, never a panic or a loop.

use std::rc::Rc;

use nextent_ondisk::{FileBlock, FileType, InodeNo};
use proptest::prelude::*;

use super::fake::{Fake, geometry};
use crate::dir::pages::Pages;
use crate::dir::{Cursor, DirError, DirInfo, InlineDir, Name, init, remove};

/// Every verb once; results do not matter, coming back does.
fn all_verbs(dir: &Fake) {
    let _ = dir.lookup(b"name-00007");
    let _ = dir.lookup(b"..");
    let _ = init::is_empty(dir);
    let mut cursor = Cursor::new();
    for _ in 0..2000 {
        match dir.scan(&mut cursor, 50) {
            Ok(some) if !some.is_empty() => {}
            _ => break,
        }
    }
    let _ = dir.scan(&mut Cursor::from_cookie(u64::MAX), 50);
    let _ = remove::set_parent(dir, InodeNo(3));
    let _ = remove::replace(dir, Name::new(b"name-00008").unwrap(), InodeNo(3), FileType::Fifo);
    let _ = dir.remove(b"name-00009");
    for n in 0..40 {
        let _ = dir.insert(format!("new-{n:0200}").as_bytes(), 50);
    }
}

fn built(csum: bool, version: Option<u8>, count: u32) -> Fake {
    let dir = Fake::new(1024, csum, version);
    for n in 0..count {
        dir.insert(format!("name-{n:05}").as_bytes(), n + 100).unwrap();
    }
    dir
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn flipped_bytes(
        csum: bool,
        version in prop::option::of(0..6u8),
        count in prop::sample::select(vec![3u32, 30, 600]),
        flips in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..1024usize, any::<u8>()),
            1..12,
        ),
    ) {
        let dir = built(csum, version, count);
        for (block, at, value) in flips {
            let n = block.index(dir.blocks() as usize);
            // Half of the changes go to the heads of blocks, where the index has its fields.
            let at = if at % 2 == 0 { at / 16 } else { at };
            dir.poke(n, at, value);
        }
        all_verbs(&dir);
    }

    #[test]
    fn random_blocks(
        csum: bool,
        indexed: bool,
        blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1024), 1..5),
    ) {
        let dir = built(csum, Some(1), 1);
        dir.indexed.set(indexed);
        *dir.blocks.borrow_mut() = blocks.into_iter().map(Rc::new).collect();
        all_verbs(&dir);
    }

    #[test]
    fn inline_bytes(
        area in prop::collection::vec(any::<u8>(), 0..61),
        more in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let geometry = geometry(1024, "filetype");
        let facts = DirInfo { ino: InodeNo(12), geometry: &geometry, seed: 0, index: None };
        if let Ok(dir) = InlineDir::new(facts, &area, &more) {
            let _ = dir.is_empty();
            let _ = dir.lookup(Name::new(b"x").unwrap());
            let _ = dir.iterate(&mut Cursor::new(), |_| std::ops::ControlFlow::Continue(()));
        }
    }
}

#[test]
fn an_index_that_leads_in_circles_ends_in_an_error() {
    let dir = built(true, Some(1), 600);
    let count = dir.image(FileBlock(0)).unwrap()[34];
    assert!(count > 3);
    for slot in 1..usize::from(count) {
        // Every leaf is the first one, under hashes that promise more of the same.
        let at = 32 + 8 * slot;
        for (i, byte) in [1, 0, 0, 0, 1, 0, 0, 0].into_iter().enumerate() {
            dir.poke(0, at + i, byte);
        }
    }
    let error = dir.scan(&mut Cursor::new(), usize::MAX).unwrap_err();
    assert!(error.to_string().contains("inode 12, block 100"), "{error}");
    assert!(matches!(error, DirError::Corrupt(_)));
}

#[test]
fn a_damaged_index_hides_no_name() {
    let dir = built(true, Some(1), 600);
    for damage in [(28, 9u8), (29, 7), (30, 5), (32, 1), (34, 0), (24, 1)] {
        let saved = dir.image(FileBlock(0)).unwrap()[damage.0];
        dir.poke(0, damage.0, damage.1);
        for n in 0..600 {
            let name = format!("name-{n:05}");
            assert_eq!(dir.lookup(name.as_bytes()).unwrap(), Some(n + 100), "{damage:?}");
        }
        assert!(matches!(dir.insert(b"more", 7), Err(DirError::Corrupt(_))), "{damage:?}");
        dir.poke(0, damage.0, saved);
    }
    dir.poke(0, 28, 200);
    assert_eq!(dir.all().len(), 600);
}
