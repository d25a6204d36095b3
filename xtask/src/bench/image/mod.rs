//! Compares the image builder with other builders, and measures its memory.
//!
//! `cargo xtask bench image [ROUNDS]`. The tree has 50,000 files and is in the host's cache. The
//! builder finds the size of its images; mke2fs is given a size, since it finds none. The rows of
//! memory use a tree of 1,000,000 files. Rows with Linux's ext4 need root and loop devices.

mod layout;
mod many;

use super::measure::seconds;
use super::pairs::{Mount, faster, make_tree, need, nextent, text};
use super::{Pair, Row, Verdict, in_turns, print_table, rounds_of};
use crate::shell::command;
use layout::Layout;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size that is given to builders that find none.
const SIZE: &str = "1g";

/// ferrosys chooses none.
const UUID: &str = "5f0c9a3e-6b0b-4c3e-9d55-0f7f5a8d1c11";

/// The sources and the number of rounds.
struct Builders {
    dir: PathBuf,
    rounds: usize,
}

/// Measures and prints the table.
pub(super) fn run(args: &[String]) -> Result<(), String> {
    let rounds = rounds_of(args, "usage: cargo xtask bench image [ROUNDS]")?;
    super::build(&["nextent-cli"])?;
    let dir = tempfile::Builder::new().prefix("nextent-bench-").tempdir();
    let dir = dir.map_err(|error| error.to_string())?;
    let bench = Builders::new(dir.path(), rounds)?;
    let pairs: [Pair<Builders>; 11] = [
        Builders::directory_by_mke2fs,
        Builders::directory_by_ferrosys,
        Builders::size,
        Builders::tar_by_mke2fs,
        Builders::tar_by_linux,
        Builders::layers,
        Builders::sync,
        Builders::wide_directory,
        Builders::one_directory,
        Builders::wide_tar,
        Builders::wide_layers,
    ];
    print_table(&bench, &pairs, rounds);
    Ok(())
}

impl Builders {
    fn new(dir: &Path, rounds: usize) -> Result<Self, String> {
        let tree = dir.join("tree");
        make_tree(&tree).map_err(|error| format!("the tree: {error}"))?;
        let archive = dir.join("tree.tar");
        seconds(command("tar", ["-C", &text(&tree), "-cf", &text(&archive), "."]))?;
        // The kernel's timestamps of directories that just changed do not tell later changes apart.
        std::thread::sleep(std::time::Duration::from_secs(3));
        Ok(Self { dir: dir.into(), rounds })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn text(&self, name: &str) -> String {
        text(&self.path(name))
    }

    /// Seconds to make a new image `ours.img` with these arguments of `nextent mkfs`.
    fn ours(&self, source: &[&str]) -> Result<f64, String> {
        let image = self.path("ours.img");
        drop(fs::remove_file(&image));
        let image = text(&image);
        let args: Vec<&str> =
            ["mkfs", "-q"].into_iter().chain(source.iter().copied()).chain([&*image]).collect();
        seconds(nextent(&args))
    }

    /// The same by mke2fs, as `peer.img`.
    fn mke2fs(&self, source: &str) -> Result<f64, String> {
        let image = self.path("peer.img");
        drop(fs::remove_file(&image));
        let source = self.text(source);
        let args = ["-q", "-F", "-t", "ext4", "-d", &source, &text(&image), SIZE];
        seconds(command("mke2fs", args))
    }

    /// The same by ferrosys.
    fn ferrosys(&self) -> Result<f64, String> {
        let image = self.path("peer.img");
        drop(fs::remove_file(&image));
        let mut format = command("ferrosys", ["format", "--size", "auto", "--from-dir"]);
        format.arg(self.path("tree")).args(["--uuid", UUID, "--time", "1700000000"]).arg(&image);
        seconds(format)
    }

    /// Fails if the last image of `ours` is damaged.
    fn check(&self) -> Result<(), String> {
        need("e2fsck")?;
        seconds(command("e2fsck", ["-fn", &self.text("ours.img")])).map(drop)
    }

    fn directory_by_mke2fs(&self) -> Result<Row, String> {
        need("mke2fs")?;
        let tree = self.text("tree");
        let medians = in_turns(self.rounds, || self.ours(&["-d", &tree]), || self.mke2fs("tree"))?;
        self.check()?;
        Ok(faster("directory, size found | mke2fs -d", medians, "s", 5.0))
    }

    fn directory_by_ferrosys(&self) -> Result<Row, String> {
        need("ferrosys")?;
        let tree = self.text("tree");
        let medians = in_turns(self.rounds, || self.ours(&["-d", &tree]), || self.ferrosys())?;
        Ok(faster("directory, size found | ferrosys --size auto", medians, "s", 2.0))
    }

    /// The sizes of the last images.
    fn size(&self) -> Result<Row, String> {
        need("ferrosys")?;
        self.ours(&["-d", &self.text("tree")])?;
        self.ferrosys()?;
        let mebibytes = |name: &str| {
            let meta = fs::metadata(self.path(name)).map_err(|error| error.to_string())?;
            Ok::<f64, String>(meta.len() as f64 / f64::from(1 << 20))
        };
        let sizes = (mebibytes("ours.img")?, mebibytes("peer.img")?);
        // Ours leaves a tenth of the blocks free, the other one as little as it can.
        Ok(faster("the size of the image | ferrosys --size auto", sizes, "MiB", 1.0))
    }

    fn tar_by_mke2fs(&self) -> Result<Row, String> {
        need("mke2fs")?;
        let tar = self.text("tree.tar");
        self.mke2fs("tree.tar").map_err(|_| "skipped: mke2fs -d cannot read a tar file")?;
        let medians =
            in_turns(self.rounds, || self.ours(&["-d", &tar]), || self.mke2fs("tree.tar"))?;
        Ok(faster("tar, size found | mke2fs -d", medians, "s", 3.0))
    }

    /// The time of `umount`, in which Linux writes most of the data, does not count.
    fn tar_by_linux(&self) -> Result<Row, String> {
        let tar = self.text("tree.tar");
        let medians = in_turns(
            self.rounds,
            || self.ours(&["-d", &tar]),
            || {
                let image = self.path("peer.img");
                drop(fs::remove_file(&image));
                seconds(nextent(&["mkfs", "-q", &text(&image), SIZE]))?;
                let mount = Mount::new(&image, &self.path("mnt"), "rw")?;
                seconds(command("tar", ["-C", &text(&mount.point), "-xf", &tar]))
            },
        )?;
        self.check()?;
        Ok(faster("tar, size found | Linux, tar -x", medians, "s", 1.0))
    }

    fn layers(&self) -> Result<Row, String> {
        let layout = Layout::new(&self.path("layout"), &self.path("tree"))?;
        let place = text(&layout.place);
        let (ours, peer) =
            in_turns(self.rounds, || self.ours(&["--oci", &place]), || layout.unpack())?;
        self.check()?;
        let verdict = Verdict::Multiple(ours / peer);
        let name = "3 layers in gzip, size found | gzip -dc";
        Ok(Row { name, ours, peer: Some(peer), unit: "s", verdict })
    }

    /// Compares the tree with an image that has its contents. The peer reads the attributes of all
    /// files of the tree, and those of a new mount of the image; mounting does not count.
    fn sync(&self) -> Result<Row, String> {
        let (tree, image) = (self.text("tree"), self.text("ours.img"));
        self.ours(&["-d", &tree])?;
        let (ours, peer) = in_turns(
            self.rounds,
            || seconds(nextent(&["sync", "-q", &tree, &image])),
            || {
                let mount = Mount::new(&self.path("ours.img"), &self.path("mnt"), "ro")?;
                Ok(seconds(find(&tree))? + seconds(find(&text(&mount.point)))?)
            },
        )?;
        self.check()?;
        // At most 1.5 times as long.
        Ok(faster("sync, nothing changed | find, tree and image", (ours, peer), "s", 1.0 / 1.5))
    }
}

/// Prints the attributes of all files of a tree.
fn find(tree: &str) -> Command {
    command("find", [tree, "-printf", "%P %y %m %U %G %s %T@ %n %l\\n"])
}
