//! Random changes to several inodes against maps.

use std::collections::BTreeMap;

use nextent_ondisk::xattr;
use proptest::prelude::*;

use super::fixture::{FakeInode, Fixture, name};
use crate::Error;
use crate::xattr::{create, drop_all, list, replace};

const NAMES: [&str; 6] =
    ["user.a", "user.name", "trusted.overlay.opaque", "security.selinux", "user.b", "gnu.x"];

#[derive(Clone, Debug)]
enum Op {
    Put(usize, usize, u16),
    Create(usize, usize, u16),
    Replace(usize, usize, u16),
    Remove(usize, usize),
    Drop(usize),
    Sync,
}

fn op() -> impl Strategy<Value = Op> {
    let which = || (0..5usize, 0..NAMES.len());
    let size = || prop_oneof![0..60u16, prop::sample::select(vec![200u16, 700, 900, 2000, 5000])];
    prop_oneof![
        6 => (which(), size()).prop_map(|((i, n), s)| Op::Put(i, n, s)),
        2 => (which(), size()).prop_map(|((i, n), s)| Op::Create(i, n, s)),
        2 => (which(), size()).prop_map(|((i, n), s)| Op::Replace(i, n, s)),
        3 => which().prop_map(|(i, n)| Op::Remove(i, n)),
        1 => (0..5usize).prop_map(Op::Drop),
        1 => Just(Op::Sync),
    ]
}

/// Few different values, so that inodes often have the same attributes.
fn value(n: usize, size: u16) -> Vec<u8> {
    vec![b'a' + n as u8; usize::from(size)]
}

type Model = BTreeMap<&'static str, Vec<u8>>;

/// Applies a change to inode and model; a change refused for want of space changes neither.
fn apply(f: &Fixture, inode: &mut FakeInode, model: &mut Model, op: &Op) {
    let (n, size) = match *op {
        Op::Put(_, n, size) | Op::Create(_, n, size) | Op::Replace(_, n, size) => (n, size),
        Op::Remove(_, n) => (n, 0),
        _ => return,
    };
    let (full, bytes) = (NAMES[n], value(n, size));
    let there = model.contains_key(full);
    let done = match op {
        Op::Put(..) => f.put(inode, full, &bytes),
        Op::Create(..) => {
            f.change(inode, |cx, h, storage| create(cx, h, storage, name(full), &bytes))
        }
        Op::Replace(..) => {
            f.change(inode, |cx, h, storage| replace(cx, h, storage, name(full), &bytes))
        }
        _ => f.remove(inode, full),
    };
    match (done, op) {
        (Ok(()), Op::Remove(..)) => assert!(model.remove(full).is_some()),
        (Ok(()), Op::Create(..)) => assert!(model.insert(full, bytes).is_none()),
        (Ok(()), Op::Replace(..)) => assert!(model.insert(full, bytes).is_some()),
        (Ok(()), _) => drop(model.insert(full, bytes)),
        (Err(Error::Exists), Op::Create(..)) => assert!(there),
        (Err(Error::NoData), Op::Remove(..) | Op::Replace(..)) => assert!(!there),
        (
            Err(Error::NoSpace | Error::AttributesFull),
            Op::Put(..) | Op::Create(..) | Op::Replace(..),
        ) => {
            let mut wanted = model.clone();
            wanted.insert(full, bytes);
            let need = |(full, value): (&&str, &Vec<u8>)| {
                let rest = name(full).rest.len();
                xattr::entry_len(rest) + xattr::padded(value.len())
            };
            let need: usize = wanted.iter().map(need).sum();
            assert!(need + 36 > f.store.block_size(), "{op:?} needs {need}");
        }
        (Err(error), _) => panic!("{op:?}: {error}"),
    }
}

fn check(f: &Fixture, inode: &FakeInode, model: &Model) {
    let mut names = list(&f.cx(), &inode.area, inode.block).unwrap();
    names.sort();
    let mut expected: Vec<_> = model.keys().map(|name| name.as_bytes().to_vec()).collect();
    expected.sort();
    assert_eq!(names, expected);
    for (full, value) in model {
        assert_eq!(&f.get(inode, full).unwrap(), value);
    }
    for full in NAMES.iter().filter(|full| !model.contains_key(*full)) {
        assert!(matches!(f.get(inode, full), Err(Error::NoData)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_changes_agree_with_maps(
        ops in prop::collection::vec(op(), 1..120),
        large: bool,
        csum: bool,
    ) {
        let f = Fixture::new(if large { 4096 } else { 1024 }, csum);
        let mut inodes: Vec<_> = [0, 96, 96, 32, 800].into_iter().map(FakeInode::new).collect();
        let mut models = vec![Model::new(); inodes.len()];
        for op in &ops {
            match *op {
                Op::Put(i, ..) | Op::Create(i, ..) | Op::Replace(i, ..) | Op::Remove(i, _) => {
                    apply(&f, &mut inodes[i], &mut models[i], op);
                    check(&f, &inodes[i], &models[i]);
                }
                Op::Drop(i) => {
                    f.change(&mut inodes[i], drop_all).unwrap();
                    let area = inodes[i].area.len();
                    (inodes[i], models[i]) = (FakeInode::new(area), Model::new());
                }
                Op::Sync => f.store.sync_all().unwrap(),
            }
            f.check_references(&inodes);
        }
        for (inode, model) in inodes.iter().zip(&models) {
            check(&f, inode, model);
        }
        for inode in &mut inodes {
            f.change(inode, drop_all).unwrap();
        }
        prop_assert!(f.space.used().is_empty());
    }

    #[test]
    fn no_bytes_panic(
        mut area in prop::collection::vec(any::<u8>(), 0..120),
        mut block in prop::collection::vec(any::<u8>(), 1024),
    ) {
        let f = Fixture::new(1024, false);
        for bytes in [&mut area, &mut block] {
            if bytes.len() > 12 {
                bytes[..4].copy_from_slice(&0xEA02_0000u32.to_le_bytes());
                bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
            }
        }
        let mut inode = FakeInode::new(0);
        f.put(&mut inode, "user.first", b"value").unwrap();
        let h = f.store.start(4).unwrap();
        let meta = f.cx().block_to_change(inode.block).unwrap();
        h.update(&meta, |bytes| bytes.copy_from_slice(&block));
        h.stop();
        inode.area = area;
        let _ = list(&f.cx(), &inode.area, inode.block);
        let _ = f.get(&inode, "user.a");
        let _ = f.put(&mut inode, "user.a", b"value");
        let _ = f.remove(&mut inode, "user.a");
        let _ = f.change(&mut inode, drop_all);
    }
}
