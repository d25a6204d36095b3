//! `info --plot`: the picture has the counts of dumpe2fs, is well-formed, and harms no other file.

use super::{Image, shell};
use nextent_testkit::{DiskImage, e2fs};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The numbers of a picture: those of its root, and the blocks of each use.
struct Picture {
    text: String,
    data: BTreeMap<String, u64>,
    uses: BTreeMap<String, u64>,
}

impl Picture {
    #[track_caller]
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let (mut data, mut uses) = (BTreeMap::new(), BTreeMap::new());
        for (name, attributes) in elements(&text) {
            let blocks = |key: &str| attributes.get(key).map(|blocks| blocks.parse().unwrap());
            if name == "svg" {
                let numbers = attributes.iter().filter_map(|(key, value)| {
                    Some((key.strip_prefix("data-")?.to_owned(), value.parse().unwrap()))
                });
                data.extend(numbers);
            } else if let Some(kind) = attributes.get("data-use") {
                uses.insert(kind.clone(), blocks("data-blocks").unwrap());
            }
        }
        Self { text, data, uses }
    }

    fn of(&self, kind: &str) -> u64 {
        self.uses.get(kind).copied().unwrap_or(0)
    }
}

/// The elements of a document that must be well-formed, with their attributes. It has no comments
/// and no sections of CDATA.
#[track_caller]
fn elements(text: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let bad = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{fffe}' | '\u{ffff}');
    assert!(!text.contains(bad), "a character that XML has not");
    let body = text.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n").unwrap();
    let (mut found, mut open) = (Vec::new(), Vec::new());
    for part in body.split('<').skip(1) {
        let (tag, content) = part.split_once('>').unwrap();
        entities_are_known(content);
        assert!(open.len() < 20 && !content.contains('>'), "{part}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        let (tag, closed) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = BTreeMap::new();
        while !rest.is_empty() {
            let (key, after) = rest.split_once("=\"").unwrap();
            let (value, after) = after.split_once('"').unwrap();
            entities_are_known(value);
            assert!(attributes.insert(key.to_owned(), value.to_owned()).is_none(), "{tag}");
            assert!(after.is_empty() || after.starts_with(' '), "{tag}");
            rest = after.trim_start();
        }
        found.push((name.to_owned(), attributes));
        if !closed {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    found
}

#[track_caller]
fn entities_are_known(text: &str) {
    for entity in text.split('&').skip(1) {
        let (name, _) = entity.split_once(';').unwrap();
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "&{name};");
    }
}

/// A number that dumpe2fs shows.
#[track_caller]
fn shown(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(&format!("{name}:")));
    line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

#[track_caller]
fn plot(image: &Image) -> Picture {
    image.ok(&["info", "--plot", "IMAGE.svg", "IMAGE"]);
    Picture::read(&image.dir.path().join("image.svg"))
}

#[test]
fn totals_are_those_of_dumpe2fs() {
    let image = Image::new();
    shell(
        &image,
        "mkdir -p s/d/e; head -c 700000 /dev/zero > s/big; for n in 1 2 3; do echo > s/d/$n; done",
    );
    let source = image.dir.path().join("s");
    let source = source.to_str().unwrap();
    for (size, args) in [
        (64, "-t ext4 -b 4096"),
        (40, "-t ext4 -b 1024 -g 8192 -G 4"),
        (30, "-t ext4 -b 1024 -O ^has_journal,^resize_inode -N 100000"),
        (30, "-t ext2 -b 2048 -m 0"),
        (40, "-t ext3 -b 1024 -J size=2"),
        (300, "-t ext4 -b 4096 -O bigalloc -C 65536 -d SOURCE"),
        (40, "-t ext4 -b 1024 -O meta_bg,^resize_inode"),
        (1, "-t ext4 -b 1024 -O ^has_journal"),
    ] {
        let args: Vec<&str> =
            args.split(' ').map(|arg| if arg == "SOURCE" { source } else { arg }).collect();
        let Ok(()) = e2fs::mke2fs(&image.path(), size << 20, &args) else { return };
        let files = if args.contains(&source) { 4 } else { 5 * u64::from(size > 1) };
        if files == 5 {
            shell(
                &image,
                "$N cp -q -r s/big s/d $i:/; f=$i:/d/unwritten; \
                 $N fallocate -l 200k $f 2> /dev/null || $N touch $f",
            );
        }
        let picture = plot(&image);
        let theirs = e2fs::dumpe2fs(&image.path(), true).unwrap();
        let (blocks, free) = (shown(&theirs, "Block count"), shown(&theirs, "Free blocks"));
        let all: u64 = picture.uses.values().sum();
        assert_eq!((all, picture.of("free")), (blocks, free), "{args:?} {:?}", picture.uses);
        let number = |name: &str| picture.data[name];
        assert_eq!(number("blocks"), blocks);
        assert_eq!(number("inodes") - number("inodes-used"), shown(&theirs, "Free inodes"));
        let groups = number("groups");
        assert_eq!(picture.of("bitmaps"), groups * 2, "{args:?}");
        let tables = groups * shown(&theirs, "Inode blocks per group");
        assert_eq!(picture.of("inodes_used") + picture.of("inodes_unused"), tables, "{args:?}");
        let log = shown(&theirs, "Total journal blocks");
        assert!((log..=log + 40).contains(&picture.of("journal")), "{args:?} {log}");
        assert_eq!(picture.of("unowned") + picture.of("unreadable"), 0, "{args:?}");
        let directories = if files > 0 { 4 } else { 2 };
        assert_eq!((number("files"), number("directories")), (files, directories), "{args:?}");
        e2fs::assert_clean(&image.path());
    }
}

/// The same volume gives the same bytes, by any name, and beside other output.
#[test]
fn a_picture_depends_on_the_volume_alone() {
    let image = Image::new();
    image.ok(&["mkdir", "IMAGE:/d"]);
    let text = image.ok(&["info", "--groups", "IMAGE"]);
    assert_eq!(image.ok(&["info", "--groups", "--plot", "IMAGE.svg", "IMAGE"]), text);
    let json = image.ok(&["info", "--groups", "--json", "IMAGE"]);
    assert_eq!(image.ok(&["info", "--json", "--groups", "--plot", "IMAGE.2", "IMAGE"]), json);
    shell(
        &image,
        "cmp image.svg image.2; cp $i other; $N info --plot - other > image.2; \
         cmp image.svg image.2; mkdir at; cd at; $N info --plot here.svg ../$i > text; \
         cmp here.svg ../image.svg; $N info --plot ../image.2 ../$i > text; ls -A > names; \
         [ \"$(cat names | tr '\\n' ' ')\" = 'here.svg names text ' ]",
    );
    image.fails(&["info", "--plot", "-", "--json", "IMAGE"], 2);
}

#[test]
fn a_label_is_text() {
    let image = Image::new();
    image.ok(&["mkfs", "-q", "-L", "<&\">']]>\u{e9}", "IMAGE", "8m"]);
    let text = plot(&image).text;
    assert!(
        text.contains("<title>\u{201c}&lt;&amp;&quot;&gt;&#39;]]&gt;\u{e9}\u{201d}, UUID "),
        "{text}"
    );
    // The primary superblock's label, and no checksum over it.
    image.ok(&["mkfs", "-q", "-O", "^metadata_csum", "-L", "x", "IMAGE", "8m"]);
    let mut bytes = std::fs::read(image.path()).unwrap();
    bytes[1024 + 0x78..][..8].copy_from_slice(b"\xff\x01\x1b[<a>\xc3");
    std::fs::write(image.path(), bytes).unwrap();
    let text = plot(&image).text;
    assert!(
        text.contains("<title>\u{201c}\\xff\\u{1}\\u{1b}[&lt;a&gt;\\xc3\u{201d}, UUID "),
        "{text}"
    );
}

#[test]
fn other_files_stay() {
    let image = Image::new();
    shell(&image, "ln $i twin; ln -s $i link; echo old > kept; chmod 640 kept; ln -s kept linked");
    for name in ["image", "twin", "link"] {
        let path = image.dir.path().join(name).display().to_string();
        let said = image.fails(&["info", "--plot", &path, "IMAGE"], 1);
        assert!(said.contains("is the image"), "{said}");
    }
    shell(
        &image,
        "$N info --plot linked $i > text; [ -L linked ]; [ $(stat -c %a kept) = 640 ]; \
         grep -q '^</svg>' kept",
    );
    image.fails(&["info", "--plot", "/dev/full", "IMAGE"], 1);
    image.fails(&["info", "--plot", "IMAGE.none/x.svg", "IMAGE"], 1);
    image.fails(&["info", "--plot", "/", "IMAGE"], 1);
    shell(&image, "head -c 100000 /dev/zero > zeros; cp kept before");
    let zeros = image.dir.path().join("zeros");
    let kept = image.dir.path().join("kept").display().to_string();
    let mut failing = Command::new(env!("CARGO_BIN_EXE_nextent"));
    let output = failing.args(["info", "--plot", &kept]).arg(zeros).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    shell(&image, "cmp kept before; [ \"$(ls -A | grep -c nextent)\" = 0 ] || false");
}

#[test]
fn a_partition_has_a_picture() {
    let image = Image::new();
    let disk = DiskImage::gpt(&image.dir.path().join("disk"), 20, 512, &[("root", 2, 16)]);
    let (disk, part) = (disk.path().display().to_string(), "@1");
    let part = format!("{disk}{part}");
    image.ok(&["mkfs", "-q", "-L", "root", &part]);
    let said = image.fails(&["info", "--plot", "IMAGE.svg", &disk], 1);
    assert!(said.contains(&format!("use {part}")), "{said}");
    let said = image.fails(&["info", "--plot", &disk, &part], 1);
    assert!(said.contains("is the image"), "{said}");
    image.ok(&["info", "--plot", "IMAGE.svg", &part]);
    let picture = Picture::read(&image.dir.path().join("image.svg"));
    assert_eq!(picture.uses.values().sum::<u64>() * picture.data["block-size"], 16 << 20);
}

/// What can be read of a damaged volume is shown, the same each time, and the rest is named.
#[test]
fn damage_is_shown() {
    let image = Image::new();
    shell(&image, "head -c 20000 /dev/urandom > f");
    let Ok(()) = e2fs::mke2fs(&image.path(), 20 << 20, &["-t", "ext2", "-b", "1024"]) else {
        return;
    };
    shell(&image, "$N cp -q f $i:/a; $N cp -q f $i:/b; $N cp -q f $i:/c");
    // Two files share a block, another block in use is free in its bitmap, a third has no owner.
    let stat = e2fs::debugfs(&image.path(), false, &["blocks /a"]).unwrap();
    let blocks: Vec<&str> =
        stat.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).collect();
    let share = format!("sif /b block[0] {}", blocks[0]);
    let free = format!("freeb {}", blocks[3]);
    e2fs::debugfs(&image.path(), true, &[&share, &free, "setb 20000"]).unwrap();
    let damaged = plot(&image);
    for what in ["owner, of which the first is shown: 1.", "free in the bitmap: 1."] {
        assert!(damaged.text.contains(what), "{what}");
    }
    assert!(damaged.of("unowned") >= 1);
    assert_eq!(damaged.uses.values().sum::<u64>(), 20 << 10);
    assert_eq!(plot(&image).text, damaged.text);
    // The second half is missing.
    shell(&image, "truncate -s 10m $i");
    let half = plot(&image);
    assert!(half.of("unreadable") > 1000, "{:?}", half.uses);
    assert_eq!(half.uses.values().sum::<u64>(), 20 << 10);
    // Both superblocks of group 0 and 1, and the descriptors.
    shell(
        &image,
        "rm $i.svg; dd if=/dev/zero of=$i bs=1k seek=1 count=200 conv=notrunc 2> /dev/null; \
         ! $N info --plot $i.svg $i > text 2>&1 || [ -s $i.svg ]",
    );
}
