//! Walks over damaged, hostile, very deep and very wide images: every command ends within bounds of
//! time and memory, without a panic, and names the damage.

mod deep;
mod images;
mod run;

use images::{Damage, all, make};
use nextent_testkit::{Skip, e2fs};
use run::nextent;
use std::path::Path;

/// The most names that a copy of a damaged image of a few dozen files may make.
const FEW: usize = 500;

fn count(dir: &Path) -> usize {
    let (mut found, mut todo) = (0, vec![dir.to_owned()]);
    while let Some(dir) = todo.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries {
            let entry = entry.expect("the host is sound");
            found += 1;
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
        }
        assert!(found < FEW, "{}: {found} names and more", dir.display());
    }
    found
}

/// Commands that walk over `d.img` without changing it, and whether their output names the damage.
const READERS: [(&[&str], bool); 9] = [
    (&["tree", "d.img:/"], true),
    (&["tree", "--json", "d.img:/"], true),
    (&["tree", "--json", "-L", "90", "d.img:/"], true),
    (&["ls", "-l", "d.img:/", "d.img:/x"], false),
    (&["tar", "-q", "-c", "d.img:/"], true),
    (&["cp", "-q", "-r", "d.img:/", "out"], true),
    (&["cp", "-q", "-a", "d.img:/.", "to.img:/"], true),
    (&["fsck", "-n", "-f", "d.img"], false),
    (&["stat", "d.img:/x", "d.img:/x/y/..", "d.img:/x/self/self2/self"], false),
];

/// Commands that change `d.img`.
const CHANGES: [(&[&str], bool); 11] = [
    (&["chmod", "-R", "g+w", "d.img:/x"], true),
    (&["tune", "-L", "x", "-O", "^has_journal", "d.img"], false),
    (&["resize", "-f", "-M", "d.img"], false),
    (&["chown", "-R", "5:6", "d.img:/x"], true),
    (&["cp", "-q", "-r", "d.img:/x", "d.img:/copy"], true),
    (&["mv", "d.img:/x", "d.img:/x/self/moved"], false),
    (&["mv", "d.img:/x", "d.img:/x/y/up/moved"], false),
    (&["mv", "d.img:/x/y", "d.img:/x/y/z/up2/moved"], false),
    (&["mkdir", "-p", "d.img:/x/y/up/y/up/y/new"], false),
    (&["rm", "-r", "d.img:/x"], true),
    (&["rm", "-r", "-f", "d.img:/x", "d.img:/y", "d.img:/a"], true),
];

#[track_caller]
fn judge(damage: &Damage, args: &[&str], names_it: bool, ended: &run::Ended) {
    let Damage { name, message, .. } = damage;
    let said = &ended.said;
    assert!(said.lines().count() < FEW, "{name}: {args:?}: {said}");
    let Some(words) = message.filter(|_| names_it) else { return };
    // A walk below /x does not meet damage outside of it.
    let beside = ["doubling", "two-names"].contains(name);
    if beside && args.contains(&"d.img:/x") {
        return;
    }
    assert!(ended.code != 0, "{name}: {args:?} succeeds");
    // A directory with two names is removed with the first; the second leads to a free inode.
    let gone = args[0] == "rm" && said.contains("no such file");
    let found = gone || said.contains(words) || said.contains("deeper than");
    assert!(found, "{name}: {args:?}: {said}");
}

#[test]
fn damaged_images_end_every_walk() {
    for damage in all() {
        let dir = tempfile::tempdir().expect("the temporary directory can be written");
        let path = dir.path();
        if let Err(skip) = make(path, &damage) {
            return skip.note();
        }
        std::fs::copy(path.join("d.img"), path.join("kept.img")).expect("as above");
        for (args, names_it) in READERS {
            run::works(path, &["mkfs", "-q", "to.img", "32m"]);
            judge(&damage, args, names_it, &nextent(path, args));
            count(&path.join("out"));
            e2fs::assert_clean(&path.join("to.img"));
            let _ = std::fs::remove_dir_all(path.join("out"));
            let _ = std::fs::remove_file(path.join("to.img"));
        }
        assert!(same(path, "d.img", "kept.img"), "{}: changed by a reader", damage.name);
        for (args, names_it) in CHANGES {
            std::fs::copy(path.join("kept.img"), path.join("d.img")).expect("as above");
            judge(&damage, args, names_it, &nextent(path, args));
            if let Err(skip) = repaired(path) {
                return skip.note();
            }
        }
    }
}

fn same(dir: &Path, one: &str, other: &str) -> bool {
    let read = |name| std::fs::read(dir.join(name)).expect("it was made above");
    read(one) == read(other)
}

/// Checks that e2fsck can repair the image.
fn repaired(dir: &Path) -> Result<(), Skip> {
    let image = dir.join("d.img");
    let args = ["-f".as_ref(), "-y".as_ref(), image.as_os_str()];
    // Twice, since the first run may ask for another.
    e2fs::run("e2fsck", args)?;
    e2fs::run("e2fsck", args)?;
    e2fs::assert_clean(&image);
    Ok(())
}

/// Three extents of one file have the same blocks, together more than the volume has.
#[test]
fn a_file_of_repeated_blocks_does_not_fill_the_host() {
    let dir = tempfile::tempdir().expect("the temporary directory can be written");
    let (path, image) = (dir.path(), dir.path().join("d.img"));
    let args = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal,^64bit"];
    if let Err(skip) = e2fs::mke2fs(&image, 16 << 20, &args) {
        return skip.note();
    }
    std::fs::write(path.join("said"), "contents").expect("as above");
    let write = format!("write {} f", path.join("said").display());
    // The header: its magic number, three entries of at most four.
    let mut words = vec![0x0003_f30a_u32, 4, 0];
    for n in 0..3 {
        words.extend([7000 * n, 7000, 9300]);
    }
    let size = format!("set_inode_field f size {}", 21_000 * 1024);
    let mut commands = vec![write, size];
    for (at, word) in words.iter().enumerate() {
        commands.push(format!("set_inode_field f block[{at}] {word}"));
    }
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    if let Err(skip) = e2fs::debugfs(&image, true, &commands) {
        return skip.note();
    }
    for args in [&["cp", "-q", "d.img:/f", "out"][..], &["tar", "-q", "-c", "d.img:/"]] {
        let ended = nextent(path, args);
        assert!(ended.code == 1 && ended.said.contains("than its volume"), "{}", ended.said);
    }
    assert!(std::fs::metadata(path.join("out")).map_or(0, |meta| meta.len()) < 1 << 20);
}
