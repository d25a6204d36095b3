//! Each verb by itself, and the sizes that are special.

use std::rc::Rc;

use nextent_ondisk::{BlockNo, FileBlock, FileType, InodeNo};

use super::fake::{Fake, geometry};
use crate::dir::pages::Pages;
use crate::dir::{Cursor, DirError, Name, check_block, init, remove, seal_of};

const SIZES: [u32; 7] = [1024, 2048, 4096, 8192, 16384, 32768, 65536];

#[test]
fn a_new_directory_is_empty_and_knows_its_parent() {
    for size in SIZES {
        for csum in [false, true] {
            let dir = Fake::new(size, csum, Some(1));
            assert!(init::is_empty(&dir).unwrap());
            assert_eq!(dir.lookup(b".").unwrap(), Some(12));
            assert_eq!(dir.lookup(b"..").unwrap(), Some(2));
            assert!(dir.all().is_empty());
            remove::set_parent(&dir, InodeNo(77)).unwrap();
            assert_eq!(dir.lookup(b"..").unwrap(), Some(77));
        }
    }
}

#[test]
fn names_come_and_go() {
    let dir = Fake::new(1024, true, Some(1));
    dir.insert(b"a", 20).unwrap();
    assert_eq!(dir.insert(b"a", 21), Err(DirError::Exists));
    assert_eq!(dir.lookup(b"a").unwrap(), Some(20));
    assert!(!init::is_empty(&dir).unwrap());
    remove::replace(&dir, Name::new(b"a").unwrap(), InodeNo(30), FileType::Symlink).unwrap();
    assert_eq!(dir.lookup(b"a").unwrap(), Some(30));
    assert_eq!(dir.remove(b"a"), Ok(30));
    assert_eq!(dir.remove(b"a"), Err(DirError::NotFound));
    for dots in [&b"."[..], b".."] {
        assert_eq!(dir.insert(dots, 5), Err(DirError::NameInvalid));
        assert_eq!(dir.remove(dots), Err(DirError::NameInvalid));
    }
    assert!(init::is_empty(&dir).unwrap());
}

#[test]
fn many_names_of_every_hash_and_size() {
    for (i, size) in SIZES.into_iter().enumerate() {
        for version in 0..6 {
            let dir = Fake::new(size, (i + version as usize).is_multiple_of(2), Some(version));
            let count = 1000;
            for n in 0..count {
                dir.insert(format!("name-{n:05}").as_bytes(), n + 100).unwrap();
            }
            assert!(dir.indexed.get() || size >= 16384);
            for n in 0..count {
                let name = format!("name-{n:05}");
                assert_eq!(dir.lookup(name.as_bytes()).unwrap(), Some(n + 100));
            }
            assert_eq!(dir.all().len(), count as usize);
            assert_eq!(dir.lookup(b"name").unwrap(), None);
        }
    }
}

#[test]
fn without_the_feature_the_directory_stays_linear() {
    let dir = Fake::new(1024, true, None);
    for n in 0..500 {
        dir.insert(format!("x{n}").as_bytes(), n + 100).unwrap();
    }
    assert!(!dir.indexed.get());
    assert_eq!(dir.all().len(), 500);
}

#[test]
fn two_levels_then_full() {
    let dir = Fake::new(1024, true, Some(1));
    let name = |n: u32| format!("{n:0250}");
    let mut n = 0;
    let error = loop {
        match dir.insert(name(n).as_bytes(), n + 100) {
            Ok(()) => n += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, DirError::IndexFull);
    assert!(n > 15_000, "{n}");
    assert_eq!(dir.all().len(), n as usize);
    assert_eq!(dir.lookup(name(n).as_bytes()).unwrap(), None);
}

#[test]
fn three_levels_with_largedir() {
    let facts = geometry(1024, "filetype,metadata_csum,large_dir");
    let dir = Fake::with(facts, Some(1), [0; 4]);
    let name = |n: u32| format!("{n:0250}");
    for n in 0..50_000 {
        dir.insert(name(n).as_bytes(), n + 100).unwrap();
    }
    let levels = dir.image(FileBlock(0)).unwrap()[30];
    assert_eq!(levels, 2);
    for n in (0..50_000).step_by(37) {
        assert_eq!(dir.lookup(name(n).as_bytes()).unwrap(), Some(n + 100));
    }
    let mut cursor = Cursor::new();
    let mut seen = 0;
    loop {
        let some = dir.scan(&mut cursor, 1000).unwrap();
        if some.is_empty() {
            break;
        }
        seen += some.len();
    }
    assert_eq!(seen, 50_002);
}

#[test]
fn room_of_removed_names_is_used_again() {
    let dir = Fake::new(4096, true, Some(1));
    for n in 0..2000 {
        dir.insert(format!("first-{n}").as_bytes(), 100 + n).unwrap();
    }
    let before = dir.blocks();
    for round in 0..20 {
        for n in 0..2000 {
            let old = if round == 0 { "first".into() } else { format!("r{}", round - 1) };
            dir.remove(format!("{old}-{n}").as_bytes()).unwrap();
            dir.insert(format!("r{round}-{n}").as_bytes(), 100 + n).unwrap();
        }
    }
    assert!(dir.blocks() < before * 2, "{before} grew to {}", dir.blocks());
}

#[test]
fn every_block_takes_a_checksum_of_its_kind() {
    let dir = Fake::new(1024, true, Some(1));
    for n in 0..3000 {
        dir.insert(format!("{n:0100}").as_bytes(), 100 + n).unwrap();
    }
    remove::set_parent(&dir, InodeNo(9)).unwrap();
    let seal = seal_of(dir.info());
    let mut nodes = 0;
    for block in dir.blocks.borrow_mut().iter_mut() {
        let bytes = Rc::make_mut(block);
        assert!(check_block(dir.info(), bytes).is_err());
        (seal.f)(seal.seed, BlockNo(7), bytes);
        check_block(dir.info(), bytes).unwrap();
        nodes += u32::from(!nextent_ondisk::dirent::has_tail(bytes));
    }
    assert!(nodes >= 3, "{nodes}");
}
