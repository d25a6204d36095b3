//! Completing transfers: what came of the data, then conversion, size and times, for all that have
//! come together.

use nextent_device::queue::{Completed, Direction};

use super::super::Wait;
use super::{After, Done, Flight, Landed, Left, Queue};
use crate::error::{Error, Result};
use crate::inode::long::{Finished, Hold, Offered};
use crate::ops::OpenFile;

impl Queue<'_> {
    /// Waits until at least `least` transfers (or all in flight, if they are fewer) are over, and
    /// appends all that are to `done`, in no order.
    ///
    /// # Locks
    /// Converts what was unwritten, or puts that off: handles are started, for what other threads
    /// have written to the same file too. Takes no `inode.rw` but for what must be written again
    /// because no block was left for the file's map; nothing is in flight then.
    pub fn complete(&mut self, least: usize, done: &mut Vec<Done>) {
        let least = least.min(self.in_flight());
        self.look(0);
        while self.done.len() < least {
            self.look(least - self.done.len());
        }
        done.append(&mut self.done);
    }

    /// Completes all, keeping what came of it.
    pub(in super::super) fn clear(&mut self) {
        while self.under_way() > 0 {
            self.look(usize::MAX);
        }
    }

    /// Looks at what has come, waiting for up to `want` transfers of whichever kind goes on.
    fn look(&mut self, want: usize) {
        let waits = want.min(self.air.device.in_flight());
        let mut arrived = std::mem::take(&mut self.arrived);
        self.air.device.complete(waits, &mut arrived);
        self.land(&mut arrived);
        self.arrived = arrived;
        // Where nothing else is under way there is nothing better to do than to wait.
        let idle = want > 0 && waits == 0;
        self.ask_of_left(idle);
        if self.air.device.in_flight() == 0 && self.left.is_empty() {
            self.write_again();
        }
    }

    /// Takes what the device has done.
    fn land(&mut self, arrived: &mut Vec<Completed>) {
        let mut landed: Vec<Landed> = Vec::new();
        for Completed { transfer, result } in arrived.drain(..) {
            let Flight { tag, file, offset, hold, after } = self.air.land(transfer.tag);
            let buffer = transfer.buffer;
            if let Err(source) = result {
                let op = match transfer.direction {
                    Direction::Read => "read",
                    Direction::Write => "write",
                };
                let place = transfer.pieces.as_slice().first().map_or(0, |piece| piece.offset);
                let error = self.volume.io_error(op, place, source);
                let result = self.volume.tell(Err(error));
                self.over(file, hold, Done { tag, buffer, result });
                continue;
            }
            match after {
                After::Read(len) => self.over(file, hold, Done { tag, buffer, result: Ok(len) }),
                After::Write(finished, wait) => {
                    let grows = finished.size != 0;
                    let write = Landed { tag, file, offset, hold, finished, buffer };
                    let inode = &self.of(file).inode;
                    self.volume.set_unflushed(inode);
                    if !grows || !matches!(write.hold, Hold::Reference) {
                        self.finish_one(write, wait);
                    } else {
                        landed.push(write);
                    }
                }
            }
        }
        while let Some(file) = landed.last().map(|write| write.file) {
            let writes = landed.extract_if(.., |write| write.file == file).collect();
            self.convert(file, writes);
        }
    }

    fn over(&mut self, file: usize, hold: Hold, done: Done) {
        self.of(file).inode.rw.end(hold);
        self.done.push(done);
    }

    /// Ends a write inside the file, whose conversion is put off, or one that converts for itself.
    #[inline]
    fn finish_one(&mut self, write: Landed, wait: Wait) {
        let volume = self.volume;
        let OpenFile { inode, cred, .. } = self.of(write.file);
        let done = match write.hold {
            #[cfg(feature = "lab")]
            Hold::Counted => volume.finish_replaced(cred, inode, write.finished.clone(), wait),
            Hold::Reference if wait == Wait::Never => Ok(()),
            Hold::Reference => volume.put_off(cred, inode, inode.rw.refs(), &write.finished.blocks),
        };
        self.finished(write, done);
    }

    /// Converts what was written past the end of one file, or leaves it to who does so now.
    fn convert(&mut self, file: usize, writes: Vec<Landed>) {
        let mut all = Finished::default();
        writes.iter().for_each(|write| all.take_in(write.finished.clone()));
        let volume = self.volume;
        let OpenFile { inode, cred, .. } = self.of(file);
        let mut work = |finished| volume.convert_together(cred, inode, finished);
        let outcome = match inode.rw.refs().finished.offer(&all) {
            Offered::Mine(mut at_work) => {
                let done = work(all).is_ok();
                at_work.serve(&mut work);
                Ok(done)
            }
            Offered::Left(ticket) => Err(ticket),
        };
        match outcome {
            Ok(done) => self.converted(writes, done),
            Err(ticket) => self.left.push(Left { ticket, file, writes }),
        }
    }

    /// Asks whether others have done what was left to them, waiting for it if `wait` is set.
    fn ask_of_left(&mut self, wait: bool) {
        let mut at = 0;
        while at < self.left.len() {
            let Left { ticket, file, .. } = &self.left[at];
            let volume = self.volume;
            let OpenFile { inode, cred, .. } = self.of(*file);
            let mut work = |finished| volume.convert_together(cred, inode, finished);
            let combiner = &inode.rw.refs().finished;
            let outcome = match wait {
                true => Some(combiner.settle(ticket, &mut work)),
                false => combiner.ask(ticket, &mut work),
            };
            match outcome {
                Some(done) => {
                    let left = self.left.swap_remove(at);
                    self.converted(left.writes, done);
                }
                None => at += 1,
            }
        }
    }

    /// Ends writes that were converted together; if that failed, each by itself, since an error
    /// belongs to one.
    fn converted(&mut self, writes: Vec<Landed>, done: bool) {
        for write in writes {
            let volume = self.volume;
            let OpenFile { inode, cred, .. } = self.of(write.file);
            let outcome = match done {
                true => Ok(()),
                false => volume.convert_together(cred, inode, write.finished.clone()),
            };
            self.finished(write, outcome);
        }
    }

    /// Ends a write whose blocks were dealt with.
    #[inline]
    fn finished(&mut self, write: Landed, outcome: Result<()>) {
        if let Err(Error::NoSpace) = outcome {
            // Without room in the map: by who has the file alone.
            return self.again.push(write);
        }
        let Landed { tag, file, hold, buffer, .. } = write;
        let inode = &self.of(file).inode;
        inode.rw.end(hold);
        let synced = |len| match self.volume.check_direct_write(inode) {
            Ok(true) => self.volume.sync_inode(inode, false).map(|()| len),
            _ => Ok(len),
        };
        let result = self.volume.tell(outcome).and_then(|()| synced(buffer.len()));
        self.done.push(Done { tag, buffer, result });
    }

    /// Writes with the file alone what could not be converted; nothing is in flight.
    fn write_again(&mut self) {
        // All of them may be of the file that is waited for.
        let writes = std::mem::take(&mut self.again);
        let writes: Vec<_> = writes
            .into_iter()
            .map(|Landed { tag, file, offset, hold, buffer, .. }| {
                self.of(file).inode.rw.end(hold);
                (tag, file, offset, buffer)
            })
            .collect();
        for (tag, file, offset, buffer) in writes {
            let volume = self.volume;
            let OpenFile { inode, cred, .. } = self.of(file);
            let result = volume.write_direct_in(cred, inode, offset, &buffer, Wait::Allowed);
            self.done.push(Done { tag, buffer, result });
        }
    }
}
