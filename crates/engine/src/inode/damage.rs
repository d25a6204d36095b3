//! Handling of damage: notes it for the next check, and applies the error policy.
//!
//! An operation that fails passes its error to [`Fs::report_error`] when it holds no handle and no
//! lock above `inode.rw`. Damage means that data that was read violates the format, or that
//! metadata cannot be read. Errors of file data concern only the file.
//!
//! While the journal works, the note is written through it and is durable before the operation
//! returns. Further notes of the same damage only raise a count. Without the journal the superblock
//! on the device is changed in place. Recovery keeps such a note although the log contains older
//! images of the superblock.

use nextent_ondisk::superblock::{ErrorRecord, SUPER_OFFSET, SUPER_SIZE, Superblock, error_code};
use nextent_ondisk::{Corrupt, CorruptKind};
use nextent_store::Error as StoreError;
use nextent_sync::atomic::Ordering;

use super::fs::Fs;
use crate::error::{Cause, Error, Result};
use crate::policy::ErrorPolicy;

/// Damage as it is stored in the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    code: u8,
    ino: u32,
    block: u64,
    place: String,
}

impl Damage {
    /// The damage that `error` reports, if it is about the volume.
    fn of(error: &Error) -> Option<Self> {
        match error {
            Error::Corrupt(cause) => Some(match cause.get::<Corrupt>() {
                Some(corrupt) => Self::corrupt(corrupt),
                None => Self::plain(error_code::EFSCORRUPTED, "nextent"),
            }),
            Error::Io(cause) => match cause.get::<StoreError>() {
                Some(StoreError::Io { op: op @ "read", block, .. }) => {
                    Some(Self { block: block.0, ..Self::plain(error_code::EIO, op) })
                }
                _ => None,
            },
            Error::Aborted(_) => Some(Self::plain(error_code::EIO, "journal")),
            _ => None,
        }
    }

    fn corrupt(corrupt: &Corrupt) -> Self {
        let code = match corrupt.kind {
            CorruptKind::Checksum { .. } => error_code::EFSBADCRC,
            _ => error_code::EFSCORRUPTED,
        };
        Self {
            code,
            ino: corrupt.location.inode.map_or(0, |ino| ino.0),
            block: corrupt.location.block.map_or(0, |block| block.0),
            place: corrupt.structure.to_string(),
        }
    }

    fn plain(code: u8, place: &str) -> Self {
        Self { code, ino: 0, block: 0, place: place.to_owned() }
    }

    fn record(&self, at: u64, sb: &mut Superblock) {
        let (ino, block, code) = (self.ino, self.block, self.code);
        sb.record_error(&ErrorRecord { at, ino, block, function: &self.place, line: 0, code });
    }
}

impl Fs {
    /// Applies the error policy to an error that reports damage, and returns the error. Called
    /// without a handle and with `inode.rw` locks at most; may wait for a commit.
    pub(crate) fn report_error(&self, mut error: Error) -> Error {
        if let Error::Corrupt(cause) | Error::Io(cause) | Error::Aborted(cause) = &mut error
            && !cause.note()
        {
            return error;
        }
        let Some(damage) = Damage::of(&error) else { return error };
        self.observer.observe(&error);
        if self.store.is_read_only() || (self.is_read_only() && !self.is_aborted()) {
            return error;
        }
        if matches!(error, Error::Aborted(_)) {
            self.note_abort(&damage);
            return error;
        }
        match self.policy() {
            ErrorPolicy::Continue => self.note(damage),
            ErrorPolicy::ReadOnly => {
                self.note(damage);
                self.set_damaged();
            }
            ErrorPolicy::Abort => {
                self.store.abort(&error.to_string());
                self.note_abort(&damage);
            }
        }
        error
    }

    /// Whether the journal stopped after an error.
    pub(crate) fn is_aborted(&self) -> bool {
        matches!(self.store.check(), Err(StoreError::Aborted(_)))
    }

    /// Like [`report_error`](Self::report_error), for damage that the allocator found and avoided.
    pub(crate) fn report_allocator_damage(&self) {
        for error in self.blocks.take_damage() {
            self.report_error(error.into());
        }
    }

    /// Notes damage through the journal. Makes the note durable unless it repeats the last one.
    fn note(&self, damage: Damage) {
        let at = self.seconds();
        let journaled = || -> Result<()> {
            let h = self.store.start(1)?;
            self.sup.change(&h, |sb| damage.record(at, sb));
            let tid = h.tid();
            drop(h);
            if self.damage.lock().replace(damage.clone()).as_ref() != Some(&damage) {
                self.store.commit(tid)?;
            }
            Ok(())
        };
        match journaled() {
            // A closed volume must not be written: another process may use its image.
            Ok(()) | Err(Error::ReadOnly) => {}
            Err(_) => self.note_abort(&damage),
        }
    }

    /// Notes in place on the device, once, that the journal stopped. Allows no more changes.
    fn note_abort(&self, damage: &Damage) {
        self.set_damaged();
        if self.abort_noted.swap(true, Ordering::SeqCst) {
            return;
        }
        let device = self.store.device();
        let mut bytes = [0; SUPER_SIZE];
        // The caller gets the error; the note is for the next check, if the device still works.
        if device.read_at(SUPER_OFFSET, &mut bytes).is_ok()
            && let Ok(mut sb) = Superblock::read(&bytes)
            && sb.verify_checksum().is_ok()
        {
            damage.record(self.seconds(), &mut sb);
            sb.seal();
            let written = device.write_at(SUPER_OFFSET, sb.bytes());
            let _ = written.and_then(|()| device.flush());
        }
    }

    fn seconds(&self) -> u64 {
        self.now().seconds.max(0).cast_unsigned()
    }
}

impl Cause {
    /// The cause itself, if it is a `T`.
    fn get<T: std::error::Error + 'static>(&self) -> Option<&T> {
        self.error().downcast_ref()
    }
}
