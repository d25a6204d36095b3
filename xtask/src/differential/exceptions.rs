//! All allowed differences from mke2fs, with reasons.

use super::cases::Case;
use super::judge::Answers;

/// A case that one program accepts and the other refuses.
struct Exception {
    /// The difference, and the program that refuses.
    name: &'static str,
    holds: fn(&Case, &Answers) -> bool,
}

const ANSWERS: &[Exception] = &[
    // mke2fs uses the next smaller power of two.
    Exception {
        name: "refused by us: a size of blocks that is no power of two",
        holds: |case, answers| only_ours(answers) && case.value("-b") == Some("3000"),
    },
    // Revision 0 has no features; mke2fs allows their removal.
    Exception {
        name: "refused by us: features with revision 0",
        holds: |case, answers| {
            only_ours(answers) && case.value("-r") == Some("0") && case.has("-O")
        },
    },
    // Linux mounts no volume whose orphan file has more than 512 blocks.
    Exception {
        name: "refused by us: an orphan file that Linux does not mount",
        holds: |_, answers| only_ours(answers) && ours_says(answers, "the orphan file would have"),
    },
    // mke2fs writes half of the volume before it finds no inode for `lost+found`.
    Exception {
        name: "refused by mke2fs: fewer inodes than are reserved",
        holds: |_, answers| {
            let half_way = ["Illegal inode number while writing", "Could not allocate inode in"];
            only_theirs(answers, &half_way)
        },
    },
    // mke2fs does not reserve space for growth that takes most of a group, but counts it.
    Exception {
        name: "refused by mke2fs: room for growth that it gives up leaves too little",
        holds: |case, answers| {
            let asks = case.extended.iter().any(|word| word.starts_with("resize="));
            let said = ["with requested number of inodes", "Not enough space to build"];
            asks && only_theirs(answers, &said)
        },
    },
    // The two backups of sparse_super2 can reserve space for growth like others.
    Exception {
        name: "refused by mke2fs: resize_inode with sparse_super2 alone",
        holds: |_, answers| only_theirs(answers, &["not supported on non-sparse filesystem"]),
    },
];

fn only_ours(answers: &Answers) -> bool {
    answers.ours.is_some() && answers.theirs.is_none()
}

fn ours_says(answers: &Answers, words: &str) -> bool {
    answers.ours.as_deref().is_some_and(|said| said.contains(words))
}

/// Whether only mke2fs refuses, with one of these messages.
fn only_theirs(answers: &Answers, words: &[&str]) -> bool {
    let said = answers.theirs.as_deref().unwrap_or_default();
    answers.ours.is_none() && words.iter().any(|word| said.contains(word))
}

/// The exception for a case that one program accepts and the other refuses.
pub(crate) fn of_answers(case: &Case, answers: &Answers) -> Option<&'static str> {
    ANSWERS.iter().find(|one| (one.holds)(case, answers)).map(|one| one.name)
}
