//! `mkfs -d` without SIZE: the image fits its contents.

use crate::support::*;
use nextent_testkit::tree::{Compare, assert_same};
use nextent_testkit::{e2fs, need};
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

/// The numbers that `mkfs --json` prints.
#[derive(Debug)]
struct Made {
    blocks: u64,
    free: u64,
    block_size: u64,
    journal: u64,
    inodes: u64,
    free_inodes: u64,
}

impl Made {
    fn bytes(&self) -> u64 {
        self.blocks * self.block_size
    }

    /// Whether at most one block in a hundred is free. A small image may have one spare block for
    /// each piece of its metadata, where an extent of a file could end.
    fn is_full(&self) -> bool {
        self.free <= ((self.blocks - self.journal) / 100).max(8)
    }
}

/// Runs `mkfs` with these arguments, and checks the image.
#[track_caller]
fn make(args: &[&str]) -> Made {
    let made = make_unchecked(args);
    let image = Path::new(args.last().expect("there is an image"));
    assert_eq!(fs::metadata(image).expect("it was made").len(), made.bytes(), "{args:?}");
    e2fs::assert_clean(image);
    made
}

#[track_caller]
fn make_unchecked(args: &[&str]) -> Made {
    let output = run(&[&["mkfs", "--json"], args].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let number = |name: &str| json[name].as_u64().expect("a number");
    Made {
        blocks: number("blocks"),
        free: number("free_blocks"),
        block_size: number("block_size"),
        journal: number("journal_blocks"),
        inodes: number("inodes"),
        free_inodes: number("free_inodes"),
    }
}

fn files(top: &Path, count: usize, size: impl Fn(usize) -> usize) {
    for n in 0..count {
        fs::write(top.join(format!("file-{n:05}")), vec![b'x'; size(n)])
            .expect("it can be written");
    }
}

/// A name, and what makes a tree.
type Shape<'a> = (&'a str, &'a dyn Fn(&Path));

/// Trees of one kind each.
fn shapes(dir: &Path) -> Vec<String> {
    let made: [Shape<'_>; 8] = [
        ("empty", &|_| {}),
        ("large", &|top| files(top, 1, |_| 12 << 20)),
        ("small", &|top| files(top, 1500, |n| n * 13 % 6000)),
        ("many", &|top| files(top, 2000, |_| 0)),
        ("deep", &|top| {
            let deep = (0..60).fold(top.to_owned(), |at, n| at.join(format!("level-{n}")));
            fs::create_dir_all(&deep).expect("it can be made");
            files(&deep, 3, |n| n * 5000);
        }),
        ("names", &|top| {
            files(top, 2, |_| 5000);
            for n in 0..300 {
                fs::hard_link(top.join("file-00001"), top.join(format!("name-{n}")))
                    .expect("linked");
            }
        }),
        ("holes", &|top| {
            for name in ["a", "b"] {
                let file = fs::File::create(top.join(name)).expect("it can be made");
                for n in 0..700 {
                    file.write_all_at(&[1; 4096], n * 12288).expect("it can be written");
                }
            }
        }),
        ("links", &|top| {
            for n in 0..400 {
                let target = "t".repeat(if n % 2 == 0 { 20 } else { 900 });
                symlink(target, top.join(format!("link-{n}"))).expect("it can be made");
            }
        }),
    ];
    let mut names = Vec::new();
    for (name, fill) in made {
        let top = dir.join(name);
        fs::create_dir(&top).expect("it can be made");
        fill(&top);
        names.push(top.to_str().expect("plain").to_owned());
    }
    names
}

const OPTIONS: [&[&str]; 8] = [
    &[],
    &["-b", "1024"],
    &["-O", "^has_journal"],
    &["-t", "ext2"],
    &["-t", "ext3", "-b", "1024"],
    &["-O", "^flex_bg,orphan_file", "-m", "0"],
    &["-N", "9000", "-b", "2048"],
    &["-i", "8192", "-J", "size=8"],
];

#[test]
fn an_image_without_free_space_is_full() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let image = dir.path().join("disk.img");
    let image = image.to_str().expect("plain");
    for (n, source) in shapes(dir.path()).into_iter().enumerate() {
        // Half of all pairs, since each takes a while.
        for options in OPTIONS.into_iter().skip(n % 2).step_by(2) {
            let args = [options, &["-d", &source, "--free", "0", image]].concat();
            let made = make(&args);
            assert!(made.is_full(), "{args:?}: {made:?}");
            if !options.iter().any(|word| ["-N", "-i"].contains(word)) {
                // A group's table has whole blocks.
                assert!(made.free_inodes <= 64, "{args:?}: {made:?}");
            }
            fs::remove_file(image).expect("it was made");
        }
    }
}

#[test]
fn free_space_is_as_asked_for() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let top = dir.path().join("tree");
    fs::create_dir(&top).expect("it can be made");
    files(&top, 500, |n| n * n % 70_000);
    let (source, image) = (top.to_str().expect("plain"), dir.path().join("disk.img"));
    let image = image.to_str().expect("plain");
    for options in OPTIONS {
        let of = |free: &[&str]| {
            let made = make(&[options, &["-d", source], free, &[image]].concat());
            fs::remove_file(image).expect("it was made");
            made
        };
        let tenth = of(&["--free", "10%"]);
        let share = tenth.free as f64 / tenth.blocks as f64;
        assert!((0.1..0.11).contains(&share), "{options:?}: {tenth:?}");
        let bytes = of(&["--free", "64m"]);
        let free = bytes.free * bytes.block_size;
        assert!((64 << 20..65 << 20).contains(&free), "{options:?}: {bytes:?}");
        let default = of(&[]);
        let free = default.free * default.block_size;
        assert!((16 << 20..17 << 20).contains(&free), "{options:?}: {default:?}");
        if options.is_empty() {
            assert_eq!(tenth.block_size, 4096);
            assert!(default.inodes * 16384 <= default.bytes() + 16384 * 16, "{default:?}");
            assert!(default.journal > 0, "{default:?}");
        }
    }
}

#[test]
fn contents_are_complete_and_the_same_each_time() {
    let (dir, top) = with_tree(22);
    let line = "export SOURCE_DATE_EPOCH=1000000000; \
        $N mkfs -q -U clear -E hash_seed=clear -d tree --threads 1 a.img; \
        $N mkfs -q -U clear -E hash_seed=clear -d tree --threads 4 b.img; cmp a.img b.img";
    shell(dir.path(), line);
    let image = dir.path().join("a.img");
    e2fs::assert_clean(&image);
    // Without the limit on times.
    shell(dir.path(), "rm a.img b.img; $N mkfs -q -d tree --free 10m a.img");
    e2fs::assert_clean(&image);
    assert_same(&tree(&top), &need!(mounted(&image, "")), &all());
}

#[test]
fn an_existing_file_is_resized_only_if_asked() {
    let (dir, top) = with_tree(23);
    let (source, image) = (top.to_str().expect("plain"), dir.path().join("disk.img"));
    let path = image.to_str().expect("plain");
    for old in [1 << 20, 300 << 20] {
        fs::write(&image, vec![b'x'; 1 << 20]).expect("it can be written");
        fs::OpenOptions::new()
            .write(true)
            .open(&image)
            .and_then(|file| file.set_len(old))
            .expect("it can be resized");
        assert!(make(&["-d", source, "--free", "5%", path]).bytes() < 300 << 20);
    }
    fs::remove_file(&image).expect("it was made");
    fs::File::create(&image).and_then(|file| file.set_len(300 << 20)).expect("it can be resized");
    assert_eq!(make(&["-d", source, path]).bytes(), 300 << 20, "as mke2fs");
}

#[test]
fn a_dry_run_shows_the_size_and_makes_nothing() {
    let (dir, top) = with_tree(24);
    let (source, image) = (top.to_str().expect("plain"), dir.path().join("disk.img"));
    let path = image.to_str().expect("plain");
    let shown = make_unchecked(&["-n", "-d", source, "--free", "3%", path]);
    assert!(!image.exists());
    let made = make(&["-d", source, "--free", "3%", path]);
    assert_eq!(shown.blocks, made.blocks);
    let before = fs::read(&image).expect("it was made");
    make_unchecked(&["-n", "-d", source, "--free", "50%", path]);
    assert!(fs::read(&image).expect("it was made") == before, "a dry run changes nothing");
}

#[test]
fn what_cannot_be_fitted_is_refused() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let source = dir.path().join("tree");
    fs::create_dir(&source).expect("it can be made");
    files(&source, 30, |n| n);
    let (source, image) = (source.to_str().expect("plain"), dir.path().join("disk.img"));
    let path = image.to_str().expect("plain");
    for (args, code, words) in [
        (&["-d", source, "-N", "20", "--free", "0", path][..], 1, "the contents need 4"),
        (&["-d", source, "-b", "3", path], 1, "invalid block size"),
        (&["-d", "/nowhere", path], 1, "No such file"),
    ] {
        fails(&[&["mkfs", "-q"], args].concat(), code, words);
        assert!(!image.exists(), "{args:?}");
    }
    for args in [&["-d", source, "--free", "0", path, "64m"][..], &["--free", "0", path]] {
        let output = run(&[&["mkfs", "-q"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    // The image is an entry of the tree.
    let inside = format!("{source}/disk.img");
    fails(&["mkfs", "-q", "-d", source, &inside], 1, "is the image that is being used");
    assert!(!Path::new(&inside).exists());
}

#[test]
fn entries_of_a_device_table_have_room() {
    let (dir, _) = with_tree(25);
    let table = "/dev d 755 0 0 - - - - -\n/dev/tty c 666 0 0 4 0 0 1 500\n";
    fs::write(dir.path().join("table"), table).expect("it can be written");
    shell(
        dir.path(),
        "$N mkfs -q -d tree --owners table --free 0 -O ^has_journal a.img; \
         $N ls a.img:/dev | grep -q tty499",
    );
    e2fs::assert_clean(&dir.path().join("a.img"));
}

#[test]
fn a_stream_is_measured_and_kept() {
    let (dir, top) = with_tree(26);
    shell(
        dir.path(),
        "find tree -type s -delete; tar -S --format=pax -C tree -cf t.tar . \
         && cp t.tar tree.tar && head -c 12M /dev/urandom > large && tar -rf t.tar large",
    );
    let image = dir.path().join("a.img");
    for options in ["", "-O ^has_journal", "-t ext2", "-t ext3"] {
        for free in ["", "--free 0", "--free 5%"] {
            let line = format!(
                "export SOURCE_DATE_EPOCH=1000000000 H='-U clear -E hash_seed=clear'; rm -f ?.img; \
                 mkdir out; $N mkfs -q $H {options} -d t.tar {free} a.img && \
                 cat t.tar | $N mkfs -q $H {options} -d - {free} out/b.img && \
                 cmp a.img out/b.img && rm out/b.img && rmdir out"
            );
            shell(dir.path(), &line);
            e2fs::assert_clean(&image);
        }
    }
    for options in OPTIONS {
        if options.contains(&"1024") || options.contains(&"2048") {
            continue; // Some names of links are too long for these blocks.
        }
        let source = dir.path().join("t.tar");
        let source = source.to_str().expect("plain");
        let path = image.to_str().expect("plain");
        let _ = fs::remove_file(&image);
        let made = make(&[options, &["-d", source, "--free", "0", path]].concat());
        assert!(made.is_full(), "{options:?}: {made:?}");
    }
    shell(dir.path(), "rm -f a.img; $N mkfs -q -d - a.img < tree.tar");
    e2fs::assert_clean(&image);
    let how = Compare { xattrs: false, times: false, ..all() };
    assert_same(&tree(&top), &need!(mounted(&image, "")), &how);
}

#[test]
fn a_stream_that_cannot_be_measured_leaves_nothing() {
    let (dir, _) = with_tree(27);
    shell(
        dir.path(),
        "find tree -type s -delete; tar -C tree -cf t.tar . && head -c 90000 t.tar > cut.tar",
    );
    let image = dir.path().join("a.img");
    let path = image.to_str().expect("plain");
    let cut = dir.path().join("cut.tar");
    let cut = cut.to_str().expect("plain");
    fails(&["mkfs", "-q", "-d", cut, path], 1, "ends in the middle");
    assert!(!image.exists());
    fs::write(&image, "old").expect("it can be written");
    fails(&["mkfs", "-q", "-d", cut, "--free", "0", path], 1, "ends in the middle");
    assert_eq!(fs::read(&image).expect("it is there"), b"old");
    fs::remove_file(&image).expect("it is there");
    shell(dir.path(), "! $N mkfs -q -d - new.img < cut.tar 2> said && grep -q middle said");
    shell(dir.path(), "test $(wc -l < said) = 1 && test ! -e new.img");
    let names = fs::read_dir(dir.path()).expect("it is there").count();
    assert_eq!(names, 4, "a tree, two streams and the message");
}
