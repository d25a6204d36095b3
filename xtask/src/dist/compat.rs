//! The package `nextent-e2fsprogs-compat`: links to the program by the names of e2fsprogs' tools
//! and of fuse2fs. They are in a directory of their own, so that they replace other programs only
//! where PATH or a configuration names that directory.

use super::package;
use super::{Dist, command, output};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the package.
const PACKAGE: &str = "nextent-e2fsprogs-compat";

/// The directory of the links, below a prefix.
const DIR: &str = "lib/nextent/bin";

/// The program, from there.
const PROGRAM: &str = "../../../bin/nextent";

/// The names by which the program stands for other tools.
const NAMES: [&str; 15] = [
    "dumpe2fs",
    "e2fsck",
    "e2label",
    "e2mmpstatus",
    "fsck.ext2",
    "fsck.ext3",
    "fsck.ext4",
    "fuse2fs",
    "fuse4fs",
    "mke2fs",
    "mkfs.ext2",
    "mkfs.ext3",
    "mkfs.ext4",
    "resize2fs",
    "tune2fs",
];

const README: &str = "\
The links in /usr/lib/nextent/bin let the program nextent stand for tools of e2fsprogs
and for fuse2fs. They replace no other program unless this directory comes first in
PATH:

    PATH=/usr/lib/nextent/bin:$PATH mkosi ...

What a tool does that the link does not is refused with a message that names the option.
";

impl Dist {
    /// Makes the archive, to be unpacked at `/usr` or another prefix beside that of the program.
    pub(super) fn compat_archive(&self) -> Result<PathBuf, String> {
        let name = format!("{PACKAGE}-{}", self.version);
        tree(&self.dir.join(&name))?;
        self.pack_archive(&name)
    }

    /// Makes the Debian package.
    pub(super) fn compat_debian(&self) -> Result<PathBuf, String> {
        let path = self.dir.join(format!("{PACKAGE}_{}_all.deb", self.version));
        let dir = self.dir.join("debian-compat");
        tree(&dir.join("usr"))?;
        let version = &self.version;
        package::build(&dir, &path, |kib| {
            format!(
                "Package: {PACKAGE}\nVersion: {version}\nArchitecture: all\n\
                 Maintainer: nextent developers <nextent@localhost>\nInstalled-Size: {kib}\n\
                 Depends: nextent (= {version})\nSection: admin\nPriority: optional\n\
                 Description: nextent by the names of e2fsprogs and fuse2fs\n \
                 Links in /usr/lib/nextent/bin, for programs that call mke2fs, dumpe2fs,\n \
                 e2fsck, resize2fs or fuse2fs. They replace nothing unless PATH names this\n \
                 directory first.\n"
            )
        })?;
        Ok(path)
    }
}

/// Makes the files below a prefix.
fn tree(usr: &Path) -> Result<(), String> {
    let named = |error: io::Error| format!("{}: {error}", usr.display());
    let bin = usr.join(DIR);
    fs::create_dir_all(&bin).map_err(named)?;
    for name in NAMES {
        std::os::unix::fs::symlink(PROGRAM, bin.join(name)).map_err(named)?;
    }
    let doc = usr.join("share/doc").join(PACKAGE);
    fs::create_dir_all(&doc).map_err(named)?;
    fs::write(doc.join("README"), README).map_err(named)?;
    fs::write(doc.join("copyright"), super::tree::copyright().map_err(named)?).map_err(named)
}

/// Makes and checks an image by the links below `usr`.
pub(super) fn runs(usr: &Path) -> Result<(), String> {
    let image = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    let image = image.path().display().to_string();
    let run = |name: &str, args: &[&str]| {
        let path = usr.join(DIR).join(name).display().to_string();
        output(&mut command(&path, args)).map_err(|error| format!("{path}: {error}"))
    };
    for kind in ["mke2fs", "mkfs.ext2", "mkfs.ext3", "mkfs.ext4"] {
        run(kind, &["-q", "-F", &image, "16m"])?;
        run(&kind.replace("mkfs", "fsck").replace("mke2fs", "e2fsck"), &["-f", "-n", &image])?;
    }
    run("e2label", &[&image, "packed"])?;
    run("tune2fs", &["-m", "0", "-O", "verity", &image])?;
    run("resize2fs", &[&image, "20m"])?;
    run("resize2fs", &["-M", &image])?;
    for (name, args) in [("dumpe2fs", ["-h"]), ("tune2fs", ["-l"])] {
        let said = run(name, &[&args[..], &[&image]].concat())?;
        if !said.contains("Filesystem volume name:   packed\n") {
            return Err(format!("{name} without the label: {said}"));
        }
    }
    for name in ["fuse2fs", "fuse4fs"] {
        run(name, &["-V"])?;
    }
    super::check::sees_faked_owners(usr, &format!("{DIR}/mkfs.ext4"))
}

#[cfg(test)]
mod tests {
    use super::super::package::epoch;
    use super::*;
    use crate::shell::root;

    /// Each link leads to the program, which knows its name.
    #[test]
    fn links_lead_to_the_program_of_the_other_package() {
        let dir = tempfile::tempdir().unwrap();
        let usr = dir.path();
        tree(usr).unwrap();
        fs::create_dir(usr.join("bin")).unwrap();
        fs::write(usr.join("bin/nextent"), "program").unwrap();
        let source = fs::read_to_string(root().join("crates/cli/src/e2fsprogs/mod.rs")).unwrap();
        let mut found = Vec::new();
        for entry in fs::read_dir(usr.join(DIR)).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(fs::read(entry.path()).unwrap(), b"program");
            let name = entry.file_name().into_string().unwrap();
            assert!(source.contains(&format!("\"{name}\"")), "{name}");
            found.push(name);
        }
        found.sort();
        assert_eq!(found, NAMES);
        let doc = usr.join("share/doc").join(PACKAGE);
        assert!(doc.join("README").exists() && doc.join("copyright").exists());
        // No file lies where a program of e2fsprogs does.
        assert!(!usr.join("sbin").exists());
    }

    /// Two runs make the same bytes.
    #[test]
    fn packages_are_reproducible() {
        let package = || {
            let dir = tempfile::tempdir().unwrap();
            let dist = Dist {
                dir: dir.path().into(),
                binary: PathBuf::new(),
                dynamic: None,
                docs: PathBuf::new(),
                version: "1.2.3".into(),
                triple: "any".into(),
            };
            let archive = fs::read(dist.compat_archive().unwrap()).unwrap();
            let debian = crate::shell::has("dpkg-deb");
            let debian = debian.then(|| fs::read(dist.compat_debian().unwrap()).unwrap());
            (archive, debian)
        };
        let first = package();
        // Past the resolution of times in archives.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(first == package(), "the packages differ");
        assert!(epoch().unwrap() > 0);
    }
}
