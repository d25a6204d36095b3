//! Multiple mount protection: two nodes that reach one device do not both change the volume.
//!
//! A block of the volume has a sequence number. It is "clean" while no node changes the volume. The
//! node that does changes the number again and again: the heartbeat.
//!
//! | step of a claim | action |
//! |---|---|
//! | 1 | read the block; refuse if a check has it |
//! | 2 | unless it is clean: wait longer than the other node's interval; refuse if the number changes |
//! | 3 | write a random number; flush |
//! | 4 | if step 2 waited: wait as long again, in which another node may have taken step 3 |
//! | 5 | read again; refuse if the number is another |
//!
//! The heartbeat reads the block before each write. If the number is another, a node has claimed
//! the volume because this one was too slow, and the journal stops. It stops, too, if no heartbeat
//! succeeded for the time after which another node may claim the volume.
//!
//! A claim comes before the journal is replayed, and ends after the volume is marked clean.
//!
//! A check that changes the volume claims it in the same way and then writes the number of checks,
//! with which each node refuses the volume at once. It needs no heartbeat.
//!
//! Source: ext4 disk layout documentation, "Multiple Mount Protection".

use std::hash::{BuildHasher, RandomState};

use nextent_device::BlockDevice;
use nextent_num::must_fit;
use nextent_ondisk::mmp::{
    MAX_CHECK_INTERVAL, MIN_CHECK_INTERVAL, MmpBlock, SEQ_CLEAN, SEQ_FSCK, SEQ_MAX,
};
use nextent_ondisk::{BlockNo, Corrupt, Geometry, Incompat, RoCompat, Structure, Superblock};
use nextent_store::Store;
use nextent_sync::{
    Arc, Condvar, Duration, Instant, LockClass, Mutex, now, sleep, thread, unix_time,
};

use crate::error::{Cause, Error, Result};

static ENDING: LockClass = LockClass::new("volume.heartbeat-end", 953);

/// Seconds between heartbeats, if the superblock has none.
const USUAL_INTERVAL: u16 = 5;
/// Bytes of the block that are used.
const SIZE: usize = 1024;

/// Where the block is.
struct Place {
    device: Arc<dyn BlockDevice>,
    geometry: Arc<Geometry>,
    at: u64,
}

/// A volume that this node may change, before its heartbeat. Dropped, it is given back.
pub(crate) struct Claim {
    place: Place,
    block: MmpBlock,
    interval: Duration,
    held: bool,
}

/// A volume that a check may change, and that no other node can open for writing meanwhile.
///
/// The volume's block of multiple mount protection says that a check has it. If the process is
/// killed, the volume stays claimed until `tune2fs -f -E clear_mmp`, as with e2fsck. Dropped, the
/// volume is given back.
pub struct CheckClaim {
    claim: Claim,
}

impl std::fmt::Debug for CheckClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckClaim").field("held", &self.claim.held).finish_non_exhaustive()
    }
}

/// What this node last wrote to the block of multiple mount protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultiMount {
    /// The host name of this node.
    pub node: String,
    /// The name of the device, for messages.
    pub device: String,
    /// The number that changes with each heartbeat.
    pub sequence: u32,
    /// The time of the last heartbeat, in seconds since 1970.
    pub updated: u64,
    /// Seconds between heartbeats.
    pub interval: u64,
}

/// Whether the block of multiple mount protection lets another node mount the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiMountUse {
    /// No node has the volume, or the node that had it has crashed.
    Free,
    /// The heartbeat of a node goes on.
    Active,
    /// A check has the volume.
    Check,
    /// The number of the block is none of those that nodes write.
    Unknown,
    /// The checksum is wrong.
    WrongChecksum,
}

/// The heartbeat of a volume that this node changes. Dropped without [`end`](Self::end) it stops as
/// in a crash.
pub(crate) struct Heartbeat {
    place: Arc<Place>,
    ending: Arc<Ending>,
    interval: Duration,
    thread: Option<thread::JoinHandle<MmpBlock>>,
}

/// What the thread of a heartbeat shares with others.
struct Ending {
    /// `[volume.heartbeat-end]`
    now: Mutex<Shared>,
    changed: Condvar,
}

struct Shared {
    /// The heartbeat is to end.
    ends: bool,
    /// The block that was written last.
    block: MmpBlock,
}

impl Place {
    /// The place of the block, if the volume has the feature.
    fn of(
        device: &Arc<dyn BlockDevice>,
        geometry: &Arc<Geometry>,
        sb: &Superblock,
    ) -> Result<Option<Self>> {
        if !geometry.features.has(Incompat::MMP) {
            return Ok(None);
        }
        let no = sb.mmp_block.get();
        if no <= geometry.first_data_block.0 || no >= geometry.blocks_count {
            return Err(Corrupt::field(Structure::MultiMount, "block", no).into());
        }
        let at = BlockNo(no).0 << geometry.block_bits;
        Ok(Some(Self { device: Arc::clone(device), geometry: Arc::clone(geometry), at }))
    }

    fn read(&self) -> Result<MmpBlock> {
        let mut bytes = [0; SIZE];
        self.device.read_at(self.at, &mut bytes).map_err(|source| io("read", &source))?;
        Ok(MmpBlock::read(&self.geometry, &bytes)?)
    }

    fn write(&self, block: &mut MmpBlock) -> Result<()> {
        block.time.set(unix_time().as_secs());
        block.seal(&self.geometry);
        let written = self.device.write_at(self.at, block.bytes());
        written.and_then(|()| self.device.flush()).map_err(|source| io("write", &source))
    }
}

fn io(what: &str, source: &std::io::Error) -> Error {
    Error::Io(Cause::new(format!("{what} of the block of multiple mount protection: {source}")))
}

/// The refusal because of another node.
fn in_use(block: &MmpBlock) -> Error {
    let (node, device) = (block.node().escape_ascii(), block.device().escape_ascii());
    Error::OtherNode(Cause::new(format!("node {node}, device {device}")))
}

impl Claim {
    /// Claims the volume on `device`, if it has the feature. Waits up to about two minutes if
    /// another node may have it.
    ///
    /// # Errors
    /// [`Error::OtherNode`]. [`Error::Corrupt`], [`Error::Io`].
    pub(crate) fn take(
        device: &Arc<dyn BlockDevice>,
        geometry: &Arc<Geometry>,
        sb: &Superblock,
    ) -> Result<Option<Self>> {
        let Some(place) = Place::of(device, geometry, sb)? else { return Ok(None) };
        let interval = interval_of(sb);
        let found = place.read()?;
        let check = check_interval(sb, &found);
        let wait = match found.sequence.get() {
            SEQ_CLEAN => Duration::ZERO,
            SEQ_FSCK => {
                let text = "a check, or one that was interrupted: `tune2fs -f -E clear_mmp` if so";
                return Err(Error::OtherNode(Cause::new(text)));
            }
            _ => wait_of(check),
        };
        sleep(wait);
        let again = place.read()?;
        if again.sequence.get() != found.sequence.get() {
            return Err(in_use(&again));
        }
        let block = own_block(again, interval);
        let interval = Duration::from_secs(interval.into());
        let mut claim = Self { place, block, interval, held: true };
        claim.place.write(&mut claim.block)?;
        sleep(wait);
        let last = claim.place.read()?;
        if last.sequence.get() != claim.block.sequence.get() {
            claim.held = false;
            return Err(in_use(&last));
        }
        Ok(Some(claim))
    }

    /// Starts the heartbeat, which stops `store` if another node claims the volume.
    pub(crate) fn start(mut self, store: &Arc<Store>) -> Result<Heartbeat> {
        let shared = Shared { ends: false, block: self.block.clone() };
        let ending = Ending { now: Mutex::new(&ENDING, shared), changed: Condvar::new() };
        let ending = Arc::new(ending);
        let place = Place {
            device: Arc::clone(&self.place.device),
            geometry: Arc::clone(&self.place.geometry),
            at: self.place.at,
        };
        let place = Arc::new(place);
        let beat = Beat {
            place: Arc::clone(&place),
            ending: Arc::clone(&ending),
            store: Arc::clone(store),
            interval: self.interval,
            block: self.block.clone(),
        };
        let named = thread::Builder::new().name("nextent-mmp".to_owned());
        let thread = named.spawn(move || beat.run());
        let thread = thread.map_err(|source| io("heartbeat", &source))?;
        self.held = false;
        Ok(Heartbeat { place, ending, interval: self.interval, thread: Some(thread) })
    }
}

impl CheckClaim {
    /// Claims the volume on `device` for a check, if it has the feature; as [`Claim::take`].
    pub(crate) fn take(
        device: &Arc<dyn BlockDevice>,
        geometry: &Arc<Geometry>,
        sb: &Superblock,
    ) -> Result<Option<Self>> {
        let Some(mut claim) = Claim::take(device, geometry, sb)? else { return Ok(None) };
        claim.block.sequence.set(SEQ_FSCK);
        claim.place.write(&mut claim.block)?;
        Ok(Some(Self { claim }))
    }

    /// The block with the checksum of `geometry`, whose seed the volume is about to get: claimed,
    /// and clean. The caller writes it; the claim ends with that geometry.
    pub(crate) fn reseal(&mut self, geometry: &Arc<Geometry>) -> Result<(BlockNo, [Vec<u8>; 2])> {
        let place = &mut self.claim.place;
        let mut bytes = vec![0; geometry.block_len()];
        place.device.read_at(place.at, &mut bytes).map_err(|source| io("read", &source))?;
        let mut block = place.read()?;
        if block.sequence.get() != SEQ_FSCK {
            return Err(in_use(&block));
        }
        let images = [SEQ_FSCK, SEQ_CLEAN].map(|sequence| {
            block.sequence.set(sequence);
            block.seal(geometry);
            bytes[..SIZE].copy_from_slice(block.bytes());
            bytes.clone()
        });
        place.geometry = Arc::clone(geometry);
        Ok((BlockNo(place.at >> geometry.block_bits), images))
    }

    /// Gives the volume back.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::OtherNode`] if the claim was cleared and another node has the
    /// volume.
    pub fn end(mut self) -> Result<()> {
        self.claim.held = false;
        give_back(&self.claim.place, &self.claim.block)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.held {
            // The error that ended the open is the one to report.
            let _ = give_back(&self.place, &self.block);
        }
    }
}

/// Seconds between heartbeats of this node.
fn interval_of(sb: &Superblock) -> u16 {
    match sb.mmp_interval.get() {
        0 => USUAL_INTERVAL,
        seconds => seconds,
    }
}

/// The longest interval between heartbeats of the node that wrote `found`.
fn check_interval(sb: &Superblock, found: &MmpBlock) -> u16 {
    interval_of(sb).max(MIN_CHECK_INTERVAL).max(found.check_interval.get())
}

/// How long to wait for the heartbeat of another node.
fn wait_of(check: u16) -> Duration {
    let check = u64::from(check);
    Duration::from_secs((2 * check + 1).min(check + 60))
}

/// The block with this node's name and a random number.
fn own_block(mut block: MmpBlock, interval: u16) -> MmpBlock {
    let random = RandomState::new().hash_one(unix_time());
    block.sequence.set(must_fit(random % u64::from(SEQ_MAX - 1) + 1));
    let check = interval.saturating_mul(2).clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL);
    block.check_interval.set(check);
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    set_text(&mut block.node_name, host.trim());
    set_text(&mut block.device_name, &format!("nextent-{}", std::process::id()));
    block
}

fn set_text(field: &mut [u8], text: &str) {
    field.fill(0);
    // The last byte stays zero.
    for (slot, byte) in field.iter_mut().rev().skip(1).rev().zip(text.bytes()) {
        *slot = byte;
    }
}

/// Marks the block clean, if it is still that of this node.
fn give_back(place: &Place, own: &MmpBlock) -> Result<()> {
    let mut found = place.read()?;
    if found.sequence.get() != own.sequence.get() {
        return Err(in_use(&found));
    }
    found.sequence.set(SEQ_CLEAN);
    place.write(&mut found)
}

/// Marks the block of the volume on `device` clean, whatever node has it.
///
/// # Errors
/// [`Error::NotSupported`] for a volume without the feature; [`Error::Corrupt`], [`Error::Io`].
pub fn clear_mmp(device: &Arc<dyn BlockDevice>, sb: &Superblock) -> Result<()> {
    let geometry = Arc::new(sb.check(u64::MAX)?);
    let Some(place) = Place::of(device, &geometry, sb)? else { return Err(Error::NotSupported) };
    let mut block = place.read()?;
    block.sequence.set(SEQ_CLEAN);
    place.write(&mut block)
}

/// Finds out, without a write, whether a node has the volume on `device`. Waits up to about two
/// minutes unless the block says so at once. Returns the block that was read last, too.
///
/// # Errors
/// [`Error::NotSupported`] for a volume without the feature; [`Error::Corrupt`] for a block without
/// the magic number; [`Error::Io`].
pub fn multi_mount_use(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
) -> Result<(MultiMountUse, MmpBlock)> {
    let geometry = sb.check(u64::MAX)?;
    let mut without_sums = geometry.clone();
    without_sums.features.set(RoCompat::METADATA_CSUM, false);
    let Some(place) = Place::of(device, &Arc::new(geometry), sb)? else {
        return Err(Error::NotSupported);
    };
    let mut bytes = [0; SIZE];
    place.device.read_at(place.at, &mut bytes).map_err(|source| io("read", &source))?;
    let found = MmpBlock::read(&without_sums, &bytes)?;
    if MmpBlock::read(&place.geometry, &bytes).is_err() {
        return Ok((MultiMountUse::WrongChecksum, found));
    }
    let at_once = match found.sequence.get() {
        SEQ_CLEAN => Some(MultiMountUse::Free),
        SEQ_FSCK => Some(MultiMountUse::Check),
        other => (other > SEQ_MAX).then_some(MultiMountUse::Unknown),
    };
    if let Some(at_once) = at_once {
        return Ok((at_once, found));
    }
    sleep(wait_of(check_interval(sb, &found)));
    let again = place.read()?;
    let same = again.sequence.get() == found.sequence.get();
    Ok((if same { MultiMountUse::Free } else { MultiMountUse::Active }, again))
}

/// The thread of a heartbeat.
struct Beat {
    place: Arc<Place>,
    ending: Arc<Ending>,
    store: Arc<Store>,
    interval: Duration,
    block: MmpBlock,
}

impl Beat {
    /// Runs until the end; returns the block that was written last.
    fn run(mut self) -> MmpBlock {
        let check = Duration::from_secs(self.block.check_interval.get().into());
        let mut last = now();
        while !self.wait() {
            match self.beat(last, check) {
                Ok(true) => last = now(),
                Ok(false) => {}
                Err(error) => {
                    self.store.abort(&error.to_string());
                    break;
                }
            }
        }
        self.block
    }

    /// Waits for the next heartbeat; whether the end has come.
    fn wait(&self) -> bool {
        let mut ending = self.ending.now.lock();
        let due = now() + self.interval;
        loop {
            let left = due.saturating_duration_since(now());
            if ending.ends || left.is_zero() {
                return ending.ends;
            }
            self.ending.changed.wait_for(&mut ending, left);
        }
    }

    /// One heartbeat; whether it succeeded. The last success was at `last`.
    fn beat(&mut self, last: Instant, check: Duration) -> Result<bool> {
        let done = self.place.read().and_then(|found| {
            if found.sequence.get() != self.block.sequence.get() {
                return Err(in_use(&found));
            }
            let next = self.block.sequence.get() + 1;
            let mut block = self.block.clone();
            block.sequence.set(if next > SEQ_MAX { 1 } else { next });
            self.place.write(&mut block)?;
            Ok(block)
        });
        match done {
            Ok(block) => {
                self.ending.now.lock().block = block.clone();
                self.block = block;
                Ok(true)
            }
            Err(error @ Error::OtherNode(_)) => Err(error),
            Err(error) if last.elapsed() > check => Err(error),
            Err(_) => Ok(false),
        }
    }
}

impl Heartbeat {
    /// Ends the heartbeat and gives the volume back.
    ///
    /// # Errors
    /// As [`Claim::take`].
    pub(crate) fn end(mut self) -> Result<()> {
        match self.stop() {
            Some(block) => give_back(&self.place, &block),
            None => Ok(()),
        }
    }

    /// What was written last.
    pub(crate) fn state(&self) -> MultiMount {
        let block = self.ending.now.lock().block.clone();
        MultiMount {
            node: block.node().escape_ascii().to_string(),
            device: block.device().escape_ascii().to_string(),
            sequence: block.sequence.get(),
            updated: block.time.get(),
            interval: self.interval.as_secs(),
        }
    }

    /// Stops the thread; the block that it wrote last.
    fn stop(&mut self) -> Option<MmpBlock> {
        self.ending.now.lock().ends = true;
        self.ending.changed.notify_all();
        // A panic was reported where it happened.
        self.thread.take()?.join().ok()
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.stop();
    }
}
