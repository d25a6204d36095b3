//! `frag`: each thread extends an own file by 4 KiB fallocates; the run ends by counting extents.

use super::{Done, EndFigures, Ends, Job, Name, Session, Step, Work, WorkerContext};

const BLOCK: u64 = 4096;

/// The workload.
pub(crate) struct Frag;

impl Job for Frag {
    type Work<S: Session> = Fragmenting<S>;
    const ENDS: Ends = Ends::WithLast;
}

/// One thread's file.
pub(crate) struct Fragmenting<S: Session> {
    file: S::File,
    offset: u64,
    limit: u64,
}

impl<S: Session> Work<S> for Fragmenting<S> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        let dir = context.dir(session)?;
        let file = session.create(&dir, Name::new(b"long").numbered(context.thread as u64))?;
        Ok(Self { file, offset: 0, limit: context.params.file_bytes })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        if self.offset >= self.limit {
            return Ok(Step::Over);
        }
        session.fallocate(&self.file, self.offset, BLOCK)?;
        self.offset += BLOCK;
        Ok(Step::Did(0))
    }

    fn finish(self, session: &S) -> Done<EndFigures> {
        let extents = session.extents(&self.file);
        session.close(self.file)?;
        Ok(EndFigures { extents, file_bytes: self.offset, unexpected: 0 })
    }
}
