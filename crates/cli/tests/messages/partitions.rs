//! Parts of disk images: every command works on a partition, and changes no other byte.

use crate::{run, shell, works};
use nextent_testkit::{Access, DiskImage, KernelMount, e2fs, need};
use std::path::Path;

/// Disks with the words that name sectors of 4096 bytes where the table does not.
fn disks(dir: &Path) -> Vec<(DiskImage, &'static str)> {
    let gpt = |name: &str, sector| {
        let parts = [("boot", 1, 8), ("root", 10, 20), ("data", 30, 10)];
        DiskImage::gpt(&dir.join(name), 42, sector, &parts)
    };
    let mbr = |name: &str, sector| {
        DiskImage::mbr(&dir.join(name), 42, sector, (1, 8), &[(10, 16), (27, 12)])
    };
    vec![
        (gpt("gpt", 512), ""),
        (gpt("gpt4k", 4096), ""),
        (mbr("mbr", 512), ""),
        (mbr("mbr4k", 4096), ",sector=4096"),
    ]
}

/// Runs each command on the partition `X`, which is empty.
fn all_commands(dir: &Path, part: &str, outside: &dyn Fn(&str)) {
    let lines = [
        "$N mkfs -q -L here X < /dev/null",
        "$N mkdir X:/d && $N cp -q -a tree X:/d && $N cp -q X:/d/tree/a - 2> /dev/null; rm -f ./-",
        "$N cp -q X:/d/tree/a out && cmp out tree/a && $N cat X:/d/tree/a | cmp - tree/a",
        "$N ls -l X:/d | grep tree > out && $N tree X:/ | grep '^X:/$' > out && $N stat X:/d > out",
        "$N mv X:/d/tree/a X:/d/b && $N ln X:/d/b X:/c && $N ln -s c X:/l && $N chmod 600 X:/c",
        "$N chown 1:2 X:/c && $N truncate -s 1m X:/e && $N fallocate -l 1m X:/f && $N rm X:/f",
        "$N tar -c X:/d > out.tar && $N mkdir X:/t && $N tar -x -q X:/t < out.tar",
        "$N replay X | grep '^X: clean' > out && $N fsck -n -f X | grep '^X: ' > out",
        "$N touch X:/p && $N mknod X:/n p && $N setxattr X:/p user.a b && $N trim -q X",
        "echo mkdir /edited | $N edit --atomic X > out && $N ls X:/ | grep edited > out",
        "$N e2label X here && $N e2label X | grep '^here$' > out && $N tune2fs -l X > out",
        "$N dumpe2fs -h X > out 2> out2 && grep 'volume name: *here' out > out2",
        "$N info X | grep 'volume name: *here' > out && $N fsck -p X | grep clean > out",
    ];
    for line in lines {
        shell(dir, &line.replace('X', part));
        outside(line);
    }
}

#[test]
fn each_command_works_on_each_partition() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    shell(dir, "mkdir tree; seq 20000 > tree/a; ln tree/a tree/b; ln -s a tree/c");
    for (disk, sector) in disks(dir) {
        let name = disk.path().file_name().unwrap().to_str().unwrap();
        let length = std::fs::metadata(disk.path()).unwrap().len();
        // All partitions of two disks, and one of the others.
        let some = if matches!(name, "gpt" | "mbr4k") { 0..3 } else { 1..2 };
        for (number, bytes) in &disk.parts[some.clone()] {
            let before = disk.outside(bytes);
            all_commands(dir, &format!("{name}@{number}{sector}"), &|line| {
                assert!(before == disk.outside(bytes), "{name}@{number}: {line}: another part");
            });
            disk.extract(bytes, &dir.join("part"));
            e2fs::assert_clean(&dir.join("part"));
        }
        assert_eq!(length, std::fs::metadata(disk.path()).unwrap().len());
        // With superblocks in its partitions, an MBR says the size of its sectors itself.
        let (number, _) = &disk.parts[1];
        assert!(works(dir, &["ls", &format!("{name}@{number}:/")]).contains("lost+found"));
        for (_, bytes) in &disk.parts[some] {
            let how = format!("offset={},sizelimit={}", bytes.start, bytes.end - bytes.start);
            let kernel = need!(KernelMount::with_options(disk.path(), Access::ReadWrite, &how));
            assert!(kernel.path().join("d/b").exists());
        }
    }
}

/// A file system fills exactly its partition, and one that would be larger is refused.
#[test]
fn mkfs_fills_a_partition() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let disk = DiskImage::gpt(&dir.join("disk"), 34, 512, &[("a", 1, 16), ("b", 17, 16)]);
    works(dir, &["mkfs", "-q", "-b", "4096", "disk@1"]);
    assert!(works(dir, &["info", "disk@1"]).contains("Block count:              4096\n"));
    let before = std::fs::read(disk.path()).unwrap();
    for (args, words) in [
        (
            &["mkfs", "-q", "disk@1", "17m"][..],
            "17825792 bytes do not fit in this part of 16777216",
        ),
        (&["mkfs", "-q", "disk@3"], "there are 1, 2"),
        (&["mkfs", "-q", "-E", "offset=1m", "disk@1"], "exclude each other"),
        (&["mkfs", "-q", "disk@offset=33m,size=2m"], "need more"),
        (&["mkfs", "-q", "disk@label=c"], "there are \"a\", \"b\""),
        (&["mkfs", "-q", "other@2", "1m"], "other: No such file"),
        (&["mkfs", "-q", "disk@x"], "after @ there must be"),
    ] {
        let output = run(dir, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{args:?}: {said}");
        assert!(before == std::fs::read(disk.path()).unwrap(), "{args:?}");
    }
    assert!(!dir.join("other").exists() && !dir.join("other@2").exists());
    works(dir, &["mkfs", "-q", "-b", "1024", "disk@2", "8m"]);
    assert!(works(dir, &["info", "disk@2"]).contains("Block count:              8192\n"));
    works(dir, &["mkfs", "-n", "disk@2"]);
    // From a directory, which may not fit.
    shell(
        dir,
        "mkdir small large; seq 1000 > small/a; head -c 20000000 /dev/zero | tr '\\0' x > large/a",
    );
    let output = run(dir, &["mkfs", "-q", "--free", "1m", "-d", "small", "disk@2"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("leave out --free"));
    works(dir, &["mkfs", "-q", "-d", "small", "disk@2"]);
    let output = run(dir, &["mkfs", "-q", "-d", "large", "disk@1"]);
    assert!(!output.status.success());
    let now = std::fs::read(disk.path()).unwrap();
    assert!(before[..1 << 20] == now[..1 << 20] && before[33 << 20..] == now[33 << 20..]);
    disk.extract(&disk.parts[1].1, &dir.join("part"));
    e2fs::assert_clean(&dir.join("part"));
}

/// A volume that ends beyond its partition is refused as a truncated one.
#[test]
fn a_volume_larger_than_its_partition_is_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let disk = DiskImage::gpt(&dir.join("disk"), 34, 512, &[("a", 1, 16), ("b", 17, 16)]);
    shell(dir, "$N mkfs -q whole 20m; dd if=whole of=disk bs=1M seek=1 conv=notrunc 2> dd.out");
    let before = std::fs::read(disk.path()).unwrap();
    for args in [&["ls", "disk@1:/"][..], &["mkdir", "disk@1:/d"], &["replay", "disk@1"]] {
        let output = run(dir, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("disk@1: ") && said.contains("cut short"), "{args:?}: {said}");
        assert!(before == std::fs::read(disk.path()).unwrap(), "{args:?}");
    }
    assert!(works(dir, &["ls", "disk@offset=1m:/"]).contains("lost+found"));
    assert!(works(dir, &["ls", "disk@offset=1m,size=20m:/"]).contains("lost+found"));
}

#[test]
fn partitions_are_found_by_name_and_identifier() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let parts = [("boot", 1, 4), ("root fs@1", 5, 4), ("boot", 9, 4)];
    let _gpt = DiskImage::gpt(&dir.join("gpt"), 14, 512, &parts);
    let _mbr = DiskImage::mbr(&dir.join("mbr"), 14, 512, (1, 4), &[(6, 4)]);
    for part in ["gpt@2", "mbr@5"] {
        works(dir, &["mkfs", "-q", part]);
        works(dir, &["mkdir", &format!("{part}:/{}", &part[..3])]);
    }
    for (name, found) in [
        ("gpt@label=root fs@1", "gpt"),
        ("gpt@uuid=02020202-0202-0202-0202-020202020202", "gpt"),
        ("./gpt@offset=5m,size=4m", "gpt"),
        ("gpt?offset=5242880", "gpt"),
        ("mbr@uuid=1234ABCD-05", "mbr"),
    ] {
        assert!(works(dir, &["ls", &format!("{name}:/")]).contains(found), "{name}");
    }
    for (name, words) in [
        ("gpt@label=boot", "use gpt@1 or gpt@3"),
        ("gpt@uuid=1", "there are 01010101-"),
        ("mbr@label=boot", "the table (MBR) has none"),
        ("mbr@2", "it is extended"),
        ("gpt@1", "no ext file system here"),
        ("gpt@offset=x", "'x' is not a size"),
    ] {
        let output = run(dir, &["ls", &format!("{name}:/")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{name}: {said}");
        assert!(said.contains(&name[..3]) && said.lines().count() == 1, "{said}");
    }
    works(dir, &["mkfs", "-q", "plain", "8m"]);
    let output = run(dir, &["ls", "plain@1:/"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("plain has no partition table"));
}

/// Names with an `@` that are not parts.
#[test]
fn files_and_directories_may_have_an_at_sign() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::create_dir(dir.join("dir@2")).unwrap();
    shell(dir, "$N mkfs -q plain@2 8m 2> /dev/null && exit 1; truncate -s 8m plain@2 plain");
    let _disk = DiskImage::gpt(&dir.join("dir@2/disk"), 14, 512, &[("a", 1, 4), ("b", 5, 4)]);
    for image in ["plain@2", "dir@2/disk@2"] {
        works(dir, &["mkfs", "-q", image]);
        works(dir, &["mkdir", &format!("{image}:/x@1:")]);
        assert!(works(dir, &["ls", &format!("{image}:/")]).contains("x@1:"));
    }
    works(dir, &["mkfs", "-q", "dir@2/new", "8m"]);
    // The file, not a part of `plain`.
    e2fs::assert_clean(&dir.join("plain@2"));
    assert!(std::fs::read(dir.join("plain")).unwrap().iter().all(|byte| *byte == 0));
}

/// Two partitions of one file are two images.
#[test]
fn copies_go_between_partitions() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let disk = DiskImage::gpt(&dir.join("disk"), 34, 512, &[("a", 1, 16), ("b", 17, 16)]);
    std::os::unix::fs::symlink("disk", dir.join("link")).unwrap();
    shell(
        dir,
        "mkdir t; seq 9999 > t/a; ln t/a t/b; $N mkfs -q -d t disk@1; $N mkfs -q disk@2
         $N cp -q -a disk@1:/a disk@1:/b disk@2:/ && $N cat disk@2:/b | cmp - t/a
         $N cp -q disk@2:/a disk@label=a:/c && $N cp -q link@2:/a disk@label=b:/d
         [ $($N stat --json disk@2:/a | grep -c '\"links\": 2') = 1 ]
         $N mkdir disk@1:/x disk@2:/y && $N ls disk@1:/ disk@2:/ > out
         $N mv link@1:/x disk@offset=1m,size=16m:/z",
    );
    let output = run(dir, &["mv", "disk@1:/z", "disk@2:/z"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in another image; use cp"));
    let output = run(dir, &["ln", "disk@1:/a", "disk@2:/z"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("is in another image"));
    for (_, bytes) in &disk.parts {
        disk.extract(bytes, &dir.join("part"));
        e2fs::assert_clean(&dir.join("part"));
    }
}

/// Tables that cannot be right: one line, no change, no hang.
#[test]
fn hostile_tables_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _gpt = DiskImage::gpt(&dir.join("overlap"), 14, 512, &[("a", 1, 6), ("b", 5, 4)]);
    let _gpt = DiskImage::gpt(&dir.join("beyond"), 14, 512, &[("a", 1, 1000)]);
    let _gpt = DiskImage::gpt(&dir.join("broken"), 14, 512, &[("a", 1, 4)]);
    let _mbr = DiskImage::mbr(&dir.join("circle"), 14, 512, (1, 4), &[(6, 2), (9, 2)]);
    shell(
        dir,
        r"printf '\377\377\377\377' | dd of=broken bs=1 seek=592 conv=notrunc 2> /dev/null
          truncate -s -1m broken
          # The table of the last logical partition names itself as the next one.
          printf '\5\0\0\0\0\030\0\0\1\0\0\0' | dd of=circle bs=1 \
              seek=$((8 * 1048576 + 466)) conv=notrunc 2> /dev/null",
    );
    for (part, words) in [
        ("overlap@1", "partition 1 cannot be used: it overlaps partition 2"),
        ("overlap@2", "partition 2 cannot be used: it overlaps partition 1"),
        ("beyond@1", "are outside of those for partitions"),
        ("broken@1", "the partition table (GPT) is damaged: the checksum of its header is wrong"),
        ("circle@1", "is damaged: the tables of its extended partition form a circle"),
    ] {
        let file = part.split('@').next().unwrap();
        let before = std::fs::read(dir.join(file)).unwrap();
        for args in [&["mkfs", "-q", part][..], &["fsck", "-n", part], &["info", part]] {
            let output = run(dir, args);
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{args:?}");
            assert!(said.contains(words) && said.lines().count() == 1, "{args:?}: {said}");
            assert!(before == std::fs::read(dir.join(file)).unwrap(), "{args:?}");
        }
    }
}

/// `info` of a disk shows its partitions and what they contain.
#[test]
fn info_lists_the_partitions_of_a_disk() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let parts = [("efi", 1, 4), ("ro\u{1b}ot", 5, 8), ("data", 13, 4), ("swap", 17, 4)];
    let _gpt = DiskImage::gpt(&dir.join("disk"), 22, 512, &parts);
    shell(
        dir,
        r"$N mkfs -q -L here -U 11111111-2222-3333-4444-555555555555 disk@2
          $N mkfs -q -t ext3 disk@3; printf XFSB | dd of=disk bs=1M seek=1 conv=notrunc 2> out
          head -c 4m /dev/zero | dd of=disk bs=1M seek=17 conv=notrunc 2> out",
    );
    let before = std::fs::read(dir.join("disk")).unwrap();
    let said = works(dir, &["info", "disk"]);
    for words in [
        "disk: a disk, GPT, sectors of 512 bytes, 4 partitions\n",
        "     1         1048576         4194304  Linux filesystem      'efi': an XFS file system\n",
        "'ro\\u{1b}ot': ext4, label 'here', UUID 11111111-2222-3333-4444-555555555555\n",
        "'data': ext3, label '', UUID ",
        "'swap': nothing (zeros)\n",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let said = works(dir, &["info", "--json", "disk"]);
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&found["table"], &found["sector"]), (&"GPT".into(), &512.into()));
    let second = &found["partitions"][1];
    assert_eq!((&second["number"], &second["start"]), (&2.into(), &(5 << 20).into()));
    assert_eq!((&second["image"], &second["fault"]), (&"disk@2".into(), &serde_json::Value::Null));
    assert_eq!(second["type"], "0fc63daf-8483-4772-8e79-3d69d8477de4");
    assert_eq!(second["uuid"], "02020202-0202-0202-0202-020202020202");
    assert_eq!(
        (&second["contents"]["family"], &second["contents"]["label"]),
        (&"ext4".into(), &"here".into())
    );
    assert_eq!(found["partitions"][0]["contents"]["other"], "an XFS file system");
    // Another command names the partitions to use.
    let output = run(dir, &["ls", "disk:/"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("; use disk@2 or disk@3") && said.lines().count() == 1, "{said}");
    assert!(before == std::fs::read(dir.join("disk")).unwrap());
    let _mbr = DiskImage::mbr(&dir.join("mbr"), 22, 512, (1, 4), &[(7, 4)]);
    let said = works(dir, &["info", "mbr"]);
    assert!(said.contains("MBR") && said.contains("     2 ") && said.contains("it is extended"));
    // A file system has no table, although its first block may have one.
    works(dir, &["mkfs", "-q", "plain", "8m"]);
    assert!(works(dir, &["info", "plain"]).contains("Filesystem volume name"));
}
