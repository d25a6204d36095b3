//! `mkfs -d`: what is put in is there, and the same inputs give the same bytes.

use crate::support::*;
use nextent_testkit::tree::{Compare, assert_same};
use nextent_testkit::{e2fs, need};
use std::path::Path;

const UUID: &str = "5f0b2f1e-8a53-4a29-9a0d-8d8f6f4f0b11";

fn make(dir: &Path, name: &str, from: &str, threads: &str, more: &[&str]) {
    let mut command = nextent();
    command.current_dir(dir).env("SOURCE_DATE_EPOCH", "1000000000");
    command.args(["mkfs", "-q", "-U", UUID, "-E", &format!("hash_seed={UUID}")]);
    command.args(["-d", from, "--threads", threads]).args(more).args([name, "200m"]);
    good(&command.output().expect("the command was built"));
}

#[test]
fn a_directory_fills_an_image() {
    let (dir, top) = with_tree(5);
    for (name, options) in [
        ("a.img", &["-b", "4096"][..]),
        ("b.img", &["-b", "1024", "-t", "ext3"]),
        ("c.img", &["-b", "65536", "-O", "^has_journal"]),
        ("d.img", &["-b", "4096", "-t", "ext2", "-O", "orphan_file,has_journal,extents"]),
    ] {
        let image = dir.path().join(name);
        let source = top.to_str().expect("plain");
        let mut args = vec!["mkfs", "-q", "-d", source];
        args.extend_from_slice(options);
        args.extend_from_slice(&[image.to_str().expect("plain"), "256m"]);
        // The largest attributes do not fit into blocks of 1 KiB.
        let output = run(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || name == "b.img", "{said}");
        e2fs::assert_clean(&image);
        if name == "c.img" {
            continue;
        }
        let how = Compare { xattrs: name != "b.img", ..Compare::default() };
        assert_same(&tree(&top), &need!(mounted(&image, "")), &how);
    }
}

#[test]
fn the_same_bytes_each_time() {
    let (dir, _top) = with_tree(6);
    make(dir.path(), "a.img", "tree", "1", &[]);
    for (n, threads) in ["1", "2", "3", "8"].into_iter().enumerate() {
        let name = format!("b{n}.img");
        make(dir.path(), &name, "tree", threads, &[]);
        shell(dir.path(), &format!("cmp a.img {name} && rm {name}"));
    }
    e2fs::assert_clean(&dir.path().join("a.img"));
}

#[test]
fn the_same_bytes_from_a_tar() {
    let (dir, top) = with_tree(7);
    shell(dir.path(), "find tree -type s -delete; tar -S --format=pax -C tree -cf t.tar .");
    make(dir.path(), "a.img", "t.tar", "1", &[]);
    make(dir.path(), "b.img", "t.tar", "4", &[]);
    shell(dir.path(), "cmp a.img b.img");
    let image = dir.path().join("a.img");
    e2fs::assert_clean(&image);
    let how = Compare { xattrs: false, times: false, ..all() };
    assert_same(&tree(&top), &need!(mounted(&image, "")), &how);
    shell(
        dir.path(),
        "$N mkfs -q -d - c.img 200m < t.tar && $N tar -c c.img:/ | tar -df - -C tree",
    );
}

#[test]
fn old_contents_of_the_device_do_not_show() {
    let (dir, top) = with_tree(8);
    shell(dir.path(), "head -c 200M /dev/zero | tr '\\0' x > a.img");
    make(dir.path(), "a.img", "tree", "2", &["-b", "65536"]);
    let image = dir.path().join("a.img");
    e2fs::assert_clean(&image);
    let out = dir.path().join("out");
    works(&["cp", "-a", &inside(&image, "/"), out.to_str().expect("plain")]);
    assert_same(&tree(&top), &tree(&out), &Compare { times: false, ..Compare::default() });
}
