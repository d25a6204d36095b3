//! Images whose size follows from layers: what later layers remove takes no space, and the result
//! is that of a size that was given.

use crate::support::{nextent, shell};
use nextent_testkit::{Rng, e2fs};
use std::fs;
use std::path::Path;

/// Free blocks and all blocks of an image.
fn blocks(image: &Path) -> (u64, u64) {
    let done = nextent().args(["info", "--json"]).arg(image).output().expect("it can be run");
    let info: serde_json::Value = serde_json::from_slice(&done.stdout).expect("it is JSON");
    let number = |key: &str| info[key].as_u64().unwrap_or_else(|| panic!("{key} in {info}"));
    (number("free_blocks"), number("block_count"))
}

/// A file that is larger than all the rest, a tree of directories, and files that are replaced.
#[test]
fn removed_entries_take_no_space() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let layers = r"
mkdir -p l1/many l1/kept l2 l3/kept; for n in $(seq 400); do mkdir l1/many/$n; done
head -c 9000000 /dev/urandom > l1/large; head -c 300000 /dev/urandom > l1/kept/old
ln l1/large l1/second; head -c 5000000 /dev/urandom > l1/linked; ln l1/linked l1/kept/linked
touch l2/.wh.large l2/.wh.second l2/.wh.many l2/.wh.linked
head -c 400000 /dev/urandom > l3/kept/old
for n in 1 2 3; do tar -C l$n -cf $n.tar .; done
";
    shell(dir.path(), layers);
    shell(dir.path(), "$N mkfs -q -d 1.tar -d 2.tar -d 3.tar -O ^has_journal --free 0 i");
    let image = dir.path().join("i");
    e2fs::assert_clean(&image);
    let (free, all) = blocks(&image);
    assert!(free * 100 <= all, "{free} of {all} blocks are free");
    assert!(all * 4096 < 8_000_000, "{all} blocks for 5,400,000 bytes");
    shell(dir.path(), "$N mkfs -q -d 1.tar -d 2.tar -d 3.tar j 64m; $N diff --ignore times i j");
    e2fs::assert_clean(&dir.path().join("j"));
    // The same for a stream with a name twice.
    shell(
        dir.path(),
        "rm i j; tar -rf 1.tar -C l3 ./kept/old; $N mkfs -q -d 1.tar -O ^has_journal --free 0 i",
    );
    e2fs::assert_clean(&image);
    shell(dir.path(), "$N mkfs -q -d 1.tar j 64m; $N diff --ignore times i j");
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Changes a directory of the host at random; what fails is left out.
fn change(layer: &Path, rng: &mut Rng, is_first: bool) {
    let mut path = || {
        let depth = 1 + rng.below(3);
        (0..depth).map(|_| NAMES[rng.below(4) as usize]).collect::<Vec<_>>().join("/")
    };
    let paths: Vec<_> = (0..80).map(|_| path()).collect();
    for pair in paths.chunks(2) {
        let (at, other) = (layer.join(&pair[0]), &pair[1]);
        let Some(above) = at.parent() else { continue };
        let _ = fs::create_dir_all(above);
        let name = at.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let _ = match rng.below(9) {
            0..3 => fs::write(&at, vec![7; 1000 * rng.below(30) as usize]),
            3 => fs::create_dir(&at),
            4 => std::os::unix::fs::symlink(format!("/{other}"), &at),
            5 => fs::hard_link(layer.join(other), &at),
            6 if !is_first => fs::write(above.join(".wh..wh..opq"), ""),
            _ if is_first => Ok(()),
            _ => fs::write(above.join(format!(".wh.{name}")), ""),
        };
    }
}

#[test]
fn random_layers_are_those_of_a_given_size() {
    let mut made = 0;
    for seed in 0..10 {
        let (dir, mut rng) = (tempfile::tempdir().expect("a temporary directory"), Rng::new(seed));
        for layer in 1..=4 {
            let at = dir.path().join(format!("l{layer}"));
            fs::create_dir(&at).expect("a directory");
            change(&at, &mut rng, layer == 1);
        }
        shell(dir.path(), "for n in 1 2 3 4; do tar -C l$n -cf $n.tar .; done");
        let sources = "-d 1.tar -d 2.tar -d 3.tar -d 4.tar";
        // A whiteout may remove the target of a hard link of the same layer, which is an error.
        let mut given = nextent();
        given.args(["mkfs", "-q"]).args(sources.split(' ')).args(["i", "32m"]);
        if !given.current_dir(dir.path()).status().expect("it can be run").success() {
            continue;
        }
        made += 1;
        let script = format!(
            "$N mkfs -q {sources} -O ^has_journal --free 0 j && $N mkfs -q {sources} k && \
             $N diff --ignore times i j && $N diff --ignore times i k || \
             {{ echo seed {seed}; false; }}"
        );
        shell(dir.path(), &script);
        for image in ["i", "j", "k"] {
            e2fs::assert_clean(&dir.path().join(image));
        }
    }
    assert!(made >= 5, "{made}");
}
