//! `churn`: create, write 0 to 64 KiB, rename, unlink.

use super::{Done, EndFigures, Job, Name, Random, Session, Step, Work, WorkerContext, filled};

/// The largest file in bytes.
pub(crate) const MOST: usize = 64 << 10;

/// The workload.
pub(crate) struct Churn;

impl Job for Churn {
    type Work<S: Session> = Churning<S>;
}

/// One thread's directory and its next file.
pub(crate) struct Churning<S: Session> {
    dir: S::Dir,
    data: Vec<u8>,
    random: Random,
    born: Name,
    renamed: Name,
    count: u64,
}

impl<S: Session> Work<S> for Churning<S> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        Ok(Self {
            dir: context.dir(session)?,
            data: filled(MOST),
            random: Random::new(context.thread as u64 + 1),
            born: Name::new(format!("new{}-", context.thread).as_bytes()),
            renamed: Name::new(format!("old{}-", context.thread).as_bytes()),
            count: 0,
        })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        // The number stays below 1000, so that directory entries are reused.
        let number = self.count % 1000;
        let (born, renamed) = (self.born.numbered(number), self.renamed.numbered(number));
        self.count += 1;
        let bytes = self.random.below(MOST as u64 + 1);
        let file = session.create(&self.dir, born)?;
        if bytes > 0 {
            session.write(&file, 0, &self.data[..bytes as usize])?;
        }
        session.close(file)?;
        session.rename((&self.dir, born), (&self.dir, renamed))?;
        session.unlink(&self.dir, renamed)?;
        Ok(Step::Did(bytes))
    }

    fn finish(self, _: &S) -> Done<EndFigures> {
        Ok(EndFigures::default())
    }
}
