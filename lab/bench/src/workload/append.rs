//! `append`: writes 4 KiB at the end of an own file, which is truncated when it has its full size.

use super::{Done, EndFigures, Job, Name, Session, Step, Work, WorkerContext, filled};

const BLOCK: usize = 4096;

/// The workload.
pub(crate) struct Append;

impl Job for Append {
    type Work<S: Session> = Appending<S>;
}

/// One thread's file.
pub(crate) struct Appending<S: Session> {
    file: S::File,
    data: Vec<u8>,
    offset: u64,
    limit: u64,
}

impl<S: Session> Appending<S> {
    pub(super) fn file(&self) -> &S::File {
        &self.file
    }
}

impl<S: Session> Work<S> for Appending<S> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        let dir = context.dir(session)?;
        let file = session.create(&dir, Name::new(b"log").numbered(context.thread as u64))?;
        let limit = context.params.file_bytes.max(BLOCK as u64);
        Ok(Self { file, data: filled(BLOCK), offset: 0, limit })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        if self.offset + BLOCK as u64 > self.limit {
            session.truncate(&self.file, 0)?;
            self.offset = 0;
        }
        session.write(&self.file, self.offset, &self.data)?;
        self.offset += BLOCK as u64;
        Ok(Step::Did(BLOCK as u64))
    }

    fn finish(self, session: &S) -> Done<EndFigures> {
        session.close(self.file)?;
        Ok(EndFigures::default())
    }
}
