//! Compares two trees.

use super::{Entry, Kind, Tree};
use std::fmt::Debug;

/// The most lines of differences.
const MOST: usize = 40;

/// The attributes that are compared.
#[derive(Clone, Copy, Debug)]
pub struct Compare {
    /// Modification times.
    pub times: bool,
    /// The root's own time, owner and mode.
    pub root: bool,
    /// Owners and groups.
    pub owners: bool,
    /// Lengths of directories, which depend on the implementation.
    pub dir_sizes: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Holes; bytes are always compared.
    pub holes: bool,
}

impl Default for Compare {
    fn default() -> Self {
        Self { times: true, root: true, owners: true, dir_sizes: false, xattrs: true, holes: false }
    }
}

struct Lines<'a> {
    lines: Vec<String>,
    path: &'a [u8],
}

impl Lines<'_> {
    fn check<T: PartialEq + Debug>(&mut self, what: &str, left: T, right: T) {
        if left != right {
            self.say(&format!("{what} {left:?} | {right:?}"));
        }
    }

    fn say(&mut self, text: &str) {
        self.lines.push(format!("{}: {text}", self.path.escape_ascii()));
    }
}

/// The differences, one per line, left before right; empty if there are none.
pub fn diff(left: &Tree, right: &Tree, how: &Compare) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut l, mut r) = (left.entries.iter().peekable(), right.entries.iter().peekable());
    loop {
        let step = match (l.peek(), r.peek()) {
            (None, None) => break,
            (Some(_), None) => (l.next(), None),
            (None, Some(_)) => (None, r.next()),
            (Some(a), Some(b)) if a.path < b.path => (l.next(), None),
            (Some(a), Some(b)) if a.path > b.path => (None, r.next()),
            _ => (l.next(), r.next()),
        };
        match step {
            (Some(a), Some(b)) => compare(a, b, how, &mut lines),
            (Some(only), None) => lines.push(format!("{}: only left", only.path.escape_ascii())),
            (None, Some(only)) => lines.push(format!("{}: only right", only.path.escape_ascii())),
            (None, None) => break,
        }
    }
    lines
}

fn compare(a: &Entry, b: &Entry, how: &Compare, out: &mut Vec<String>) {
    let mut lines = Lines { lines: Vec::new(), path: &a.path };
    let (root, dir) = (a.path == b"/", a.stat.kind == Kind::Dir);
    lines.check("type", a.stat.kind, b.stat.kind);
    if how.root || !root {
        if a.stat.mode != b.stat.mode {
            lines.say(&format!("mode {:o} | {:o}", a.stat.mode, b.stat.mode));
        }
        if how.owners {
            lines.check("owner", (a.stat.uid, a.stat.gid), (b.stat.uid, b.stat.gid));
        }
        if how.times {
            lines.check("mtime", a.stat.mtime, b.stat.mtime);
        }
    }
    // The root's link count includes lost+found, which may be in one tree only.
    if !root {
        lines.check("links", a.stat.nlink, b.stat.nlink);
    }
    if !dir || how.dir_sizes {
        lines.check("size", a.stat.size, b.stat.size);
    }
    lines.check("device number", a.stat.rdev, b.stat.rdev);
    let text = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|b| b.escape_ascii().to_string());
    lines.check("link of", text(&a.same_as), text(&b.same_as));
    lines.check("target", text(&a.target), text(&b.target));
    if a.content != b.content {
        lines.say("content differs");
    }
    if how.xattrs {
        compare_xattrs(a, b, &mut lines);
    }
    if how.holes && a.data.is_some() && b.data.is_some() {
        lines.check("data ranges", &a.data, &b.data);
    }
    out.append(&mut lines.lines);
}

fn compare_xattrs(a: &Entry, b: &Entry, lines: &mut Lines<'_>) {
    let names: std::collections::BTreeSet<_> = a.xattrs.keys().chain(b.xattrs.keys()).collect();
    for name in names {
        let value = |entry: &Entry| {
            entry.xattrs.get(name).map(|value| {
                let head = value[..value.len().min(40)].escape_ascii().to_string();
                if value.len() > 40 { format!("{head}... ({} bytes)", value.len()) } else { head }
            })
        };
        if a.xattrs.get(name) != b.xattrs.get(name) {
            lines.check(&format!("xattr {}", name.escape_ascii()), value(a), value(b));
            if value(a) == value(b) {
                lines.say(&format!("xattr {} differs further on", name.escape_ascii()));
            }
        }
    }
}

/// Panics with the differences, if there are any.
///
/// # Panics
/// If the trees differ.
#[track_caller]
pub fn assert_same(left: &Tree, right: &Tree, how: &Compare) {
    let lines = diff(left, right, how);
    let shown = lines[..lines.len().min(MOST)].join("\n");
    let more = lines.len().saturating_sub(MOST);
    assert!(lines.is_empty(), "the trees differ (and {more} more):\n{shown}");
}
