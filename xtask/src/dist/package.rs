//! The Debian package: the tree and its control files.

use super::{Dist, command, done, output};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

impl Dist {
    /// Makes the package.
    pub(super) fn debian(&self) -> Result<PathBuf, String> {
        let arch = output(&mut command("dpkg", ["--print-architecture"]))?.trim().to_owned();
        let path = self.dir.join(format!("nextent_{}_{arch}.deb", self.version));
        let tree = self.dir.join("debian");
        self.tree(&tree.join("usr"))?;
        build(&tree, &path, |kib| self.control(&arch, kib))?;
        Ok(path)
    }

    fn control(&self, arch: &str, kib: u64) -> String {
        format!(
            "Package: nextent\nVersion: {}\nArchitecture: {arch}\n\
             Maintainer: nextent developers <nextent@localhost>\nInstalled-Size: {kib}\n\
             Recommends: fuse3\nSuggests: e2fsprogs\nSection: admin\nPriority: optional\n\
             Description: ext4 in user space, built for many cores\n \
             Makes, mounts (FUSE), reads, changes and checks ext2, ext3 and ext4 images and\n \
             devices, without root and with a real journal.\n",
            self.version
        )
    }
}

/// Packs `tree` as the Debian package at `path`. `control` gets the size of the files in KiB.
pub(super) fn build(
    tree: &Path,
    path: &Path,
    control: impl FnOnce(u64) -> String,
) -> Result<(), String> {
    let named = |error: std::io::Error| format!("{}: {error}", tree.display());
    fs::create_dir(tree.join("DEBIAN")).map_err(named)?;
    let (size, sums) = contents(tree)?;
    fs::write(tree.join("DEBIAN/md5sums"), sums).map_err(named)?;
    fs::write(tree.join("DEBIAN/control"), control(size)).map_err(named)?;
    let mut build = command("dpkg-deb", ["--root-owner-group", "--build"]);
    // The latest time of files, and the time of the archive.
    build.env("SOURCE_DATE_EPOCH", epoch()?.to_string());
    done(build.arg(tree).arg(path).stdout(std::process::Stdio::null()))
}

/// The time of the files in packages, in seconds since 1970: that of the environment, else that of
/// the commit, so that the same source makes the same package.
pub(super) fn epoch() -> Result<u64, String> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => output(&mut command("git", ["log", "-1", "--format=%ct"]))?,
    };
    text.trim().parse().map_err(|_| format!("SOURCE_DATE_EPOCH: {text} is not a time"))
}

/// The size of the files in KiB, and their checksums.
fn contents(tree: &Path) -> Result<(u64, String), String> {
    let listed = output(command("find", ["usr", "-type", "f"]).current_dir(tree))?;
    let mut names: Vec<_> = listed.lines().collect();
    names.sort_unstable();
    let (mut size, mut sums) = (0, String::new());
    for name in names {
        let path = tree.join(name);
        size += fs::metadata(&path).map_err(|error| format!("{name}: {error}"))?.len();
        let said = output(command("md5sum", ["-b"]).arg(&path))?;
        let hex = said.split_whitespace().next().unwrap_or_default();
        let _ = writeln!(sums, "{hex}  {name}");
    }
    Ok((size.div_ceil(1024), sums))
}
