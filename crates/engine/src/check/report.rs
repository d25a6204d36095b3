//! The result of a check: one line for each problem, up to the caller's limit.

use std::fmt;

use nextent_ondisk::{BlockNo, Corrupt, GroupNo, InodeNo};
use nextent_sync::Mutex;

use super::locks;

/// The code of notes about what was not checked.
const NOT_CHECKED: &str = "not-checked";

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The volume breaks a rule of the format: it must be repaired.
    Error,
    /// Information; no rule is broken.
    Note,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The pass that found it: 0 for the superblock and the journal, then 1 to 5.
    pub pass: u8,
    /// How bad it is.
    pub severity: Severity,
    /// A stable name for the kind of problem, for programs.
    pub code: &'static str,
    /// The block group concerned.
    pub group: Option<GroupNo>,
    /// The inode concerned.
    pub inode: Option<InodeNo>,
    /// The block concerned.
    pub block: Option<BlockNo>,
    /// A path of that inode, when one is known; unprintable bytes are escaped.
    pub path: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl Problem {
    pub(super) fn error(pass: u8, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            pass,
            severity: Severity::Error,
            code,
            group: None,
            inode: None,
            block: None,
            path: None,
            message: message.into(),
        }
    }

    pub(super) fn note(pass: u8, code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::error(pass, code, message) }
    }

    /// Something on the volume that is not checked, though it may be damaged.
    pub(super) fn not_checked(pass: u8, what: &str) -> Self {
        Self::note(pass, NOT_CHECKED, format!("not checked: {what}"))
    }

    /// The error of a parser.
    pub(super) fn corrupt(pass: u8, code: &'static str, corrupt: &Corrupt) -> Self {
        let bare = Corrupt::new(corrupt.structure, corrupt.kind);
        let mut problem = Self::error(pass, code, bare.to_string());
        problem.group = corrupt.location.group;
        problem.inode = corrupt.location.inode;
        problem.block = corrupt.location.block;
        problem
    }

    pub(super) fn in_group(mut self, group: GroupNo) -> Self {
        self.group = Some(group);
        self
    }

    pub(super) fn at_inode(mut self, ino: InodeNo) -> Self {
        self.inode = Some(ino);
        self
    }

    pub(super) fn at_block(mut self, block: BlockNo) -> Self {
        self.block = Some(block);
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.severity == Severity::Note {
            f.write_str("note: ")?;
        }
        let mut parts = Vec::new();
        if let Some(group) = self.group {
            parts.push(format!("group {group}"));
        }
        if let Some(ino) = self.inode {
            let path = self.path.as_ref().map_or(String::new(), |path| format!(" ({path})"));
            parts.push(format!("inode {ino}{path}"));
        }
        if let Some(block) = self.block {
            parts.push(format!("block {block}"));
        }
        if !parts.is_empty() {
            write!(f, "{}: ", parts.join(", "))?;
        }
        f.write_str(&self.message)
    }
}

/// The contents of a volume, as the check counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Inodes in use.
    pub inodes_used: u64,
    /// Inodes of the volume.
    pub inodes: u64,
    /// Blocks in use (whole clusters).
    pub blocks_used: u64,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Directories.
    pub directories: u64,
    /// Other files.
    pub files: u64,
    /// Files whose blocks do not lie in one run.
    pub fragmented: u64,
}

/// The result of a whole check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Errors and notes in the order of pass and location, up to the caller's limit.
    pub problems: Vec<Problem>,
    /// Errors found, those left out of `problems` included.
    pub errors: u64,
    /// Errors and notes left out of `problems`.
    pub left_out: u64,
    /// Whether the journal holds changes; the check saw the volume as after its replay.
    pub recovery_pending: bool,
    /// What is on the volume.
    pub totals: Totals,
    /// Things on the volume that were not checked; a note names each.
    pub unchecked: u64,
}

impl CheckReport {
    /// Whether no rule of the format is broken.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }

    /// Whether everything on the volume was checked.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.unchecked == 0
    }
}

/// Collects problems from all threads.
pub(super) struct Findings {
    state: Mutex<State>,
    limit: usize,
}

#[derive(Default)]
struct State {
    kept: Vec<Problem>,
    errors: u64,
    unchecked: u64,
    left_out: u64,
}

impl Findings {
    pub(super) fn new(limit: usize) -> Self {
        Self { state: Mutex::new(&locks::PROBLEMS, State::default()), limit }
    }

    pub(super) fn push(&self, problem: Problem) {
        let mut state = self.state.lock();
        state.errors += u64::from(problem.severity == Severity::Error);
        state.unchecked += u64::from(problem.code == NOT_CHECKED);
        if state.kept.len() < self.limit {
            state.kept.push(problem);
        } else {
            state.left_out += 1;
        }
    }

    /// The inodes that problems name.
    pub(super) fn inodes(&self) -> Vec<InodeNo> {
        let mut all: Vec<_> = self.state.lock().kept.iter().filter_map(|p| p.inode).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The report, sorted; `path` gives the paths of inodes.
    pub(super) fn finish(self, path: impl Fn(InodeNo) -> Option<String>) -> CheckReport {
        let mut state = self.state.into_inner();
        state.kept.sort_by(|a, b| {
            let key = |p: &Problem| (p.pass, p.group, p.inode, p.block);
            key(a).cmp(&key(b)).then_with(|| a.message.cmp(&b.message))
        });
        for problem in &mut state.kept {
            problem.path = problem.inode.and_then(&path);
        }
        CheckReport {
            problems: state.kept,
            errors: state.errors,
            unchecked: state.unchecked,
            left_out: state.left_out,
            ..CheckReport::default()
        }
    }
}
