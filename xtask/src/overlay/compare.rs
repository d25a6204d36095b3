//! Compares two upper layers: names, kinds, modes, owners, link counts, devices, targets, extended
//! attributes with those of overlayfs, contents, and times of change that a run did not make.
//!
//! | excepted | why it differs by nature |
//! |---|---|
//! | times of change since the runs began | the runs are at different times |
//! | `trusted.overlay.uuid` | random for each upper layer |
//! | contents of [`EXCEPTED`] | see there |

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

/// Files, or directories of them, whose contents differ by nature. Their attributes are compared.
const EXCEPTED: [(&str, &str); 3] = [
    ("var/log", "lines with dates"),
    ("var/cache/ldconfig/aux-cache", "inode numbers and times of libraries"),
    ("srv/repository/.git/index", "inode numbers and times of files"),
];

/// Random for each upper layer.
const RANDOM: &[u8] = b"trusted.overlay.uuid";
const OPAQUE: &[u8] = b"trusted.overlay.opaque";

type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// The result of a comparison.
#[derive(Default)]
pub(super) struct Found {
    pub(super) entries: usize,
    pub(super) whiteouts: usize,
    /// Directories and files with the attribute `trusted.overlay.opaque`.
    pub(super) opaque: usize,
    /// Files with different contents that [`EXCEPTED`] allows.
    pub(super) excepted: Vec<String>,
    /// A line for each difference.
    pub(super) differences: Vec<String>,
}

struct Comparison<'p> {
    roots: [&'p Path; 2],
    begun: SystemTime,
    found: Found,
}

/// Compares the trees `left` and `right`; the runs that made them began at `begun`.
pub(super) fn compare(left: &Path, right: &Path, begun: SystemTime) -> io::Result<Found> {
    let mut comparison = Comparison { roots: [left, right], begun, found: Found::default() };
    comparison.entry(Path::new(""))?;
    Ok(comparison.found)
}

impl Comparison<'_> {
    fn differs(&mut self, path: &Path, what: &str, sides: [String; 2]) {
        if sides[0] != sides[1] {
            let [left, right] = sides;
            let line = format!("/{}: {what}: {left}, here {right}", path.display());
            self.found.differences.push(line);
        }
    }

    fn entry(&mut self, path: &Path) -> io::Result<()> {
        let places = self.roots.map(|root| root.join(path));
        let meta = [fs::symlink_metadata(&places[0])?, fs::symlink_metadata(&places[1])?];
        let attributes = [attributes(&places[0])?, attributes(&places[1])?];
        self.found.entries += 1;
        self.found.whiteouts += usize::from(is_whiteout(&meta[0]));
        self.found.opaque += usize::from(attributes[0].contains_key(OPAQUE));
        let shown = |get: fn(&Metadata) -> String| [get(&meta[0]), get(&meta[1])];
        self.differs(path, "kind and mode", shown(|meta| format!("{:o}", meta.mode())));
        self.differs(path, "owner", shown(|meta| format!("{}:{}", meta.uid(), meta.gid())));
        self.differs(path, "links", shown(|meta| meta.nlink().to_string()));
        self.differs(path, "device", shown(|meta| meta.rdev().to_string()));
        let begun = self.begun;
        if meta.iter().any(|meta| meta.modified().is_ok_and(|time| time < begun)) {
            let time = |meta: &Metadata| format!("{}.{:09}", meta.mtime(), meta.mtime_nsec());
            self.differs(path, "time of change", shown(time));
        }
        let attributes = attributes.map(|all| {
            let line = |(name, value): (&Vec<u8>, &Vec<u8>)| {
                format!("{}={}", name.escape_ascii(), value.escape_ascii())
            };
            all.iter().map(line).collect::<Vec<_>>().join(" ")
        });
        self.differs(path, "attributes", attributes);
        let kinds = meta.each_ref().map(Metadata::file_type);
        if kinds.iter().all(fs::FileType::is_symlink) {
            let targets = [fs::read_link(&places[0])?, fs::read_link(&places[1])?];
            self.differs(path, "target", targets.map(|target| target.display().to_string()));
        } else if kinds.iter().all(fs::FileType::is_file) {
            self.contents(path)?;
        } else if kinds.iter().all(fs::FileType::is_dir) {
            self.dir(path)?;
        }
        Ok(())
    }

    fn contents(&mut self, path: &Path) -> io::Result<()> {
        let [left, right] = self.roots.map(|root| root.join(path));
        if !same_bytes(&left, &right)? {
            if EXCEPTED.iter().any(|(excepted, _)| path.starts_with(excepted)) {
                self.found.excepted.push(path.display().to_string());
            } else {
                let lengths = [fs::metadata(left)?.len(), fs::metadata(right)?.len()];
                let [left, right] = lengths.map(|length| format!("{length} bytes"));
                self.differs(path, "contents", [left, format!("other {right}")]);
            }
        }
        Ok(())
    }

    fn dir(&mut self, path: &Path) -> io::Result<()> {
        let [left, right] = self.roots.map(|root| names(&root.join(path)));
        let (left, right) = (left?, right?);
        for name in left.symmetric_difference(&right) {
            let side = |names: &BTreeSet<OsString>| {
                if names.contains(name) { "there" } else { "missing" }.to_owned()
            };
            self.differs(&path.join(name), "name", [side(&left), side(&right)]);
        }
        left.intersection(&right).try_for_each(|name| self.entry(&path.join(name)))
    }
}

fn names(dir: &Path) -> io::Result<BTreeSet<OsString>> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Whether overlayfs takes the file for a removed one.
fn is_whiteout(meta: &Metadata) -> bool {
    meta.file_type().is_char_device() && meta.rdev() == 0
}

/// All extended attributes, except those that are random.
fn attributes(path: &Path) -> io::Result<Attributes> {
    let mut list = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut list)?;
    let names = list[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut all = Attributes::new();
    for name in names.filter(|name| *name != RANDOM) {
        let mut value = vec![0; 64 << 10];
        let text = std::ffi::OsStr::from_bytes(name);
        let len = rustix::fs::lgetxattr(path, text, &mut value)?;
        value.truncate(len);
        all.insert(name.to_vec(), value);
    }
    Ok(all)
}

fn same_bytes(left: &Path, right: &Path) -> io::Result<bool> {
    let (mut left, mut right) = (File::open(left)?, File::open(right)?);
    if left.metadata()?.len() != right.metadata()?.len() {
        return Ok(false);
    }
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let read = left.read(&mut a)?;
        right.read_exact(&mut b[..read])?;
        if read == 0 || a[..read] != b[..read] {
            return Ok(read == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    fn tree(dir: &Path) {
        fs::create_dir_all(dir.join("var/log")).unwrap();
        fs::write(dir.join("file"), "text").unwrap();
        fs::write(dir.join("var/log/dpkg"), dir.as_os_str().as_bytes()).unwrap();
        symlink("target", dir.join("link")).unwrap();
    }

    #[test]
    fn differences_are_found_and_exceptions_allowed() {
        let begun = SystemTime::now() - Duration::from_secs(3600);
        let dir = tempfile::tempdir().unwrap();
        let [left, right] = ["l", "r"].map(|name| dir.path().join(name));
        [&left, &right].into_iter().for_each(|path| tree(path));
        let found = || compare(&left, &right, begun).unwrap();
        let same = found();
        assert_eq!(same.differences, [""; 0]);
        assert_eq!((same.entries, same.excepted), (6, vec!["var/log/dpkg".to_owned()]));
        fs::write(right.join("file"), "TEXT").unwrap();
        assert!(found().differences[0].starts_with("/file: contents: "));
        fs::write(right.join("file"), "text").unwrap();
        fs::set_permissions(right.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(right.join("file"), dir.path().join("other")).unwrap();
        let old = File::options().write(true).open(right.join("file")).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        fs::remove_file(right.join("link")).unwrap();
        symlink("other", right.join("link")).unwrap();
        fs::create_dir(right.join("more")).unwrap();
        let lines = found().differences;
        let has = |what: &str| lines.iter().any(|line| line.starts_with(what));
        for what in ["/file: kind and mode", "/file: links", "/file: time", "/link: target"] {
            assert!(has(what), "{what}: {lines:?}");
        }
        assert!(has("/more: name: missing, here there") && has("/: links"), "{lines:?}");
    }
}
