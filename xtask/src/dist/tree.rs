//! The installed files, below a prefix.

use super::package::epoch;
use super::{Dist, command, done, files};
use crate::shell::root;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Other names of the program, by which mount(8), umount(8), fsck(8) and mkfs(8) call it.
const NAMES: [&str; 5] = [
    "mkfs.nextent",
    "fsck.nextent",
    "mount.fuse.nextent",
    "mount.fuseblk.nextent",
    "umount.fuse.nextent",
];

impl Dist {
    /// Installs everything below `usr`.
    pub(super) fn tree(&self, usr: &Path) -> Result<(), String> {
        let named = |error: io::Error| format!("{}: {error}", usr.display());
        let bin = usr.join("bin");
        fs::create_dir_all(&bin).map_err(named)?;
        fs::copy(&self.binary, bin.join("nextent")).map_err(named)?;
        let sbin = usr.join("sbin");
        fs::create_dir_all(&sbin).map_err(named)?;
        for name in NAMES {
            std::os::unix::fs::symlink("../bin/nextent", sbin.join(name)).map_err(named)?;
        }
        if let Some(dynamic) = &self.dynamic {
            let lib = usr.join("lib/nextent");
            fs::create_dir_all(&lib).map_err(named)?;
            fs::copy(dynamic, lib.join("nextent")).map_err(named)?;
        }
        let share = usr.join("share");
        for (from, to) in [
            ("man1", "man/man1"),
            ("man8", "man/man8"),
            ("bash", "bash-completion/completions"),
            ("zsh", "zsh/vendor-completions"),
            ("fish", "fish/vendor_completions.d"),
        ] {
            self.copy(&self.docs.join(from), &share.join(to))?;
        }
        let doc = share.join("doc/nextent");
        fs::create_dir_all(&doc).map_err(named)?;
        for (name, to) in [("README.md", "README.md"), ("CHANGELOG.md", "changelog")] {
            fs::copy(root().join(name), doc.join(to)).map_err(named)?;
        }
        fs::write(doc.join("copyright"), copyright().map_err(named)?).map_err(named)?;
        pack(&doc.join("changelog"))
    }

    /// Copies the files of a directory. Man pages are compressed, as Debian requires.
    fn copy(&self, from: &Path, to: &Path) -> Result<(), String> {
        fs::create_dir_all(to).map_err(|error| format!("{}: {error}", to.display()))?;
        for file in files(from)? {
            let name = file.file_name().unwrap_or_default();
            let there = to.join(name);
            fs::copy(&file, &there).map_err(|error| format!("{}: {error}", file.display()))?;
            if is_page(&there) {
                pack(&there)?;
            }
        }
        Ok(())
    }

    /// Makes an archive of the tree, to be unpacked at `/usr` or another prefix.
    pub(super) fn archive(&self) -> Result<PathBuf, String> {
        let name = format!("nextent-{}-{}", self.version, self.triple);
        self.tree(&self.dir.join(&name))?;
        self.pack_archive(&name)
    }

    /// Packs the directory `name`. Files have the time of the source, so that the same source makes
    /// the same archive.
    pub(super) fn pack_archive(&self, name: &str) -> Result<PathBuf, String> {
        let tar = self.dir.join(format!("{name}.tar"));
        let how = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mode=go=rX"];
        let mut command = command("tar", how);
        command.arg(format!("--mtime=@{}", epoch()?)).arg("-cf").arg(&tar);
        done(command.arg("-C").arg(&self.dir).arg(name))?;
        pack(&tar)?;
        Ok(self.dir.join(format!("{name}.tar.gz")))
    }
}

fn is_page(path: &Path) -> bool {
    matches!(path.extension().and_then(|e| e.to_str()), Some("1" | "8"))
}

/// Compresses a file in place, reproducibly.
fn pack(path: &Path) -> Result<(), String> {
    done(command("gzip", ["-9n"]).arg(path))
}

/// The licence.
pub(super) fn copyright() -> io::Result<String> {
    let mit = fs::read_to_string(root().join("LICENSE-MIT"))?;
    Ok(format!(
        "nextent is licensed under the MIT license or the Apache License 2.0, at your choice.\n\
         On Debian systems the latter is in /usr/share/common-licenses/Apache-2.0.\n\n{mit}"
    ))
}
