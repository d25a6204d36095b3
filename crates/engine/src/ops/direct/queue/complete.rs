//! Completing transfers: reports the result, then converts and sets size and times, for all that
//! have arrived together.

use nextent_device::queue::{Completed, Direction};

use super::super::Wait;
use super::{Completion, DelegatedWrites, DeviceTransfer, Done, Queue, WrittenTransfer};
use crate::error::{Error, Result};
use crate::inode::rw_lock::{InFlightCount, PendingConversion, Role};
use crate::ops::OpenFile;

impl Queue<'_> {
    /// Waits until at least `least` transfers are over (or all, if fewer are in flight) and appends
    /// all that are over to `done`, in no particular order.
    ///
    /// # Locks
    /// Converts unwritten blocks or defers that. It starts handles, which may also convert writes
    /// of other threads to the same file. It takes `inode.rw` only for writes that must be repeated
    /// because the map got no block; no transfer of the queue is in flight then.
    pub fn complete(&mut self, least: usize, done: &mut Vec<Done>) {
        let least = least.min(self.in_flight());
        self.poll(0);
        while self.done.len() < least {
            self.poll(least - self.done.len());
        }
        done.append(&mut self.done);
    }

    /// Completes all transfers and keeps the results.
    pub(in super::super) fn complete_all(&mut self) {
        while self.unfinished() > 0 {
            self.poll(usize::MAX);
        }
    }

    /// Polls for completions. Waits for up to `want` transfers.
    fn poll(&mut self, want: usize) {
        let waits = want.min(self.transfers.device.in_flight());
        let mut arrived = std::mem::take(&mut self.arrived);
        self.transfers.device.complete(waits, &mut arrived);
        self.take_completed(&mut arrived);
        self.arrived = arrived;
        // With no transfer at the device, the call can only wait for delegated writes.
        let idle = want > 0 && waits == 0;
        self.poll_delegated(idle);
        if self.transfers.device.in_flight() == 0 && self.delegated.is_empty() {
            self.rewrite_all();
        }
    }

    /// Handles what the device has completed.
    fn take_completed(&mut self, arrived: &mut Vec<Completed>) {
        let mut written: Vec<WrittenTransfer> = Vec::new();
        for Completed { transfer, result } in arrived.drain(..) {
            let DeviceTransfer { tag, file, offset, count, completion } =
                self.transfers.take(transfer.tag);
            let buffer = transfer.buffer;
            if let Err(source) = result {
                let op = match transfer.direction {
                    Direction::Read => "read",
                    Direction::Write => "write",
                };
                let place = transfer.pieces.as_slice().first().map_or(0, |piece| piece.offset);
                let error = self.volume.io_error(op, place, source);
                let result = self.volume.report(Err(error));
                self.push_done(file, count, Done { tag, buffer, result });
                continue;
            }
            match completion {
                Completion::Read(len) => {
                    self.push_done(file, count, Done { tag, buffer, result: Ok(len) })
                }
                Completion::Write(conversion, wait) => {
                    let grows = conversion.size != 0;
                    let write = WrittenTransfer { tag, file, offset, count, conversion, buffer };
                    let inode = &self.file_at(file).inode;
                    self.volume.set_unflushed(inode);
                    if !grows || !matches!(write.count, InFlightCount::PerSlot) {
                        self.complete_inside(write, wait);
                    } else {
                        written.push(write);
                    }
                }
            }
        }
        while let Some(file) = written.last().map(|write| write.file) {
            let writes = written.extract_if(.., |write| write.file == file).collect();
            self.convert(file, writes);
        }
    }

    fn push_done(&mut self, file: usize, count: InFlightCount, done: Done) {
        self.file_at(file).inode.rw.end_transfer(count);
        self.done.push(done);
    }

    /// Completes a write inside the file, whose conversion is deferred, or a replaced write, which
    /// converts itself.
    #[inline]
    fn complete_inside(&mut self, write: WrittenTransfer, wait: Wait) {
        let volume = self.volume;
        let OpenFile { inode, cred, .. } = self.file_at(write.file);
        let done = match write.count {
            #[cfg(feature = "lab")]
            InFlightCount::Word => {
                volume.complete_replaced(cred, inode, write.conversion.clone(), wait)
            }
            InFlightCount::PerSlot if wait == Wait::Never => Ok(()),
            InFlightCount::PerSlot => {
                volume.defer_conversion(cred, inode, inode.rw.io(), &write.conversion.blocks)
            }
        };
        self.end_write(write, done);
    }

    /// Converts writes past the end of one file, or delegates that to the group's leader.
    fn convert(&mut self, file: usize, writes: Vec<WrittenTransfer>) {
        let mut all = PendingConversion::default();
        writes.iter().for_each(|write| all.merge(write.conversion.clone()));
        let volume = self.volume;
        let OpenFile { inode, cred, .. } = self.file_at(file);
        let mut work = |conversion| volume.convert_batch(cred, inode, conversion);
        let outcome = match inode.rw.io().group.join(&all) {
            Role::Lead(mut leader) => {
                let done = work(all).is_ok();
                leader.convert_pending(&mut work);
                Ok(done)
            }
            Role::Follow(ticket) => Err(ticket),
        };
        match outcome {
            Ok(done) => self.end_converted(writes, done),
            Err(ticket) => self.delegated.push(DelegatedWrites { ticket, file, writes }),
        }
    }

    /// Polls for the results of delegated writes; with `wait` it waits for them.
    fn poll_delegated(&mut self, wait: bool) {
        let mut at = 0;
        while at < self.delegated.len() {
            let DelegatedWrites { ticket, file, .. } = &self.delegated[at];
            let volume = self.volume;
            let OpenFile { inode, cred, .. } = self.file_at(*file);
            let mut work = |conversion| volume.convert_batch(cred, inode, conversion);
            let group = &inode.rw.io().group;
            let outcome = match wait {
                true => Some(group.wait(ticket, &mut work)),
                false => group.poll(ticket, &mut work),
            };
            match outcome {
                Some(done) => {
                    let delegated = self.delegated.swap_remove(at);
                    self.end_converted(delegated.writes, done);
                }
                None => at += 1,
            }
        }
    }

    /// Ends writes of one batch. If the batch failed, each is converted by itself, so that an error
    /// reaches only its own write.
    fn end_converted(&mut self, writes: Vec<WrittenTransfer>, done: bool) {
        for write in writes {
            let volume = self.volume;
            let OpenFile { inode, cred, .. } = self.file_at(write.file);
            let outcome = match done {
                true => Ok(()),
                false => volume.convert_batch(cred, inode, write.conversion.clone()),
            };
            self.end_write(write, outcome);
        }
    }

    /// Ends a write after its conversion.
    #[inline]
    fn end_write(&mut self, write: WrittenTransfer, outcome: Result<()>) {
        if let Err(Error::NoSpace) = outcome {
            // The map has no space: the exclusive holder must write it again.
            return self.rewrites.push(write);
        }
        let WrittenTransfer { tag, file, count, buffer, .. } = write;
        let inode = &self.file_at(file).inode;
        inode.rw.end_transfer(count);
        let synced = |len| match self.volume.check_direct_write(inode) {
            Ok(true) => self.volume.sync_inode(inode, false).map(|()| len),
            _ => Ok(len),
        };
        let result = self.volume.report(outcome).and_then(|()| synced(buffer.len()));
        self.done.push(Done { tag, buffer, result });
    }

    /// Writes again, exclusively, what could not be converted. No transfer is in flight.
    fn rewrite_all(&mut self) {
        // Each count is ended first: several may belong to the file whose lock is wanted.
        let writes = std::mem::take(&mut self.rewrites);
        let writes: Vec<_> = writes
            .into_iter()
            .map(|WrittenTransfer { tag, file, offset, count, buffer, .. }| {
                self.file_at(file).inode.rw.end_transfer(count);
                (tag, file, offset, buffer)
            })
            .collect();
        for (tag, file, offset, buffer) in writes {
            let volume = self.volume;
            let OpenFile { inode, cred, .. } = self.file_at(file);
            let result = volume.write_direct_in(cred, inode, offset, &buffer, Wait::Allowed);
            self.done.push(Done { tag, buffer, result });
        }
    }
}
