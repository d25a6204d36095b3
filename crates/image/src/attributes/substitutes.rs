//! Parts of paths that stand for others, in the files that libselinux reads beside its
//! `file_contexts`: a line `/usr/lib64 /usr/lib` labels the one tree like the other.

use super::list_file::{AttributesError, ListFile, shown, words};
use std::borrow::Cow;

/// Starts of paths and what replaces them, the longest first.
#[derive(Debug, Default)]
pub(super) struct Substitutes(Vec<(Vec<u8>, Vec<u8>)>);

impl Substitutes {
    pub(super) fn parse(file: &ListFile) -> Result<Self, AttributesError> {
        let mut all = Vec::new();
        file.each_line(|_, line| {
            let words = words(line);
            if words.is_empty() {
                return Ok(());
            }
            let [from, to] = words[..] else { return Err("not the fields PATH PATH".into()) };
            if let Some(other) = [from, to].into_iter().find(|path| !path.starts_with(b"/")) {
                return Err(format!("'{}' does not begin with a slash", shown(other)));
            }
            all.push((trimmed(from).to_vec(), trimmed(to).to_vec()));
            Ok(())
        })?;
        all.sort_by_key(|(from, _)| std::cmp::Reverse(from.len()));
        Ok(Self(all))
    }

    /// The path whose label `path` gets.
    pub(super) fn apply<'p>(&self, path: Cow<'p, [u8]>) -> Cow<'p, [u8]> {
        for (from, to) in &self.0 {
            let rest = path.strip_prefix(&from[..]);
            if let Some(rest) = rest.filter(|rest| matches!(rest.first(), None | Some(b'/'))) {
                let other = [to, rest].concat();
                return Cow::Owned(if other.is_empty() { b"/".to_vec() } else { other });
            }
        }
        path
    }
}

fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    &path[..end]
}
