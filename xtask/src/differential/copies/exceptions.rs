//! What may differ from coreutils, GNU tar and bsdtar, all of it, and why. A case to which one
//! applies is not compared further.

use super::Case;
use super::entry::What;
use super::step::{Line, Step, Word};
use super::world::Outcome;

struct Exception {
    /// What it is, and why it is meant.
    name: &'static str,
    holds: fn(&Step, &Outcome, &Outcome) -> bool,
}

const TABLE: &[Exception] = &[
    Exception { name: "coreutils waits at a pipe", holds: |_, theirs, _| theirs.gave_up() },
    // Nothing in an image would read what is written there.
    Exception {
        name: "refused by us: writing to a pipe or device of an image",
        holds: |_, _, ours| ours.text.contains("cannot be written in an image"),
    },
    // One that also lies in another source: ours copies it to both places.
    Exception {
        name: "refused by coreutils: a directory to two places",
        holds: |_, theirs, _| theirs.text.contains("will not create hard link"),
    },
    // Which of them fit depends on their order.
    Exception {
        name: "refused by both: attributes without room",
        holds: |_, theirs, ours| {
            theirs.text.contains("No space left") && ours.text.contains("no space left")
        },
    },
    // GNU tar does not look at the directory before there is an entry.
    Exception {
        name: "refused by us: an empty archive for a directory that is missing",
        holds: |_, theirs, ours| {
            let refused = ours.text.starts_with("nextent: tar ../../o0.img:");
            theirs.code == 0 && theirs.text.is_empty() && refused
        },
    },
    // For GNU tar it is a warning.
    Exception {
        name: "refused by us: an attribute without room in an archive",
        holds: |step, theirs, ours| {
            step.keeps && theirs.code == 0 && ours.text.contains("no room for the attribute")
        },
    },
    // GNU tar writes such names as ours does. What bsdtar adds so that it can read them makes
    // GNU tar complain.
    Exception {
        name: "refused by bsdtar: a name that is not UTF-8 with records of pax",
        holds: |_, theirs, ours| {
            theirs.code == 0 && ours.text.contains("can't be converted from UTF-8")
        },
    },
    // cp(1) makes a part of the copy before it notices.
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

/// The exception that a difference of this case may have.
///
/// Files of one source that end in the same file of the target, since a name there is a link to
/// another, are written in the order of their directory, which has none. And cp(1) -a makes the
/// second name of a file a name of that link; ours makes it one of the file that was written.
pub(super) fn of_case(case: &Case) -> Option<&'static str> {
    let has = |line: &Line, words: &[&[u8]]| {
        line.words.iter().any(|word| matches!(word, Word::Text(text) if words.contains(&&text[..])))
    };
    let trees = |line: &Line| has(line, &[b"cp"]) && has(line, &[b"-a", b"-r", b"-R"]);
    let copies = case.steps.iter().flat_map(|step| &step.theirs).any(trees);
    let linked = case.images.iter().flatten().any(|one| matches!(one.what, What::Symlink(_)));
    (copies && linked).then_some("cp of trees onto links of the target")
}

/// Bits beyond `rwx` in a line of a listing, and the line without them.
fn special_bits(line: &str) -> Option<(u32, String)> {
    let start = line.find("mode=")? + 5;
    let end = start + line[start..].find(' ')?;
    let mode = u32::from_str_radix(&line[start..end], 8).ok()?;
    Some((mode & 0o7000, format!("{}{:o}{}", &line[..start], mode & 0o777, &line[end..])))
}

/// Whether two lines of listings may differ.
///
/// cp(1) -p leaves sticky and set-id bits that the target had before, since it sets modes through
/// access lists; GNU tar leaves the set-group-id bit that a new directory has from the one above.
/// POSIX asks for the bits of the source.
pub(super) fn of_lines(theirs: &str, ours: &str) -> bool {
    match (special_bits(theirs), special_bits(ours)) {
        (Some((more, theirs)), Some((less, ours))) => theirs == ours && more & less == less,
        _ => false,
    }
}
