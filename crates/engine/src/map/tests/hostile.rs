//! Corrupt maps cause errors, never a panic or an endless loop.

use super::super::*;
use super::fixture::{Fixture, SYSTEM};
use nextent_ondisk::extent::{Index, NodeMut};
use proptest::prelude::*;

/// Calls each operation and ignores its result. Removal is last because it changes most.
fn try_all(f: &mut Fixture, at: u32) {
    f.look(|cx, root| {
        let _ = lookup(cx, root, FileBlock(at), 1000);
        let _ = extents(cx, root, FileBlock(at)).take(5000).count();
        let _ = count_nodes(cx, root);
        let _ = next_data(cx, root, FileBlock(at), FileBlock(at.saturating_add(1000)));
    });
    let run = BlockRun { start: BlockNo(7_000_000), len: 3 };
    let range = FileBlock(at)..FileBlock(at.saturating_add(500));
    f.with(120, |cx, h, root| {
        let _ = insert(cx, h, root, FileBlock(at), run, ExtentState::Written);
        let _ = convert(cx, h, root, range.clone());
        let end = range.end;
        let mut runs = [FileBlock(0)..FileBlock(3), FileBlock(7)..FileBlock(8), range.clone()];
        runs[2].start = runs[2].start.max(FileBlock(9)).min(end);
        let _ = convert_runs(cx, h, root, &mut runs);
        let _ = mark_unwritten(cx, h, root, range.clone());
        let _ = shift_left(cx, h, root, FileBlock(at), 1);
        let _ = shift_right(cx, h, root, range.clone(), 5);
        let _ = remove(cx, h, root, range);
    });
}

/// Makes `bytes` a node with a plausible header and arbitrary entries.
fn make_header(bytes: &mut [u8], depth: u16, first: u32) {
    let entries = bytes[2] % 6 + 1;
    let copy = bytes.to_vec();
    NodeMut::init(bytes, depth);
    bytes[12..].copy_from_slice(&copy[12..]);
    bytes[2] = entries;
    let mut node = NodeMut::new(bytes).expect("has the magic number");
    node.set_key(0, FileBlock(first));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_as_an_extent_tree(
        root in proptest::collection::vec(any::<u8>(), 60),
        inner in proptest::collection::vec(any::<u8>(), 1024),
        leaf in proptest::collection::vec(any::<u8>(), 1024),
        dressed in 0..4u8,
        at in prop_oneof![0..100u32, any::<u32>()],
    ) {
        let mut f = Fixture::lenient(MapKind::Extents, 1024);
        let (mut root, mut inner, mut leaf) = (root, inner, leaf);
        if dressed > 0 {
            NodeMut::init(&mut root, 2)
                .insert_index(0, Index { block: FileBlock(3), child: BlockNo(500) });
        }
        if dressed > 1 {
            make_header(&mut inner, 1, 3);
            NodeMut::new(&mut inner).expect("node").set_index(
                0, Index { block: FileBlock(3), child: BlockNo(501) });
        }
        if dressed > 2 {
            make_header(&mut leaf, 0, 3);
        }
        f.put(500, &inner);
        f.put(501, &leaf);
        f.root = MapRoot::unchecked(MapKind::Extents, &root);
        let checked = MapRoot::load(
            MapKind::Extents, *f.root.bytes(), nextent_ondisk::InodeNo(12), &f.geometry);
        prop_assert!(dressed > 0 || checked.is_err() || root[2] == 0);
        try_all(&mut f, at);
    }

    #[test]
    fn arbitrary_bytes_as_an_indirect_map(
        mut root in proptest::collection::vec(any::<u8>(), 60),
        table in proptest::collection::vec(any::<u8>(), 1024),
        loops: bool,
        at in prop_oneof![0..100u32, 0..70000u32, any::<u32>()],
    ) {
        let mut f = Fixture::lenient(MapKind::Indirect, 1024);
        if loops {
            // Each table is block 500, whose pointers are all 500.
            root[48..].copy_from_slice(&[0xf4, 1, 0, 0].repeat(3));
            f.put(500, &[0xf4, 1, 0, 0].repeat(256));
        } else {
            root[48..].copy_from_slice(&[0xf4, 1, 0, 0].repeat(3));
            f.put(500, &table);
        }
        f.root = MapRoot::unchecked(MapKind::Indirect, &root);
        try_all(&mut f, at);
    }
}

#[test]
fn errors_name_inode_and_block() {
    let mut f = Fixture::new(MapKind::Extents, 1024);
    for i in 0..100 {
        f.insert(i * 2, 100_000 + u64::from(i) * 2, 1, ExtentState::Written).expect("room");
    }
    let mut nodes = Vec::new();
    f.look(|cx, root| visit_nodes(cx, root, &mut |no, _| nodes.push(no)).expect("visit"));
    f.put(nodes[0].get(), &[0x55; 1024]);
    let error = f.look(|cx, root| lookup(cx, root, FileBlock(0), 1)).expect_err("damaged");
    let text = error.to_string();
    assert!(text.contains("inode 12"), "{text}");
    assert!(text.contains(&format!("block {}", nodes[0])), "{text}");
}

/// The block is in the cache, read as another structure, when it is first used as a node or a
/// table.
#[test]
fn entries_that_map_the_system_zone_are_refused() {
    let own = BlockNo(SYSTEM - 1);
    let mut f = Fixture::lenient(MapKind::Extents, 1024);
    let mut root = [0; 60];
    NodeMut::init(&mut root, 1).insert_index(0, Index { block: FileBlock(0), child: BlockNo(500) });
    let mut leaf = vec![0; 1024];
    let extent = |at, start| nextent_ondisk::extent::Extent {
        block: FileBlock(at),
        len: 1,
        start,
        unwritten: false,
    };
    NodeMut::init(&mut leaf, 0).insert_extent(0, extent(0, BlockNo(5000)));
    NodeMut::new(&mut leaf).expect("a node").insert_extent(1, extent(9, own));
    f.put(500, &leaf);
    f.root = MapRoot::unchecked(MapKind::Extents, &root);
    assert_refused(&mut f, own);

    let mut f = Fixture::lenient(MapKind::Indirect, 1024);
    let mut root = [0; 60];
    nextent_ondisk::indirect::set_pointer(&mut root, 12, BlockNo(500));
    let mut table = vec![0; 1024];
    nextent_ondisk::indirect::set_pointer(&mut table, 0, BlockNo(5000));
    nextent_ondisk::indirect::set_pointer(&mut table, 200, own);
    f.put(500, &table);
    f.root = MapRoot::unchecked(MapKind::Indirect, &root);
    assert_refused(&mut f, own);
}

fn assert_refused(f: &mut Fixture, own: BlockNo) {
    let at = FileBlock(if f.root.kind() == MapKind::Indirect { 12 } else { 0 });
    let range = at..FileBlock(at.get() + 3);
    let looked = f.look(|cx, root| lookup(cx, root, at, 1)).expect_err("a lookup");
    let removed = f.with(120, |cx, h, root| remove(cx, h, root, range)).expect_err("a removal");
    for error in [looked, removed] {
        let text = error.to_string();
        let named = ["inode 12", "block 500", &own.to_string()];
        assert!(named.iter().all(|word| text.contains(word)), "{text}");
    }
}

/// A block that another structure shares may change after it was checked as a node. Keys that no
/// longer rise must not make a walk go back.
#[test]
fn keys_out_of_order_end_every_walk() {
    let extent = |at, unwritten| nextent_ondisk::extent::Extent {
        block: FileBlock(at),
        len: 2,
        start: BlockNo(5000 + u64::from(at)),
        unwritten,
    };
    for keys in [[3, 40, 20, 9, 7, 5], [3, 9, 5, 30, 12, 10], [3, 4, 4, 4, 4, 4]] {
        for unwritten in [false, true] {
            for at in 0..45 {
                let mut f = Fixture::lenient(MapKind::Extents, 1024);
                let mut root = [0; 60];
                NodeMut::init(&mut root, 1)
                    .insert_index(0, Index { block: FileBlock(3), child: BlockNo(500) });
                let mut leaf = vec![0; 1024];
                NodeMut::init(&mut leaf, 0);
                for (i, key) in keys.into_iter().enumerate() {
                    NodeMut::new(&mut leaf).expect("node").insert_extent(i, extent(key, unwritten));
                }
                f.put(500, &leaf);
                f.root = MapRoot::unchecked(MapKind::Extents, &root);
                try_all(&mut f, at);
            }
        }
    }
}

/// Like `keys_out_of_order_end_every_walk`, for a node between the root and the leaves.
#[test]
fn indexes_out_of_order_end_every_walk() {
    for keys in [[3, 40, 20, 9, 7, 5], [3, 9, 5, 30, 12, 10], [3, 4, 4, 4, 4, 4]] {
        for at in 0..45 {
            let mut f = Fixture::lenient(MapKind::Extents, 1024);
            let mut root = [0; 60];
            NodeMut::init(&mut root, 2)
                .insert_index(0, Index { block: FileBlock(3), child: BlockNo(500) });
            let mut inner = vec![0; 1024];
            NodeMut::init(&mut inner, 1);
            for (i, key) in keys.into_iter().enumerate() {
                let child = BlockNo(600 + i as u64);
                let index = Index { block: FileBlock(key), child };
                NodeMut::new(&mut inner).expect("node").insert_index(i, index);
                let mut leaf = vec![0; 1024];
                NodeMut::init(&mut leaf, 0).insert_extent(
                    0,
                    nextent_ondisk::extent::Extent {
                        block: FileBlock(key),
                        len: 1,
                        start: BlockNo(5000 + u64::from(key)),
                        unwritten: true,
                    },
                );
                f.put(child.0, &leaf);
            }
            f.put(500, &inner);
            f.root = MapRoot::unchecked(MapKind::Extents, &root);
            try_all(&mut f, at);
        }
    }
}
