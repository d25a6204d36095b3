//! `fallocate2` and `fallocate1` of will-it-scale: each thread extends an unlinked file of its own
//! and truncates it.

use super::{Done, Job, Name, Session, Step, Work, WorkerContext, wait_for};

/// 8 KiB each time. The operation that reaches 1 MiB truncates the file, too.
pub(crate) struct Fallocate2;

impl Job for Fallocate2 {
    type Work<S: Session> = Extend<S, 8192, { 1 << 20 }>;
}

/// 128 MiB at once, then truncated.
pub(crate) struct Fallocate1;

impl Job for Fallocate1 {
    type Work<S: Session> = Extend<S, { 128 << 20 }, { 128 << 20 }>;
}

/// A file that grows by `BY` bytes up to `TO`.
pub(crate) struct Extend<S: Session, const BY: u64, const TO: u64> {
    file: S::File,
    offset: u64,
}

impl<S: Session, const BY: u64, const TO: u64> Work<S> for Extend<S, BY, TO> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        let dir = context.dir(session)?;
        let mut name = Name::new(b"grows");
        let file = if context.params.shared {
            // One thread creates all, so that their inode numbers are adjacent.
            for thread in 0..if context.thread == 0 { context.threads } else { 0 } {
                let file = session.create(&dir, name.numbered(thread as u64))?;
                session.close(file)?;
            }
            let name = name.numbered(context.thread as u64);
            wait_for(session, &dir, name)?;
            session.open(&dir, name)?
        } else {
            session.create(&dir, name.numbered(context.thread as u64))?
        };
        session.unlink(&dir, name.numbered(context.thread as u64))?;
        Ok(Self { file, offset: 0 })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        session.fallocate(&self.file, self.offset, BY)?;
        self.offset += BY;
        if self.offset == TO {
            session.truncate(&self.file, 0)?;
            self.offset = 0;
        }
        Ok(Step::Did(0))
    }

    fn finish(self, session: &S) -> Done<super::EndFigures> {
        session.close(self.file)?;
        Ok(super::EndFigures::default())
    }
}
