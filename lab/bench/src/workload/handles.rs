//! `handles`: start and stop a handle of 8 credits, touching one private block of metadata.

use super::{Done, Job, Name, Session, Step, Work, WorkerContext};

/// Credits of a handle.
const CREDITS: u32 = 8;

/// The workload.
pub(crate) struct Handles;

impl Job for Handles {
    type Work<S: Session> = Handling<S, true>;
}

/// Start and stop only, for counting instructions.
pub(crate) struct StartStop;

impl Job for StartStop {
    type Work<S: Session> = Handling<S, false>;
}

/// One thread's block.
pub(crate) struct Handling<S: Session, const TOUCHES: bool> {
    probe: S::Probe,
}

impl<S: Session, const TOUCHES: bool> Work<S> for Handling<S, TOUCHES> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        // A directory for each thread, so that no other thread changes its block.
        let mut name = Name::new(b"block");
        let dir = session.ensure_dir(session.root(), name.numbered(context.thread as u64))?;
        Ok(Self { probe: session.probe(&dir)? })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        session.handle(&self.probe, CREDITS, TOUCHES)?;
        Ok(Step::Did(0))
    }
}
