//! A device that logs its writes and flushes.
//!
//! Writes are applied and logged under one lock, so the log has the order in which they took
//! effect. A flush is logged after it has returned, with the log's length at its beginning: only
//! earlier events are stable. Of the transfers of a queue, each second one takes effect at its
//! submission; the others take effect at completion, the last one first.

use crate::queue::{DeviceQueue, recorded::Recorded};
use crate::{BlockDevice, MemoryDevice, Recording};
use nextent_sync::{Arc, LockClass, Mutex};
use std::io;
use std::ops::Range;

static LOG: LockClass = LockClass::new("device.recording", 850);

/// One logged event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write.
    Write {
        /// Byte offset.
        offset: u64,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// A range of zeros was written.
    Zero {
        /// Byte offset.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A range was discarded. Recorded images keep its bytes.
    Discard {
        /// Byte offset.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A flush returned. Events before `began` are stable.
    Flush {
        /// Length of the log when the flush began.
        began: usize,
    },
    /// A mark of the test.
    Mark(u64),
}

/// Passes all operations on, and logs writes, flushes and the test's marks.
pub struct RecordingDevice<D> {
    inner: D,
    base: MemoryDevice,
    /// [log] The events so far.
    log: Mutex<Vec<Event>>,
}

impl RecordingDevice<MemoryDevice> {
    /// Records from the present state of `inner` on.
    pub fn new(inner: MemoryDevice) -> Self {
        let base = inner.snapshot();
        Self::over(inner, base)
    }
}

impl<D: BlockDevice> RecordingDevice<D> {
    /// Records `inner`, which must hold the same bytes as `base`.
    pub fn over(inner: D, base: MemoryDevice) -> Self {
        Self { inner, base, log: Mutex::new(&LOG, Vec::new()) }
    }

    /// The inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Logs a mark, after all operations that have returned.
    pub fn mark(&self, mark: u64) {
        self.log.lock().push(Event::Mark(mark));
    }

    /// The number of logged events.
    pub fn events(&self) -> usize {
        self.log.lock().len()
    }

    /// The recording so far.
    pub fn recording(&self) -> Recording {
        let events = self.log.lock().clone();
        Recording::new(self.base.snapshot(), events)
    }

    /// The image if every write before event `event` survived, and no later one.
    pub fn image_at(&self, event: usize) -> MemoryDevice {
        self.recording().image_at(event)
    }

    fn logged(&self, event: Event, act: impl FnOnce(&D) -> io::Result<()>) -> io::Result<()> {
        let mut log = self.log.lock();
        act(&self.inner)?;
        log.push(event);
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for RecordingDevice<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let event = Event::Write { offset, data: Arc::from(buf) };
        self.logged(event, |inner| inner.write_at(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        let began = self.events();
        self.inner.flush()?;
        self.log.lock().push(Event::Flush { began });
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.logged(Event::Discard { offset, len }, |inner| inner.discard(offset, len))
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.logged(Event::Zero { offset, len }, |inner| inner.write_zeroes(offset, len))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<Range<u64>>> {
        self.inner.next_data(offset)
    }

    fn queue(&self, depth: usize) -> Box<dyn DeviceQueue + '_> {
        Box::new(Recorded::new(self, depth))
    }
}
