//! `dio-overwrite` and `dio-rewrite`: random direct writes into one preallocated file that all
//! threads share.
//!
//! A block has the size of a write. Thread `t` of `n` writes the blocks whose number is `t` modulo
//! `n`, each once, in a pseudo-random order. In `dio-overwrite` the blocks are unwritten, and the
//! run ends with the first thread that has none left. In `dio-rewrite` they hold data, and each
//! thread starts over.

use super::{
    Done, EndFigures, Ends, Job, Name, Random, Session, Step, Work, WorkerContext, filled, wait_for,
};
use crate::target::{OpError, WriteQueue};
use nextent::inodes::Buffer;

/// Writes each unwritten block once.
pub(crate) struct Overwrite;

impl Job for Overwrite {
    type Work<S: Session> = Writing<S, false>;
    const ENDS: Ends = Ends::WithFirst;
}

/// Writes blocks that hold data.
pub(crate) struct Rewrite;

impl Job for Rewrite {
    type Work<S: Session> = Writing<S, true>;
}

/// One thread's share of the file. With `FULL` the file holds data before.
pub(crate) struct Writing<S: Session, const FULL: bool> {
    mode: WriteMode<S>,
    bs: u64,
    /// The thread's number and the number of threads.
    share: (u64, u64),
    order: Order,
}

/// How a thread writes.
enum WriteMode<S: Session> {
    /// By blocking calls.
    Calls(S::File, Buffer),
    /// Through a queue, with the buffers that are not in flight.
    Queue(S::Queue, Vec<Buffer>),
}

impl<S: Session> WriteMode<S> {
    fn new(session: &S, file: S::File, data: &[u8], depth: usize) -> Done<Self> {
        if depth <= 1 {
            return Ok(Self::Calls(file, Buffer::from_bytes(data)));
        }
        let spare = (0..depth).map(|_| Buffer::from_bytes(data)).collect();
        Ok(Self::Queue(session.queue(file, depth)?, spare))
    }

    #[inline]
    fn write(&mut self, session: &S, offset: u64) -> Done<()> {
        match self {
            Self::Calls(file, data) => session.write_direct(file, offset, data),
            Self::Queue(queue, spare) => {
                if spare.is_empty() {
                    queue.complete(1, spare)?;
                }
                queue.write(
                    offset,
                    spare.pop().expect("a write has completed, so its buffer is spare"),
                )
            }
        }
    }

    fn end(self, session: &S) -> Done<()> {
        match self {
            Self::Calls(file, _) => session.close(file),
            Self::Queue(queue, _) => queue.end(),
        }
    }
}

/// The numbers below a count in a pseudo-random order, each once a round.
struct Order {
    count: u64,
    mask: u64,
    at: u64,
    state: u64,
}

impl Order {
    fn new(count: u64, seed: u64) -> Self {
        let mask = count.next_power_of_two().max(2) - 1;
        Self { count, mask, at: 0, state: Random::new(seed).below(mask + 1) }
    }

    /// The next number, and whether it is the last of a round.
    fn next(&mut self) -> (u64, bool) {
        loop {
            // The period is full: the factor less one is divisible by four, the increment is odd.
            self.state = (self.state.wrapping_mul(0x2c9b_5b4d) + 0x3c6e_f35f) & self.mask;
            if self.state < self.count {
                break;
            }
        }
        self.at += 1;
        let last = self.at == self.count;
        if last {
            self.at = 0;
        }
        (self.state, last)
    }
}

/// Creates the file, and renames it to the name that the other threads wait for.
fn make<S: Session>(session: &S, dir: &S::Dir, bytes: u64, full: bool) -> Done<()> {
    let file = session.create(dir, c"making")?;
    session.fallocate(&file, 0, bytes)?;
    if full {
        let data = filled(1 << 20);
        let mut at = 0;
        while at < bytes {
            let part = (bytes - at).min(data.len() as u64);
            session.write(&file, at, &data[..part as usize])?;
            at += part;
        }
    }
    session.fsync(&file)?;
    session.close(file)?;
    session.rename((dir, c"making"), (dir, c"shared"))
}

impl<S: Session, const FULL: bool> Work<S> for Writing<S, FULL> {
    fn prepare(session: &S, context: &WorkerContext<'_>) -> Done<Self> {
        let bs = context.params.bs;
        let dir = session.ensure_dir(session.root(), Name::new(b"dio").numbered(0))?;
        let bytes = context.params.file_bytes / bs * bs;
        if context.thread == 0 {
            make(session, &dir, bytes, FULL)?;
        }
        wait_for(session, &dir, c"shared")?;
        let file = session.open_direct(&dir, c"shared")?;
        let mode = WriteMode::new(session, file, &filled(bs as usize), context.params.depth)?;
        let (thread, threads) = (context.thread as u64, context.threads as u64);
        let count = (bytes / bs).saturating_sub(thread).div_ceil(threads);
        if count == 0 {
            return Err(OpError::Other("the file has fewer blocks than there are threads".into()));
        }
        let order = Order::new(count, thread + 11);
        Ok(Self { mode, bs, share: (thread, threads), order })
    }

    #[inline]
    fn step(&mut self, session: &S) -> Done<Step> {
        if self.order.at == u64::MAX {
            return Ok(Step::Over);
        }
        let (number, last) = self.order.next();
        let offset = (number * self.share.1 + self.share.0) * self.bs;
        self.mode.write(session, offset)?;
        if last && !FULL {
            self.order.at = u64::MAX;
        }
        Ok(Step::Did(self.bs))
    }

    fn finish(self, session: &S) -> Done<EndFigures> {
        self.mode.end(session)?;
        Ok(EndFigures::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_once_in_a_round() {
        for count in [1, 2, 3, 100, 1024, 5000] {
            let mut order = Order::new(count, 5);
            for round in 0..2 {
                let mut seen = vec![false; count as usize];
                for n in 0..count {
                    let (number, last) = order.next();
                    assert!(!std::mem::replace(&mut seen[number as usize], true), "{round}");
                    assert_eq!(last, n + 1 == count);
                }
            }
        }
    }
}
