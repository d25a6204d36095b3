//! Damage of known kinds, made by debugfs. The check must report each kind that e2fsck reports.
//! Damaged copies of superblock and descriptors are notes, not errors.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nextent::check::Severity;
use nextent_testkit::{Skip, e2fs, need};

use super::support::{TestImage, lines, ours};

/// A name, and debugfs commands separated by `;`. `B(path)` is a file's first block, `N(path)` its
/// first extent node, `I(path)` its inode number; `FREEB` and `FREEI` are a free block and inode.
const MUTATIONS: &[(&str, &str)] = &[
    ("file cleared", "clri /file"),
    ("directory cleared", "clri /dir"),
    ("root cleared", "clri <2>"),
    ("journal cleared", "clri <8>"),
    ("links of a file", "sif /file links_count 5"),
    ("links of a directory", "sif /dir links_count 9"),
    ("no links", "sif /file links_count 0"),
    ("size before blocks", "sif /file size 1"),
    ("size of a directory", "sif /dir size 5000"),
    ("size of a link", "sif /short size 3000"),
    ("size of the journal", "sif <8> size 1024"),
    ("sectors", "sif /file blocks 2"),
    ("no such type", "sif /file mode 0170644"),
    ("file says directory", "sif /file mode 040755"),
    ("directory says file", "sif /dir mode 0100644"),
    ("root says file", "sif <2> mode 0100755"),
    ("link says file", "sif /short mode 0100777"),
    ("deleted but used", "sif /file dtime 1234567"),
    ("block in use is free", "freeb B(/file)"),
    ("free block in use", "setb FREEB"),
    ("inode in use is free", "freei /file"),
    ("free inode in use", "seti <FREEI>"),
    ("name lost", "unlink /file"),
    ("name without count", "ln /file /again"),
    ("directory with two names", "ln /dir /sub/again"),
    ("entry of a free inode", "ln <FREEI> /nothing"),
    ("lost+found lost", "unlink /lost+found"),
    ("extent magic", "sif /file block[0] 0"),
    ("extent depth", "sif /file block[1] 0x00070004"),
    ("extent of no length", "sif /file block[4] 0"),
    ("extent outside", "sif /file block[5] 0x7fffffff"),
    ("extent on the superblock", "sif /file block[5] 1"),
    ("extent on another's block", "sif /file block[5] B(/other)"),
    ("node outside", "sif /holes block[4] 0x7fffffff"),
    ("node on data", "sif /holes block[4] B(/other)"),
    ("no extents flag", "sif /file flags 0"),
    ("attributes outside", "sif /file file_acl 0x7fffffff"),
    ("attributes on data", "sif /file file_acl B(/other)"),
    ("extra size", "sif /file extra_isize 4000"),
    ("inode checksum", "sif /file checksum 0x12345678"),
    ("free blocks of the volume", "ssv free_blocks_count 5"),
    ("free inodes of the volume", "ssv free_inodes_count 5"),
    ("free blocks of a group", "set_bg 0 free_blocks_count 1;set_bg 0 checksum calc"),
    ("free inodes of a group", "set_bg 0 free_inodes_count 1;set_bg 0 checksum calc"),
    ("directories of a group", "set_bg 0 used_dirs_count 77;set_bg 0 checksum calc"),
    ("block bitmap elsewhere", "set_bg 0 block_bitmap B(/other);set_bg 0 checksum calc"),
    ("inode table elsewhere", "set_bg 0 inode_table B(/other);set_bg 0 checksum calc"),
    ("entry length", "zap_block -f /dir -o 4 -l 2 -p 1 0"),
    ("name length", "zap_block -f /dir -o 30 -l 1 -p 255 0"),
    ("inode of an entry", "zap_block -f /dir -o 24 -l 4 -p 127 0"),
    ("self", "zap_block -f /dir -o 0 -l 1 -p 2 0"),
    ("parent", "zap_block -f /sub -o 12 -l 1 -p 11 0"),
    ("type of an entry", "zap_block -f /dir -o 31 -l 1 -p 6 0"),
    ("name with a slash", "zap_block -f /dir -o 32 -l 1 -p 47 0"),
    ("index of a directory", "zap_block -f /big -o 28 -l 1 -p 99 0"),
    ("limit of an index", "zap_block -f /big -o 32 -l 1 -p 3 0"),
    ("leaf of an index", "zap_block -f /big -o 36 -l 2 -p 200 0"),
    ("empty directory block", "zap_block -f /big 1"),
    ("node zeroed", "zap_block N(/holes)"),
];

/// A tree with files of every kind.
pub(crate) fn base(args: &str) -> Result<TestImage, Skip> {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("dir")).unwrap();
    std::fs::create_dir(tree.join("sub")).unwrap();
    std::fs::create_dir(tree.join("big")).unwrap();
    std::fs::write(tree.join("file"), vec![1; 20_000]).unwrap();
    std::fs::write(tree.join("other"), vec![2; 9000]).unwrap();
    std::fs::write(tree.join("dir/inside"), b"some text").unwrap();
    std::fs::write(tree.join("sub/below"), b"some text").unwrap();
    std::os::unix::fs::symlink("target", tree.join("short")).unwrap();
    for n in 0..200 {
        std::fs::write(tree.join(format!("big/a-file-with-number-{n}")), b"").unwrap();
    }
    let holes = File::create(tree.join("holes")).unwrap();
    for n in 0..20 {
        holes.write_all_at(&[3; 1024], n * 40_960).unwrap();
    }
    let made = TestImage { dir };
    let args: Vec<&str> = args.split_whitespace().chain(["-d", tree.to_str().unwrap()]).collect();
    e2fs::mke2fs(&made.path(), 16 << 20, &args)?;
    e2fs::run("e2fsck", ["-fyD", made.path().to_str().unwrap()])?;
    Ok(made)
}

fn asked(path: &Path, command: &str) -> String {
    let text = e2fs::debugfs(path, false, &[command]).unwrap();
    // The command is echoed first.
    text.lines().skip(1).collect::<Vec<_>>().join("\n")
}

fn number(text: &str) -> String {
    text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect()
}

/// `command` with the placeholders replaced.
pub(crate) fn filled(path: &Path, command: &str) -> String {
    let mut out = command.to_owned();
    for (mark, ask) in [("B(", "bmap"), ("N(", "stat"), ("I(", "inode")] {
        if let Some((head, rest)) = out.clone().split_once(mark) {
            let (name, tail) = rest.split_once(')').unwrap();
            let found = match ask {
                "bmap" => number(&asked(path, &format!("bmap {name} 0"))),
                "inode" => number(&asked(path, &format!("stat {name}"))),
                _ => number(asked(path, &format!("stat {name}")).split("(ETB0):").nth(1).unwrap()),
            };
            out = format!("{head}{found}{tail}");
        }
    }
    if out.contains("FREEB") {
        out = out.replace("FREEB", &number(asked(path, "ffb 1 9000").split(':').nth(1).unwrap()));
    }
    if out.contains("FREEI") {
        out = out.replace("FREEI", &number(asked(path, "ffi").split(':').nth(1).unwrap()));
    }
    out
}

/// Applies each kind of damage to the image. Returns how many e2fsck reports, and a text for each
/// disagreement.
fn compare(made: &TestImage, args: &str) -> (usize, Vec<String>) {
    let sound = std::fs::read(made.path()).unwrap();
    let (mut seen, mut wrong) = (0, Vec::new());
    for (what, commands) in MUTATIONS {
        std::fs::write(made.path(), &sound).unwrap();
        let commands = filled(&made.path(), commands);
        let list: Vec<&str> = commands.split(';').collect();
        let said = e2fs::debugfs(&made.path(), true, &list).unwrap();
        let theirs = e2fs::e2fsck(&made.path()).unwrap();
        let report = ours(&made.path());
        let clean = report.as_ref().is_ok_and(|report| report.is_clean());
        seen += usize::from(!theirs.is_clean());
        // Skip images that the check refuses, for which the exit code of fsck differs.
        if clean != theirs.is_clean() || report.is_err() {
            let text = lines(&report);
            let (code, theirs) = (theirs.code, theirs.text);
            let done = format!("{args}: {what}: {commands}\n{said}");
            wrong.push(format!("{done}ours:\n{text}e2fsck {code}:\n{theirs}\n"));
        }
    }
    std::fs::write(made.path(), &sound).unwrap();
    (seen, wrong)
}

#[test]
fn damage_by_debugfs_is_reported() {
    for args in ["-t ext4 -b 1024", "-t ext4 -b 1024 -O ^metadata_csum,^64bit"] {
        let made = need!(base(args));
        need!(e2fs::e2fsck(&made.path())).assert_clean();
        let (seen, wrong) = compare(&made, args);
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
        eprintln!("{args}: e2fsck sees {seen} of {}", MUTATIONS.len());
        assert!(seen >= 56, "e2fsck saw {seen} of {}", MUTATIONS.len());
    }
}

/// The check reports damaged copies as notes; e2fsck does not report them.
#[test]
fn damaged_copies_are_notes() {
    for args in ["-t ext4 -b 1024", "-t ext4 -b 1024 -O meta_bg,^resize_inode", "-t ext2 -b 1024"] {
        let made = need!(TestImage::empty(40 << 20, args));
        let notes = |path: &Path| -> Vec<String> {
            let report = ours(path).unwrap();
            assert!(report.is_clean(), "{}", lines(&Ok(report)));
            let copies = report.problems.iter().filter(|p| p.code == "backup");
            copies
                .inspect(|p| assert_eq!(p.severity, Severity::Note))
                .map(|p| p.to_string())
                .collect()
        };
        assert_eq!(notes(&made.path()), [""; 0], "{args}");
        let file = File::options().write(true).open(made.path()).unwrap();
        // The copy in group 1: another size in the superblock, another table in a descriptor.
        file.write_all_at(&[9], 8193 * 1024 + 4).unwrap();
        let table = 8194 * 1024 + 8;
        file.write_all_at(&[0x77, 0x66], table).unwrap();
        let found = notes(&made.path());
        assert_eq!(found.len(), 2, "{args}: {found:?}");
        let has = |word: &str| found.iter().any(|note| note.contains(word));
        assert!(has("of the superblock") && has("for group 0"), "{found:?}");
        need!(e2fs::e2fsck(&made.path())).assert_clean();
    }
}

/// A group with metadata of other groups needs an initialised bitmap, because a reader that
/// computes the bitmap leaves that metadata out.
#[test]
fn a_group_with_foreign_metadata_needs_a_bitmap() {
    let made = need!(TestImage::empty(120 << 20, "-t ext4 -b 1024 -G 4"));
    let flags = |group: u32, flags: &str| {
        let commands =
            [format!("set_bg {group} flags {flags}"), format!("set_bg {group} checksum calc")];
        e2fs::debugfs(&made.path(), true, &[&commands[0], &commands[1]])
    };
    // Bits: INODE_UNINIT, BLOCK_UNINIT, table zeroed. Group 4 has the metadata of groups 4 to 7.
    need!(flags(4, "7"));
    let report = ours(&made.path());
    let found = |report: &nextent::check::CheckReport| {
        report.problems.iter().any(|problem| problem.code == "block-bitmap")
    };
    assert!(report.as_ref().is_ok_and(found), "{}", lines(&report));
    assert!(!need!(e2fs::e2fsck(&made.path())).is_clean());
    need!(flags(4, "5"));
    let report = ours(&made.path());
    assert!(report.as_ref().is_ok_and(|report| report.is_clean()), "{}", lines(&report));
}
