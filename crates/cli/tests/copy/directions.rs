//! A tree that is copied into an image and out of it is unchanged.

use crate::support::*;
use nextent_testkit::tree::{Compare, assert_same};
use nextent_testkit::{e2fs, need};

const EXT4: [&str; 4] = ["-t", "ext4", "-b", "4096"];

#[test]
fn copies_in_out_and_between_images_are_equal() {
    let (dir, top) = with_tree(1);
    let first = need!(mke2fs(dir.path(), "a.img", &EXT4));
    let source = top.to_str().expect("a plain name");
    works(&["cp", "-a", source, &inside(&first, "/")]);
    e2fs::assert_clean(&first);
    let want = tree(&top);
    assert_same(&want, &need!(mounted(&first, "tree")), &all());

    let out = dir.path().join("out");
    works(&["cp", "-a", &inside(&first, "/tree"), out.to_str().expect("plain")]);
    assert_same(&want, &tree(&out), &all());

    // Another block size, block maps without extents, and another directory in the same image.
    let second = need!(mke2fs(dir.path(), "b.img", &["-t", "ext2", "-b", "1024", "-I", "256"]));
    works(&["cp", "-a", &inside(&first, "/tree"), &inside(&second, "/there")]);
    works(&["cp", "-a", &inside(&second, "/there/."), &inside(&second, "/again/")]);
    e2fs::assert_clean(&second);
    for name in ["there", "again"] {
        assert_same(&want, &need!(mounted(&second, name)), &Compare::default());
    }
}

#[test]
fn without_p_modes_and_owners_are_those_of_cp() {
    let (dir, top) = with_tree(2);
    let image = need!(mke2fs(dir.path(), "a.img", &EXT4));
    works(&["cp", "-r", top.to_str().expect("plain"), &inside(&image, "/new")]);
    e2fs::assert_clean(&image);
    // With the same umask.
    shell(dir.path(), &format!("cp -r {} copy", top.display()));
    let want = tree(&dir.path().join("copy"));
    let how = Compare { times: false, ..Compare::default() };
    assert_same(&want, &need!(mounted(&image, "new")), &how);
}

#[test]
fn tar_packs_and_unpacks() {
    let (dir, top) = with_tree(3);
    shell(dir.path(), "find tree -type s -delete");
    let first = need!(mke2fs(dir.path(), "a.img", &EXT4));
    let second = need!(mke2fs(dir.path(), "b.img", &EXT4));
    works(&["cp", "-a", &format!("{}/.", top.display()), &inside(&first, "/")]);
    shell(dir.path(), "$N tar -c a.img:/ > a.tar");
    shell(dir.path(), "tar -df a.tar -C tree; $N tar -x b.img:/ < a.tar");
    e2fs::assert_clean(&second);
    let want = tree(&top);
    assert_same(&want, &need!(mounted(&second, "")), &all());

    let out = "mkdir out; tar -xf a.tar -C out --xattrs --xattrs-include='*' --acls 2>err";
    shell(dir.path(), out);
    let got = tree(&dir.path().join("out"));
    assert_same(&want, &got, &Compare { xattrs: false, ..Compare::default() });
}

#[test]
fn every_format_of_gnu_tar_is_unpacked() {
    let (dir, top) = with_tree(4);
    shell(dir.path(), "find tree -type s -delete");
    let want = tree(&top);
    let image = need!(mke2fs(dir.path(), "a.img", &EXT4));
    let plain = Compare { xattrs: false, ..Compare::default() };
    let whole = Compare { times: false, ..plain };
    let kinds = [
        ("gnu", "--format=gnu", whole),
        ("gnu-sparse", "--format=gnu -S", whole),
        ("pax", "--format=pax --xattrs --xattrs-include='*'", plain),
        ("pax-sparse", "--format=pax -S", plain),
        ("pax-0.1", "--format=pax -S --sparse-version=0.1", plain),
        ("pax-0.0", "--format=pax -S --sparse-version=0.0", plain),
    ];
    for (name, options, how) in kinds {
        let at = inside(&image, &format!("/{name}"));
        works(&["mkdir", &at]);
        shell(dir.path(), &format!("tar {options} -C tree -c . | $N tar -x {at}"));
        assert_same(&want, &need!(mounted(&image, name)), &how);
        works(&["rm", "-r", &at]);
    }
    e2fs::assert_clean(&image);
}

#[test]
fn a_large_file_is_copied_in_parts() {
    let dir = tempfile::tempdir().expect("writable");
    let image = need!(mke2fs(dir.path(), "a.img", &EXT4));
    shell(dir.path(), "head -c 40000001 /dev/urandom > f; truncate -s 60000000 f");
    shell(dir.path(), "$N cp f a.img:/f && $N cp a.img:/f g && cmp f g && $N cp a.img:/f a.img:/g");
    shell(dir.path(), "$N cat a.img:/g | cmp - f");
    e2fs::assert_clean(&image);
    let stat = run(&["stat", "--json", &inside(&image, "/f")]);
    let shown = String::from_utf8_lossy(&stat.stdout).matches("physical").count();
    assert!(shown <= 3, "{shown} extents");
}
