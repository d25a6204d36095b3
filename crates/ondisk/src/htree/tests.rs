use proptest::prelude::*;

use super::*;
use crate::extent;
use crate::testing::{Image, small_geometry};
use crate::{Inode, inode};

const NAMES: &[&str] = &[
    "a",
    "name",
    "exactly-16-bytes",
    "a name of more than thirty-two bytes, which takes two rounds",
    "caf\u{e9}",
    "\u{6f22}\u{5b57}\u{6f22}\u{5b57}\u{6f22}\u{5b57}",
    "0123456789012345678901234567890",
    "01234567890123456789012345678901",
];

#[test]
fn hashes_agree_with_debugfs() {
    let image = Image::make("name-hashes", "-t ext4", "1m");
    let text = "3d9c6f2e-5a41-4d2b-9e77-0123456789ab";
    let bytes = uuid::Uuid::parse_str(text).unwrap().into_bytes();
    let words = [0, 4, 8, 12].map(|at| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()));
    let kinds = [
        ("legacy", HashVersion::Legacy),
        ("half_md4", HashVersion::HalfMd4),
        ("tea", HashVersion::Tea),
        ("3", HashVersion::LegacyUnsigned),
        ("4", HashVersion::HalfMd4Unsigned),
        ("5", HashVersion::TeaUnsigned),
    ];
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for (label, version) in kinds {
        for name in NAMES {
            for seed in [[0; 4], words] {
                let option = if seed == [0; 4] { String::new() } else { format!("-s {text}") };
                requests.push(format!("dx_hash {option} -h {label} \"{name}\""));
                expected.push(Hasher { version, seed }.hash(name.as_bytes()));
            }
        }
    }
    let out = image.debugfs_all(&requests);
    // debugfs prints: "Hash of NAME is 0xMAJOR (minor 0xMINOR)"
    let answers: Vec<_> = out.lines().filter(|line| line.starts_with("Hash of ")).collect();
    assert_eq!(answers.len(), expected.len());
    for ((answer, hash), request) in answers.iter().zip(expected).zip(requests) {
        let text = format!("is {:#x} (minor {:#x})", hash.major, hash.minor);
        assert!(answer.ends_with(&text), "{request}: {answer}, ours {text}");
    }
}

#[test]
fn siphash_has_the_value_its_authors_published() {
    let bytes: Vec<u8> = (0..15).collect();
    let sum = siphash(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908, &bytes);
    assert_eq!(sum, 0xa129_ca61_49be_45e5);
}

/// The blocks of the directory `path`, in order.
fn directory(image: &Image, path: &str) -> (Inode, InodeNo, Vec<Vec<u8>>) {
    let geometry = image.geometry();
    let ino = image.inode_called(path);
    let bytes = image.inode_bytes(ino);
    inode::verify(&geometry, ino, bytes).unwrap();
    let inode = Inode::read(&geometry, bytes).unwrap();
    let blocks = image.debugfs(&format!("blocks {path}"));
    let numbers: Vec<u64> = blocks.split_whitespace().map(|b| b.parse().unwrap()).collect();
    // The list has extent nodes too, before the data.
    let depth = extent::Node::new(&inode.block).map_or(0, |node| usize::from(node.depth()));
    let data = numbers[depth.min(1)..].iter();
    (inode, ino, data.map(|b| image.block(BlockNo(*b)).to_vec()).collect())
}

/// Follows every pair down to the entries and checks that each name's hash is in the pair's range.
fn walk(
    geometry: &Geometry,
    hasher: &Hasher,
    blocks: &[Vec<u8>],
    (at, levels): (usize, u8),
    seed: u32,
    names: &mut usize,
) {
    let kind = if at == 0 { NodeKind::Root } else { NodeKind::Node };
    check(geometry, kind, &blocks[at], blocks.len() as u32).unwrap();
    verify(seed, &blocks[at]).unwrap();
    let mut sealed = blocks[at].clone();
    seal(seed, BlockNo(0), &mut sealed);
    assert_eq!(sealed, blocks[at]);
    let node = Node::new(kind, &blocks[at]);
    let pairs: Vec<_> = node.pairs().collect();
    for (place, (low, child)) in pairs.iter().enumerate() {
        assert_eq!(node.find(*low | 1), place);
        if levels > 0 {
            walk(geometry, hasher, blocks, (child.0 as usize, levels - 1), seed, names);
            continue;
        }
        let block = &blocks[child.0 as usize];
        dirent::verify(seed, block).unwrap();
        for entry in dirent::entries(geometry, block).map(Result::unwrap) {
            if entry.is_used() {
                let hash = hasher.hash(entry.name).major;
                assert!(hash >= low & !1, "{:?}", entry.name);
                let next = pairs.get(place + 1);
                assert!(next.is_none_or(|next| hash <= next.0));
                *names += 1;
            }
        }
    }
}

#[test]
fn directories_indexed_by_e2fsck_follow_our_hashes() {
    for hash in ["half_md4", "tea", "legacy"] {
        let fill = |tree: &std::path::Path| {
            // Links to one inode keep the fixture small.
            let first = tree.join("first");
            std::fs::write(&first, "").unwrap();
            for number in 1..600 {
                let name = format!("file-with-a-long-enough-name-{number:05}-\u{e9}");
                std::fs::hard_link(&first, tree.join(name)).unwrap();
            }
        };
        let name = format!("index-{hash}");
        let mut image = Image::make_from(&name, "-t ext4 -b 1024 -d %/tree", "8m", fill);
        image.debugfs_write(&[&format!("ssv def_hash_version {hash}")]);
        image.reindex();
        let geometry = image.geometry();
        let (inode, ino, blocks) = directory(&image, "/");
        assert!(inode.has_flag(inode::flags::INDEX));
        assert_eq!(blocks.len() as u64 * 1024, inode.size);
        let info = root_info(&geometry, &blocks[0]).unwrap();
        let hasher = image.superblock().hasher(info.hash_code).unwrap();
        assert_eq!(Some(hasher), image.superblock().default_hasher());
        let mut names = 0;
        let seed = inode.csum_seed(&geometry, ino);
        walk(&geometry, &hasher, &blocks, (0, info.levels), seed, &mut names);
        assert_eq!(names, 601, "lost+found and the files");
    }
}

#[test]
fn node_changes_give_the_expected_pairs() {
    let mut geometry = small_geometry();
    geometry.features.apply("metadata_csum,filetype").unwrap();
    let mut block = vec![0xee; 4096];
    let dots = (InodeNo(20), InodeNo(2));
    let mut root =
        NodeMut::init_root(&geometry, &mut block, dots, HashVersion::TeaUnsigned, FileBlock(1));
    assert_eq!(limit(&geometry, NodeKind::Root), 507);
    for number in 1..507u32 {
        root.insert(number as usize, number * 100, FileBlock(number + 1));
    }
    assert!(root.view().is_full());
    root.set_levels(1);
    let mut other = vec![0; 4096];
    let mut node = NodeMut::init(&geometry, &mut other, FileBlock(9));
    assert_eq!(root.move_tail(250, &mut node), 25000);
    assert_eq!((root.view().len(), node.view().len()), (250, 257));
    assert_eq!(node.view().pair(0), (0, FileBlock(251)));
    assert_eq!(node.view().pair(1), (25100, FileBlock(252)));
    node.remove(1);
    assert_eq!(node.view().find(25150), 0);
    assert_eq!(node.view().find(u32::MAX), 255);
    check(&geometry, NodeKind::Node, &other, 600).unwrap();
    check(&geometry, NodeKind::Root, &block, 600).unwrap();
    assert!(check(&geometry, NodeKind::Root, &block, 200).is_err());
    assert!(check(&geometry, NodeKind::Node, &block, 600).is_err());
    assert_eq!(root_info(&geometry, &block).unwrap(), RootInfo { hash_code: 2, levels: 1 });
    for bytes in [&mut block, &mut other] {
        seal(3, BlockNo(0), bytes);
        verify(3, bytes).unwrap();
        assert!(verify(4, bytes).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 4096),
        root: bool,
        limit in 0u16..600,
    ) {
        let mut geometry = small_geometry();
        geometry.features.apply("metadata_csum,filetype").unwrap();
        let kind = if root { NodeKind::Root } else { NodeKind::Node };
        if root {
            let dots = (InodeNo(20), InodeNo(2));
            let pairs = bytes[40..].to_vec();
            NodeMut::init_root(&geometry, &mut bytes, dots, HashVersion::Tea, FileBlock(1));
            bytes[40..].copy_from_slice(&pairs);
        } else {
            bytes[..8].copy_from_slice(&[0, 0, 0, 16, 0, 0, 0, 0]);
        }
        let at = kind.start();
        bytes[at..at + 2].copy_from_slice(&limit.to_le_bytes());
        let _ = check(&geometry, kind, &bytes, 10);
        let _ = verify(1, &bytes);
        let node = Node::new(kind, &bytes);
        let _ = (node.find(77), node.pairs().count(), node.is_full());
        seal(1, BlockNo(0), &mut bytes);
        let _ = verify(1, &bytes[..limit as usize]);
        let _ = root_info(&geometry, &bytes[..limit as usize]);
        let _ = Hasher { version: HashVersion::SipHash, seed: [1; 4] }.hash(&bytes[..255]);
    }
}
