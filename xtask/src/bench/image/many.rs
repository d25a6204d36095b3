//! The memory of building images of 1,000,000 files. The goal is that of a tree of directories; the
//! other rows are for comparison.

use super::Builders;
use crate::bench::measure::{peak_mebibytes, seconds};
use crate::bench::pairs::{nextent, text};
use crate::bench::{Row, Verdict};
use crate::shell::command;
use std::fs;
use std::io;
use std::path::Path;

const FILES: usize = 1_000_000;
/// Files of a directory.
const IN_DIR: usize = 1000;
/// The most memory, in MiB.
const LIMIT: f64 = 200.0;

impl Builders {
    /// The peak of one build from `sources`.
    fn peak(&self, name: &'static str, sources: &[&str], verdict: Verdict) -> Result<Row, String> {
        let image = self.path("ours.img");
        drop(fs::remove_file(&image));
        let mut args = vec!["mkfs", "-q"];
        sources.iter().for_each(|source| args.extend(["-d", source]));
        let image = text(&image);
        args.push(&image);
        let ours = peak_mebibytes(nextent(&args))?;
        Ok(Row { name, ours, peer: None, unit: "MiB", verdict })
    }

    /// A tree, 1000 files in each directory. It is packed for the next rows, and removed.
    pub(super) fn wide_directory(&self) -> Result<Row, String> {
        let (tree, archive) = (self.path("many"), self.text("many.tar"));
        make_many(&tree, IN_DIR).map_err(|error| format!("1,000,000 files: {error}"))?;
        let tree = text(&tree);
        let name = "memory: 1,000,000 files in 1,000 directories";
        let row = self.peak(name, &[&tree], Verdict::Limit(LIMIT));
        seconds(command("tar", ["-C", &tree, "-cf", &archive, "."]))?;
        fs::remove_dir_all(&tree).map_err(|error| error.to_string())?;
        row
    }

    /// All files in one directory.
    pub(super) fn one_directory(&self) -> Result<Row, String> {
        let tree = self.path("one");
        make_many(&tree, FILES).map_err(|error| format!("1,000,000 files: {error}"))?;
        let name = "memory: 1,000,000 files in one directory";
        let row = self.peak(name, &[&text(&tree)], Verdict::Figure);
        fs::remove_dir_all(&tree).map_err(|error| error.to_string())?;
        row
    }

    pub(super) fn wide_tar(&self) -> Result<Row, String> {
        let name = "memory: a tar file of 1,000,000 files";
        self.peak(name, &[&self.text("many.tar")], Verdict::Limit(LIMIT))
    }

    pub(super) fn wide_layers(&self) -> Result<Row, String> {
        let name = "memory: the same below a layer of 50,000 files";
        let layers = [self.text("many.tar"), self.text("tree.tar")];
        self.peak(name, &layers.each_ref().map(|layer| &**layer), Verdict::Limit(LIMIT))
    }
}

/// Makes the files, `in_dir` in each directory. One of ten has 100 bytes, the others are empty.
fn make_many(root: &Path, in_dir: usize) -> io::Result<()> {
    for dir in 0..FILES / in_dir {
        let dir_path = root.join(format!("dir{dir:04}"));
        fs::create_dir_all(&dir_path)?;
        for file in 0..in_dir {
            let bytes: &[u8] = if file % 10 == 0 { &[b'x'; 100] } else { b"" };
            fs::write(dir_path.join(format!("file{file:07}.txt")), bytes)?;
        }
    }
    Ok(())
}
