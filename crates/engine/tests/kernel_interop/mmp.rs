//! Volumes with multiple mount protection: one node at a time changes them.

use crate::common::{Image, VolumeFs};
use nextent::check::{CheckOptions, check_with, claim};
use nextent::inodes::Inodes;
use nextent::{Error, OpenOptions};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::mmp::{MmpBlock, SEQ_CLEAN, SEQ_FSCK};
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE};
use nextent_ondisk::{Geometry, Superblock};
use nextent_sync::atomic::{AtomicBool, Ordering};
use nextent_sync::{Arc, Duration, now, thread};
use nextent_testkit::{Access, KernelMount, PosixFs, Skip, e2fs, need};

/// A volume whose nodes write a heartbeat each second, and wait eleven for those of another.
struct Protected {
    image: Image,
    device: Arc<MemoryDevice>,
}

impl Protected {
    fn new(features: &str) -> Result<Self, Skip> {
        let options = ["-t", "ext4", "-E", "mmp_update_interval=1", "-O", features];
        let image = Image::make(16 << 20, &options)?;
        let device = Arc::new(MemoryDevice::load(&image.path()).unwrap());
        Ok(Self { image, device })
    }

    fn open(&self) -> nextent::Result<Inodes> {
        Inodes::open(self.device.clone(), &OpenOptions::new())
    }

    fn geometry(&self) -> (Geometry, u64) {
        let mut bytes = [0; SUPER_SIZE];
        self.device.read_at(SUPER_OFFSET, &mut bytes).unwrap();
        let sb = Superblock::read(&bytes).unwrap();
        let geometry = sb.check(u64::MAX).unwrap();
        let at = sb.mmp_block.get() << geometry.block_bits;
        (geometry, at)
    }

    fn block(&self) -> MmpBlock {
        let (geometry, at) = self.geometry();
        let mut bytes = [0; 1024];
        self.device.read_at(at, &mut bytes).unwrap();
        MmpBlock::read(&geometry, &bytes).unwrap()
    }

    /// Writes another sequence number, as another node does.
    fn set(&self, sequence: u32) {
        let (geometry, at) = self.geometry();
        let mut block = self.block();
        block.sequence.set(sequence);
        block.node_name[..5].copy_from_slice(b"other");
        block.seal(&geometry);
        self.device.write_at(at, block.bytes()).unwrap();
    }

    #[track_caller]
    fn assert_clean(&self) {
        assert_eq!(self.block().sequence.get(), SEQ_CLEAN);
        self.device.save(&self.image.path()).unwrap();
        e2fs::assert_clean(&self.image.path());
    }
}

#[track_caller]
fn refused(opened: nextent::Result<Inodes>) -> String {
    let error = opened.map(drop).unwrap_err();
    assert!(matches!(error, Error::OtherNode(_)), "{error}");
    assert_eq!(error.errno(), libc::EBUSY);
    error.to_string()
}

#[test]
fn a_closed_volume_is_claimed_at_once() {
    for features in ["mmp", "mmp,^metadata_csum", "mmp,^has_journal"] {
        let protected = need!(Protected::new(features));
        let begun = now();
        for round in 0..3 {
            let volume = protected.open().unwrap();
            let block = protected.block();
            assert!(block.sequence.get() != SEQ_CLEAN && block.node_name[0] != 0);
            VolumeFs(&volume).create(&format!("/file{round}"), 0o644).unwrap();
            volume.make_read_only().unwrap();
            protected.assert_clean();
            volume.make_writable().unwrap();
            assert!(protected.block().sequence.get() != SEQ_CLEAN);
            volume.close().unwrap();
            protected.assert_clean();
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it waited");
    }
}

#[test]
fn the_kernel_and_this_crate_take_turns() {
    let protected = need!(Protected::new("mmp"));
    let volume = protected.open().unwrap();
    VolumeFs(&volume).create("/ours", 0o644).unwrap();
    volume.close().unwrap();
    protected.assert_clean();
    let path = protected.image.path();
    let mount = need!(KernelMount::new(&path, Access::ReadWrite));
    assert!(mount.path().join("ours").exists());
    std::fs::write(mount.path().join("theirs"), "text").unwrap();
    drop(mount);
    let again = Arc::new(MemoryDevice::load(&path).unwrap());
    let volume = Inodes::open(again.clone(), &OpenOptions::new()).unwrap();
    assert_eq!(VolumeFs(&volume).read("/theirs", 0, 4).unwrap(), b"text");
    volume.close().unwrap();
    again.save(&path).unwrap();
    e2fs::assert_clean(&path);
}

/// A second node is refused while the first lives, and takes over after it has crashed.
#[test]
fn a_second_node_takes_over_after_a_crash() {
    let protected = need!(Protected::new("mmp"));
    let first = protected.open().unwrap();
    VolumeFs(&first).create("/first", 0o644).unwrap();
    first.sync().unwrap();
    let device: Arc<dyn BlockDevice> = protected.device.clone();
    thread::scope(|scope| {
        let check = scope.spawn(|| claim(&device).map(drop).unwrap_err());
        let said = refused(protected.open());
        assert!(said.contains("device nextent-"), "{said}");
        assert!(matches!(check.join().unwrap(), Error::OtherNode(_)));
    });
    VolumeFs(&first).create("/again", 0o644).unwrap();
    first.sync().unwrap();
    drop(first);
    assert!(protected.block().sequence.get() != SEQ_CLEAN);
    let reader = OpenOptions::new().read_only(true);
    drop(Inodes::open(protected.device.clone(), &reader).unwrap());
    let second = protected.open().unwrap();
    for name in ["/first", "/again"] {
        assert!(VolumeFs(&second).read(name, 0, 1).is_ok(), "{name}");
    }
    second.close().unwrap();
    protected.assert_clean();
}

/// A device on which another node uses and closes the volume just before the claim reads its block.
struct Contended {
    inner: Arc<MemoryDevice>,
    block: u64,
    used: AtomicBool,
}

impl BlockDevice for Contended {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        if offset == self.block && !self.used.swap(true, Ordering::Relaxed) {
            let other = Inodes::open(self.inner.clone(), &OpenOptions::new()).unwrap();
            other.set_label(b"other").unwrap();
            VolumeFs(&other).create("/other", 0o644).unwrap();
            other.close().unwrap();
        }
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> std::io::Result<()> {
        self.inner.write_at(offset, buf)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.inner.write_zeroes(offset, len)
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
}

/// The superblock is that of after the claim.
#[test]
fn changes_of_another_node_before_the_claim_are_seen() {
    let protected = need!(Protected::new("mmp"));
    let (_, block) = protected.geometry();
    let (inner, used) = (protected.device.clone(), AtomicBool::new(false));
    let device = Arc::new(Contended { inner, block, used });
    let volume = Inodes::open(device, &OpenOptions::new()).unwrap();
    VolumeFs(&volume).create("/ours", 0o644).unwrap();
    assert_eq!(VolumeFs(&volume).read("/other", 0, 1).unwrap(), []);
    volume.close().unwrap();
    protected.assert_clean();
    let shown = need!(e2fs::dumpe2fs(&protected.image.path(), true));
    assert!(shown.contains("Filesystem volume name:   other\n"), "{shown}");
}

/// A check has the volume until it gives it back: nodes and other checks are refused at once.
#[test]
fn a_check_claims_the_volume() {
    let protected = need!(Protected::new("mmp"));
    let device: Arc<dyn BlockDevice> = protected.device.clone();
    let held = claim(&device).unwrap().unwrap();
    assert_eq!(protected.block().sequence.get(), SEQ_FSCK);
    assert!(refused(protected.open()).contains("clear_mmp"));
    assert!(matches!(claim(&device), Err(Error::OtherNode(_))));
    let options = OpenOptions::new().claimed(&held);
    let volume = Inodes::open(device.clone(), &options).unwrap();
    VolumeFs(&volume).create("/file", 0o644).unwrap();
    assert_eq!(volume.multi_mount(), None);
    volume.close().unwrap();
    assert_eq!(protected.block().sequence.get(), SEQ_FSCK);
    let mut options = CheckOptions::default();
    for claimed in [true, false] {
        options.claimed = claimed;
        let report = check_with(device.clone(), None, &options, &|_| ()).unwrap();
        assert_eq!(report.is_clean(), claimed);
    }
    held.end().unwrap();
    protected.assert_clean();
    drop(claim(&device).unwrap());
    protected.assert_clean();
    let plain = Image::make(16 << 20, &["-t", "ext4"]).unwrap();
    let plain: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::load(&plain.path()).unwrap());
    assert!(claim(&plain).unwrap().is_none());
}

#[test]
fn an_open_volume_shows_its_claim() {
    let protected = need!(Protected::new("mmp"));
    let volume = protected.open().unwrap();
    let state = volume.multi_mount().unwrap();
    let block = protected.block();
    assert!(!state.node.is_empty() && state.device.starts_with("nextent-"), "{state:?}");
    assert!(state.sequence <= block.sequence.get() && state.updated <= block.time.get());
    assert_eq!(state.interval, 1);
    volume.make_read_only().unwrap();
    assert_eq!(volume.multi_mount(), None);
    volume.close().unwrap();
    protected.assert_clean();
}

#[test]
fn a_check_and_a_damaged_block_are_refused() {
    let protected = need!(Protected::new("mmp"));
    protected.set(SEQ_FSCK);
    assert!(refused(protected.open()).contains("check"));
    protected.set(SEQ_CLEAN);
    let (_, at) = protected.geometry();
    protected.device.write_at(at, &[7; 8]).unwrap();
    let error = protected.open().map(drop).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
}

/// A node that finds another's number has been too slow: it must not write any more.
#[test]
fn a_node_that_lost_the_volume_stops() {
    let protected = need!(Protected::new("mmp"));
    let volume = protected.open().unwrap();
    VolumeFs(&volume).create("/file", 0o644).unwrap();
    volume.sync().unwrap();
    protected.set(77);
    let begun = now();
    while VolumeFs(&volume).create("/late", 0o644).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it goes on");
        let _ = VolumeFs(&volume).unlink("/late");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(volume.close().is_err());
    assert_eq!(protected.block().sequence.get(), 77);
}
