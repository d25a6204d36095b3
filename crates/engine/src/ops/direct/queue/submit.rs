//! Submitting a transfer: takes the locks, looks up the map, and hands it to the device.

use std::ops::Range;

use nextent_device::Buffer;
use nextent_device::queue::{Direction, Pieces};
use nextent_num::{to_u64, to_usize};

use super::super::counted::WriteTerms;
use super::super::{UNIT, Wait, check_aligned};
use super::{
    Attached, Completion, DeviceTransfer, DeviceTransfers, Done, Queue, Refused, attached,
};
use crate::error::{Error, Result};
use crate::inode::rw_lock::{InFlightCount, Plan, Transfer};
use crate::ops::OpenFile;

/// A requested transfer. The buffer is taken when the transfer is submitted to the device.
pub(in super::super) struct Request {
    pub(in super::super) file: usize,
    offset: u64,
    tag: u64,
    pub(in super::super) wait: Wait,
    buffer: Option<Buffer>,
}

/// How far a request got.
pub(in super::super) enum Submission {
    /// The device has it.
    InFlight,
    /// It is complete; so many bytes were moved.
    Completed(usize),
    /// Nothing was done: the request needs the file exclusively.
    NeedsExclusive,
}

impl Request {
    /// Submits the write of a plan.
    #[inline]
    pub(in super::super) fn submit_write(
        &mut self,
        transfers: &mut DeviceTransfers<'_>,
        plan: Plan,
        count: InFlightCount,
    ) -> Submission {
        let completion = Completion::Write(plan.conversion, self.wait);
        self.submit(transfers, Direction::Write, plan.pieces, count, completion);
        Submission::InFlight
    }

    fn data(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }

    fn submit(
        &mut self,
        transfers: &mut DeviceTransfers<'_>,
        direction: Direction,
        pieces: Pieces,
        count: InFlightCount,
        completion: Completion,
    ) {
        let transfer = DeviceTransfer {
            tag: self.tag,
            file: self.file,
            offset: self.offset,
            count,
            completion,
        };
        let buffer = self.buffer.take().expect("a transfer is submitted once");
        transfers.submit(transfer, direction, buffer, pieces);
    }
}

impl Queue<'_> {
    /// Begins to fill `buffer` from `offset` of the file, as
    /// [`Inodes::read_direct`](crate::inodes::Inodes::read_direct) does.
    ///
    /// # Errors
    /// As there, for errors found before any data is moved. [`Error::Access`] if the file was not
    /// opened for reading. Device errors are returned on completion.
    ///
    /// # Panics
    /// If the file was detached.
    ///
    /// # Locks
    /// The transfer is counted in flight. Unless `wait` forbids it, the call waits for the
    /// exclusive holder of `inode.rw`; before that it completes the queue's own transfers.
    pub fn read(
        &mut self,
        file: Attached,
        offset: u64,
        buffer: Buffer,
        tag: u64,
        wait: Wait,
    ) -> std::result::Result<(), Refused> {
        let mut request = Request { file: file.0, offset, tag, wait, buffer: Some(buffer) };
        let start = self.begin_reading(&mut request);
        self.submitted(request, start)
    }

    /// Begins to write `buffer` at `offset` of the file, as
    /// [`Inodes::write_direct`](crate::inodes::Inodes::write_direct) does. A write that needs the
    /// file exclusively is done before this returns.
    ///
    /// # Errors
    /// As there, for errors found before any data is moved. [`Error::Access`] if the file was not
    /// opened for writing. Errors of the device and of the conversion are returned on completion.
    ///
    /// # Panics
    /// If the file was detached.
    ///
    /// # Locks
    /// See the table in `docs/LOCKS.md`; the transfer is counted in flight until it is over. The
    /// call completes the queue's own transfers before it waits for `inode.rw`.
    pub fn write(
        &mut self,
        file: Attached,
        offset: u64,
        buffer: Buffer,
        tag: u64,
        wait: Wait,
    ) -> std::result::Result<(), Refused> {
        let mut request = Request { file: file.0, offset, tag, wait, buffer: Some(buffer) };
        let start = self.begin_writing(&mut request);
        self.submitted(request, start)
    }

    #[inline]
    fn submitted(
        &mut self,
        request: Request,
        start: Result<Submission>,
    ) -> std::result::Result<(), Refused> {
        // The device has the buffer.
        let Some(buffer) = request.buffer else { return Ok(()) };
        match start {
            Ok(Submission::Completed(len)) => {
                self.done.push(Done { tag: request.tag, buffer, result: Ok(len) });
                Ok(())
            }
            Ok(_) => Err(Refused { error: Error::WouldBlock, buffer }),
            Err(error) => Err(Refused { error, buffer }),
        }
    }

    fn begin_reading(&mut self, request: &mut Request) -> Result<Submission> {
        check_aligned(request.offset, request.data().len())?;
        if !self.file_at(request.file).access.read {
            return Err(Error::Access);
        }
        match self.begin_reading_shared(request) {
            Err(Error::NoSpace) if request.wait == Wait::Allowed => {
                // Deferred conversions are completed under the exclusive lock, which no own
                // transfer may block.
                self.complete_all();
                let completed = self.volume.fs.complete_deferred(&self.file_at(request.file).inode);
                self.volume.report(completed)?;
                self.begin_reading_shared(request)
            }
            start => start,
        }
    }

    fn begin_reading_shared(&mut self, request: &mut Request) -> Result<Submission> {
        let volume = self.volume;
        self.with_transfer(request.file, request.wait, |file, transfer, transfers| {
            let (offset, wait) = (request.offset, request.wait);
            let terms = (wait, to_usize(UNIT));
            let plan = volume.plan_read(&file.inode, &transfer, offset, request.data(), terms);
            let (len, pieces) = volume.report(plan)?;
            if pieces.as_slice().is_empty() {
                return Ok(Submission::Completed(len));
            }
            request.submit(
                transfers,
                Direction::Read,
                pieces,
                transfer.into_count(),
                Completion::Read(len),
            );
            Ok(Submission::InFlight)
        })
    }

    #[inline]
    fn begin_writing(&mut self, request: &mut Request) -> Result<Submission> {
        let file = self.file_at(request.file);
        file.for_writing()?;
        let (offset, len, wait) = (request.offset, request.data().len(), request.wait);
        let (end, _) = self.volume.check_write_at(&file.inode, offset, len, wait)?;
        if len == 0 {
            return Ok(Submission::Completed(0));
        }
        match self.begin_in_place(request, offset..end)? {
            Submission::NeedsExclusive => {
                self.write_synchronously(request).map(Submission::Completed)
            }
            start => Ok(start),
        }
    }

    /// Calls `then` with a new transfer of the file. If it must wait for that, it first completes
    /// the queue's transfers.
    #[inline]
    fn with_transfer<R>(
        &mut self,
        file: usize,
        wait: Wait,
        then: impl FnOnce(&OpenFile<'_>, Transfer<'_>, &mut DeviceTransfers<'_>) -> Result<R>,
    ) -> Result<R> {
        let open = attached(&self.files, file);
        if let Some(transfer) = open.inode.rw.try_begin_transfer() {
            return then(open, transfer, &mut self.transfers);
        }
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        self.complete_all();
        let open = attached(&self.files, file);
        then(open, open.inode.rw.begin_transfer(), &mut self.transfers)
    }

    fn begin_counted(&mut self, request: &mut Request, range: Range<u64>) -> Result<Submission> {
        let (volume, wait) = (self.volume, request.wait);
        self.with_transfer(request.file, wait, |file, transfer, transfers| {
            let OpenFile { inode, cred, .. } = file;
            let terms = WriteTerms { wait, allocates: true };
            let plan = || volume.plan_shared_write(cred, inode, &transfer, &range, terms);
            let plan = volume.attempt_as(wait, plan)?;
            if to_u64(plan.bytes) != range.end - range.start {
                return Ok(Submission::NeedsExclusive);
            }
            Ok(request.submit_write(transfers, plan, transfer.into_count()))
        })
    }

    #[inline]
    fn begin_in_place(&mut self, request: &mut Request, range: Range<u64>) -> Result<Submission> {
        #[cfg(feature = "lab")]
        if let Some(rule) = self.volume.fs.direct.get() {
            return self.begin_replaced(rule, request, range);
        }
        self.begin_counted(request, range)
    }

    /// Writes in this call. Unless it must not wait, it first completes the queue's transfers.
    fn write_synchronously(&mut self, request: &mut Request) -> Result<usize> {
        if request.wait == Wait::Allowed {
            self.complete_all();
        }
        let OpenFile { inode, cred, .. } = self.file_at(request.file);
        let (offset, wait) = (request.offset, request.wait);
        self.volume.write_direct_in(cred, inode, offset, request.data(), wait)
    }
}
