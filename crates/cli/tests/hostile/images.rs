//! Damaged images, made by debugfs.

use nextent_testkit::{Skip, e2fs};
use std::path::Path;

/// A damaged image.
pub(crate) struct Damage {
    pub(crate) name: &'static str,
    /// Commands of debugfs.
    commands: Vec<String>,
    /// A part of the message that every walk over all of it prints; none if walks may succeed.
    pub(crate) message: Option<&'static str>,
    /// Whether `..` of the directory `/x/y` is to lead to the root.
    bad_parent: bool,
}

fn damage(name: &'static str, commands: &[&str], message: Option<&'static str>) -> Damage {
    let commands = commands.iter().map(|command| (*command).to_owned()).collect();
    Damage { name, commands, message, bad_parent: false }
}

/// Directories with two names each, 40 levels deep: 2^40 paths.
fn doubling() -> Damage {
    let mut commands = Vec::new();
    let mut path = String::new();
    for _ in 0..40 {
        commands.push(format!("mkdir {path}/a"));
        commands.push(format!("ln {path}/a {path}/b"));
        path.push_str("/a");
    }
    Damage { name: "doubling", commands, message: Some("another name"), bad_parent: false }
}

/// All kinds of damage.
pub(crate) fn all() -> Vec<Damage> {
    let again = Some("contains itself");
    let mut bad_parent = damage("bad-parent", &["mkdir x", "mkdir x/y", "mkdir x/y/z"], None);
    bad_parent.bad_parent = true;
    vec![
        damage("itself", &["mkdir x", "ln x x/self", "ln x x/self2"], Some("directory itself")),
        damage("cycle-2", &["mkdir x", "mkdir x/y", "ln x x/y/up", "ln x x/y/up2"], again),
        damage(
            "cycle-3",
            &["mkdir x", "mkdir x/y", "mkdir x/y/z", "ln x x/y/z/up", "ln x/y x/y/z/up2"],
            again,
        ),
        damage("root-inside", &["mkdir x", "ln / x/root"], Some("the root")),
        damage("two-names", &["mkdir x", "mkdir y", "mkdir x/d", "ln x/d y/d2"], again),
        damage(
            "same-parent",
            &["mkdir x", "mkdir x/a", "mkdir x/a/c", "ln x/a x/b"],
            Some("another name"),
        ),
        damage("many-names", &["mkdir x", "write said f", "ln f x/g", "ln f x/h"], None),
        damage("free-inode", &["mkdir x", "mkdir x/y", "ln <900> x/free"], Some("/free")),
        damage("reserved-inode", &["mkdir x", "ln <8> x/journal"], Some("/journal")),
        damage(
            "link-loops",
            &["mkdir x", "symlink x/a b", "symlink x/b a", "symlink x/s ../x/s"],
            None,
        ),
        damage(
            "endless-directory",
            &["mkdir x", "set_inode_field x size_lo 0xfffffc00", "set_inode_field x size_hi 0xff"],
            Some("i_size"),
        ),
        bad_parent,
        doubling(),
    ]
}

/// Makes the image `dir/d.img`. `said` must exist in `dir`.
pub(crate) fn make(dir: &Path, damage: &Damage) -> Result<(), Skip> {
    let image = dir.join("d.img");
    e2fs::mke2fs(&image, 16 << 20, &["-t", "ext4", "-O", "^metadata_csum,^has_journal,^64bit"])?;
    std::fs::write(dir.join("said"), "contents").expect("the directory can be written");
    let said = dir.join("said").display().to_string();
    let commands: Vec<String> =
        damage.commands.iter().map(|command| command.replace("said", &said)).collect();
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let output = e2fs::debugfs(&image, true, &commands)?;
    let wrong = ["not found", "Usage", "Invalid"].iter().any(|word| output.contains(word));
    assert!(!wrong, "{}: {output}", damage.name);
    if damage.bad_parent {
        let output = e2fs::debugfs(&image, false, &["blocks x/y"])?;
        let block = output.lines().nth(1).unwrap_or_default().trim();
        let block: u64 = block.parse().unwrap_or_else(|_| panic!("{output}"));
        let file = std::fs::File::options().write(true).open(&image);
        let file = file.expect("it was made above");
        let at = block * 1024 + 12;
        let two = 2u32.to_le_bytes();
        std::os::unix::fs::FileExt::write_all_at(&file, &two, at).expect("the block is there");
    }
    Ok(())
}
