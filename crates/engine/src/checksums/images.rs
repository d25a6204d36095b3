//! The changed blocks, which become durable as one transaction.

use std::collections::BTreeMap;

use nextent_device::BlockDevice;
use nextent_ondisk::superblock::SUPER_SIZE;
use nextent_ondisk::{BlockNo, Geometry, Incompat, Superblock};
use nextent_sync::Arc;

use crate::error::{Cause, Error, Result};
use crate::open::{Located, locate_journal, read_super, write_super};

/// The most bytes of blocks that are collected in memory.
const MOST_BYTES: usize = 512 << 20;

/// The changed blocks.
pub(super) struct Images<'v> {
    device: &'v Arc<dyn BlockDevice>,
    geometry: &'v Geometry,
    journal: Located,
    /// Blocks that a transaction has room for.
    room: usize,
    /// Blocks that a replay of the log does not read.
    late: BTreeMap<BlockNo, Vec<u8>>,
    /// Blocks that it reads: they are written last.
    early: BTreeMap<BlockNo, Vec<u8>>,
    /// The block of multiple mount protection, as it is written in place.
    claimed: Option<(BlockNo, Vec<u8>)>,
}

impl<'v> Images<'v> {
    /// No block of the volume has changed.
    pub(super) fn new(
        device: &'v Arc<dyn BlockDevice>,
        sb: &Superblock,
        geometry: &'v Geometry,
    ) -> Result<Self> {
        let Some(journal) = locate_journal(device, sb, geometry)? else {
            return Err(Error::unsupported("new checksums on a volume without a journal"));
        };
        let room = journal.log_room(device, geometry)?;
        let room = room.min(MOST_BYTES >> geometry.block_bits);
        let (late, early) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { device, geometry, journal, room, late, early, claimed: None })
    }

    /// Adds a block that a replay of the log reads.
    pub(super) fn put_early(&mut self, no: BlockNo, bytes: Vec<u8>) -> Result<()> {
        self.early.insert(no, bytes);
        self.check_room()
    }

    /// Adds the block of multiple mount protection. A replay writes it as `clean`, since the caller
    /// that claims the volume is gone by then.
    pub(super) fn put_claimed(
        &mut self,
        no: BlockNo,
        claimed: Vec<u8>,
        clean: Vec<u8>,
    ) -> Result<()> {
        self.claimed = Some((no, claimed));
        self.put_early(no, clean)
    }

    /// Adds a block.
    pub(super) fn put(&mut self, no: BlockNo, bytes: Vec<u8>) -> Result<()> {
        self.late.insert(no, bytes);
        self.check_room()
    }

    /// Refuses more blocks than a transaction holds beside the superblock.
    fn check_room(&self) -> Result<()> {
        if self.late.len() + self.early.len() < self.room {
            return Ok(());
        }
        let room = self.room;
        Err(Error::unsupported(format!(
            "new checksums in more than {room} blocks, as logged at once"
        )))
    }

    /// Makes all changes durable, `sb` among them.
    pub(super) fn commit(self, sb: &mut Superblock) -> Result<()> {
        let mut before = read_super(&**self.device)?;
        set_recovery(&mut before, true);
        write_super(&**self.device, &mut before)?;
        set_recovery(sb, true);
        if !sb.seal_like(&before) {
            sb.seal();
        }
        let (no, at) = self.geometry.super_location();
        let mut image = vec![0; self.geometry.block_len()];
        let read = self.device.read_at(no.0 << self.geometry.block_bits, &mut image);
        read.map_err(|error| failed("read", no, &error))?;
        image[at..at + SUPER_SIZE].copy_from_slice(sb.bytes());
        let late = self.late.len();
        let mut images: Vec<_> = self.late.into_iter().chain(self.early).collect();
        images.push((no, image));
        self.journal.log_blocks(self.device, self.geometry, &images)?;
        // The superblock is written in one sector.
        images.pop();
        if let Some((no, bytes)) = self.claimed {
            images.retain(|(logged, _)| *logged != no);
            images.push((no, bytes));
        }
        let (late, early) = images.split_at(late);
        for part in [late, early] {
            for (no, bytes) in part {
                let written = self.device.write_at(no.0 << self.geometry.block_bits, bytes);
                written.map_err(|error| failed("write", *no, &error))?;
            }
            self.device.flush().map_err(|error| failed("flush", no, &error))?;
        }
        write_super(&**self.device, sb)?;
        self.journal.empty_log(self.device, self.geometry)?;
        set_recovery(sb, false);
        write_super(&**self.device, sb)
    }
}

fn failed(op: &str, no: BlockNo, error: &std::io::Error) -> Error {
    Error::Io(Cause::new(format!("{op} of block {no}: {error}")))
}

/// Sets whether the superblock says that the volume needs recovery.
fn set_recovery(sb: &mut Superblock, on: bool) {
    let mut features = sb.features();
    features.set(Incompat::RECOVER, on);
    sb.set_features(features);
}
