//! `fsync`: writes 4 KiB at the end of an own file and makes it durable.

use super::append::Appending;
use super::{Done, EndFigures, Job, Session, Step, Work, WorkerContext};

/// The workload.
pub(crate) struct Fsync;

impl Job for Fsync {
    type Work<S: Session> = Syncing<S>;
}

/// One thread's file.
pub(crate) struct Syncing<S: Session>(Appending<S>);

impl<S: Session> Work<S> for Syncing<S> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        Ok(Self(Appending::prepare(session, context)?))
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        let step = self.0.step(session)?;
        session.fsync(self.0.file())?;
        Ok(step)
    }

    fn finish(self, session: &S) -> Done<EndFigures> {
        self.0.finish(session)
    }
}
