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
    // cp(1) makes a part of the copy before it fails.
    Exception {
        name: "refused by both: a directory into itself",
        holds: |_, theirs, ours| {
            theirs.code != 0 && ours.code != 0 && theirs.text.contains("into itself")
        },
    },
];

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
    appends_linked_symlink(case)
        .then_some("GNU tar keeps the names of a symbolic link that an archive has twice")
}

/// Whether a name is appended to an archive that has a symbolic link with several names.
///
/// GNU tar makes links that lead out of the archive at the end, and a placeholder before. An entry
/// that comes again finds the placeholder, which keeps its other names. Ours replaces the link by a
/// new one, as GNU tar does with every other file.
fn appends_linked_symlink(case: &Case) -> bool {
    let names = |entry: &SpecEntry| match &entry.what {
        What::Link(first) => Some(first.clone()),
        _ => None,
    };
    let several = |trees: &[SpecEntry]| {
        let linked: Vec<_> = trees.iter().filter_map(names).collect();
        trees.iter().any(|one| matches!(one.what, What::Symlink(_)) && linked.contains(&one.path))
    };
    let text = |word: &Word, wanted: &[u8]| matches!(word, Word::Text(text) if text == wanted);
    let appends = |line: &Line| {
        line.words.iter().any(|word| text(word, b"tar"))
            && line.words.iter().any(|word| text(word, b"-r"))
    };
    case.steps.iter().flat_map(|step| &step.theirs).any(appends) && several(&case.source)
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
