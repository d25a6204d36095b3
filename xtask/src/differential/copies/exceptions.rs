//! All allowed differences from coreutils, GNU tar and bsdtar, with reasons. A case to which an
//! exception applies is not compared further.

use super::Case;
use super::entry::{SpecEntry, What};
use super::step::{Line, Step, Word};
use super::world::Outcome;

struct Exception {
    /// The difference and its reason.
    name: &'static str,
    holds: fn(&Step, &Outcome, &Outcome) -> bool,
}

const TABLE: &[Exception] = &[
    Exception { name: "coreutils waits at a pipe", holds: |_, theirs, _| theirs.gave_up() },
    // No program would read from a pipe in an image.
    Exception {
        name: "refused by us: writing to a pipe or device of an image",
        holds: |_, _, ours| ours.text.contains("cannot be written in an image"),
    },
    // The directory is also in another source: this program copies it to both places.
    Exception {
        name: "refused by coreutils: a directory to two places",
        holds: |_, theirs, _| theirs.text.contains("will not create hard link"),
    },
    // A file with several names is named, and is in another source too: cp(1) -a removes its copy
    // for a new one, and then links to the removed name.
    Exception {
        name: "refused by coreutils: a hard link to a copy that it removed",
        holds: |_, theirs, _| {
            theirs.code != 0 && theirs.text.split("; ").any(links_to_missing_name)
        },
    },
    // The order of attributes decides which of them fit.
    Exception {
        name: "refused by both: attributes without room",
        holds: |_, theirs, ours| {
            theirs.text.contains("No space left") && ours.text.contains("no space left")
        },
    },
    // GNU tar does not open the directory before the first entry.
    Exception {
        name: "refused by us: an empty archive for a directory that is missing",
        holds: |_, theirs, ours| {
            let refused = ours.text.starts_with("nextent: tar ../../o0.img:");
            theirs.code == 0 && theirs.text.is_empty() && refused
        },
    },
    // GNU tar prints a warning.
    Exception {
        name: "refused by us: an attribute without room in an archive",
        holds: |step, theirs, ours| {
            step.keeps && theirs.code == 0 && ours.text.contains("no room for the attribute")
        },
    },
    // GNU tar writes such names like this program. bsdtar adds a record to read them, of which
    // GNU tar complains.
    Exception {
        name: "refused by bsdtar: a name that is not UTF-8 with records of pax",
        holds: |_, theirs, ours| {
            theirs.code == 0 && ours.text.contains("can't be converted from UTF-8")
        },
    },
    // rm(1) empties the mounted directory. Here the root of an image is what `/` is on a host.
    Exception {
        name: "refused by us: removing the root directory",
        holds: |_, _, ours| ours.text.contains("is the root directory"),
    },
    // cp(1) makes a part of the copy before it fails.
    Exception {
        name: "refused by both: a directory into itself",
        holds: |_, theirs, ours| {
            theirs.code != 0 && ours.code != 0 && theirs.text.contains("into itself")
        },
    },
];

/// Whether cp(1) could not link to a name that it had made.
fn links_to_missing_name(message: &str) -> bool {
    message.contains("cannot create hard link") && message.ends_with(": No such file or directory")
}

/// The exception that applies to a step.
pub(super) fn of(step: &Step, theirs: &Outcome, ours: &Outcome) -> Option<&'static str> {
    TABLE.iter().find(|one| (one.holds)(step, theirs, ours)).map(|one| one.name)
}

/// The exception that applies to a difference of this case.
///
/// If a name in the target is a link to another name, two files of a source may be written to the
/// same file. The order of their directory, which is arbitrary, decides. And cp(1) -a makes the
/// second name of a file a hard link to that link, where this program links to the written file.
pub(super) fn of_case(case: &Case) -> Option<&'static str> {
    let has = |line: &Line, words: &[&[u8]]| {
        line.words.iter().any(|word| matches!(word, Word::Text(text) if words.contains(&&text[..])))
    };
    let trees = |line: &Line| has(line, &[b"cp"]) && has(line, &[b"-a", b"-r", b"-R"]);
    let copies = case.steps.iter().flat_map(|step| &step.theirs).any(trees);
    let linked = case.images.iter().flatten().any(|one| matches!(one.what, What::Symlink(_)));
    if copies && linked {
        return Some("cp of trees onto links of the target");
    }
    repeats_linked_symlink(case)
        .then_some("GNU tar keeps the names of a symbolic link that an archive has twice")
}

/// Whether an archive has a symbolic link with several names, and one of these again.
///
/// GNU tar makes links that lead out of the archive at the end, and a placeholder before. An entry
/// that comes again finds the placeholder, which keeps its other names. Ours replaces the link by a
/// new one, as GNU tar does with every other file.
fn repeats_linked_symlink(case: &Case) -> bool {
    let leads_out = |target: &[u8]| {
        target.starts_with(b"/") || target.split(|byte| *byte == b'/').any(|part| part == b"..")
    };
    // The first line makes the archive, others add to it.
    let added: Vec<&[u8]> = case
        .steps
        .iter()
        .flat_map(|step| step.prepare.iter().skip(1))
        .flat_map(|line| names_of(&line.words))
        .collect();
    let repeated =
        |path: &[u8]| added.iter().any(|name| components(path).starts_with(&components(name)));
    case.source.iter().any(|one| {
        let What::Symlink(target) = &one.what else { return false };
        let links = |other: &&SpecEntry| matches!(&other.what, What::Link(to) if *to == one.path);
        let others: Vec<_> = case.source.iter().filter(links).collect();
        let mut names = others.iter().map(|other| &other.path).chain([&one.path]);
        leads_out(target) && !others.is_empty() && names.any(|name| repeated(name))
    })
}

/// The names after `--`.
fn names_of(words: &[Word]) -> impl Iterator<Item = &[u8]> {
    let texts = words.iter().filter_map(|word| match word {
        Word::Text(text) => Some(&text[..]),
        _ => None,
    });
    texts.skip_while(|text| *text != b"--").skip(1)
}

/// The components of a path, without its spelling: `./a//` is `a`, and `a/../b` is `b`.
fn components(path: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts
}

/// The bits beyond `rwx` in a line of a listing, and the line without them.
fn special_bits(line: &str) -> Option<(u32, String)> {
    let start = line.find("mode=")? + 5;
    let end = start + line[start..].find(' ')?;
    let mode = u32::from_str_radix(&line[start..end], 8).ok()?;
    Some((mode & 0o7000, format!("{}{:o}{}", &line[..start], mode & 0o777, &line[end..])))
}

/// Whether two lines of listings may differ.
///
/// cp(1) -p keeps sticky and set-id bits that the target had before, since it sets modes by access
/// lists. GNU tar keeps the set-group-id bit that a new directory inherits. POSIX requires the bits
/// of the source.
pub(super) fn of_lines(theirs: &str, ours: &str) -> bool {
    match (special_bits(theirs), special_bits(ours)) {
        (Some((more, theirs)), Some((less, ours))) => theirs == ours && more & less == less,
        _ => false,
    }
}

/// The mode in a line of a listing, and the line without its `w` of group and others, and without
/// the permissions of mask and others in an access list.
fn write_bits(line: &str) -> Option<(u32, String)> {
    let (start, list) = line.split_once("mode=")?;
    let (mode, list) = list.split_once(' ')?;
    let mode = u32::from_str_radix(mode, 8).ok()?;
    let (access, default) = list.split_once(" system.posix_acl_default=")?;
    let mut access = access.to_owned();
    // A tag and the permissions: a mask, others.
    for tag in ["\\x10\\x00\\x0", " \\x00\\x0"] {
        let Some(at) = access.rfind(tag) else { continue };
        let digit = at + tag.len();
        access.replace_range(digit..digit + 1, "");
    }
    Some((mode, format!("{start}{:o} {access} {default}", mode & !0o022)))
}

/// Whether two lines of listings may differ where attributes are not kept.
///
/// cp(1) makes a directory without the permission of group and others to write, and adds it later,
/// if the umask has it. It then has this permission although the default access list of its parent
/// denies it. Ours has what the list grants.
pub(super) fn of_new_dirs(theirs: &str, ours: &str) -> bool {
    let (Some((more, theirs)), Some((less, ours))) = (write_bits(theirs), write_bits(ours)) else {
        return false;
    };
    theirs.starts_with("dir ") && theirs == ours && more & less == less
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, what: What) -> SpecEntry {
        let (path, xattrs) = (path.as_bytes().to_vec(), Vec::new());
        SpecEntry { path, what, mode: 0o600, owner: (0, 0), times: [(0, 0); 2], xattrs }
    }

    /// A case with an archive of everything to which `name` is added.
    fn adding(name: &str, source: Vec<SpecEntry>) -> Case {
        let line = |words: &[&str]| Line::new(words);
        let mut step = Step::new(line(&["tar", "-x"]), line(&["nextent", "tar", "-x"]));
        step.prepare = vec![
            line(&["tar", "-c", "-f", "a.tar", "--", "."]),
            line(&["tar", "-r", "-f", "a.tar", "--", name]),
        ];
        let (host, images) = (Vec::new(), [Vec::new(), Vec::new()]);
        Case { source, host, images, steps: vec![step], umask: 0o022, format: "" }
    }

    fn tree(target: &str) -> Vec<SpecEntry> {
        vec![
            entry("a", What::Symlink(target.as_bytes().to_vec())),
            entry("e", What::Dir),
            entry("e/d", What::Link(b"a".to_vec())),
            entry("other", What::Fifo),
        ]
    }

    #[test]
    fn a_repeated_symbolic_link_is_known_by_any_spelling() {
        for name in ["a", "a/", "a//", "./a", ".//a/.", "a/../a", "e", "e//d/", ".", "other/.."] {
            assert!(of_case(&adding(name, tree("/out"))).is_some(), "{name}");
            assert!(of_case(&adding(name, tree("x/../../out"))).is_some(), "{name}");
            assert!(of_case(&adding(name, tree("other"))).is_none(), "{name}");
        }
        for name in ["other", "b", "a/x", "e/dd"] {
            assert!(of_case(&adding(name, tree("/out"))).is_none(), "{name}");
        }
        let alone = vec![entry("a", What::Symlink(b"/out".to_vec()))];
        assert!(of_case(&adding("a", alone)).is_none());
    }

    #[test]
    fn coreutils_links_to_a_copy_that_it_removed() {
        let step = Step::new(Line::new(&["cp", "-a"]), Line::new(&["nextent", "cp", "-a"]));
        let of = |code, text: &str| {
            let outcome = |code, text: &str| Outcome { code, text: text.to_owned() };
            of(&step, &outcome(code, text), &outcome(0, "")).is_some()
        };
        let link = "cp: cannot create hard link 'd/./e' to 'd/e'";
        assert!(of(1, &format!("cp: other; {link}: No such file or directory")));
        assert!(!of(1, &format!("{link}: File exists; cp: x: No such file or directory")));
        assert!(!of(1, "cp: cannot stat 'x': No such file or directory"));
        assert!(!of(0, &format!("{link}: No such file or directory")));
    }

    #[test]
    fn a_link_is_not_repeated_by_an_archive_without_additions() {
        let mut case = adding("a", tree("/out"));
        case.steps[0].prepare.truncate(1);
        assert!(of_case(&case).is_none());
    }

    #[test]
    fn a_new_directory_of_coreutils_may_have_more_write_permission() {
        let line = |kind: &str, mode: &str, mask: u8, other: u8, default: &str| {
            let list = format!(
                "\\x02\\x00\\x01\\x00\\x01\\xff\\x10\\x00\\x0{mask}\\x00\\xff \\x00\\x0{other}\\x00"
            );
            format!("{kind} mode={mode} owner=0:0 system.posix_acl_access={list}{default}")
        };
        let default = " system.posix_acl_default=\\x02";
        let dir = |mode: &str, mask, other| line("dir", mode, mask, other, default);
        let ours = dir("2155", 5, 5);
        assert!(of_new_dirs(&dir("2175", 7, 5), &ours));
        assert!(of_new_dirs(&dir("2177", 7, 7), &ours));
        // Less permission, other permission, another kind, no default list.
        assert!(!of_new_dirs(&ours, &dir("2175", 7, 5)));
        assert!(!of_new_dirs(&dir("2755", 5, 5), &ours));
        assert!(!of_new_dirs(&dir("2175", 7, 5).replace("\\x01\\xff", "\\x07\\xff"), &ours));
        assert!(!of_new_dirs(&line("file", "2175", 7, 5, default), &ours));
        assert!(!of_new_dirs(&line("dir", "2175", 7, 5, ""), &line("dir", "2155", 5, 5, "")));
    }
}
