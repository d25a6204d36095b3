//! `read`: reads 4 KiB at a random offset of an own file of 4 MiB.

use super::{Done, EndFigures, Job, Name, Random, Session, Step, Work, WorkerContext, filled};

const BLOCK: usize = 4096;
/// Bytes of the file.
pub(crate) const FILE: usize = 4 << 20;

/// The workload.
pub(crate) struct Read;

impl Job for Read {
    type Work<S: Session> = Reading<S>;
}

/// One thread's file.
pub(crate) struct Reading<S: Session> {
    file: S::File,
    buf: Vec<u8>,
    random: Random,
}

impl<S: Session> Work<S> for Reading<S> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        let dir = context.dir(session)?;
        let file = session.create(&dir, Name::new(b"data").numbered(context.thread as u64))?;
        session.write(&file, 0, &filled(FILE))?;
        session.fsync(&file)?;
        let random = Random::new(context.thread as u64 + 1);
        Ok(Self { file, buf: vec![0; BLOCK], random })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        let offset = self.random.below((FILE / BLOCK) as u64) * BLOCK as u64;
        let read = session.read(&self.file, offset, &mut self.buf)?;
        Ok(Step::Did(read as u64))
    }

    fn finish(self, session: &S) -> Done<EndFigures> {
        session.close(self.file)?;
        Ok(EndFigures::default())
    }
}
