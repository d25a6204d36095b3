//! One command of a case, for both programs.

use super::paths::quoted;
use std::fmt;

/// A path and the tree that it is in.
#[derive(Clone, Debug)]
pub(super) enum TreePath {
    /// In the source trees, which are only read.
    Source(Vec<u8>),
    /// In a directory of the host; each side has its own.
    Host(Vec<u8>),
    /// In an image; each side has its own.
    Image(usize, Vec<u8>),
}

/// A word of a command line.
#[derive(Clone, Debug)]
pub(super) enum Word {
    Text(Vec<u8>),
    At(TreePath),
    /// The file of an image.
    File(usize),
}

/// A command line and the files of its input and output; none is `/dev/null`.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) words: Vec<Word>,
    pub(super) input: Option<&'static str>,
    pub(super) output: Option<&'static str>,
}

impl Line {
    /// A command with flags.
    pub(super) fn new(words: &[&str]) -> Self {
        let words = words.iter().map(|word| Word::Text(word.as_bytes().to_vec())).collect();
        Self { words, ..Self::default() }
    }

    pub(super) fn and(mut self, words: impl IntoIterator<Item = Word>) -> Self {
        self.words.extend(words);
        self
    }
}

/// One command, for both sides.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Run once, in the directory of the sources.
    pub(super) prepare: Vec<Line>,
    pub(super) theirs: Vec<Line>,
    /// A first word `nextent` stands for the program.
    pub(super) ours: Vec<Line>,
    /// Access times are kept, and compared.
    pub(super) keeps_access: bool,
    /// Modes and attributes are kept.
    pub(super) keeps: bool,
}

impl Step {
    pub(super) fn new(theirs: Line, ours: Line) -> Self {
        Self {
            prepare: Vec::new(),
            theirs: vec![theirs],
            ours: vec![ours],
            keeps_access: false,
            keeps: false,
        }
    }

    /// Whether a line uses that image.
    pub(super) fn uses(&self, image: usize) -> bool {
        let mut words = self.theirs.iter().chain(&self.ours).flat_map(|line| &line.words);
        words.any(|word| match word {
            Word::At(TreePath::Image(at, _)) | Word::File(at) => *at == image,
            _ => false,
        })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, word) in self.words.iter().enumerate() {
            let space = if at > 0 { " " } else { "" };
            match word {
                Word::Text(text) => write!(f, "{space}{}", quoted(text))?,
                Word::At(TreePath::Source(path)) => write!(f, "{space}../src/{}", quoted(path))?,
                Word::At(TreePath::Host(path)) => write!(f, "{space}{}", quoted(path))?,
                Word::At(TreePath::Image(n, path)) => write!(f, "{space}IMG{n}:/{}", quoted(path))?,
                Word::File(n) => write!(f, "{space}IMG{n}")?,
            }
        }
        let input = self.input.map_or(String::new(), |file| format!(" < {file}"));
        let output = self.output.map_or(String::new(), |file| format!(" > {file}"));
        write!(f, "{input}{output}")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines =
            |lines: &[Line]| lines.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        if !self.prepare.is_empty() {
            write!(f, "{}; ", lines(&self.prepare))?;
        }
        write!(f, "{}   |   {}", lines(&self.theirs), lines(&self.ours))
    }
}
