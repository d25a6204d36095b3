//! Images to check, and the reports of the check.

use std::path::{Path, PathBuf};

use nextent::check::{CheckOptions, CheckReport, check};
use nextent_device::{FileDevice, FileOptions};
use nextent_sync::Arc;
use nextent_testkit::{Skip, TreeMaker, e2fs};
use tempfile::TempDir;

/// The report of the check. If an image cannot be checked, the error is one line.
pub(crate) fn ours(path: &Path) -> Result<CheckReport, String> {
    let device = FileDevice::open(path, &FileOptions::new().read_only(true)).unwrap();
    let mut options = CheckOptions::default();
    options.workers = 2;
    check(Arc::new(device), &options, &|_| ()).map_err(|error| error.to_string())
}

/// The problems of a report, one per line.
pub(crate) fn lines(report: &Result<CheckReport, String>) -> String {
    match report {
        Ok(report) => {
            let lines = report.problems.iter().map(|p| format!("  [{}] {p}\n", p.code));
            lines.take(20).collect()
        }
        Err(error) => format!("  refused: {error}\n"),
    }
}

/// A temporary directory with an image.
pub(crate) struct TestImage {
    pub(crate) dir: TempDir,
}

impl TestImage {
    /// An empty image made by mke2fs.
    pub(crate) fn empty(size: u64, args: &str) -> Result<Self, Skip> {
        let dir = tempfile::tempdir().unwrap();
        let made = Self { dir };
        let args: Vec<_> = args.split_whitespace().collect();
        e2fs::mke2fs(&made.path(), size, &args)?;
        Ok(made)
    }

    /// An image that mke2fs filled with a random tree, and whose directories e2fsck indexed.
    pub(crate) fn filled(size: u64, args: &str, spec: &TreeMaker) -> Result<Self, Skip> {
        let dir = tempfile::tempdir().unwrap();
        let made = Self { dir };
        let tree = made.dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        spec.make(&tree).unwrap();
        let mut args: Vec<_> = args.split_whitespace().collect();
        args.extend(["-d", tree.to_str().unwrap()]);
        e2fs::mke2fs(&made.path(), size, &args)?;
        let path = made.path();
        e2fs::run("e2fsck", ["-fyD", path.to_str().unwrap()])?;
        Ok(made)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }
}
