//! Files of what was measured, of either kind: two cores and one in rounds, or curves over many
//! cores. Whatever else is in a file is told in one line that names it.

use super::curve::Curves;
use super::rounds::Rounds;
use crate::failure::Failure;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use std::path::{Path, PathBuf};

/// What was kept of a run.
pub enum Kept {
    /// Two cores and one.
    Rounds(Rounds),
    /// Many numbers of cores.
    Curves(Curves),
}

impl Kept {
    /// What is in a file: of `only` one workload or all, with each of `names`, and of curves those
    /// of `cores`, all if there are none of these.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a file that cannot be read or is of neither kind, or not of curves
    /// and `cores` are asked for; for an unknown workload or design, and if it has none that are
    /// asked for.
    pub fn read(
        path: &Path,
        only: Option<&str>,
        names: &[String],
        cores: &[usize],
    ) -> Result<Self, Failure> {
        let file = File::read(path)?;
        let is_curves = file.parse::<Kind>()?.curves.is_some();
        match is_curves {
            true => Curves::read(&file, only, names, cores).map(Kept::Curves),
            false if cores.is_empty() => Rounds::read(&file, only, names).map(Kept::Rounds),
            false => Err(file.wrong("has two cores by one and no curves: leave out --cores")),
        }
    }
}

/// What tells a file's kind.
#[derive(Deserialize)]
struct Kind {
    curves: Option<IgnoredAny>,
}

/// A file's text.
pub(super) struct File {
    path: PathBuf,
    text: String,
}

impl File {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let mut file = Self { path: path.to_owned(), text: String::new() };
        file.text =
            std::fs::read_to_string(path).map_err(|error| file.wrong(&error.to_string()))?;
        Ok(file)
    }

    /// What is in it.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(&self.text).map_err(|error| self.wrong(&error.to_string()))
    }

    /// Its name, for messages.
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(super) fn wrong(&self, why: &str) -> Failure {
        Failure::usage(format!("{}: {why}", self.name()))
    }
}

#[cfg(test)]
pub(super) fn file(text: &str) -> File {
    File { path: PathBuf::from("kept"), text: text.to_owned() }
}

/// Each of these changes of a good file's text makes it one that is told in a line with that word,
/// and so do files that are none.
#[cfg(test)]
pub(super) fn refused<T: std::fmt::Debug>(
    good: &str,
    changes: &[(&str, &str, &str)],
    read: impl Fn(&str) -> Result<T, Failure>,
) {
    let changed = changes.iter().map(|(from, to, word)| {
        let wrong = good.replacen(from, to, 1);
        assert_ne!(good, wrong, "{from}");
        (wrong, *word)
    });
    let none = [(String::new(), "kept:"), ("{".repeat(1 << 20), "kept:")];
    for (text, word) in none.into_iter().chain(changed) {
        let told = read(&text).expect_err("it is wrong").to_string();
        assert!(told.contains(word) && told.lines().count() == 1, "{word}: {told}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_other_kind_is_told_in_a_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("kept");
        let names = ["nextent".to_owned()];
        let told = |text: &str, cores: &[usize]| {
            std::fs::write(&path, text).expect("it is written");
            let failure = Kept::read(&path, None, &names, cores).map(|_| ());
            failure.expect_err("it is wrong").to_string()
        };
        for (text, cores, word) in [
            (r#"{"constants": 1, "rows": []}"#, &[2][..], "leave out --cores"),
            (r#"{"constants": 1, "rows": []}"#, &[], "struct Constants"),
            (r#"{"curves": 1}"#, &[], "struct Curves"),
            (r#"{"curves": 1}"#, &[2], "struct Curves"),
            ("[]", &[], "kept"),
            ("nothing", &[2], "expected"),
            (&"{".repeat(1 << 20), &[], "kept"),
            (&"[".repeat(1 << 20), &[2], "kept"),
        ] {
            let told = told(text, cores);
            assert!(told.contains(word) && told.lines().count() == 1, "{told}");
        }
        assert!(Kept::read(&path.join("nowhere"), None, &names, &[]).is_err());
    }
}
