//! The replay by one client.

use super::load::{Action, Expect, HandleNo, Load, Op, Opening, PathNo};
use crate::target::{Done, OpError, Session, remove_tree};
use crate::workload::{EndFigures, Job, Step, Work, WorkerContext, filled};
use nextent_sync::Arc;
use std::ffi::{CStr, CString};

/// The workload.
pub(crate) struct Dbench;

impl Job for Dbench {
    type Work<S: Session> = Replay<S>;
}

/// A client: its names, its open files and its position in the load.
pub(crate) struct Replay<S: Session> {
    load: Arc<Load>,
    paths: Vec<Path>,
    open: Vec<Option<S::File>>,
    data: Vec<u8>,
    buf: Vec<u8>,
    next: usize,
    unexpected: u64,
}

/// A path and its directory part.
struct Path {
    text: CString,
    /// The directory part; empty for a name in the root.
    parent: CString,
}

impl Path {
    fn new(text: &str, client: usize) -> Self {
        let own = format!("client{}", client + 1);
        let parts: Vec<&str> =
            text.split('/').map(|part| if part == "client1" { &own } else { part }).collect();
        let c = |text: String| CString::new(text).expect("the parser refuses zero bytes");
        let parent = parts[..parts.len() - 1].join("/");
        Self { text: c(parts.join("/")), parent: c(parent) }
    }

    fn last(&self) -> &[u8] {
        let text = self.text.to_bytes();
        text.rsplit(|byte| *byte == b'/').next().unwrap_or(text)
    }
}

impl<S: Session> Work<S> for Replay<S> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        let load = context.params.load.clone();
        let load = load.ok_or_else(|| OpError::Other("no load file".into()))?;
        // The parent directory of all clients. The load does not always create it.
        session.ensure_dir(session.root(), c"clients")?;
        let longest = load.longest as usize;
        Ok(Self {
            paths: load.paths.iter().map(|path| Path::new(path, context.thread)).collect(),
            open: std::iter::repeat_with(|| None).take(load.handles).collect(),
            data: filled(longest),
            buf: vec![0; longest],
            next: 0,
            unexpected: 0,
            load,
        })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        let Op { action, expect } = self.load.ops[self.next];
        self.next = (self.next + 1) % self.load.ops.len();
        let done = self.act(session, action);
        let as_expected = match &done {
            Err(OpError::Full) => return Err(OpError::Full),
            Ok(_) => expect == Expect::Success,
            // Another client or an earlier replay may have created it.
            Err(OpError::Exists) if matches!(action, Action::MakeDir(_)) => true,
            Err(OpError::NotFound) => expect != Expect::Success,
            Err(_) => expect == Expect::Failure,
        };
        self.unexpected += u64::from(!as_expected);
        Ok(Step::Did(done.unwrap_or(0)))
    }

    fn finish(mut self, session: &S) -> Done<EndFigures> {
        self.open.iter_mut().filter_map(Option::take).try_for_each(|file| session.close(file))?;
        Ok(EndFigures { unexpected: self.unexpected, ..EndFigures::default() })
    }
}

impl<S: Session> Replay<S> {
    fn path(&self, number: PathNo) -> &CStr {
        &self.paths[number as usize].text
    }

    fn file(&self, number: HandleNo) -> Done<&S::File> {
        self.open[number as usize].as_ref().ok_or(OpError::NotFound)
    }

    /// Runs one operation and returns the number of bytes read or written.
    fn act(&mut self, session: &S, action: Action) -> Done<u64> {
        match action {
            Action::Open { path, handle, how, dir } => {
                let file = self.open(session, path, how, dir)?;
                if let Some(old) = self.open[handle as usize].replace(file) {
                    session.close(old)?;
                }
            }
            Action::Close(handle) => {
                let file = self.open[handle as usize].take().ok_or(OpError::NotFound)?;
                session.close(file)?;
            }
            Action::Read { handle, offset, len } => {
                let file = self.open[handle as usize].as_ref().ok_or(OpError::NotFound)?;
                let buf = &mut self.buf[..len as usize];
                return session.read(file, offset, buf).map(|read| read as u64);
            }
            Action::Write { handle, offset, len } => {
                session.write(self.file(handle)?, offset, &self.data[..len as usize])?;
                return Ok(u64::from(len));
            }
            Action::Flush(handle) => session.fsync(self.file(handle)?)?,
            Action::Lock { handle, on } => session.lock(self.file(handle)?, on)?,
            Action::StatOpen(handle) => drop(session.stat_open(self.file(handle)?)?),
            Action::SetTimes(handle) => session.touch(self.file(handle)?)?,
            Action::Stat(path) => {
                session.locate(self.path(path), |dir, name| session.stat(dir, name))?;
            }
            Action::Space => drop(session.space()?),
            Action::Find { path, most } => self.find(session, path, most)?,
            Action::Rename { from, to } => session.locate(self.path(from), |from, old| {
                session.locate(self.path(to), |to, new| session.rename((from, old), (to, new)))
            })?,
            Action::Unlink(path) => {
                session.locate(self.path(path), |dir, name| session.unlink(dir, name))?;
            }
            Action::MakeDir(path) => {
                session.locate(self.path(path), |dir, name| session.make_dir(dir, name))?;
            }
            Action::RemoveDir(path) => {
                session.locate(self.path(path), |dir, name| session.remove_dir(dir, name))?;
            }
            Action::RemoveTree(path) => {
                session.locate(self.path(path), |dir, name| remove_tree(session, dir, name))?;
            }
        }
        Ok(0)
    }

    fn open(&self, session: &S, path: PathNo, how: Opening, is_dir: bool) -> Done<S::File> {
        session.locate(self.path(path), |dir, name| {
            if is_dir {
                return open_dir(session, dir, name, how);
            }
            let existing = || session.open(dir, name);
            match how {
                Opening::Existing => existing(),
                Opening::New => session.create(dir, name),
                Opening::Emptied => {
                    let file = existing()?;
                    session.truncate(&file, 0)?;
                    Ok(file)
                }
                Opening::Either | Opening::EitherEmptied => match session.create(dir, name) {
                    Err(OpError::Exists) => {
                        let file = existing()?;
                        if how == Opening::EitherEmptied {
                            session.truncate(&file, 0)?;
                        }
                        Ok(file)
                    }
                    made => made,
                },
            }
        })
    }

    /// Lists up to `most` names of a directory, one of which must match.
    fn find(&self, session: &S, path: PathNo, most: u32) -> Done<()> {
        let path = &self.paths[path as usize];
        let pattern = path.last();
        let (mut left, mut matches) = (most, false);
        let mut each = |name: &[u8]| {
            matches |= is_match(pattern, name);
            left = left.saturating_sub(1);
            left > 0
        };
        if path.parent.is_empty() {
            session.list(&session.open_dir(session.root(), c".")?, &mut each)?;
        } else {
            let dir = session.locate(&path.parent, |dir, name| session.open_dir(dir, name))?;
            session.list(&dir, &mut each)?;
        }
        if matches { Ok(()) } else { Err(OpError::NotFound) }
    }
}

fn open_dir<S: Session>(session: &S, dir: &S::Dir, name: &CStr, how: Opening) -> Done<S::File> {
    match how {
        Opening::Existing | Opening::Emptied => {}
        Opening::New => session.make_dir(dir, name)?,
        Opening::Either | Opening::EitherEmptied => match session.make_dir(dir, name) {
            Err(OpError::Exists) => {}
            made => made?,
        },
    }
    session.open(dir, name)
}

/// Whether a name matches a pattern with `*` and `?`, also in their DOS forms `<` and `>`.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return name.is_empty() };
    match first {
        b'*' | b'<' => {
            // As in DOS, `*.*` also matches a name without an extension.
            rest == b".*" || (0..=name.len()).any(|at| is_match(rest, &name[at..]))
        }
        b'?' | b'>' => !name.is_empty() && is_match(rest, &name[1..]),
        byte => name.first() == Some(byte) && is_match(rest, &name[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, wanted) in [
            ("*", "a.b", true),
            ("*.*", "ab", true),
            ("<.jnk", "x.jnk", true),
            ("<.jnk", "x.jnk2", false),
            ("filler.*", "filler.000", true),
            ("filler.*", "filler", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("abc", "abc", true),
        ] {
            assert_eq!(is_match(pattern.as_bytes(), name.as_bytes()), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn clients_have_names_of_their_own() {
        let path = Path::new("clients/client1/~dmtmp/a.txt", 6);
        assert_eq!(path.text.to_bytes(), b"clients/client7/~dmtmp/a.txt");
        assert_eq!(path.parent.to_bytes(), b"clients/client7/~dmtmp");
        assert_eq!(path.last(), b"a.txt");
    }
}
