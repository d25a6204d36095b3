//! `mkfs -d` copies everything, and equal inputs give equal bytes.

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
        // The largest attributes do not fit in blocks of 1 KiB.
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
fn a_directory_gives_the_same_bytes_each_time() {
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
fn a_tar_stream_gives_the_same_bytes_each_time() {
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
fn old_contents_of_the_device_are_not_visible() {
    let (dir, top) = with_tree(8);
    shell(dir.path(), "head -c 200M /dev/zero | tr '\\0' x > a.img");
    make(dir.path(), "a.img", "tree", "2", &["-b", "65536"]);
    let image = dir.path().join("a.img");
    e2fs::assert_clean(&image);
    let out = dir.path().join("out");
    works(&["cp", "-a", &inside(&image, "/"), out.to_str().expect("plain")]);
    assert_same(&tree(&top), &tree(&out), &Compare { times: false, ..Compare::default() });
}

#[test]
fn the_report_matches_the_image() {
    let (dir, _top) = with_tree(12);
    for from in ["tree", "t.tar"] {
        let line = format!(
            "tar -S -C tree -cf t.tar . 2>err; $N mkfs --json -d {from} a.img 200m > said && \
             dumpe2fs -h a.img > is 2>err; \
             for what in 'free_blocks:Free blocks' 'free_inodes:Free inodes'; do \
             a=$(grep ${{what%:*}} said | tr -dc 0-9); \
             b=$(grep \"^${{what#*:}}:\" is | tr -dc 0-9); \
             [ $a = $b ] || echo $what $a $b; done"
        );
        shell(dir.path(), &line);
    }
}

#[test]
fn a_tree_may_change_during_the_copy() {
    let (dir, _top) = with_tree(13);
    shell(
        dir.path(),
        "mkdir tree/w; for n in {1..300}; do head -c 9000 /dev/zero > tree/w/$n; done",
    );
    let change = "while [ ! -e stop ]; do for n in 1 77 150 211 299; do truncate -s 100 tree/w/$n; \
        mv tree/w/$n tree/w/old; head -c 70000 /dev/urandom > tree/w/$n; rm tree/w/old; \
        ln -f tree/w/2 tree/w/l$n; rm -rf tree/w/d; mkdir -p tree/w/d/d; touch tree/w/d/d/f; \
        rm tree/w/l$n; done; done 2>err";
    let mut changing = std::process::Command::new("bash");
    let changing = changing.current_dir(dir.path()).args(["-c", change]).spawn();
    let mut changing = changing.expect("there is a bash");
    for _ in 0..15 {
        let output = nextent()
            .current_dir(dir.path())
            .args(["mkfs", "-q", "-F", "-d", "tree", "a.img", "64m"])
            .output()
            .expect("the command was built");
        // The command names the missing file and removes the image; there is no other error.
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.lines().all(|line| line.contains("No such file")), "{said}");
        let image = dir.path().join("a.img");
        assert_eq!(output.status.success(), said.is_empty(), "{said}");
        assert_eq!(output.status.success(), image.exists(), "{said}");
        if image.exists() {
            e2fs::assert_clean(&image);
            std::fs::remove_file(&image).expect("it was just made");
        }
    }
    std::fs::write(dir.path().join("stop"), "").expect("writable");
    changing.wait().expect("it ends");
}
