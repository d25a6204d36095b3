use proptest::prelude::*;

use super::*;
use crate::testing::small_geometry;

fn with_features(list: &str) -> Geometry {
    let mut geometry = small_geometry();
    geometry.features.apply(list).unwrap();
    geometry
}

#[test]
fn record_lengths_of_64k_blocks_round_trip() {
    let mut geometry = small_geometry();
    geometry.block_size = 65536;
    for len in [12, 65532, 65536] {
        assert_eq!(decode_len(&geometry, encode_len(&geometry, len)), len);
    }
    assert_eq!(decode_len(&geometry, 0), 65536);
    assert_eq!(encode_len(&geometry, 65536), 0xffff);
}

#[test]
fn a_first_block_has_both_dots_and_a_checksum() {
    for list in ["filetype,metadata_csum", "filetype", "none"] {
        let geometry = with_features(list);
        let mut block = vec![0xff; 4096];
        init_dots(&geometry, &mut block, InodeNo(12), InodeNo(2));
        let all: Vec<_> = entries(&geometry, &block).map(Result::unwrap).collect();
        assert_eq!(all.len(), 2);
        assert!(all.iter().all(DirEntry::is_dot));
        assert_eq!((all[0].ino.0, all[1].ino.0), (12, 2));
        let typed = geometry.features.has(Incompat::FILETYPE);
        assert_eq!(all[0].file_type(), typed.then_some(FileType::Directory));
        assert_eq!(all[1].offset + all[1].rec_len, leaf_len(&geometry));
        assert!(verify(5, &block).is_err());
        seal(5, BlockNo(1), &mut block);
        assert_eq!(verify(5, &block).is_ok(), geometry.features.metadata_csum());
    }
}

#[test]
fn more_entries_than_fit_do_not_pack() {
    let geometry = with_features("filetype,metadata_csum");
    let mut block = vec![0; 4096];
    let name = [b'x'; 255];
    let slot = NewEntry::new(InodeNo(11), FileType::Fifo, &name);
    assert!(pack(&geometry, &mut block, std::iter::repeat_n(slot, 15)));
    assert_eq!(entries(&geometry, &block).filter(|e| e.as_ref().unwrap().is_used()).count(), 15);
    assert_eq!(insert(&geometry, &mut block, &slot).unwrap(), None);
    assert!(!pack(&geometry, &mut block, std::iter::repeat_n(slot, 16)));
    assert!(pack(&geometry, &mut block, []));
    check(&geometry, &block).unwrap();
}

/// A naive directory: names in a map.
#[derive(Default)]
struct Model(std::collections::BTreeMap<Vec<u8>, u32>);

proptest! {
    #[test]
    fn a_block_follows_its_model(
        steps in proptest::collection::vec((any::<bool>(), 0u8..60, 1usize..120), 1..200),
    ) {
        let geometry = with_features("filetype,metadata_csum");
        let mut block = vec![0; 4096];
        init_leaf(&geometry, &mut block);
        let mut model = Model::default();
        for (add, letter, len) in steps {
            let name = vec![b'0' + letter; 1 + len % (1 + usize::from(letter))];
            let there = find(&geometry, &block, &name).unwrap().map(|entry| entry.offset);
            prop_assert_eq!(there.is_some(), model.0.contains_key(&name));
            match (add, there) {
                (true, None) => {
                    let ino = u32::from(letter) + 11;
                    let slot = NewEntry::new(InodeNo(ino), FileType::Socket, &name);
                    if insert(&geometry, &mut block, &slot).unwrap().is_some() {
                        model.0.insert(name, ino);
                    }
                }
                (true, Some(at)) => {
                    retarget(&geometry, &mut block, at, InodeNo(99), FileType::Regular);
                    model.0.insert(name, 99);
                }
                (false, Some(at)) => {
                    remove(&geometry, &mut block, at).unwrap();
                    model.0.remove(&name);
                }
                (false, None) => {}
            }
            check(&geometry, &block).unwrap();
        }
        let listed: std::collections::BTreeMap<_, _> = entries(&geometry, &block)
            .map(Result::unwrap)
            .filter(DirEntry::is_used)
            .map(|entry| (entry.name.to_vec(), entry.ino.0))
            .collect();
        prop_assert_eq!(&listed, &model.0);
        seal(1, BlockNo(0), &mut block);
        verify(1, &block).unwrap();
    }

    #[test]
    fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), small: bool) {
        let geometry = with_features("filetype,metadata_csum");
        if small {
            // Make lengths plausible, so that the iteration gets further.
            for record in bytes.chunks_mut(16) {
                if record.len() == 16 {
                    let len = record[6] & 15;
                    record[4..8].copy_from_slice(&[16, 0, len, 1]);
                    record[2..4].fill(0);
                }
            }
        }
        let _ = check(&geometry, &bytes);
        let _ = verify(1, &bytes);
        let _ = find(&geometry, &bytes, b"x");
        let slot = NewEntry::new(InodeNo(5), FileType::Regular, b"name");
        let _ = insert(&geometry, &mut bytes, &slot);
        let _ = remove(&geometry, &mut bytes, 16);
        let _ = renumber(&geometry, &mut bytes, InodeNo(5), InodeNo(6));
        let _ = entries(&geometry, &bytes).from(777).count();
        seal(1, BlockNo(0), &mut bytes);
    }
}

#[test]
fn an_index_root_over_an_old_block_of_entries_has_no_tail() {
    let geometry = with_features("filetype,metadata_csum");
    let mut block = vec![0; 4096];
    init_dots(&geometry, &mut block, InodeNo(12), InodeNo(2));
    assert!(has_tail(&block));
    // Linux does this when it makes an index: `..` grows over the rest, which stays in place.
    block[16..18].copy_from_slice(&4084u16.to_le_bytes());
    assert!(!has_tail(&block));
    assert_eq!(entries(&geometry, &block).map(Result::unwrap).count(), 2);
}

#[test]
fn entries_of_one_inode_get_another_number() {
    for list in ["filetype,metadata_csum", "none"] {
        let geometry = with_features(list);
        let mut block = vec![0; 4096];
        init_dots(&geometry, &mut block, InodeNo(12), InodeNo(2));
        for (ino, name) in [(20, &b"one"[..]), (21, b"two"), (20, b"three")] {
            let slot = NewEntry::new(InodeNo(ino), FileType::Symlink, name);
            insert(&geometry, &mut block, &slot).unwrap().unwrap();
        }
        let all = |block: &[u8]| -> Vec<_> {
            let entry = |entry: DirEntry<'_>| (entry.name.to_vec(), entry.ino.0, entry.type_code);
            entries(&geometry, block).map(|found| entry(found.unwrap())).collect()
        };
        let mut expected = all(&block);
        assert_eq!(renumber(&geometry, &mut block, InodeNo(20), InodeNo(9)).unwrap(), 2);
        assert_eq!(renumber(&geometry, &mut block, InodeNo(20), InodeNo(10)).unwrap(), 0);
        expected.iter_mut().filter(|entry| entry.1 == 20).for_each(|entry| entry.1 = 9);
        assert_eq!(all(&block), expected);
        // Bytes without room for the parent's number do not change.
        set_inline_parent(&mut block[..3], InodeNo(7));
        assert_eq!(all(&block), expected);
        set_inline_parent(&mut block, InodeNo(7));
        assert_eq!(inline_parent(&block), Some(InodeNo(7)));
        block[4] = 3;
        assert!(renumber(&geometry, &mut block, InodeNo(21), InodeNo(9)).is_err());
    }
}
