//! Beginning a transfer: locks, the map, and off to the device.

use std::ops::Range;

use nextent_device::Buffer;
use nextent_device::queue::{Direction, Pieces};
use nextent_num::{to_u64, to_usize};

use super::super::refs::Terms;
use super::super::{UNIT, Wait, check_aligned};
use super::{After, Air, Attached, Done, Flight, Queue, Refused};
use crate::error::{Error, Result};
use crate::inode::long::{Hold, Transfer};
use crate::ops::OpenFile;

/// A transfer that is asked for. The memory is taken when the device gets it.
pub(in super::super) struct Ask {
    pub(in super::super) file: usize,
    offset: u64,
    tag: u64,
    pub(in super::super) wait: Wait,
    buffer: Option<Buffer>,
}

/// How far it got.
pub(in super::super) enum Start {
    /// Under way.
    Off,
    /// All is done.
    Over(usize),
    /// Nothing is: the file is to be had alone.
    Not,
}

impl Ask {
    /// The memory's bytes.
    fn data(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }

    /// The bytes of the file that are meant.
    fn range(&mut self) -> Result<Range<u64>> {
        let len = self.data().len();
        check_aligned(self.offset, len)?;
        let end = self.offset.checked_add(to_u64(len)).ok_or(Error::TooBig)?;
        Ok(self.offset..end)
    }

    pub(in super::super) fn fly(
        &mut self,
        air: &mut Air<'_>,
        direction: Direction,
        pieces: Pieces,
        hold: Hold,
        after: After,
    ) {
        let flight = Flight { tag: self.tag, file: self.file, offset: self.offset, hold, after };
        let buffer = self.buffer.take().expect("a transfer is begun once");
        air.start(flight, direction, buffer, pieces);
    }
}

impl Queue<'_> {
    /// Begins to fill `buffer` from `offset` of the file, as
    /// [`Inodes::read_direct`](crate::inodes::Inodes::read_direct) does.
    ///
    /// # Errors
    /// As there, for what is found out before any data moves; [`Error::Access`] if the file was not
    /// opened for reading. Errors of the device are told when the transfer is completed.
    ///
    /// # Panics
    /// If the file was detached.
    ///
    /// # Locks
    /// Takes a reference, and waits for whoever holds `inode.rw` exclusively unless `wait` forbids
    /// that; what is in flight is completed before.
    pub fn read(
        &mut self,
        file: Attached,
        offset: u64,
        buffer: Buffer,
        tag: u64,
        wait: Wait,
    ) -> std::result::Result<(), Refused> {
        let mut ask = Ask { file: file.0, offset, tag, wait, buffer: Some(buffer) };
        let start = self.begin_reading(&mut ask);
        self.begun(ask, start)
    }

    /// Begins to write `buffer` at `offset` of the file, as
    /// [`Inodes::write_direct`](crate::inodes::Inodes::write_direct) does. What needs an
    /// exclusive holder is done before this returns.
    ///
    /// # Errors
    /// As there, for what is found out before any data moves; [`Error::Access`] if the file was not
    /// opened for writing. Errors of the device and of conversion are told when the transfer is
    /// completed.
    ///
    /// # Panics
    /// If the file was detached.
    ///
    /// # Locks
    /// As the table in `docs/LOCKS.md`; a reference is kept until the transfer is over. Before it
    /// waits for `inode.rw` it completes what is in flight.
    pub fn write(
        &mut self,
        file: Attached,
        offset: u64,
        buffer: Buffer,
        tag: u64,
        wait: Wait,
    ) -> std::result::Result<(), Refused> {
        let mut ask = Ask { file: file.0, offset, tag, wait, buffer: Some(buffer) };
        let start = self.begin_writing(&mut ask);
        self.begun(ask, start)
    }

    #[inline]
    fn begun(&mut self, ask: Ask, start: Result<Start>) -> std::result::Result<(), Refused> {
        // The device has it.
        let Some(buffer) = ask.buffer else { return Ok(()) };
        match start {
            Ok(Start::Over(len)) => {
                self.done.push(Done { tag: ask.tag, buffer, result: Ok(len) });
                Ok(())
            }
            Ok(_) => Err(Refused { error: Error::WouldBlock, buffer }),
            Err(error) => Err(Refused { error, buffer }),
        }
    }

    fn begin_reading(&mut self, ask: &mut Ask) -> Result<Start> {
        check_aligned(ask.offset, ask.data().len())?;
        if !self.of(ask.file).access.read {
            return Err(Error::Access);
        }
        match self.begin_reading_shared(ask) {
            Err(Error::NoSpace) if ask.wait == Wait::Allowed => {
                // What was put off is settled with the file alone.
                self.clear();
                let settled = self.volume.fs.settle(&self.of(ask.file).inode);
                self.volume.tell(settled)?;
                self.begin_reading_shared(ask)
            }
            start => start,
        }
    }

    fn begin_reading_shared(&mut self, ask: &mut Ask) -> Result<Start> {
        let volume = self.volume;
        self.reference(ask.file, ask.wait, |file, transfer, air| {
            let (offset, wait) = (ask.offset, ask.wait);
            let terms = (wait, to_usize(UNIT));
            let plan = volume.plan_reading(&file.inode, &transfer, offset, ask.data(), terms);
            let (len, pieces) = volume.tell(plan)?;
            if pieces.as_slice().is_empty() {
                return Ok(Start::Over(len));
            }
            ask.fly(air, Direction::Read, pieces, transfer.detach(), After::Read(len));
            Ok(Start::Off)
        })
    }

    #[inline]
    fn begin_writing(&mut self, ask: &mut Ask) -> Result<Start> {
        let range = ask.range()?;
        self.of(ask.file).for_writing()?;
        let durable = self.volume.check_direct_write(&self.of(ask.file).inode)?;
        if range.is_empty() {
            return Ok(Start::Over(0));
        }
        if durable && ask.wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        match self.begin_in_place(ask, range)? {
            Start::Not => self.write_waiting(ask).map(Start::Over),
            start => Ok(start),
        }
    }

    /// Does `then` with a reference of the file; nothing is in flight if it has to be waited for.
    #[inline]
    fn reference<R>(
        &mut self,
        file: usize,
        wait: Wait,
        then: impl FnOnce(&OpenFile<'_>, Transfer<'_>, &mut Air<'_>) -> Result<R>,
    ) -> Result<R> {
        let of = self.files[file].as_ref().expect("a file is attached as long as it is used");
        if let Some(transfer) = of.inode.rw.try_transfer() {
            return then(of, transfer, &mut self.air);
        }
        if wait == Wait::Never {
            return Err(Error::WouldBlock);
        }
        self.clear();
        let of = self.files[file].as_ref().expect("a file is attached as long as it is used");
        then(of, of.inode.rw.transfer(), &mut self.air)
    }

    fn begin_by_reference(&mut self, ask: &mut Ask, range: Range<u64>) -> Result<Start> {
        let (volume, wait) = (self.volume, ask.wait);
        self.reference(ask.file, wait, |file, transfer, air| {
            let OpenFile { inode, cred, .. } = file;
            let may = Terms { wait, fills: true };
            let plan = || volume.plan_beside_others(cred, inode, &transfer, &range, may);
            let plan = match wait {
                Wait::Allowed => volume.attempt(plan)?,
                Wait::Never => volume.tell(plan())?,
            };
            if to_u64(plan.bytes) != range.end - range.start {
                return Ok(Start::Not);
            }
            let after = After::Write(plan.finished, wait);
            ask.fly(air, Direction::Write, plan.pieces, transfer.detach(), after);
            Ok(Start::Off)
        })
    }

    #[inline]
    fn begin_in_place(&mut self, ask: &mut Ask, range: Range<u64>) -> Result<Start> {
        #[cfg(feature = "lab")]
        if let Some(rule) = self.volume.fs.direct.get() {
            return self.begin_replaced(rule, ask, range);
        }
        self.begin_by_reference(ask, range)
    }

    /// Writes by the call that waits, when nothing is in flight.
    fn write_waiting(&mut self, ask: &mut Ask) -> Result<usize> {
        if ask.wait == Wait::Allowed {
            self.clear();
        }
        let OpenFile { inode, cred, .. } = self.of(ask.file);
        let (offset, wait) = (ask.offset, ask.wait);
        self.volume.write_direct_in(cred, inode, offset, ask.data(), wait)
    }
}
