//! Volumes to resize, and the checks of a resized volume.

use std::path::{Path, PathBuf};

use nextent::OpenOptions;
use nextent::check::{CheckOptions, check};
use nextent::inodes::Inodes;
use nextent::resize::{ResizeOptions, Resized};
use nextent_device::{BlockDevice, MemoryDevice};
use nextent_ondisk::superblock::{SUPER_OFFSET, SUPER_SIZE, Superblock};
use nextent_ondisk::{GroupDesc, GroupNo};
use nextent_sync::{Arc, Duration};
use nextent_testkit::{Access, KernelMount, Skip, e2fs};

use super::common::close;
use super::contents::Contents;
use super::files::{self, Fill};

/// A directory for image files, in memory if that is possible.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = tempfile::Builder::new().prefix("nextent-resize-").tempdir_in(memory);
    made.or_else(|_| tempfile::tempdir()).expect("a temporary directory")
}

/// An image file of the volume on `device`, no longer than the volume.
pub(crate) struct ImageFile {
    dir: tempfile::TempDir,
}

impl ImageFile {
    pub(crate) fn of(device: &MemoryDevice) -> Self {
        let file = Self { dir: scratch() };
        let numbers = Numbers::read(device).expect("a superblock");
        with_size(device, numbers.bytes()).save(&file.path()).expect("the image is written");
        file
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }
}

/// A copy of the device that has `size` bytes.
pub(crate) fn with_size(device: &MemoryDevice, size: u64) -> MemoryDevice {
    if size == device.size() {
        return device.snapshot();
    }
    let copy = MemoryDevice::new(size);
    let mut bytes = vec![0; 1 << 18];
    let mut at = 0;
    while let Some(range) = device.next_data(at).expect("memory has no errors") {
        let end = range.end.min(size);
        if range.start >= end {
            break;
        }
        at = end.min(range.start + bytes.len() as u64);
        let part = &mut bytes[..(at - range.start) as usize];
        device.read_at(range.start, part).expect("memory has no errors");
        copy.write_at(range.start, part).expect("memory has no errors");
    }
    copy
}

/// The numbers of the superblock that depend on the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) blocks: u64,
    pub(crate) inodes: u64,
    pub(crate) groups: u64,
    pub(crate) reserved: u64,
    pub(crate) block_size: u64,
    pub(crate) group_blocks: u64,
}

pub(crate) fn superblock(device: &MemoryDevice) -> Result<Superblock, String> {
    let mut bytes = [0; SUPER_SIZE];
    device.read_at(SUPER_OFFSET, &mut bytes).map_err(|error| error.to_string())?;
    Superblock::read(&bytes).map_err(|error| error.to_string())
}

impl Numbers {
    pub(crate) fn read(device: &MemoryDevice) -> Result<Self, String> {
        let sb = superblock(device)?;
        let geo = sb.check(u64::MAX).map_err(|error| error.to_string())?;
        let low = u64::from(sb.r_blocks_count_lo.get());
        let high = u64::from(sb.r_blocks_count_hi.get());
        Ok(Self {
            blocks: geo.blocks_count,
            inodes: geo.inodes_count.into(),
            groups: geo.group_count.into(),
            reserved: high << 32 | low,
            block_size: geo.block_size.into(),
            group_blocks: geo.blocks_per_group.into(),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks * self.block_size
    }
}

/// A kind of volume.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    pub(crate) mib: u64,
    /// Arguments of mke2fs.
    pub(crate) args: String,
    /// Arguments of tune2fs, after the volume has files.
    pub(crate) tune: &'static [&'static str],
    /// Commands of debugfs after that, where `@` is a directory with files to write.
    pub(crate) debugfs: &'static [&'static str],
    /// Changes by Linux after that, where it can mount the volume.
    pub(crate) linux: Option<fn(&Path)>,
    pub(crate) fill: Fill,
}

/// A volume of `spec` with files. Panics if e2fsck finds something wrong.
pub(crate) fn make(spec: &Spec) -> Result<MemoryDevice, Skip> {
    let dir = scratch();
    let path = dir.path().join("image");
    let args: Vec<&str> = spec.args.split_whitespace().collect();
    e2fs::mke2fs(&path, spec.mib << 20, &args)?;
    let device = Arc::new(MemoryDevice::load(&path).expect("the image is read"));
    let volume = open(&device).unwrap_or_else(|error| panic!("{}: {error}", spec.name));
    files::fill(&volume, spec.fill);
    close(&volume);
    drop(volume);
    device.save(&path).expect("the image is written");
    let image = path.to_str().expect("plain characters");
    for tune in spec.tune {
        let output = e2fs::run("tune2fs", tune.split_whitespace().chain([image]))?;
        assert!(output.status.success(), "{}: tune2fs {tune}: {output:?}", spec.name);
    }
    if !spec.debugfs.is_empty() {
        let files = dir.path().to_str().expect("plain characters");
        for (name, len) in [("tiny", 40), ("small", 130), ("large", 40_000)] {
            let bytes: Vec<u8> = (0..len).map(|n| (n * n / 7 % 251) as u8).collect();
            std::fs::write(dir.path().join(name), bytes).expect("the directory has space");
        }
        let commands: Vec<String> =
            spec.debugfs.iter().map(|command| command.replace('@', files)).collect();
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        e2fs::debugfs(&path, true, &commands)?;
        // debugfs counts blocks of attributes wrongly.
        let output = e2fs::run("e2fsck", ["-fy", image])?;
        assert!(output.status.code().is_some_and(|code| code <= 1), "{}: {output:?}", spec.name);
    }
    if let Some(change) = spec.linux
        && let Ok(Ok(mount)) = KernelMount::try_new(&path, Access::ReadWrite, "")
    {
        change(mount.path());
        mount.unmount();
    }
    let report = e2fs::e2fsck(&path)?;
    assert!(report.is_clean(), "{}: before the resize: {report:?}", spec.name);
    Ok(MemoryDevice::load(&path).expect("the image is read"))
}

/// Opens for changes, with commits on request and under pressure.
pub(crate) fn open(device: &Arc<MemoryDevice>) -> nextent::Result<Inodes> {
    let options = OpenOptions::new().commit_interval(Duration::ZERO);
    Inodes::open(device.clone(), &options)
}

/// Resizes the volume on `device`.
pub(crate) fn resize(device: Arc<dyn BlockDevice>, blocks: u64) -> nextent::Result<Resized> {
    nextent::resize::resize(&device, blocks, &ResizeOptions::default(), &|_| ())
}

/// The options that give descriptors 64 bytes or 32.
pub(crate) fn with_width(wide: bool) -> ResizeOptions {
    let mut options = ResizeOptions::default();
    options.wide = Some(wide);
    options
}

/// The fewest blocks of the volume on `device`.
pub(crate) fn minimum(device: &MemoryDevice) -> nextent::Result<u64> {
    let device: Arc<dyn BlockDevice> = Arc::new(device.snapshot());
    nextent::resize::minimum_blocks(&device)
}

/// A copy of the volume that was resized to `blocks`, on a device of just that many.
pub(crate) fn resized(device: &MemoryDevice, blocks: u64) -> nextent::Result<MemoryDevice> {
    resized_with(device, blocks, &ResizeOptions::default())
}

/// As [`resized`], with options.
pub(crate) fn resized_with(
    device: &MemoryDevice,
    blocks: u64,
    options: &ResizeOptions,
) -> nextent::Result<MemoryDevice> {
    let numbers = Numbers::read(device).expect("a superblock");
    let copy = with_size(device, numbers.bytes().max(blocks * numbers.block_size));
    let expected = nextent::resize::resized_blocks(&copy, blocks, options)?;
    let copy = Arc::new(copy);
    let shared: Arc<dyn BlockDevice> = copy.clone();
    let done = nextent::resize::resize(&shared, blocks, options, &|_| ())?;
    let new = Numbers::read(&copy).expect("a superblock");
    assert_eq!(done.before, numbers.blocks, "blocks before");
    assert_eq!(done.blocks, new.blocks, "blocks after");
    assert_eq!(done.blocks, expected, "blocks of `resized_blocks`");
    assert_eq!(u64::from(done.block_size), numbers.block_size, "bytes of a block");
    assert!(done.blocks <= blocks.max(numbers.blocks), "{done:?} for {blocks} blocks");
    Ok(with_size(&copy, new.bytes()))
}

/// Checks a volume whose resize is complete. An error describes what is wrong.
pub(crate) fn verify(device: &MemoryDevice, before: &Contents) -> Result<(), String> {
    let file = ImageFile::of(device);
    let numbers = Numbers::read(device)?;
    let report = e2fs::e2fsck(&file.path()).map_err(|skip| skip.to_string())?;
    if !report.is_clean() {
        return Err(format!("e2fsck: {}", report.text));
    }
    // e2fsck ends with `11/2048 files (0.0% non-contiguous), 1000/8192 blocks`.
    let counts = format!("/{} blocks", numbers.blocks);
    if !report.text.contains(&counts)
        || !report.text.contains(&format!("/{} files", numbers.inodes))
    {
        return Err(format!("e2fsck counts other than {numbers:?}: {}", report.text));
    }
    own_check(device)?;
    journal_backup(device)?;
    before.compare(&Contents::read(device)?)
}

/// Runs the check, which also compares backups of superblock and descriptors.
pub(crate) fn own_check(device: &MemoryDevice) -> Result<(), String> {
    let mut options = CheckOptions::default();
    options.workers = 1;
    let report = check(Arc::new(device.snapshot()), &options, &|_| ())
        .map_err(|error| format!("check: {error}"))?;
    let lines: Vec<String> =
        report.problems.iter().map(|problem| format!("{}: {problem}", problem.code)).collect();
    if lines.is_empty() { Ok(()) } else { Err(format!("check:\n{}", lines.join("\n"))) }
}

/// Checks that the superblock's copy of the journal's map is like the journal's inode.
fn journal_backup(device: &MemoryDevice) -> Result<(), String> {
    let sb = superblock(device)?;
    let geo = sb.check(u64::MAX).map_err(|error| error.to_string())?;
    if sb.jnl_backup_type != 1 || sb.journal_inum.get() == 0 {
        return Ok(());
    }
    let read = |at: u64, bytes: &mut [u8]| device.read_at(at, bytes).map_err(|e| e.to_string());
    let (block, offset) = geo.desc_location(GroupNo(0));
    let mut desc = vec![0; usize::from(geo.desc_size)];
    read((block.0 << geo.block_bits) + offset as u64, &mut desc)?;
    let desc = GroupDesc::read(&desc).map_err(|error| error.to_string())?;
    let mut inode = [0; 128];
    let index = u64::from(sb.journal_inum.get() - 1);
    read((desc.inode_table.0 << geo.block_bits) + index * u64::from(geo.inode_size), &mut inode)?;
    let copy: Vec<u8> = sb.jnl_blocks.iter().flat_map(|word| word.get().to_le_bytes()).collect();
    let own = [&inode[0x28..0x28 + 60], &inode[0x6c..0x70], &inode[4..8]].concat();
    if own == copy {
        return Ok(());
    }
    Err(format!("the superblock's copy of the journal's map is {copy:x?}, not {own:x?}"))
}

/// The numbers of a copy that resize2fs resized; `None` if it refuses.
pub(crate) fn by_resize2fs(device: &MemoryDevice, blocks: u64) -> Result<Option<Numbers>, Skip> {
    Ok(resize2fs(device, blocks)?.map(|device| Numbers::read(&device).expect("a superblock")))
}

fn resize2fs(device: &MemoryDevice, blocks: u64) -> Result<Option<MemoryDevice>, Skip> {
    let file = ImageFile::of(device);
    let numbers = Numbers::read(device).expect("a superblock");
    let image = std::fs::File::options().write(true).open(file.path()).expect("the image opens");
    let size = numbers.bytes().max(blocks * numbers.block_size);
    image.set_len(size).expect("a sparse file takes no space");
    drop(image);
    let path = file.path();
    let path = path.to_str().expect("plain characters");
    let output = e2fs::run("resize2fs", ["-f", path, &blocks.to_string()])?;
    if !output.status.success() {
        return Ok(None);
    }
    Ok(Some(MemoryDevice::load(&file.path()).expect("the image is read")))
}
