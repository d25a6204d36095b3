//! Power cuts during a resize.
//!
//! Each image has the old or the new size, e2fsck repairs it, and it has the tree from before. With
//! a journal `e2fsck -p` suffices, and the tree is there without it, too.

use std::path::Path;

use nextent::resize::{ResizeOptions, Resized, enlarge_inodes};
use nextent_device::{BlockDevice, MemoryDevice, RecordingDevice};
use nextent_sync::Arc;
use nextent_testkit::tree::{HostDir, Tree, walk};
use nextent_testkit::{Access, CutInfo, Explorer, KernelMount, Skip, e2fs, need};

use super::common::close;
use super::contents::{Contents, compare_with_linux, full_tree};
use super::files::Fill;
use super::volume::{self, Numbers, Spec, make, minimum, scratch, superblock, verify};

/// A change of a volume that is cut.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) before: Contents,
    tree: Tree,
    /// The volume, on a device that is large enough.
    pub(crate) device: MemoryDevice,
    pub(crate) old: u64,
    pub(crate) new: u64,
    change: Change,
    has_journal: bool,
}

/// A change of a volume.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// To this many groups and a part of one.
    Groups(u64),
    Minimum,
    /// Descriptors of 64 bytes or 32.
    Width(bool),
    /// Bytes of inodes.
    InodeSize(u16),
}

/// Few files, since each image is read several times.
const FILL: Fill = Fill { seed: 3, names: 60, percent: 45 };

impl Case {
    pub(crate) fn new(name: &'static str, args: &str, change: Change) -> Result<Self, Skip> {
        let spec = Spec {
            name,
            mib: 8,
            args: args.into(),
            tune: &[],
            debugfs: &[],
            linux: None,
            fill: FILL,
        };
        let base = make(&spec)?;
        let numbers = Numbers::read(&base).unwrap();
        let new = match change {
            Change::Groups(groups) => groups * numbers.group_blocks + 300,
            Change::Minimum => minimum(&base).unwrap_or_else(|error| panic!("{name}: {error}")),
            Change::Width(_) | Change::InodeSize(_) => numbers.blocks,
        };
        let before = Contents::read(&base).unwrap_or_else(|text| panic!("{name}: {text}"));
        let tree = full_tree(&base).unwrap_or_else(|text| panic!("{name}: {text}"));
        let device = volume::with_size(&base, numbers.blocks.max(new) * numbers.block_size);
        let has_journal = superblock(&base).unwrap().journal_inum.get() != 0;
        Ok(Self { name, before, tree, device, has_journal, change, old: numbers.blocks, new })
    }

    /// Makes the change.
    pub(crate) fn run(&self, device: Arc<dyn BlockDevice>) -> nextent::Result<Resized> {
        let options = match self.change {
            Change::InodeSize(size) => {
                enlarge_inodes(&device, size, &|_| ())?;
                ResizeOptions::default()
            }
            Change::Width(wide) => volume::with_width(wide),
            Change::Groups(_) | Change::Minimum => ResizeOptions::default(),
        };
        nextent::resize::resize(&device, self.new, &options, &|_| ())
    }

    /// Whether the change is complete.
    fn is_done(&self, image: &MemoryDevice) -> Result<bool, String> {
        let sb = superblock(image)?;
        let same_size = sb.blocks_count() == self.new;
        Ok(same_size
            && match self.change {
                Change::InodeSize(size) => sb.inode_size.get() == size,
                Change::Width(wide) => wide == (sb.desc_size.get() == 64),
                Change::Groups(_) | Change::Minimum => true,
            })
    }

    /// Checks an image that a cut or a failed resize left. An error describes what is wrong.
    pub(crate) fn check(&self, image: &MemoryDevice) -> Result<(), String> {
        let dir = scratch();
        let path = dir.path().join("image");
        image.save(&path).map_err(|error| error.to_string())?;
        // Without a journal some steps need repairs that -p does not make.
        let how = Path::new(if self.has_journal { "-p" } else { "-fy" });
        let repair = e2fs::run("e2fsck", [how, &path]).map_err(|skip| skip.to_string())?;
        if repair.status.code().is_none_or(|code| code > 1) {
            return Err(format!("e2fsck {}: {repair:?}", how.display()));
        }
        let report = e2fs::e2fsck(&path).map_err(|skip| skip.to_string())?;
        if !report.is_clean() {
            return Err(format!("e2fsck -fn after {}: {repair:?}, {}", how.display(), report.text));
        }
        let repaired = MemoryDevice::load(&path).map_err(|error| error.to_string())?;
        self.has_a_size(&repaired)?;
        let mut found =
            Contents::read(&repaired).map_err(|text| format!("after e2fsck: {text}"))?;
        let compared = match self.has_journal {
            true => self.before.compare(&found),
            false => self.before.compare_repaired(&mut found),
        };
        compared.map_err(|text| format!("after e2fsck: {text}"))
    }

    fn has_a_size(&self, image: &MemoryDevice) -> Result<(), String> {
        let blocks = Numbers::read(image)?.blocks;
        let known = [self.old, self.new].contains(&blocks);
        if known { Ok(()) } else { Err(format!("the volume has {blocks} blocks")) }
    }

    /// Opens a volume that e2fsck has not repaired.
    pub(crate) fn check_open(&self, image: &MemoryDevice) -> Result<(), String> {
        let device = Arc::new(image.snapshot());
        let volume = volume::open(&device).map_err(|error| format!("open: {error}"))?;
        let found = Contents::of(&volume).map_err(|text| format!("own recovery: {text}"))?;
        self.before.compare(&found).map_err(|text| format!("own recovery: {text}"))?;
        close(&volume);
        drop(volume);
        self.has_a_size(&device)?;
        self.check(&device).map_err(|text| format!("own recovery: {text}"))
    }

    /// Linux mounts a volume that e2fsck has not repaired.
    fn check_linux(&self, image: &MemoryDevice) -> Result<(), String> {
        let dir = scratch();
        let path = dir.path().join("image");
        image.save(&path).map_err(|error| error.to_string())?;
        match KernelMount::try_new(&path, Access::ReadWrite, "noatime") {
            Err(_) => return Ok(()),
            Ok(Err(text)) => return Err(format!("Linux refuses the volume: {text}")),
            Ok(Ok(mount)) => {
                let theirs = walk(&HostDir::new(mount.path())).map_err(|e| e.to_string())?;
                mount.unmount();
                compare_with_linux(&self.tree, &theirs)?;
            }
        }
        let image = MemoryDevice::load(&path).map_err(|error| error.to_string())?;
        self.check(&image).map_err(|text| format!("after Linux: {text}"))
    }

    /// Makes the change again on the repaired volume, unless it is complete.
    fn check_again(&self, image: &MemoryDevice) -> Result<(), String> {
        let dir = scratch();
        let path = dir.path().join("image");
        image.save(&path).map_err(|error| error.to_string())?;
        e2fs::run("e2fsck", [Path::new("-fy"), &path]).map_err(|skip| skip.to_string())?;
        let image = MemoryDevice::load(&path).map_err(|error| error.to_string())?;
        if self.is_done(&image)? {
            return Ok(());
        }
        let device = Arc::new(image);
        self.run(device.clone()).map_err(|error| format!("again: {error}"))?;
        let done = volume::with_size(&device, Numbers::read(&device)?.bytes());
        verify(&done, &self.before).map_err(|text| format!("again: {text}"))
    }
}

/// The most images of each test.
fn most() -> usize {
    std::env::var("NEXTENT_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(8)
}

/// Records a change.
fn record(case: &Case) -> Arc<RecordingDevice<MemoryDevice>> {
    let device = Arc::new(RecordingDevice::new(case.device.snapshot()));
    let name = case.name;
    let done = case.run(device.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(done.blocks, case.new, "{name}: {done:?}");
    if case.new < case.old {
        assert!(done.moved_blocks > 0 && done.moved_inodes > 0, "{name} moves nothing: {done:?}");
    }
    device
}

fn explore(case: &Case) {
    let device = record(case);
    let recording = device.recording();
    let end = recording.events().len();
    let check = |image: MemoryDevice, info: &CutInfo| {
        if info.cut == end && !case.is_done(&image)? {
            return Err("the change was not durable".into());
        }
        case.check(&image)?;
        if case.has_journal {
            match (info.cut % 4, case.change) {
                (0, Change::Groups(_) | Change::Minimum) => case.check_linux(&image)?,
                (_, Change::Groups(_) | Change::Minimum) => case.check_open(&image)?,
                // Until the log is replayed, only e2fsck finds it. It knows a copy of its map.
                _ => {}
            }
            if info.cut.is_multiple_of(5) {
                case.check_again(&image)?;
            }
        }
        Ok(())
    };
    let explorer = Explorer { seed: 11, subsets: 2, most: most(), ..Explorer::default() };
    let report = explorer.explore(&recording, check);
    eprintln!("{}: {} of {} images", case.name, report.checked, report.possible);
    assert!(report.failures.is_empty(), "{}: {}", case.name, report.failures.join("\n"));
}

/// Groups of 1 MiB, and one reserved block of descriptors.
pub(crate) const SMALL: &str = "-b 1024 -g 1024 -N 1000 -G 2 -J size=1 -E resize=20000";
/// The same without flex groups.
const EXT3: &str = "-t ext3 -b 1024 -g 1024 -N 1000 -J size=1 -E resize=20000";
/// No reserved descriptors, and no flex groups.
pub(crate) const UNRESERVED: &str = "-b 1024 -g 1024 -N 1000 -J size=1 -O ^resize_inode,^flex_bg";

macro_rules! cuts {
    ($($name:ident: $args:expr, $change:expr;)*) => {$(
        #[test]
        fn $name() {
            explore(&need!(Case::new(stringify!($name), &$args.join(" "), $change)));
        }
    )*};
}

cuts! {
    a_few_more_groups: ["-t ext4", SMALL], Change::Groups(10);
    more_descriptors_than_reserved: ["-t ext4", SMALL], Change::Groups(36);
    no_descriptors_reserved: ["-t ext4", UNRESERVED], Change::Groups(20);
    more_meta_groups: ["-t ext4", UNRESERVED, "-O meta_bg,flex_bg"], Change::Groups(20);
    more_without_journal: ["-t ext2 -b 1024 -g 1024 -N 1000 -E resize=20000"], Change::Groups(36);
    the_minimum: ["-t ext4", SMALL, "-O orphan_file,metadata_csum_seed"], Change::Minimum;
    the_minimum_of_ext3: [EXT3], Change::Minimum;
    fewer_groups: ["-t ext4", UNRESERVED, "-O uninit_bg,^metadata_csum"], Change::Groups(4);
    fewer_without_journal: ["-t ext4", SMALL, "-O ^has_journal"], Change::Minimum;
    wide_descriptors: ["-t ext4", UNRESERVED, "-O ^64bit"], Change::Width(true);
    narrow_descriptors: ["-t ext4", SMALL], Change::Width(false);
    larger_inodes: [EXT3, "-I 128"], Change::InodeSize(256);
}

/// The cuts of `the_minimum` include ones while the journal moves.
#[test]
fn the_journal_moves() {
    let args = ["-t ext4", SMALL].join(" ");
    let case = need!(Case::new("the_journal_moves", &args, Change::Minimum));
    let old = superblock(&case.device).unwrap().jnl_blocks;
    let device = record(&case);
    let new = superblock(device.inner()).unwrap().jnl_blocks;
    assert!(old.iter().zip(&new).any(|(old, new)| old.get() != new.get()));
}
