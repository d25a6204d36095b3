//! `create`, `unlink` and `stat`: one name an operation, in own directories.

use super::{Done, Ends, Job, Name, Random, Session, Step, Work, WorkerContext};

/// Files whose names `stat` looks up.
pub(crate) const STATTED: u64 = 64;
/// The most files that `unlink` creates for a thread.
const UNLINKED: u64 = 200_000;

/// Creates empty files until the inodes are used up.
pub(crate) struct Create;

impl Job for Create {
    type Work<S: Session> = Creating<S>;
    const ENDS: Ends = Ends::WithFirst;
}

/// One thread's directory.
pub(crate) struct Creating<S: Session> {
    dir: S::Dir,
    name: Name,
    count: u64,
    most: u64,
}

impl<S: Session> Work<S> for Creating<S> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        let name = Name::new(format!("file{}-", context.thread).as_bytes());
        Ok(Self { dir: context.dir(session)?, name, count: 0, most: context.inodes() })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        if self.count == self.most {
            return Ok(Step::Over);
        }
        let file = session.create(&self.dir, self.name.numbered(self.count))?;
        session.close(file)?;
        self.count += 1;
        Ok(Step::Did(0))
    }
}

/// Removes files that `prepare` created.
pub(crate) struct Unlink;

impl Job for Unlink {
    type Work<S: Session> = Unlinking<S>;
    const ENDS: Ends = Ends::WithFirst;
}

/// One thread's directory.
pub(crate) struct Unlinking<S: Session> {
    dir: S::Dir,
    name: Name,
    left: u64,
}

impl<S: Session> Work<S> for Unlinking<S> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        let mut name = Name::new(format!("file{}-", context.thread).as_bytes());
        let dir = context.dir(session)?;
        let left = context.inodes().min(UNLINKED);
        for number in 0..left {
            session.close(session.create(&dir, name.numbered(number))?)?;
        }
        Ok(Self { dir, name, left })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        if self.left == 0 {
            return Ok(Step::Over);
        }
        self.left -= 1;
        session.unlink(&self.dir, self.name.numbered(self.left))?;
        Ok(Step::Did(0))
    }
}

/// Looks up the names of 64 own files.
pub(crate) struct StatNames;

impl Job for StatNames {
    type Work<S: Session> = Statting<S>;
}

/// One thread's directory.
pub(crate) struct Statting<S: Session> {
    dir: S::Dir,
    name: Name,
    random: Random,
}

impl<S: Session> Work<S> for Statting<S> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        let mut name = Name::new(format!("file{}-", context.thread).as_bytes());
        let dir = context.dir(session)?;
        for number in 0..STATTED {
            session.close(session.create(&dir, name.numbered(number))?)?;
        }
        Ok(Self { dir, name, random: Random::new(context.thread as u64 + 1) })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        let number = self.random.below(STATTED);
        session.stat(&self.dir, self.name.numbered(number))?;
        Ok(Step::Did(0))
    }
}
